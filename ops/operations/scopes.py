"""Memory spaces: their list, their sizes and their flags."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from palimpsest.ops.errors import RequestError
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
from palimpsest.ops.operations.rows import all_rows, rows, rows_of

if TYPE_CHECKING:
    from palimpsest.ops.operations.rows import Row
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.ops.sources import Sources
    from palimpsest.schemas.commands import Command


@dataclass(frozen=True)
class Counts:
    """Counts of what is remembered; `types` has the count of each type."""

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
        scope = {"scope": self.scope}
        counts = rows_of(sources, self.scope, _COUNTS, {**scope, "model": sources.embedding.model})
        types = rows_of(sources, self.scope, _TYPES, scope)
        return self._summed(counts, [(row["type"], row["number"]) for row in types])

    def merge(self, answers: Sequence[Json]) -> Json:
        return self._summed(answers, [pair for each in answers for pair in each["types"].items()])

    def _summed(self, counts: Sequence[Row], types: Iterable[tuple[str, int]]) -> Json:
        by_type: dict[str, int] = {}
        for name, number in types:
            by_type[name] = by_type.get(name, 0) + number
        names = (each.name for each in fields(Counts) if each.name not in ("scope", "types"))
        total = {name: sum(row[name] for row in counts) for name in names}
        return {"scope": self.scope, **total, "types": by_type}


_COUNTS = """
SELECT count(*) FILTER (NOT is_deleted) AS active,
    count(*) FILTER (NOT is_deleted AND type = 'episodic') AS turns,
    count(*) FILTER (NOT is_deleted AND type <> 'episodic') AS memories,
    count(*) FILTER (NOT is_deleted AND pinned) AS pinned,
    count(*) FILTER (is_deleted) AS forgotten,
    count(*) FILTER (NOT is_deleted AND embedding_key IN (
        SELECT embedding_key FROM embeddings WHERE model = $model)) AS embedded,
    (SELECT count(*) FROM session_rows WHERE coalesce(scope = $scope, true)) AS sessions,
    (SELECT count(DISTINCT entity_id) FROM name_rows WHERE coalesce(scope = $scope, true))
        AS entities
FROM memory_rows WHERE coalesce(scope = $scope, true)
"""
_TYPES = """
SELECT type, count(*) AS number FROM memory_rows
WHERE NOT is_deleted AND coalesce(scope = $scope, true) GROUP BY type ORDER BY type
"""


@dataclass(frozen=True, slots=True)
class ScopeRow:
    """A memory space with the counts of its turns and other memories that are not forgotten;
    `facts` counts all extracted facts, whatever their outcome."""

    scope: str
    turns: int
    memories: int
    facts: int
    last_activity: datetime | None


@dataclass(frozen=True, slots=True)
class ScopeList:
    """Memory spaces, the most recently active first."""

    scopes: tuple[ScopeRow, ...]


@dataclass(frozen=True, slots=True)
class Scopes(Read[ScopeList]):
    """List the memory spaces with their counts, the most recently active first.

    Example: palimpsest scopes
    """

    surface: ClassVar = Surface(
        ("GET", "/api/scopes"), tag="overviews", command="scopes", routing="all", overview=True
    )

    def read(self, sources: Sources) -> Json:
        """Unprocessed turns do not count."""
        select = "SELECT scope, turns, memories, facts, last_activity FROM main.scopes"
        return self.merge([{"scopes": all_rows(sources, select)}])

    def merge(self, answers: Sequence[Json]) -> Json:
        found = [row for each in answers for row in each["scopes"]]
        found.sort(key=lambda row: (row["last_activity"] or "", row["scope"]), reverse=True)
        return {"scopes": found}


@dataclass(frozen=True, slots=True)
class ScopeFlags:
    """Flags with the `value` in effect and its origin in `from`: the scope or the settings."""

    scope: str
    flags: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Flags(Read[ScopeFlags]):
    """Show the flags in effect for a scope and the origin of each."""

    scope: Scope = ""

    surface: ClassVar = Surface(("GET", "/api/flags"), tag="operation")

    def read(self, sources: Sources) -> Json:
        names = [*_flags(SetFlags(self.scope))]
        stored = rows(
            sources.shard_of(self.scope),
            f"SELECT {', '.join((*names, _EARNED))} FROM main.scope_flags WHERE scope = ?",
            [self.scope],
        )
        own = stored[0] if stored else {}
        earned = bool(own.pop(_EARNED, False)) and own["allow_update_delete"] is None
        shown = []
        for name in names:
            value, origin = own.get(name), "this scope"
            if name == "allow_update_delete" and earned:
                value, origin = True, "what this scope has earned"
            elif value is None:
                value = bool(getattr(sources.settings.pipeline, name))
                origin = f"setting pipeline.{name}"
            shown.append({"flag": name, "value": value, "from": origin})
        return {"scope": self.scope, "flags": shown}


_EARNED = "earned_update_delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagsSet(Applied):
    """The scope's own flags after the change; None where the settings apply."""

    status: str
    flags: dict[str, bool | None]


@dataclass(frozen=True, slots=True)
class SetFlags(Write[FlagsSet | ScopeFlags]):
    """Show the flags of a scope, or override some of the settings' flags; changes are audited.

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

    def instead(self) -> Flags | None:
        unset = all(value is None for value in _flags(self).values())
        return Flags(self.scope) if unset else None

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.schemas.commands import SetFlagsCommand

        if not self.scope.strip():
            raise RequestError("the scope is empty")
        return SetFlagsCommand.model_validate({**_flags(self), "reason": self.reason})


def _flags(request: SetFlags) -> dict[str, bool | None]:
    other = {"scope", "reason", "key", "wait"}
    return {e.name: getattr(request, e.name) for e in fields(request) if e.name not in other}
