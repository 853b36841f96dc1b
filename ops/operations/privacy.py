"""Listing and setting the privacy levels of a scope."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from palimpsest.ops.operations.answers import Applied
from palimpsest.ops.operations.operation import (
    Ask,
    Doc,
    Json,
    Read,
    Reason,
    Scope,
    Surface,
    Write,
)
from palimpsest.ops.operations.rows import rows

if TYPE_CHECKING:
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.ops.sources import Sources
    from palimpsest.schemas.commands import Command

Level = Literal["none", "partial", "full"]


@dataclass(frozen=True, slots=True)
class PrivacyLevel:
    """`person` is None for the level of the whole scope."""

    person: str | None
    level: Level
    since: datetime
    reason: str
    changed_by: str


@dataclass(frozen=True, slots=True)
class PrivacyLevels:
    """The levels that are set; every other person has the level none."""

    scope: str
    levels: tuple[PrivacyLevel, ...]


@dataclass(frozen=True, slots=True)
class Privacy(Read[PrivacyLevels]):
    """List the privacy levels of a scope by person, each with its start and reason.

    Example: palimpsest privacy --scope support
    """

    scope: Scope = ""

    surface: ClassVar = Surface(("GET", "/api/privacy"), tag="privacy", command="privacy")

    def read(self, sources: Sources) -> Json:
        """The level of the whole scope comes first, without a `person`."""
        levels = rows(
            sources.shard_of(self.scope),
            "SELECT nullif(person, '') AS person, level, since, reason, changed_by"
            " FROM main.privacy_levels WHERE scope = ? ORDER BY person_key",
            [self.scope],
        )
        return {"scope": self.scope, "levels": levels}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacySet(Applied):
    """The level that was set. `memories` counts existing memories, `names` the same by name;
    `offer` says how to erase them, unless the level was lowered."""

    status: str
    person: str | None
    level: Level
    before: Level
    since: datetime
    memories: int
    names: dict[str, int] = field(default_factory=dict)
    offer: str | None = None


@dataclass(frozen=True, slots=True)
class SetPrivacy(Write[PrivacySet]):
    """Set the privacy level of a person or, without one, of the whole scope.

    `full`: nothing that the person says from now on is stored; `partial`: agents do not write
    memories about the person unprompted. Raising a level reports the number of older memories.

    Example: palimpsest set-privacy full --person Ana --scope support
    """

    level: Annotated[Level, Doc("none, partial or full", argument=True)]
    person: Annotated[str | None, Doc("the person; by default the whole scope", max_length=256)] = (
        None
    )
    scope: Scope = ""
    reason: Reason = ""

    surface: ClassVar = Surface(
        ("PUT", "/api/privacy"),
        tag="privacy",
        command="set-privacy",
        panel="Change",
        permission="modify",
    )

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.schemas.commands import SetPrivacyCommand

        return SetPrivacyCommand(person=self.person, level=self.level, reason=self.reason)
