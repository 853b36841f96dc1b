"""An edit of which an export does not tell the time: the newer text is current, an older export
changes nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.ingest.recognising import recognised
from palimpsest.ops.ingest.records import Published, Standing, not_erased
from palimpsest.schemas.erasure.quotations import mark_of
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.streams.logs.base import Outgoing
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.unit.test_edited_exports import chatgpt, messages, slack
from tests.unit.test_ingest_formats import read, using

GRAZ, LINZ, ROME = "I live in Graz.", "I live in Linz.", "I live in Rome."


class Imports:
    """Imports of a chat, each a day after the one before."""

    def __init__(self, path: Path, pipeline: Pipeline | None = None) -> None:
        self.path, self.pipeline, self.published = path, pipeline, Published(None)
        self.now = datetime(2026, 11, 1, tzinfo=UTC)
        self.found: list[Outgoing] = []

    def __call__(self, text: str, **chosen: Any) -> list[Standing]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(text)
        self.now += timedelta(days=1)
        items = read(self.path, using(**chosen))[1]
        records = [item for item in items if isinstance(item, Outgoing)]
        self.found = list(recognised(records, self.published, self.now, lambda _: None))
        told = [self.published.standing(each) for each in self.found]
        if self.pipeline is not None:
            self.pipeline.log.append(not_erased(self.found, told))
            self.pipeline.run()
        return told


def chat(*said: str) -> str:
    """Lines of a chat: `10:00 Ana: text`, with a + at the end if it is marked as edited."""
    lines = [f"05/03/2024, {each[:5]} - {each[6:]}" for each in said]
    return "".join(each.replace("+", " <This message was edited>") + "\n" for each in lines)


TEA = "10:01 Ana: Tea?"
ONE, TWO, THREE = (
    chat(f"10:00 Ana: {GRAZ}", TEA),
    chat(f"10:00 Ana: {LINZ}+", TEA, "10:02 Ben: Yes"),
    chat(f"10:00 Ana: {ROME}+", TEA),
)
KNOWN = ["known", "known", "known"]


def test_an_edit_in_whatsapp_is_a_revision(tmp_path: Path) -> None:
    import_ = Imports(tmp_path / "WhatsApp Chat with Ana.txt")
    assert import_(ONE) == ["new", "new"]
    assert import_(TWO) == ["revised", "known", "new"]
    assert import_(TWO) == KNOWN
    assert import_(ONE) == KNOWN[:2]
    assert import_(THREE) == ["revised", "known"]
    for each in (ONE, TWO, THREE):
        assert set(import_(each)) == {"known"}


def test_an_older_export_of_whatsapp_changes_nothing(tmp_path: Path) -> None:
    import_ = Imports(tmp_path / "WhatsApp Chat with Ana.txt")
    assert import_(TWO) == ["new", "new", "new"]
    assert import_(ONE) == KNOWN[:2]
    assert import_(TWO) == KNOWN


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        # Another speaker, another minute, and a message that is still there are others.
        ([f"10:00 Ben: {GRAZ}"], [f"10:00 Ben: {GRAZ}", f"10:00 Ana: {LINZ}+"], ["known", "new"]),
        ([f"10:00 Ana: {GRAZ}"], [f"10:01 Ana: {LINZ}+"], ["new"]),
        ([f"10:00 Ana: {GRAZ}"], [f"10:00 Ana: {GRAZ}", f"10:00 Ana: {LINZ}+"], ["known", "new"]),
        ([f"10:00 Ana: {GRAZ}"], [f"10:00 Ana: {LINZ}"], ["new"]),
        # Two of one minute are edited in their order.
        (["10:00 Ana: a", "10:00 Ana: b"], ["10:00 Ana: c+", "10:00 Ana: d+"], ["revised"] * 2),
        # In another notation, and by a renamed contact.
        ([f"10:00 Ana: {GRAZ}", TEA], [f"10:00 Ana L: {LINZ}+", "10:01 Ana L: Tea?"],
         ["revised", "known"]),
    ],
)  # fmt: skip
def test_which_message_was_edited(
    tmp_path: Path, before: list[str], after: list[str], expected: list[str]
) -> None:
    import_ = Imports(tmp_path / "WhatsApp Chat with Ana.txt")
    import_(chat(*before))
    assert import_(chat(*after)) == expected
    assert set(import_(chat(*after))) == {"known"}


@pytest.mark.parametrize("export", [chatgpt, messages])
def test_an_edit_under_an_id_without_a_time(tmp_path: Path, export: object) -> None:
    name, _ = export("", None)  # type: ignore[operator]
    import_ = Imports(tmp_path / name)
    expected = [(GRAZ, "new"), (GRAZ, "known"), (LINZ, "revised"), (GRAZ, "known"),
                (LINZ, "known"), (ROME, "revised"), (LINZ, "known")]  # fmt: skip
    for text, standing in expected:
        assert import_(json.dumps(export(text, None)[1])) == [standing]  # type: ignore[operator]
    # A name that is told later is no edit.
    assert import_(json.dumps(export(ROME, None)[1]), me="Ana") == ["known"]  # type: ignore[operator]


@pytest.mark.parametrize("export", [slack, chatgpt, messages])
def test_an_edit_is_told_later_than_one_that_was_noticed(tmp_path: Path, export: Any) -> None:
    """Exports are imported long after they were made: the edits that they tell are older than the
    import that noticed a change, as of a mentioned person's name, and newer than that change."""
    first, second = 1772445600.0, 1772449200.0
    name, _ = export("", None)
    import_ = Imports(tmp_path / name)
    expected = [(GRAZ, None, "new"), (LINZ, None, "revised"), (ROME, second, "revised"),
                (ROME, second, "known"), (LINZ, None, "known"), (GRAZ, None, "known"),
                # What was edited before is no newer, nor is what no edit is told of.
                ("I live in Bonn.", first, "known"), ("I live in Wien.", None, "known"),
                ("I live in Kiel.", second + 60, "revised"), (ROME, second, "known")]  # fmt: skip
    for text, edited, standing in expected:
        content = json.dumps(export(text, edited)[1])
        assert import_(content) == [standing], text


