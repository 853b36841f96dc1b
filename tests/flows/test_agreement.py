"""Deciders compared: with each other, with what people do, and what a scope earns by it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from palimpsest.ops.cli.main import whole
from palimpsest.ops.maintenance.embedded import Application, application
from palimpsest.ops.maintenance.shadow_deciding import Earning, Judged, change_of
from palimpsest.ops.operations.scopes import Flags
from palimpsest.ops.replay.operations import Agreement
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.worker.local import sources_of
from palimpsest.schemas.commands import (
    ApplyProposalsCommand,
    Command,
    ConfirmCommand,
    DismissProposalsCommand,
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
    RecoverCommand,
    SetFlagsCommand,
)
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.topics import MEMORY_COMMANDS
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.runtime.output import outgoing
from palimpsest.streams.settings import PipelineSettings
from tests.flows.test_shadow_deciders import of, rows, say, settings_of
from tests.harness import Clock
from tests.messages import HUMAN, commanded
from tests.servers import ScriptedProvider

EARN = ("pipeline.earn_update_delete=true", "pipeline.earn_proposals=2")
SYSTEM = Actor(id="earning", type="system")


class Scene:
    """What people do in a scope, one thing after another."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = Clock()
        self.said = 0

    async def goes_on(self, *given: Command | str, actor: Actor = HUMAN) -> None:
        """Turns and commands, which come together a minute after what was before."""
        self.clock.advance(minutes=1)
        async with application(self.settings, clock=self.clock) as app:
            for each in given:
                self.said += 1
                if isinstance(each, str):
                    say(app, each, first=self.said)
                else:
                    message = commanded(each, self.said, actor=actor)
                    app.log.append([outgoing(MEMORY_COMMANDS, message)])
            await app.run(until_drained=True)

    async def found(self, query: str) -> list[dict[str, Any]]:
        async with application(self.settings, clock=self.clock) as app:
            return rows(app, query)

    async def held(self) -> list[str]:
        found = await self.found(
            "SELECT h.item_id FROM held_proposals h JOIN outcomes o USING (item_id)"
            " WHERE o.event = 'blocked' ORDER BY h.recorded_at, h.item_id"
        )
        return [row["item_id"] for row in found]

    async def verdicts(self) -> list[tuple[str, str, bool]]:
        found = await self.found(
            "SELECT action, verdict, is_right FROM main.decision_verdicts ORDER BY judged_at"
        )
        return [(row["action"], row["verdict"], row["is_right"]) for row in found]

    async def earned(self) -> bool | None:
        found = await self.found("SELECT earned_update_delete AS e FROM scope_flags")
        return found[0]["e"] if found else None

    async def changed_their_mind(self, *things: str) -> None:
        await self.goes_on(
            *(f"I drink {thing} every morning." for thing in things),
            *(f"I don't drink {thing} every morning anymore." for thing in things),
        )


async def agreement(app: Application, scope: str | None = None) -> dict[str, dict[str, Any]]:
    answer = await DirectQueries(sources_of(app)).answer(Agreement(scope))
    assert isinstance(answer, dict)
    listed: Any = answer["deciders"]
    return {row["decider"]: row for row in listed}


def apply(*ids: str) -> ApplyProposalsCommand:
    return ApplyProposalsCommand(item_ids=ids, reason="so it is")


def dismiss(*ids: str) -> DismissProposalsCommand:
    return DismissProposalsCommand(item_ids=ids, reason="a joke")


async def test_deciders_are_compared_with_the_live_one_and_with_people(tmp_path: Path) -> None:
    async with ScriptedProvider() as server:
        named = f"pipeline.shadow_deciders=rules,{of(server)}"
        scene = Scene(settings_of(tmp_path, named))
        await scene.changed_their_mind("coffee", "tea")
        first, second = await scene.held()
        await scene.goes_on(apply(first), dismiss(second))
        assert sorted(await scene.verdicts()) == [
            ("UPDATE", "applied", True),
            ("UPDATE", "dismissed", False),
        ]
        async with application(scene.settings, clock=scene.clock) as app:
            found = await agreement(app)
            assert await agreement(app, "ana") == found
            assert await agreement(app, "nobody") == {}
        words = ["replay", "agreement", "--json", "--data-dir", str(tmp_path)]
        said = await asyncio.to_thread(CliRunner().invoke, whole(), words)
        assert said.exit_code == 0, said.output
        assert {row["decider"]: row for row in json.loads(said.stdout)["deciders"]} == found
        live, rules, model = found["live"], found["rules"], found[of(server)]
        assert (live["judged"], live["with_people"]) == (2, 1)
        assert (rules["judged"], rules["with_people"]) == (2, 1)
        assert rules["agrees"] == rules["same_action"] == rules["proposals"] > 2
        # It would have added both: people said so once.
        assert (model["judged"], model["with_people"]) == (2, 1)
        assert model["agrees"] == model["proposals"] - 2


async def test_what_people_do_to_a_memory_judges_what_made_it(tmp_path: Path) -> None:
    """The first thing done after a decision; what is no verdict (tags) does not count."""
    scene = Scene(settings_of(tmp_path, "pipeline.allow_update_delete=true"))
    await scene.changed_their_mind("coffee", "tea", "beer")
    memories = await scene.found(
        "SELECT memory_id, content FROM main.memories WHERE type <> 'episodic' ORDER BY created_at"
    )
    coffee, tea, beer = (row["memory_id"] for row in memories)
    tagged = MemoryPatch(memory_id=coffee, tags=("drinks",))
    corrected = MemoryPatch(memory_id=tea, content="Ana stopped drinking tea")
    await scene.goes_on(
        ModifyCommand(patches=(tagged,), reason="sorted"),
        ConfirmCommand(memory_id=coffee, reason="I know it"),
        ModifyCommand(patches=(corrected,), reason="better said"),
        ForgetCommand(memory_ids=(beer,), reason="not so"),
    )
    await scene.goes_on(RecoverCommand(memory_id=beer, reason="it was so"))
    # The first statement of each came at the same time: what came of it was changed before.
    assert sorted(await scene.verdicts()) == [
        ("UPDATE", "confirmed", True),
        ("UPDATE", "corrected", False),
        ("UPDATE", "forgotten", False),
    ]


