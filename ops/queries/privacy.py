"""The privacy levels of a scope."""

from __future__ import annotations

from palimpsest.ops.queries.errors import RequestError
from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.queries.sources import Sources, rows

_LEVELS = (
    "SELECT nullif(person, '') AS person, level, since, reason, changed_by FROM main.privacy_levels"
    " WHERE scope = ? ORDER BY person_key"
)


def levels(sources: Sources, scope: str) -> JsonObject:
    """`levels`: who has which, since when, by whom and why; the one of the whole scope, without a
    `person`, first. Who is not among them has the level `none`."""
    if not scope.strip():
        raise RequestError("the scope is empty")
    found = rows(sources.shard_of(scope), _LEVELS, [scope])
    return {"scope": scope, "levels": [*found]}
