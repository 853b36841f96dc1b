"""What retention and decay would take, before they run."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from palimpsest.ops.operations import shared
from palimpsest.ops.operations.operation import Answer, Doc, Json, Read, Surface

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources


class TakenMemory(Answer):
    """A memory that decay would forget (`faded`), or a forgotten one that the sweep would remove
    for good (`swept`), and when. A forgotten one has no `content`."""

    id: str
    type: str
    content: str | None
    reason: Literal["faded", "swept"]
    at: datetime


class MissingResult(Answer):
    """A result that a recall would lack. `swept`: it lacks it already, as it is forgotten."""

    rank: int
    memory_id: str
    reason: Literal["faded", "swept"]


class AffectedRecall(Answer):
    """A recorded recall with the results that would be gone. `question` is null where it was not
    kept."""

    id: str
    kind: str
    question: str | None
    asked_at: datetime
    missing: tuple[MissingResult, ...]


class Simulation(Answer):
    """What would be taken until then, the first to go first, and the recalls that returned any of
    it, the newest first: `total` memories, and `recalls_missing` of the `recalls_recorded`. A page
    of both lists; `next_cursor` is null on the last page."""

    until: datetime
    total: int
    by_type: dict[str, int]
    by_reason: dict[str, int]
    memories: tuple[TakenMemory, ...]
    recalls_recorded: int
    recalls_missing: int
    recalls: tuple[AffectedRecall, ...]
    next_cursor: int | None


class Simulate(Read[Simulation]):
    """Show what retention and decay would take of a scope, and which recorded recalls returned it.
    Nothing changes.

    It is assumed that nothing is recalled or changed meanwhile. A memory that fades within the days
    ahead can still be recovered until its window has passed.

    Example: palimpsest retention simulate --scope support --days-ahead 90
    """

    scope: shared.Scope = ""
    deleted_days: Annotated[
        int | None,
        Doc("days that forgotten memories are kept; by default the scope's", ge=0, le=36_500),
    ] = None
    decay_rate: Annotated[
        float | None, Doc("rate of decay of all that fades; by default each its own", ge=0, le=10)
    ] = None
    days_ahead: Annotated[int, Doc("days from now until they run", ge=0, le=36_500)] = 30
    recall_days: Annotated[int, Doc("recalls of so many days up to now", ge=1, le=36_500)] = 28
    limit: shared.Limit = 20
    cursor: shared.NumberCursor = None

    surface: ClassVar = Surface(
        ("GET", "/api/retention/simulate"),
        tag="overviews",
        command="retention simulate",
        panel="Run and operate",
        overview=True,
    )

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.lifecycle.decay import Rule, simulate

        now = sources.now()
        rule = Rule(
            now + timedelta(days=self.days_ahead),
            sources.settings.decay.floor,
            self.deleted_days,
            self.decay_rate,
        )
        since = now - timedelta(days=self.recall_days)
        shard = sources.shard_of(self.scope)
        found = simulate(shard, sources.settings, self.scope, rule, since)
        first, last = self.cursor or 0, (self.cursor or 0) + self.limit
        memories, recalls = found["memories"], found["recalls"]
        return {
            **found,
            "memories": memories[first:last],
            "recalls_missing": len(recalls),
            "recalls": recalls[first:last],
            "next_cursor": last if max(len(memories), len(recalls)) > last else None,
        }
