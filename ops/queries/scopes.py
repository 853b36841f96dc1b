"""Queries of scopes, and of the flags in effect for one."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from palimpsest.ops.queries.errors import RequestError
from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.queries.sources import Sources, from_all, rows

FLAGS = (
    "enabled",
    "shadow_mode",
    "allow_update_delete",
    "mutations_frozen",
    "autonomous_frozen",
    "self_teaching_enabled",
)
EARNED = "earned_update_delete"

_SCOPES = "SELECT scope, turns, memories, facts, last_activity FROM main.scopes"


def scopes(sources: Sources) -> JsonObject:
    """`scopes`, the one with the newest activity first. Turns that are not
    processed yet do not count."""
    return {"scopes": newest_first([row for _, row in from_all(sources, _SCOPES)])}


def newest_first(found: Sequence[JsonObject]) -> list[JsonValue]:
    """Scopes of all partitions in one order."""
    return [
        *sorted(
            found,
            key=lambda row: (str(row["last_activity"] or ""), str(row["scope"])),
            reverse=True,
        )
    ]


def flags(sources: Sources, scope: str) -> JsonObject:
    """`flags`: each with its `value` and where that is `from`, the scope or the settings."""
    if not scope.strip():
        raise RequestError("the scope is empty")
    stored = rows(
        sources.shard_of(scope),
        f"SELECT {', '.join((*FLAGS, EARNED))} FROM main.scope_flags WHERE scope = ?",
        [scope],
    )
    own = stored[0] if stored else {}
    earned = bool(own.pop(EARNED, False)) and own["allow_update_delete"] is None
    told: list[JsonValue] = []
    for name in FLAGS:
        given = own.get(name)
        if name == "allow_update_delete" and earned:
            told.append({"flag": name, "value": True, "from": "what this scope has earned"})
            continue
        setting = bool(getattr(sources.settings.pipeline, name))
        told.append(
            {
                "flag": name,
                "value": setting if given is None else given,
                "from": f"setting pipeline.{name}" if given is None else "this scope",
            }
        )
    return {"scope": scope, "flags": told}
