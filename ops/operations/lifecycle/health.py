"""How healthy the memory is, and the repair of what is not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from palimpsest.ops.errors import NotFoundError
from palimpsest.ops.operations import shared
from palimpsest.ops.operations.operation import OPERATING, Answer, Doc, Json, Read

if TYPE_CHECKING:
    from palimpsest.ops.health.checkup import Checkup
    from palimpsest.ops.reading.sources import Sources

Status = Literal["healthy", "degraded", "unhealthy"]


class DomainHealth(Answer):
    """The health of one domain: a score from 0 to 1 with its weight in the composite score, its
    reason and counts, the score of each partition, and the command that mends it, null where
    nothing is to be mended. `trend` has the score of each of the last 14 days that was recorded, of
    the worst partition."""

    score: float
    weight: float
    status: Status
    reason: str
    recommendation: str | None
    counts: dict[str, int]
    partitions: dict[str, float]
    trend: dict[str, float]


class Health(Answer):
    """`score` is the weighted mean of the domains', `status` that of the worst. `trend` has the
    mean of each of the last 14 days that was recorded, of the worst partition; it is empty for a
    scope."""

    score: float
    status: Status
    trend: dict[str, float]
    domains: dict[str, DomainHealth]


class Diagnose(Read[Health]):
    """Show how healthy the memory is: a line for each domain, and the command that mends it.

    Example: palimpsest diagnose --scope support
    """

    domain: Annotated[
        str | None, Doc("only this domain, for example `queue`", max_length=64, argument=True)
    ] = None
    scope: shared.AnyScope = None

    surface: ClassVar = OPERATING(("GET", "/api/diagnostics"), command="diagnose", overview=True)

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.health.checkup import checked
        from palimpsest.ops.health.domains import DOMAINS, judged
        from palimpsest.ops.health.trends import recorded_scores

        domains = [*DOMAINS] if self.domain is None else [self.domain]
        if not {*domains} <= {*DOMAINS}:
            raise NotFoundError(f"there is no domain {self.domain}; there are {', '.join(DOMAINS)}")
        recorded = [] if self.scope is not None else recorded_scores(sources)
        return judged(checked(_checkups(sources, self.scope), domains), recorded)

    def merge(self, answers: Sequence[Json]) -> Json:
        from palimpsest.ops.health.domains import judged_of_all

        return judged_of_all(answers)

    def is_done(self, answer: Json) -> bool:
        return bool(answer["status"] != "unhealthy")


def _checkups(sources: Sources, scope: str | None) -> list[Checkup]:
    """The open partitions; that of the scope alone, where there is one."""
    from palimpsest.ops.health.checkup import Checkup

    silent = {name.partition(":")[0] for name in sources.outages}
    if sources.unusable() is not None:
        silent.add("llm")
    only = None if scope is None else sources.partition_of(scope)
    return [
        Checkup(
            shard,
            number,
            sources.settings,
            sources.log,
            sources.now(),
            scope,
            silent,
            sources.usage,
        )
        for number, shard in sources.shards.items()
        if only in (None, number)
    ]


class RepairReport(Answer):
    """What a repair found, by scope and kind, and the score of its domain before and after it:
    `score_after` is null after a dry run, and while the pipeline still processes what was
    repaired."""

    domain: str
    dry_run: bool
    scopes: dict[str, dict[str, int]]
    score_before: float
    score_after: float | None = None


class RepairDomain(Read[RepairReport]):
    """Repair a domain of the memory's health; with `--dry-run`, show what that would do.

    Example: palimpsest repair index --dry-run
    """

    domain: Annotated[
        Literal["queue", "index", "embeddings", "graph", "duplicates"],
        Doc("which domain, as `palimpsest diagnose` names it", argument=True),
    ]
    scope: shared.AnyScope = None
    dry_run: Annotated[bool, Doc("change nothing", option="--dry-run")] = False
    by: Annotated[str, Doc("who asks for it; kept in the history", max_length=256)] = "local"

    surface: ClassVar = OPERATING(
        ("POST", "/api/repairs/{domain}"), command="repair", overview=True
    )

    async def read(self, sources: Sources) -> Json:
        return self.merge(
            [await self._repair(each, sources) for each in _checkups(sources, self.scope)]
        )

    async def _repair(self, checkup: Checkup, sources: Sources) -> Json:
        import asyncio

        from palimpsest.ops.health.domains import score_of
        from palimpsest.ops.health.repairs import Repair, execute, repair_state
        from palimpsest.ops.lifecycle.shared import is_frozen

        # The tracker of a worker embeds; a second run of it would embed everything twice.
        models = sources.embeddings
        embedding = None if sources.running else models.of(models.live(checkup.shard))
        frozen = partial(is_frozen, checkup.shard, checkup.settings, by_itself=False)
        repair = Repair(checkup, sources.append, self.by, frozen, embedding)
        before = score_of(self.domain, await asyncio.to_thread(checkup.counts, self.domain))
        plan = await asyncio.to_thread(repair.plan, self.domain)
        after = None
        if not self.dry_run and plan.scopes:
            state = await asyncio.to_thread(repair_state, checkup.shard, self.domain)
            after = await execute(repair, self.domain, plan, before, state)
        return {"scopes": plan.figures, "score_before": before, "score_after": after}

    def merge(self, answers: Sequence[Json]) -> Json:
        after = [each["score_after"] for each in answers if each["score_after"] is not None]
        return {
            "domain": self.domain,
            "dry_run": self.dry_run,
            "scopes": {key: found for each in answers for key, found in each["scopes"].items()},
            "score_before": min((each["score_before"] for each in answers), default=1.0),
            "score_after": min(after, default=None),
        }
