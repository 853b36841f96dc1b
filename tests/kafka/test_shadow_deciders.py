"""Further deciders on a real broker, the workers' agreement put together, and what scopes earn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from palimpsest.ops.kafka.application import kafka_application
from palimpsest.ops.operations.operation import Read
from palimpsest.ops.operations.proposals import Proposals
from palimpsest.ops.replay.operations import Agreement
from palimpsest.ops.service.queries import queries
from palimpsest.schemas.commands import ApplyProposalsCommand, Command, DismissProposalsCommand
from palimpsest.streams.logs.base import partition_for
from tests.branches_by_hand import outgoing_turn, record
from tests.flows.program import until
from tests.flows.test_agreement import EARN
from tests.flows.test_shadow_deciders import of
from tests.messages import commanded
from tests.servers import ScriptedProvider
from tests.soak.lab import Lab, MakeLab, opened

PARTITIONS = 2
SCOPES = ("ana", "ben")
DRINKS = ("coffee", "tea")


@pytest.fixture
def lab(make_lab: MakeLab) -> Lab:
    return make_lab(PARTITIONS, overrides=("decision.decider=rules", *EARN))


def say(lab: Lab, *things: str, first: int) -> None:
    """Each scope changes its mind about things."""
    said = [f"I drink {thing} every morning." for thing in things]
    said += [f"I don't drink {thing} every morning anymore." for thing in things]
    lab.publish(
        outgoing_turn(n, text, scope) for scope in SCOPES for n, text in enumerate(said, first)
    )


def command(lab: Lab, scope: str, given: Command) -> None:
    lab.publish([record(commanded(given, 1, scope))])


def answered(lab: Lab, request: Read[Any]) -> Any:
    async def ask() -> Any:
        async with queries(lab.settings) as workers:
            return await workers.answer(request)

    return asyncio.run(ask())


def held_by_scope(lab: Lab) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = {scope: [] for scope in SCOPES}
    answer = answered(lab, Proposals())
    for row in answer["proposals"]:
        ids[row["scope"]].append(row["id"])
    return ids


def agreement(lab: Lab, scope: str | None = None) -> dict[str, dict[str, tuple[int, int]]]:
    """How often people judged what each decider would have done, and agreed, by scope."""
    answer = answered(lab, Agreement(scope))
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for row in answer["deciders"]:
        found.setdefault(row["scope"], {})[row["decider"]] = row["judged"], row["with_people"]
    return found


def processed(lab: Lab, **pipeline: object) -> None:
    """All that is in the log, by one worker that has these settings."""
    chosen = lab.settings.pipeline.model_copy(update=pipeline)
    settings = lab.settings.model_copy(update={"pipeline": chosen})

    async def run() -> None:
        async with asyncio.timeout(60), kafka_application(settings) as app:
            await app.run(until_drained=True)

    asyncio.run(run())


def stored(lab: Lab, scope: str, query: str) -> Sequence[tuple[Any, ...]]:
    """Of a store that no worker has open."""
    place = f"shards/{partition_for(scope, PARTITIONS)}/memory.duckdb"
    with opened(lab.folder / "data" / place) as store:
        return store.execute(query, {"scope": scope}).fetchall()


def earned(lab: Lab, scope: str) -> Sequence[tuple[Any, ...]]:
    return stored(lab, scope, "SELECT earned_update_delete FROM scope_flags WHERE scope = $scope")


def held(lab: Lab, scope: str) -> int:
    query = "SELECT count(*) FROM held_proposals WHERE scope = $scope"
    return int(stored(lab, scope, query)[0][0])


def shadows(lab: Lab) -> int:
    query = "SELECT count(*) FROM shadow_proposals WHERE scope = $scope"
    return sum(int(stored(lab, scope, query)[0][0]) for scope in SCOPES)


@pytest.mark.soak
async def test_deciders_are_compared_and_scopes_earn(lab: Lab) -> None:
    async with ScriptedProvider() as server:
        await asyncio.to_thread(compared_and_earned, lab, of(server))


def compared_and_earned(lab: Lab, model: str) -> None:
    lab.choose(f"pipeline.shadow_deciders=rules,{model}")
    say(lab, *DRINKS, first=0)
    for name in ("one", "two"):
        lab.start(name)
    lab.until_owned(2)
    # Each contested change of mind was shown to both.
    query = "SELECT count(*) AS n FROM shadow_proposals WHERE live_action = 'UPDATE'"
    until(lambda: lab.rows(query) == [{"n": 2 * len(SCOPES) * len(DRINKS)}])
    ids = held_by_scope(lab)
    command(lab, "ana", ApplyProposalsCommand(item_ids=tuple(ids["ana"]), reason="so it is"))
    command(lab, "ben", DismissProposalsCommand(item_ids=tuple(ids["ben"]), reason="a joke"))
    lab.until_drained()
    ana = {"live": (2, 2), "rules": (2, 2), model: (2, 0)}
    ben = {"live": (2, 0), "rules": (2, 0), model: (2, 2)}
    assert agreement(lab) == {"ana": ana, "ben": ben}
    assert agreement(lab, "ana") == {"ana": ana}
    for name in ("one", "two"):
        lab.stop(name)
    processed(lab)
    assert (earned(lab, "ana"), earned(lab, "ben")) == ([(True,)], [])
    say(lab, "beer", first=10)
    processed(lab)
    # Carried out unasked where it was earned.
    assert (held(lab, "ana"), held(lab, "ben")) == (2, 3)
    before = shadows(lab)
    # While none is set, what comes is not theirs.
    say(lab, "milk", first=20)
    processed(lab, shadow_deciders=())
    processed(lab)
    assert shadows(lab) == before
