"""Listing and setting the privacy levels of a scope."""

from __future__ import annotations

from dataclasses import field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from palimpsest.ops.operations import shared
from palimpsest.ops.operations.answers import Applied
from palimpsest.ops.operations.operation import Answer, Doc, Json, Read, Surface, Write
from palimpsest.ops.reading.rows import rows

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources

Level = Literal["none", "partial", "full"]


class PrivacyLevel(Answer):
    """`person` is None for the level of the whole scope."""

    person: str | None
    level: Level
    since: datetime
    reason: str
    changed_by: str


class PrivacyLevels(Answer):
    """The levels that are set; every other person has the level none."""

    scope: str
    levels: tuple[PrivacyLevel, ...]


class Privacy(Read[PrivacyLevels]):
    """List the privacy levels of a scope by person, each with its start and reason.

    Example: palimpsest privacy --scope support
    """

    scope: shared.Scope = ""

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


class PrivacySet(Applied, kw_only=True):
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
    scope: shared.Scope = ""
    reason: shared.Reason = ""

    body: ClassVar = "SetPrivacyCommand"
    surface: ClassVar = Surface(
        ("PUT", "/api/privacy"),
        tag="privacy",
        command="set-privacy",
        panel="Change",
        permission="modify",
    )
