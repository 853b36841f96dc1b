"""Memories that fade: which will be gone soon, and letting a scope's fade now."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from palimpsest.ops.operations import shared
from palimpsest.ops.operations.answers import Applied
from palimpsest.ops.operations.memories import Memories, stored_memories
from palimpsest.ops.operations.operation import Answer, Ask, Doc, Json, Read, Surface, Write

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.schemas.commands import Command


class Weak(Read[Memories]):
    """List unconfirmed memories of low confidence, or that fade soon, the least certain first.

    Each is shown with the time when it is forgotten without a further access. Settle a correct
    memory with `palimpsest confirm`, a wrong one with `correct` or `forget`.

    Example: palimpsest weak --scope support
    """

    scope: shared.Scope = ""
    below: Annotated[float, Doc("with a confidence below this", ge=0, le=1)] = 0.8
    days: Annotated[int, Doc("or that will have faded within these days", ge=0, le=36_500)] = 30
    limit: shared.Limit = 20

    surface: ClassVar = Surface(
        ("GET", "/api/weak"),
        tag="overviews",
        command="weak",
        panel="Explain and review",
        tool="weak_facts",
    )

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.lifecycle.decay import FADES_AT
        from palimpsest.schemas.rows.memories import FADING

        found = stored_memories(
            sources,
            sources.shard_of(self.scope),
            f"scope = $scope AND {FADING}"
            f" AND (confidence < $below OR {FADES_AT} <= $now + to_days($days::INTEGER))"
            " ORDER BY confidence, occurred_at, created_at, memory_id LIMIT $limit",
            {
                "scope": self.scope,
                "below": self.below,
                "floor": sources.settings.decay.floor,
                "now": sources.now(),
                "days": self.days,
                "limit": self.limit,
            },
        )
        return {"memories": found}


class FadingMemory(Answer):
    """What a memory's confidence comes to, and whether it is forgotten then."""

    id: str
    content: str
    confidence: float
    faded_to: float
    forgotten: bool


class Decayed(Applied, kw_only=True):
    """How many memories lost confidence, and how many were forgotten because they had faded."""

    weakened: int = 0
    faded: int = 0


class DecayPreview(Answer):
    """What fading up to now would do, the weakest first. `since`: nothing fades for the time before
    it."""

    weakened: int
    faded: int
    since: datetime | None
    memories: tuple[FadingMemory, ...]


class PreviewDecay(Read[DecayPreview]):
    """Show what fading a scope up to now would do."""

    scope: shared.Scope = ""
    limit: shared.Limit = 20

    surface: ClassVar = Surface()

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.lifecycle.decay import preview

        shard = sources.shard_of(self.scope)
        return preview(shard, self.scope, sources.settings.decay.floor, sources.now(), self.limit)


class Decay(Write[Decayed | DecayPreview]):
    """Let the confidence of a scope's memories fade up to now, as every night.

    Those that fall below `decay.floor` are forgotten and can be recovered.

    Example: palimpsest decay --scope support --dry-run
    """

    scope: shared.Scope = ""
    dry_run: Annotated[bool, Doc("only show what it would do", option="--dry-run")] = False
    limit: shared.Limit = 20

    surface: ClassVar = Surface(
        ("POST", "/api/memory/decay"),
        command="decay",
        panel="Run and operate",
        permission="modify",
        also="forget",
    )
    patience: ClassVar = 60.0

    def instead(self) -> Read[Any] | None:
        return PreviewDecay(self.scope, self.limit) if self.dry_run else None

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.schemas.commands import DecayCommand

        since = (await ask(PreviewDecay(self.scope, 1)))["since"]
        return DecayCommand(floor=settings.decay.floor, since=since)
