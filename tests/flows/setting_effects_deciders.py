"""What the settings of further deciders, and of what scopes earn, change."""

from __future__ import annotations

import json

from palimpsest.ops.maintenance.shadow_deciding import Earning
from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.pipeline import FlagsRow, OutcomeRow, PendingProposalRow
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.logs.embedded import EmbeddedLog
from tests.messages import BEGIN
from tests.setting_lab import Case, Lab

ON = ("pipeline.earn_update_delete=true", "pipeline.earn_proposals=4")
DECIDER = ("pipeline.shadow_deciders=openai/scripted@{server}/v1",)


async def proposed(lab: Lab) -> object:
    """Who proposed something about a change of mind, and whether it could be used."""
    lab.server._latency_s = 0.3
    said = "I drink coffee every morning.", "I don't drink coffee every morning anymore."
    async with lab.ran(*said, scripted=False) as seen:
        query = (
            "SELECT DISTINCT decider || ' ' || coalesce(action, 'nothing') FROM shadow_proposals"
        )
        found = seen.column(query)
    return sorted(row.replace(lab.server.url, "there") for row in found)


def judged(number: int, agreed: bool) -> list[Row]:
    """A held-back change that a person applied or dismissed."""
    item_id = f"item-{number}"
    held = PendingProposalRow(
        item_id=item_id,
        scope="ana",
        action="UPDATE",
        target_id="m",
        target_version=1,
        reason="so",
        turn_memory_id="t",
        content="c",
        type="fact",
        confidence=0.9,
        importance=None,
        temporal_kind="persistent",
        valid_until=None,
        categories=(),
        model="rules-1",
        occurred_at=BEGIN,
        recorded_at=BEGIN,
    )
    outcome = OutcomeRow(
        item_kind="fact",
        item_id=item_id,
        scope="ana",
        event="modified" if agreed else "skipped",
        memory_id="m",
        reason="so" if agreed else "dismissed",
        recorded_at=BEGIN,
    )
    return [held, outcome]


async def changes(lab: Lab, agreed: int, dismissed: int, earned: bool) -> list[object]:
    """What the flags of the scope become, with so many proposals judged."""
    rows: list[Row] = [FlagsRow(scope="ana", earned_update_delete=earned)]
    for number in range(agreed + dismissed):
        rows += judged(number, number < agreed)
    appended: list[Outgoing] = []
    with lab.shard(*rows) as shard, EmbeddedLog(lab.folder / "l", 1, lab.clock) as log:
        known = (log, appended.extend, lab.settings, lab.clock)
        await Earning(lambda: {0: shard}, *known).once()
    return [
        json.loads(record.value or b"")["body"]["command"]["earned_update_delete"]
        for record in appended
    ]


async def earned_by_three_of_four(lab: Lab) -> object:
    return await changes(lab, 3, 1, earned=False)


async def lost_by_three_of_four(lab: Lab) -> object:
    return await changes(lab, 3, 1, earned=True)


async def earned_by_all(lab: Lab) -> object:
    return await changes(lab, 4, 0, earned=False)


CASES: dict[str, Case] = {
    "pipeline.shadow_deciders": Case(
        proposed,
        ("rules", "openai/scripted@{server}/v1"),
        (["rules UPDATE"], ["openai/scripted@there/v1 ADD"]),
    ),
    "pipeline.shadow_seconds": Case(
        proposed,
        (0.05, 30),
        (["openai/scripted@there/v1 nothing"], ["openai/scripted@there/v1 ADD"]),
        DECIDER,
    ),
    "pipeline.earn_update_delete": Case(
        earned_by_all, ("false", "true"), ([], [True]), ("pipeline.earn_proposals=4",)
    ),
    "pipeline.earn_proposals": Case(earned_by_all, (4, 5), ([True], []), ON[:1]),
    "pipeline.earn_agreement": Case(earned_by_three_of_four, (0.7, 0.8), ([True], []), ON),
    "pipeline.earn_margin": Case(lost_by_three_of_four, (0.1, 0.2), ([False], []), ON),
}
