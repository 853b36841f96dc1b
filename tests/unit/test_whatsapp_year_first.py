"""Chats of WhatsApp whose dates begin with a year of two digits, as in Basque and Nepali."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.test_untimed_edits import Imports
from tests.unit.test_whatsapp_notations import chat


def lines(*dates: str, name: str = "Ana") -> list[str]:
    return [f"{date} 10:0{n % 10} - {name}: That is number {n}" for n, date in enumerate(dates)]


@pytest.mark.parametrize(
    ("dates", "expected"),
    [
        # A day of 30 is no year yet, one of 2 was before WhatsApp.
        (["24/11/17", "24/11/30"], ["2024-11-17", "2024-11-30"]),
        (["24/11/17", "24/12/2"], ["2024-11-17", "2024-12-02"]),
        # In any other order time runs back, or the chat is many times as long.
        (["24/11/17", "24/12/10"], ["2024-11-17", "2024-12-10"]),
        (["24/11/17", "24/11/18", "24/11/19"], ["2024-11-17", "2024-11-18", "2024-11-19"]),
        (["24-11-17", "24-11-18", "24-11-19"], ["2024-11-17", "2024-11-18", "2024-11-19"]),
        # The day is first, as it changes, or as nothing tells otherwise.
        (["24/11/17", "25/11/17"], ["2017-11-24", "2017-11-25"]),
        (["24/11/17", "26/11/17", "10/12/17"], ["2017-11-24", "2017-11-26", "2017-12-10"]),
        (["24/11/17", "24/11/17"], ["2017-11-24", "2017-11-24"]),
        (["24/11/17", "24/11/18"], ["2017-11-24", "2018-11-24"]),
        (["11/9/24", "11/10/24", "11/11/24"], ["2024-11-09", "2024-11-10", "2024-11-11"]),
        (["24/11/17", "31/12/17"], ["2017-11-24", "2017-12-31"]),
    ],
)
def test_the_whole_chat_tells_whether_the_year_is_first(
    tmp_path: Path, dates: list[str], expected: list[str]
) -> None:
    turns, told = chat(tmp_path, *lines(*dates))
    assert [each["at"][:10] for each in turns] == expected
    assert "BAD" not in told


FEW, MORE = lines("24/11/17", "24/11/18"), ["24/11/17", "24/11/18", "24/11/19", "24/12/1"]


@pytest.mark.parametrize("name", ["Ana", "Ana Lopes"])
def test_what_was_read_otherwise_before_is_recognised(tmp_path: Path, name: str) -> None:
    import_ = Imports(tmp_path / "WhatsApp Chat with Ben.txt")
    assert import_("\n".join(FEW)) == ["new", "new"]
    before = [json.loads(each.value or b"")["body"] for each in import_.found]
    more = "\n".join(lines(*MORE, name=name))
    # Their dates are corrected, once; ids, speakers and sessions stay.
    assert import_(more) == ["revised", "revised", "new", "new"]
    found = [json.loads(each.value or b"") for each in import_.found]
    assert [each["occurred_at"][:10] for each in found[:2]] == ["2024-11-17", "2024-11-18"]
    for field in ("turn_id", "speaker", "session_id"):
        assert [each["body"][field] for each in found[:2]] == [each[field] for each in before]
    assert import_(more) == ["known"] * 4
    # A part of it tells nothing, and reverts nothing.
    assert import_("\n".join(FEW)) == ["known"] * 2
    assert import_("\n".join(lines("24/11/17", name=name))) == ["known"]


def test_a_part_of_what_was_imported_whole_is_known(tmp_path: Path) -> None:
    import_ = Imports(tmp_path / "WhatsApp Chat with Ben.txt")
    whole = "\n".join(lines(*MORE))
    assert import_(whole) == ["new"] * 4
    assert import_("\n".join(FEW)) == ["known"] * 2
    assert import_("\n".join(FEW), date_order="dmy") == ["revised"] * 2
    assert import_(whole) == ["revised"] * 2 + ["known"] * 2


def test_an_edit_is_recognised_under_another_reading(tmp_path: Path) -> None:
    import_ = Imports(tmp_path / "WhatsApp Chat with Ben.txt")
    import_("\n".join(FEW))
    edited = lines(*MORE)
    edited[0] = "24/11/17 10:00 - Ana: Another text <This message was edited>"
    assert import_("\n".join(edited)) == ["revised", "revised", "new", "new"]
    assert import_("\n".join(edited)) == ["known"] * 4


def test_the_same_words_on_both_days_are_two_messages(tmp_path: Path) -> None:
    import_ = Imports(tmp_path / "WhatsApp Chat with Ben.txt")
    later = ["17/11/24 10:00 - Ana: ok", "18/11/24 10:00 - Ana: ok"]
    assert import_("\n".join(later), date_order="dmy") == ["new", "new"]
    both = ["24/11/17 10:00 - Ana: ok", *later]
    assert import_("\n".join(both), date_order="dmy") == ["new", "known", "known"]
