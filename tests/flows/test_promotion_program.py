"""The program promotes a branch while a worker takes turns in, is killed, and goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from palimpsest.ops.operations.lifecycle.pipeline import Status
from palimpsest.ops.replay.branches import read_branch
from palimpsest.ops.requests import SqlRequest
from palimpsest.ops.service.queries import queries
from tests.branches_by_hand import Lab
from tests.flows.program import Program, until
from tests.traffic import Traffic

SCOPES = ("ana", 'eve\'s "own"')
OLD = [f"turn number {number} of old" for number in range(4)]


def first(text: str) -> list[str]:
    number = text.split()[2]
    return [f"Thing {number} is old news", f"Place {number} was quiet then"]


def second(text: str) -> list[str]:
    number = text.split()[2]
    return [f"Thing {number} is very old news", f"Somebody {number} came along"]


async def prepared(lab: Lab) -> None:
    for scope in SCOPES:
        lab.publish(lab.settings, enumerate(OLD, 1), scope)
    await lab.run()
    # The branch has the turns of all scopes.
    await lab.branch(second, *OLD, scope=SCOPES[0])
    for scope in SCOPES[1:]:
        await lab.branch(second, *OLD, scope=scope)


def rows(lab: Lab, query: str) -> list[dict[str, Any]]:
    """Of the worker while one runs, which `Lab.rows` leaves no place for."""

    async def asking() -> list[dict[str, Any]]:
        async with queries(lab.settings) as asked:
            found: list[dict[str, Any]] = (await asked.table(SqlRequest(query))).to_pylist()
        return found

    return asyncio.run(asking())


def drawn(lab: Lab) -> dict[str, list[str]]:
    """Facts of the old turns by scope."""
    found: dict[str, list[str]] = {}
    for row in rows(
        lab,
        "SELECT scope, content FROM memories WHERE source_type = 'extraction'"
        " AND content SIMILAR TO '(Thing|Place|Somebody) .*' ORDER BY ALL",
    ):
        found.setdefault(row["scope"], []).append(row["content"])
    return found


def is_settled(lab: Lab) -> bool:
    async def asking() -> Any:
        async with queries(lab.settings) as asked:
            return await asked.answer(Status())

    status = asyncio.run(asking())
    return all(stage["lag"] == 0 for stage in status["stages"]) and status["balance"]["holds"]


def killed_promotion(program: Program, lab: Lab) -> None:
    """A promotion that is killed as soon as it has begun."""
    process = program.start("replay", "promote", "better", "--no-catch-up", "--allow-loss")

    def has_begun() -> bool:
        return read_branch(lab.settings, "better").promotion != ""

    until(lambda: has_begun() or process.poll() is not None)
    process.kill()
    process.wait()


@pytest.mark.soak
def test_promoted_and_rolled_back_while_turns_come_in(tmp_path: Path) -> None:
    program = Program(tmp_path, PALIMPSEST_EMBEDDING__DIMENSIONS="256")
    lab = Lab(program.data, first)
    asyncio.run(prepared(lab))
    before = drawn(lab)
    differs(program, tmp_path)
    with program.worker():
        with Traffic(lab.settings, SCOPES, "turn number old", most=25) as traffic:
            until(lambda: traffic.published >= 10)
            killed_promotion(program, lab)
            end = program.json("replay", "promote", "better", "--no-catch-up", "--allow-loss")
            until(lambda: traffic.published >= 20)
        assert end["complete"]
        assert {scope["status"] for scope in end["scopes"]} == {"applied"}
        until(lambda: is_settled(lab))
        expected = sorted(fact for text in OLD for fact in second(text))
        assert drawn(lab) == dict.fromkeys(sorted(SCOPES), expected)
        [row] = rows(lab, "SELECT count(*) AS n FROM turns")
        assert row["n"] == traffic.published + len(OLD) * len(SCOPES)
        assert traffic.answered >= 5
        listed = program.ok("replay", "promotions")
        assert end["promotion_id"][:8] in listed
        assert f"{len(OLD) * len(SCOPES)}" in listed
        back = program.json("replay", "rollback", end["promotion_id"][:8], "--reason", "worse")
        assert {scope["status"] for scope in back["scopes"]} == {"rolled-back"}
        assert drawn(lab) == before
        [row] = rows(lab, "SELECT count(*) AS n FROM turns")
        assert row["n"] == traffic.published + len(OLD) * len(SCOPES)


def differs(program: Program, folder: Path) -> None:
    """What the program tells of the differences, as a table and as text."""
    shown = program.ok("replay", "diff", "better", "--out", str(folder / "out"))
    assert "Thing 3 is old news" in shown
    facts = pq.read_table(folder / "out" / "facts.parquet").to_pylist()
    assert {row["kind"] for row in facts} == {"changed", "gained", "lost"}
    assert len(facts) == 3 * len(OLD) * len(SCOPES)
    shown = program.ok(
        "replay",
        "promote",
        "better",
        "--no-catch-up",
        "--allow-loss",
        "--dry-run",
        "--scope",
        SCOPES[-1],
    )
    assert "4 gain, 4 replace, 4 lose" in shown
