"""The demo, with the models that come with the program, as its user sees it."""

from __future__ import annotations

import json
import resource
from datetime import timedelta
from pathlib import Path

import pytest

from palimpsest.ops.demo.show import QUESTIONS, conversation
from palimpsest.ops.settings.sources import load_settings
from palimpsest.schemas.codec import decode
from palimpsest.schemas.topics import CONVERSATION_TURNS
from tests.flows.program import Program


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Its processes are this one's own, so that their processor time is known."""
    folder = tmp_path_factory.mktemp("demo")
    return Program(folder, afresh=True, PALIMPSEST_EMBEDDING__PROVIDER="local")


def seconds_of_processes() -> float:
    """Processor time of the processes that have ended; of more time a busy machine takes a part."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_the_conversation_is_worth_showing() -> None:
    records = conversation(load_settings(environment={}).settings)
    turns = [decode(record.value, CONVERSATION_TURNS, None) for record in records]
    assert len(turns) >= 60
    assert len({turn.body.speaker for turn in turns}) == 2  # type: ignore[attr-defined]
    sessions: dict[str, list[object]] = {}
    for turn in turns:
        sessions.setdefault(turn.body.session_id, []).append(turn.occurred_at)  # type: ignore[attr-defined]
    first, second = sessions.values()
    assert second[0] - first[-1] > timedelta(days=14)  # type: ignore[operator]
    assert [*first, *second] == sorted([*first, *second])  # type: ignore[type-var]


def test_the_demo_shows_what_it_promises(program: Program) -> None:
    before = seconds_of_processes()
    shown = program.ok("demo")
    assert 0 < seconds_of_processes() - before < 60
    for question in QUESTIONS:
        assert question in shown
    for words in (
        "known before: Maya drinks coffee every morning.",  # a preference that changed
        "known before: Tom's sister Ines is getting married on 2026-06-13.",  # a correction
        "(no longer: Tom's sister Ines is getting married on 2026-06-13;",  # of the older turn
        "known already",  # a duplicate
        "71 accepted = 71 stored",
        "Try next",
    ):
        assert words in shown
    assert (program.folder / "palimpsest-demo").is_dir()


def test_the_demo_can_be_repeated_and_looked_into(program: Program) -> None:
    again = program.json("demo")
    assert again["balance"]["holds"] is True
    assert again["balance"]["turns"]["accepted"] == again["turns"]
    assert [len(recall["results"]) for recall in again["recalls"]] == [3, 3, 3]
    assert "walnuts" in json.dumps(again["recalls"][2]["results"])
    status = program.json("status", "--data-dir", str(Path("palimpsest-demo")))
    assert all(stage["lag"] == 0 for stage in status["stages"])