def test_what_was_erased_is_not_returned_by_its_edit(tmp_path: Path) -> None:
    import_ = Imports(tmp_path / "WhatsApp Chat with Ana.txt")
    import_(ONE)
    raw = json.loads(import_.found[0].value or b"")
    mark = mark_of(turn_memory_id(raw["scope"], raw["body"]["turn_id"]))
    kept = {name: raw["body"][name] for name in ("turn_id", "session_id")}
    left = raw | {"body": {**kept, "content": mark, "speaker": "", "role": "user"}}
    value = json.dumps(left).encode()
    import_.published = Published(None)
    record = import_.found[0]
    erased = Outgoing(record.topic, record.scope, record.key, value, record.headers)
    assert import_.published.standing(erased) == "new"
    assert import_(TWO) == ["erased", "new", "new"]


def test_the_newer_text_is_current_and_the_earlier_in_the_history(tmp_path: Path) -> None:
    with Pipeline(tmp_path / "p", pipeline_settings(FULL)) as pipeline:
        import_ = Imports(tmp_path / "WhatsApp Chat with Ana.txt", pipeline)
        for text, facts in ((ONE, ["Ana lives in Graz."]), (TWO, ["Ana lives in Linz."])):
            import_(text)
            rows = "SELECT content FROM memory_rows WHERE NOT is_deleted AND type"
            assert pipeline.values(f"{rows} <> 'episodic'") == facts
        assert pipeline.values(f"{rows} = 'episodic' AND who = 'Ana' ORDER BY 1") == [LINZ, "Tea?"]
        import_(ONE)
        assert pipeline.values(f"{rows} = 'episodic' AND who = 'Ana' ORDER BY 1") == [LINZ, "Tea?"]
        assert pipeline.dead_letters() == []
        assert pipeline.balance().holds
