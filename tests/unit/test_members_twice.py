"""An object of JSON that has a member twice is refused by its name in every format: whichever is
taken, the other is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palimpsest.ops.ingest.parsers.base import Bad, Note, Unreadable
from palimpsest.streams.logs.base import Outgoing
from tests.unit.test_ingest_formats import read, using

ONE = '{"type": "message", "user": "U1", "text": "one", "ts": "1772442000.1"}'
TWICE = ONE.replace('"text"', '"text": "first", "text"')
NODE = '{"id": "m1", "parent": null, "message": {"author": {"role": "user"}, "content": %s}}'
CHATGPT = '[{"id": "c1", "current_node": "m1", "mapping": {"m1": %s}}]'
PARTS = '{"content_type": "text", "parts": ["a"], "parts": ["b"]}'
LOCOMO = '{"session_1": [], "session_1_date_time": "", "session_1": []}'


def slack(folder: Path, users: str, channels: str, *days: str) -> Path:
    (folder / "general").mkdir(parents=True)
    (folder / "users.json").write_text(users)
    (folder / "channels.json").write_text(channels)
    for number, day in enumerate(days, 2):
        (folder / "general" / f"2026-03-0{number}.json").write_text(day)
    return folder


def test_a_day_of_slack_is_refused_and_the_others_are_read(tmp_path: Path) -> None:
    other = ONE.replace("1772442000", "1772528400")
    items = read(slack(tmp_path / "x", "[]", "[]", f"[{TWICE}]", f"[{other}]"), using())[1]
    [bad] = [each for each in items if isinstance(each, Bad)]
    assert bad.place.endswith("general/2026-03-02.json")
    assert bad.reason == "an object has the member text twice; keep one of them"
    assert sum(isinstance(each, Outgoing) for each in items) == 1


def test_a_single_day_of_slack_is_refused_by_the_name_of_the_member(tmp_path: Path) -> None:
    path = tmp_path / "2026-03-02.json"
    path.write_text(f"[{TWICE}]")
    [bad] = [each for each in read(path, using())[1] if isinstance(each, Bad)]
    assert "the member text twice" in bad.reason


@pytest.mark.parametrize("broken", ['[{"id": "U1", "id": "U2"}]', "[{", "{}"])
def test_lists_of_slack_that_cannot_be_read_are_named(tmp_path: Path, broken: str) -> None:
    items = read(slack(tmp_path / "x", broken, broken, f"[{ONE}]"), using())[1]
    notes = [each.text for each in items if isinstance(each, Note)]
    assert [each.partition(" cannot be read: ")[0] for each in notes] == [
        "users.json",
        "a list of channels",
    ]
    assert ("the member id twice" in notes[0]) == ("U2" in broken)
    [turn] = [json.loads(e.value or b"")["body"] for e in items if isinstance(e, Outgoing)]
    assert (turn["content"], turn["speaker"]) == ("one", "U1")


@pytest.mark.parametrize(
    ("text", "member"),
    [
        (CHATGPT % (NODE % PARTS), "parts"),
        ((CHATGPT % (NODE % "{}")).replace('{"m1":', '{"m1": {}, "m1":'), "m1"),
        ((CHATGPT % (NODE % "{}")).replace('"id": "c1"', '"id": "c1", "id": "c2"'), "id"),
    ],
)
def test_an_export_of_chatgpt_is_refused(tmp_path: Path, text: str, member: str) -> None:
    (tmp_path / "conversations.json").write_text(text)
    with pytest.raises(Unreadable, match=f"the member {member} twice"):
        read(tmp_path / "conversations.json", using())


def test_a_conversation_of_locomo_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(LOCOMO)
    [bad] = read(tmp_path / "1.json", using())[1]
    assert isinstance(bad, Bad)
    assert "the member session_1 twice" in bad.reason
