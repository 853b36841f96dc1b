"""What a comparison found, as lines and page by page."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.replay import jobs
from palimpsest.ops.replay.diff import compared, write_lines
from palimpsest.ops.replay.requests import Diff
from palimpsest.ops.settings.sections import Settings
from tests.branches_by_hand import Lab
from tests.flows.http_fresh import COMPARED, keep_comparison

pytestmark = pytest.mark.usefixtures("sql_in_this_process")


async def test_the_lines_tell_what_the_whole_tells(tmp_path: Path) -> None:
    lab = Lab(tmp_path, lambda text: [text])
    await lab.say("Ana likes tea", "Ana likes figs", "Ana 住在 Oslo")
    await lab.branch(lambda text: [text.replace("figs", "dates")], *TOLD)
    whole: Any = await compared(lab.settings, Diff("better"))
    out = tmp_path / "differences.jsonl"
    summary = await write_lines(lab.settings, Diff("better"), out)
    lines: list[dict[str, Any]] = [*map(json.loads, out.read_text().splitlines())]
    assert summary == {
        **{name: whole[name] for name in ("branch", "totals", "spent")},
        **{"scopes": 1, "lines": len(lines)},
    }
    [scope] = whole["scopes"]
    told = [line | {"what": None} for line in lines]
    as_whole = json.loads(json.dumps(scope, default=str))
    named = {"what": None, "scope": "ana"}
    assert told[0] == named | {name: as_whole[name] for name in ("counts", "spent")}
    for what, name in (("fact", "facts"), ("decision", "decisions")):
        found = [line | {"what": None} for line in lines if line["what"] == what]
        assert found == [named | each for each in as_whole[name]]
    graph = [line for line in lines if line["what"] in ("entity", "relation")]
    assert graph == as_whole["graph"]
    assert {"scope", "fact", "entity", "relation"} <= {line["what"] for line in lines}
    with pytest.raises(NotFoundError):
        await write_lines(lab.settings, Diff("better", ("nobody",)), tmp_path / "other")
    assert not [name for name in os.listdir(tmp_path) if "other" in name]


TOLD = ("Ana likes tea", "Ana likes figs", "Ana 住在 Oslo")


def pages(settings: Settings, limit: int) -> list[list[Any]]:
    found, cursor = [], 0
    while True:
        page: Any = jobs.differences(settings, COMPARED, cursor, limit)
        found.append(page["differences"])
        if page["next_cursor"] is None:
            return found
        cursor = page["next_cursor"]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 1000])
def test_pages_have_every_line_once(tmp_path: Path, limit: int) -> None:
    settings = Settings(data_dir=tmp_path)
    keep_comparison(tmp_path)
    lines = [{"what": "fact", "content": f"東京 {number}\u2028x"} for number in range(7)]
    file = tmp_path / "replays" / COMPARED / "differences.jsonl"
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    found = pages(settings, limit)
    assert [line for page in found for line in page] == lines
    assert max(map(len, found)) <= limit


def test_a_page_is_bounded_in_bytes_and_begins_where_one_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(data_dir=tmp_path)
    keep_comparison(tmp_path)
    file = tmp_path / "replays" / COMPARED / "differences.jsonl"
    file.write_text("".join(json.dumps({"text": "x" * 100}) + "\n" for _ in range(50)))
    monkeypatch.setattr(jobs, "PAGE_BYTES", 1_000)
    assert {len(page) for page in pages(settings, 1000)} <= {9, 10, 5}
    for cursor in (3, file.stat().st_size + 1, 1 << 40):
        with pytest.raises(RequestError, match="no page ended there"):
            jobs.differences(settings, COMPARED, cursor, 10)
    page = jobs.differences(settings, COMPARED, file.stat().st_size, 10)
    assert page == {"differences": [], "next_cursor": None}
    file.unlink()
    with pytest.raises(NotFoundError, match="removed"):
        jobs.differences(settings, COMPARED, 0, 10)
