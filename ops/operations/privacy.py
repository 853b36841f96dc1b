"""Listing and setting the privacy levels of a scope."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, get_args

from palimpsest.ops.errors import RequestError
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
    `offer` says how to erase them, unless the level was lowered. Of all scopes, `before` is the
    lowest level that was there, `since` when the first one began, and `scopes` has the levels that
    were there by scope."""

    status: str
    person: str | None
    level: Level
    before: Level
    since: datetime
    memories: int
    names: dict[str, int] = field(default_factory=dict)
    offer: str | None = None
    scopes: dict[str, Level] | None = None


class SetPrivacy(Write[PrivacySet]):
    """Set the privacy level of a person or, without one, of the whole scope.

    `full`: nothing that the person says from now on is stored; `partial`: agents do not write
    memories about the person unprompted. Raising a level reports the number of older memories.
    With `all_scopes` it holds in every scope that the caller sees; one that begins later has none.

    Example: palimpsest set-privacy full --person Ana --scope support
    """

    level: Annotated[Level, Doc("none, partial or full", argument=True)]
    person: Annotated[str | None, Doc("the person; by default the whole scope", max_length=256)] = (
        None
    )
    scope: shared.Scope = ""
    reason: shared.Reason = ""
    all_scopes: Annotated[
        bool, Doc("in every scope that you see: for a person, and without a scope")
    ] = False

    body: ClassVar = "SetPrivacyCommand"
    surface: ClassVar = Surface(
        ("PUT", "/api/privacy"),
        tag="privacy",
        command="set-privacy",
        panel="Change",
        permission="modify",
    )

    @property
    def in_all_scopes(self) -> bool:
        """Raises RequestError where it is not for a person, or for one scope."""
        if self.all_scopes and not (self.person or "").strip():
            raise RequestError("all_scopes is for a person: name one (person)")
        if self.all_scopes and self.scope:
            raise RequestError(f"all_scopes and the scope {self.scope!r} exclude each other")
        return self.all_scopes

    def together(self, answers: Mapping[str, Json]) -> Json:
        each, levels = [*answers.values()], get_args(Level)
        names: Counter[str] = Counter()
        for one in each:
            names.update(one["names"])
        offers = [one["offer"] for one in each if one["offer"]]
        return {
            **each[0],
            "status": "set" if any(one["status"] == "set" for one in each) else "no_changes",
            "before": min((one["before"] for one in each), key=levels.index),
            "since": min(one["since"] for one in each),
            "memories": sum(one["memories"] for one in each),
            "names": {name: names[name] for name in sorted(names)},
            "offer": "\n".join(offers) or None,
            "scopes": {scope: answers[scope]["before"] for scope in sorted(answers)},
        }
