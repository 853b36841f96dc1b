"""A promotion takes nothing that the live memory knows later, and loses nothing unasked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from palimpsest.ops.replay.promotion import promote
from palimpsest.ops.replay.requests import Promote
from palimpsest.streams.settings import DecisionSettings, PipelineSettings
from tests.branches_by_hand import Lab
from tests.flows.program import Program
from tests.flows.test_promotion import said

pytestmark = pytest.mark.usefixtures("sql_in_this_process")

FIRST, THIRD = "Ana drinks coffee every morning.", "Ana no longer drinks coffee every morning."
OTHER = "Ana really drinks coffee each morning."
HOLDS = "pipeline.allow_update_delete=false"


def updating(folder: Path, first: dict[str, list[str]]) -> Lab:
    made = Lab(folder, said(first))
    pipeline = PipelineSettings(allow_update_delete=True)
    update = {"pipeline": pipeline, "decision": DecisionSettings(decider="rules")}
    made.settings = made.settings.model_copy(update=update)
    return made


async def kept(made: Lab, *texts: str) -> list[tuple[str, str | None]]:
    """What differs and why it is kept; promoting changes none of the live facts."""
    [scope] = await made.differences()
    before = await made.facts()
    assert {*before} >= {*texts}
    for allow_loss in (False, True):
        await promote(made.settings, Promote("better", catch_up=False, allow_loss=allow_loss))
        await made.run()
        assert await made.facts() == before
    return sorted((each.kind, each.keep) for each in scope.facts)


def test_a_promotion_keeps_the_newer_facts_of_updates_that_a_branch_holds_back(
    tmp_path: Path,
) -> None:
    async def trying() -> None:
        made = updating(tmp_path, {})
        await made.say(FIRST, THIRD)
        assert [*await made.facts()] == [THIRD]
        await made.branch(said({}), FIRST, THIRD, settings=(HOLDS,))
        assert await kept(made, THIRD) == [("changed", "newer")]

    asyncio.run(trying())


def test_other_words_of_a_superseded_fact_are_not_promoted(tmp_path: Path) -> None:
    """The branch's fact has another id and other words, and the update none of its own."""

    async def trying() -> None:
        made = updating(tmp_path, {})
        await made.say(FIRST, THIRD)
        second = {FIRST: ["Ana has a cup", OTHER], THIRD: []}
        await made.branch(said(second), FIRST, THIRD, settings=(HOLDS,))
        [scope] = await made.differences()
        assert {
            each.keep for each in scope.facts if each.branch and each.branch["content"] == OTHER
        }
        await promote(made.settings, Promote("better", catch_up=False, allow_loss=True))
        await made.run()
        assert THIRD in await made.facts()
        assert OTHER not in await made.facts()

    asyncio.run(trying())


def test_what_the_branch_drew_and_held_back_is_not_lost(tmp_path: Path) -> None:
    """The live memory has a fact of a turn of its own, the branch an update that waits."""

    async def trying() -> None:
        made = updating(tmp_path, {FIRST: ["Ana likes mornings"]})
        await made.say(FIRST, THIRD)
        assert [*await made.facts()] == ["Ana likes mornings", THIRD]
        second = {FIRST: ["Ana likes mornings", FIRST]}
        await made.branch(said(second), FIRST, THIRD, settings=(HOLDS,))
        lost = [e for s in await made.differences() for e in s.facts if e.kind == "lost"]
        assert [(each.live["content"], each.keep) for each in lost if each.live] == [
            (THIRD, "held-back")
        ]

    asyncio.run(trying())


@pytest.mark.soak
def test_what_a_promotion_would_lose_is_shown_and_needs_a_flag(tmp_path: Path) -> None:
    async def prepared() -> None:
        made = Lab(tmp_path / "palimpsest-data", said({FIRST: ["Ana has a cup", "Ana is here"]}))
        await made.say(FIRST)
        await made.branch(said({FIRST: ["Ana has a cup"]}), FIRST)

    asyncio.run(prepared())
    program = Program(tmp_path)
    promoting = ("replay", "promote", "better", "--no-catch-up")
    told = program.run(*promoting, "--wait", "0")
    assert told.returncode == 1
    assert "Ana is here" in told.stdout
    assert "--allow-loss" in told.stdout
    assert program.json(*promoting, "--dry-run")["scopes"][0]["losses"] == ["Ana is here"]
    program.ok("run", "--once")
    assert "Ana is here" in program.ok("list")
    program.ok(*promoting, "--allow-loss", "--wait", "0")
    program.ok("run", "--once")
    assert "Ana is here" not in [row["content"] for row in program.json("list")["memories"]]
