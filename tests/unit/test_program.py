"""The program with one command, as a process prepares it: the same as in the whole program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from typer.main import get_command

from palimpsest.ops.cli.main import HAND_WRITTEN, SUBJECTS, _end, asked, whole
from palimpsest.ops.surfaces.catalogue import OPERATIONS

COMMANDS = {kind.surface.command: kind for kind in OPERATIONS.values() if kind.surface.command}


def commands_of(words: Sequence[str]) -> list[list[str]]:
    """The commands of the program for these words, each as its words."""

    def found(group: Any, before: list[str]) -> list[list[str]]:
        return [
            path
            for name, each in getattr(group, "commands", {}).items()
            for path in (found(each, [*before, name]) or [[*before, name]])
        ]

    return found(get_command(asked([*words])), [])


@pytest.mark.parametrize("name", COMMANDS)
def test_an_operation_is_the_only_command(name: str) -> None:
    assert commands_of([*name.split(), "--json"]) == [name.split()]


@pytest.mark.parametrize("name", [name for names in HAND_WRITTEN.values() for name in names])
def test_a_command_that_is_no_operation_is_the_only_one(name: str) -> None:
    assert commands_of([name, "--json"]) == [[name]]


def test_operations_are_looked_for_where_they_are() -> None:
    """One that is not in the module of its subject would not be found."""
    for module, names in SUBJECTS.items():
        place = f"palimpsest.ops.operations.{module}"
        assert {name for name, kind in COMMANDS.items() if kind.__module__ == place} == {*names}


def test_all_commands_are_there_where_none_is_named() -> None:
    assert commands_of(["--version"]) == []
    for words in ([], ["--help"], ["nonsense"], ["documents"], ["documents", "add"]):
        assert asked(words) is whole()


@pytest.mark.parametrize("text", ["-5 degrees", "- buy milk", "-x"])
def test_a_text_that_begins_with_a_dash_is_told_how(text: str) -> None:
    program = get_command(asked(["remember"]))
    with pytest.raises(Exception, match=r"No such option: .*; put -- before a text that begins"):
        program.main(["remember", text], standalone_mode=False)
    with pytest.raises(Exception, match=r"^No such option: --tagz") as told:
        program.main(["remember", "x", "--tagz", "y"], standalone_mode=False)
    assert "put --" not in str(told.value)


def test_a_wrong_choice_is_told_without_the_words_of_a_library() -> None:
    with pytest.raises(Exception, match="'all' is not one of") as raised:
        get_command(asked(["set-privacy"])).main(["set-privacy", "all"], standalone_mode=False)
    assert "Value error" not in raised.value.format_message()  # type: ignore[attr-defined]


def test_a_closed_output_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    monkeypatch.setattr("sys.stdout", None)  # as after `>&-`
    _end([3])
    assert ended == [3]