async def test_a_scope_earns_it_and_loses_it(tmp_path: Path) -> None:
    scene = Scene(settings_of(tmp_path, *EARN, "pipeline.earn_margin=0.3"))
    await scene.changed_their_mind("coffee", "tea")
    assert await scene.earned() is None
    await scene.goes_on(apply(*await scene.held()))
    assert await scene.earned() is True
    [told] = await scene.found(
        "SELECT changed_by, actor_type, reason FROM main.memory_history WHERE event = 'flags'"
    )
    assert told["changed_by"] == "earning"
    assert told["reason"] == "people agreed with 2 of the last 2 proposals: at least 90%"
    async with application(scene.settings, clock=scene.clock) as app:
        flags: Any = await DirectQueries(sources_of(app)).answer(Flags("ana"))
    assert [row for row in flags["flags"] if row["flag"] == "allow_update_delete"] == [
        {"flag": "allow_update_delete", "value": True, "from": "what this scope has earned"}
    ]
    # It is carried out now, unasked; one correction of the last two is too many.
    await scene.changed_their_mind("beer")
    assert await scene.held() == []
    [beer] = await scene.found(
        "SELECT memory_id FROM main.memories WHERE content LIKE '%beer%' AND type <> 'episodic'"
    )
    await scene.goes_on(ForgetCommand(memory_ids=(beer["memory_id"],), reason="not so"))
    assert await scene.earned() is False
    await scene.changed_their_mind("milk")
    assert len(await scene.held()) == 1


async def test_what_a_person_set_stays_and_frozen_is_frozen(tmp_path: Path) -> None:
    scene = Scene(settings_of(tmp_path, *EARN))
    await scene.changed_their_mind("coffee", "tea")
    await scene.goes_on(SetFlagsCommand(autonomous_frozen=True), apply(*await scene.held()))
    assert await scene.earned() is None
    await scene.goes_on(SetFlagsCommand(autonomous_frozen=False, allow_update_delete=False))
    assert await scene.earned() is None
    # Also where the two meet: the person's word is looked at first.
    await scene.goes_on(SetFlagsCommand(earned_update_delete=True), actor=SYSTEM)
    assert await scene.earned() is True
    await scene.changed_their_mind("beer")
    assert len(await scene.held()) == 1
    await scene.goes_on(SetFlagsCommand(earned_update_delete=False))
    refused = await scene.found("SELECT error FROM command_results WHERE error IS NOT NULL")
    assert [row["error"].partition(":")[0] for row in refused] == ["forbidden"]
    assert await scene.earned() is True


async def test_nothing_is_earned_before_all_that_people_said_is_known(tmp_path: Path) -> None:
    """As where a store is made anew from the log, or was not worked on for days."""
    scene = Scene(settings_of(tmp_path))
    await scene.changed_their_mind("coffee", "tea", "beer")
    *right, wrong = await scene.held()
    await scene.goes_on(apply(*right))
    scene.settings = settings_of(tmp_path, *EARN)
    async with application(scene.settings, clock=scene.clock) as app:
        app.log.append([outgoing(MEMORY_COMMANDS, commanded(dismiss(wrong), 50))])
        given: list[Outgoing] = []
        earning = Earning(app.opened, app.log, given.extend, scene.settings, scene.clock)
        await earning.once()
        assert earning.busy()
        assert given == []
        scene.clock.advance(minutes=1)
        assert await app.drain()
        await earning.once()
        assert not earning.busy()
        assert given == []


async def test_switched_off_it_is_taken_back(tmp_path: Path) -> None:
    scene = Scene(settings_of(tmp_path, *EARN))
    await scene.changed_their_mind("coffee", "tea")
    await scene.goes_on(apply(*await scene.held()))
    assert await scene.earned() is True
    scene.settings = settings_of(tmp_path)
    await scene.goes_on("I like the sea.")
    assert await scene.earned() is False
    scene.settings = settings_of(tmp_path, *EARN)
    await scene.goes_on("I like the hills.")
    assert await scene.earned() is True


@given(
    st.lists(st.booleans(), max_size=60),
    st.integers(1, 12),
    st.floats(0.1, 1.0),
    st.floats(0.0, 0.5),
)
def test_one_verdict_does_not_turn_it_back(
    verdicts: list[bool], most: int, bar: float, margin: float
) -> None:
    """Between the two bars nothing changes; what was earned was deserved when it was."""
    settings = PipelineSettings(
        earn_update_delete=True, earn_proposals=most, earn_agreement=bar, earn_margin=margin
    )
    earned = False
    for number in range(1, len(verdicts) + 1):
        newest = verdicts[max(0, number - most) : number]
        judged = Judged(len(newest), sum(newest))
        share = sum(newest) / len(newest)
        if change_of(judged, earned, settings) is not None:
            if earned:
                assert share < bar - margin
            else:
                assert len(newest) == most
                assert share >= bar - 1e-6
            earned = not earned
        assert change_of(judged, earned, settings) is None
