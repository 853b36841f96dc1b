"""The pipeline and its contents as a whole: status, health, counts, scopes, flags, deciders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from palimpsest.ops.operations.answers import Applied
from palimpsest.ops.operations.operation import (
    AnyScope,
    Ask,
    Doc,
    Json,
    Read,
    Reason,
    Scope,
    Surface,
    Write,
)
from palimpsest.ops.queries.errors import RequestError

if TYPE_CHECKING:
    from palimpsest.ops.queries.sources import Sources
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.schemas.commands import Command


@dataclass(frozen=True, slots=True)
class StageState:
    """A stage on a partition: the next offset, the end of what it reads, and their difference."""

    stage: str
    partition: int
    cursor: int
    end: int
    lag: int
    state: str


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """Stages, the balance of turns and facts, the number of dead letters, models, and in `pending`
    the changes that wait for a person's review, by scope. `waiting` says what workers on Kafka
    wait for."""

    stages: tuple[StageState, ...]
    balance: dict[str, Any]
    dead_letters: int
    pending: dict[str, int]
    providers: dict[str, Any]
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Status(Read[PipelineStatus]):
    """Show stages and lag, the balance, dead letters, models, and changes that wait for review.

    Example: palimpsest status
    """

    surface: ClassVar = Surface(
        ("GET", "/api/pipeline/status"),
        tag="operation",
        command="status",
        panel="Run and operate",
        permission="admin",
        sees_all=True,
        routing="all",
    )

    async def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.status import status

        return await status(sources)

    def merge(self, answers: Sequence[Json]) -> Json:
        from palimpsest.ops.queries.status import merged

        return merged(answers)


@dataclass(frozen=True, slots=True)
class Domain:
    """How healthy one domain is: a score from 0 to 1, and what was counted."""

    score: float
    status: Literal["healthy", "degraded", "unhealthy"]
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Health:
    """`score` is the mean of the domains', `status` that of the worst."""

    score: float
    status: Literal["healthy", "degraded", "unhealthy"]
    domains: dict[str, Domain]


@dataclass(frozen=True, slots=True)
class Diagnostics(Read[Health]):
    """Show how healthy the memory is, domain by domain, each with a score from 0 to 1.

    Example: palimpsest diagnostics
    """

    domain: Annotated[
        str | None, Doc("only this domain, as `queue`", max_length=64, argument=True)
    ] = None

    surface: ClassVar = Surface(
        ("GET", "/api/diagnostics"),
        tag="operation",
        command="diagnostics",
        panel="Run and operate",
        permission="admin",
        sees_all=True,
        routing="all",
        overview=True,
    )

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.diagnostics import diagnostics

        return diagnostics(sources, self.domain)

    def merge(self, answers: Sequence[Json]) -> Json:
        from palimpsest.ops.queries.diagnostics import merged

        return merged(answers)


@dataclass(frozen=True, slots=True)
class Counts:
    """How much is remembered; `types` with how many there are of each."""

    scope: str | None
    active: int
    turns: int
    memories: int
    pinned: int
    forgotten: int
    embedded: int
    sessions: int
    entities: int
    types: dict[str, int]


@dataclass(frozen=True, slots=True)
class Stats(Read[Counts]):
    """Count what is remembered, by state and type.

    Example: palimpsest stats --scope support
    """

    scope: AnyScope = None

    surface: ClassVar = Surface(
        ("GET", "/api/stats"), tag="overviews", command="stats", tool="memory_stats", overview=True
    )

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.stats import stats

        return stats(sources, self.scope)

    def merge(self, answers: Sequence[Json]) -> Json:
        from palimpsest.ops.queries.stats import merged

        return merged(answers)


@dataclass(frozen=True, slots=True)
class ScopeRow:
    """A memory space with how much is in it: turns and other memories that are not forgotten;
    `facts` are all that were extracted, whatever became of them."""

    scope: str
    turns: int
    memories: int
    facts: int
    last_activity: datetime | None


@dataclass(frozen=True, slots=True)
class ScopeList:
    """Memory spaces, the one last active first."""

    scopes: tuple[ScopeRow, ...]


