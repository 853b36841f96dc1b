"""A branch is compared with the live memory, promoted, and rolled back."""

from __future__ import annotations

import asyncio
from pathlib import Path

from palimpsest.ops.replay.diff import DiffRequest, diff
from palimpsest.ops.replay.promotion import PromoteRequest, promote
from palimpsest.ops.replay.promotions import RollbackRequest, promotions, rollback
from tests.branches_by_hand import Lab

TEXTS = (
    "Ana likes green tea. Ana lives in Oslo now.",
    "Ana has a dog named Rex.",
    "Ana does not like coffee.",
)


def first(text: str) -> list[str]:
    return {
        TEXTS[0]: ["Ana likes tea", "Ana lives in Oslo"],
        TEXTS[1]: ["Ana has a dog named Rex", "Rex is loud"],
        TEXTS[2]: ["Ana likes coffee"],
    }.get(text, [text])


def second(text: str) -> list[str]:
    return {
        TEXTS[0]: ["Ana likes green tea", "Ana lives in Oslo"],
        TEXTS[1]: ["Ana has a dog named Rex", "Ana owns_a Rex"],
        TEXTS[2]: ["Ana does not like coffee"],
    }.get(text, [text])


async def lab(folder: Path) -> Lab:
    made = Lab(folder, first)
    await made.say(*TEXTS)
    await made.branch(second, *TEXTS)
    return made


def test_promote_and_roll_back(tmp_path: Path) -> None:
    async def trying() -> None:
        made = await lab(tmp_path)
        before = await made.facts()
        found = await diff(made.settings, DiffRequest("better"))
        print(found.totals())
        for each in found.facts():
            print(
                each.kind,
                each.keep,
                each.similarity,
                each.live and each.live.content,
                "->",
                each.branch and each.branch.content,
                each.evidence,
            )
        for s in found.scopes:
            print(s.graph, s.decisions, s.live, s.branch)
        end = await promote(made.settings, PromoteRequest("better"))
        print(end)
        await made.run()
        print(await made.facts())
        end = await promote(made.settings, PromoteRequest("better"))
        print(end)
        print(await promotions(made.settings))
        print(await made.holds())
        end = await rollback(made.settings, RollbackRequest(end.promotion_id[:8]))
        await made.run()
        print(await made.facts() == before)
        print(await promotions(made.settings))

    asyncio.run(trying())