@dataclass(frozen=True, slots=True)
class Scopes(Read[ScopeList]):
    """List the memory spaces with how much is in each, the one last active first.

    Example: palimpsest scopes
    """

    surface: ClassVar = Surface(
        ("GET", "/api/scopes"), tag="overviews", command="scopes", routing="all", overview=True
    )

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.scopes import scopes

        return scopes(sources)

    def merge(self, answers: Sequence[Json]) -> Json:
        from palimpsest.ops.queries.scopes import newest_first

        return {"scopes": newest_first([row for each in answers for row in each["scopes"]])}


@dataclass(frozen=True, slots=True)
class DeciderAgreement:
    """Of the `proposals` that a decider was asked for in a scope, how many failed, named the same
    action as the live one, and also the same memory; of those that a person judged, how many it had
    with people. `earned`: whether the scope has earned to update and delete."""

    scope: str
    decider: str
    proposals: int
    failed: int
    same_action: int
    agrees: int
    judged: int
    with_people: int
    earned: bool


@dataclass(frozen=True, slots=True)
class Agreements:
    """Deciders of each scope."""

    deciders: tuple[DeciderAgreement, ...]


@dataclass(frozen=True, slots=True)
class Agreement(Read[Agreements]):
    """Show how often deciders agree with the live one, and with what people did afterwards.

    Further deciders are named in pipeline.shadow_deciders.

    Example: palimpsest replay agreement --scope support
    """

    scope: AnyScope = None

    surface: ClassVar = Surface(
        ("GET", "/api/replay/agreement"),
        tag="replays",
        command="replay agreement",
        panel="Run and operate",
        overview=True,
    )

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.agreement import agreement

        return agreement(sources, self.scope)

    def merge(self, answers: Sequence[Json]) -> Json:
        from palimpsest.ops.queries.agreement import joined

        return joined(answer["deciders"] for answer in answers)


# ---- flags of a scope ----
@dataclass(frozen=True, slots=True)
class ScopeFlags:
    """Flags with the `value` in effect, and where it is `from`: the scope or the settings."""

    scope: str
    flags: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Flags(Read[ScopeFlags]):
    """Show the flags in effect for a scope, and where each is from."""

    scope: Scope = ""

    surface: ClassVar = Surface(("GET", "/api/flags"), tag="operation")

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.queries.scopes import flags

        return flags(sources, self.scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagsSet(Applied):
    """The flags of the scope's own after the change; None where the settings hold."""

    status: str
    flags: dict[str, bool | None]


@dataclass(frozen=True, slots=True)
class SetFlags(Write[FlagsSet | ScopeFlags]):
    """Show the flags of a scope, or set some over those of the settings; a change is audited.

    Example: palimpsest flags support --allow-update-delete
    """

    scope: Annotated[
        str,
        Doc("the memory space", min_length=1, max_length=256, argument=True, metavar="SCOPE"),
    ]
    enabled: Annotated[bool | None, Doc("extract from turns")] = None
    shadow_mode: Annotated[bool | None, Doc("decide, but write nothing")] = None
    allow_update_delete: Annotated[bool | None, Doc("apply UPDATE and DELETE")] = None
    mutations_frozen: Annotated[bool | None, Doc("change nothing at all")] = None
    autonomous_frozen: Annotated[bool | None, Doc("no timers")] = None
    self_teaching_enabled: Annotated[
        bool | None, Doc("let agents' tools write long-term memories")
    ] = None
    reason: Reason = ""

    surface: ClassVar = Surface(
        ("POST", "/api/flags"),
        tag="operation",
        command="flags",
        panel="Run and operate",
        permission="admin",
    )

    def _flags(self) -> dict[str, bool | None]:
        other = {"scope", "reason", "key", "wait"}
        return {e.name: getattr(self, e.name) for e in fields(self) if e.name not in other}

    def instead(self) -> Flags | None:
        unset = all(value is None for value in self._flags().values())
        return Flags(self.scope) if unset else None

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.schemas.commands import SetFlagsCommand

        if not self.scope.strip():
            raise RequestError("the scope is empty")
        return SetFlagsCommand.model_validate({**self._flags(), "reason": self.reason})
