"""What an answer says about filters that nothing can pass: a misspelled type would be an empty
answer otherwise, which reads as if nothing were known."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from palimpsest.ops.reading.rows import rows_of
from palimpsest.ops.sql.values import rfc3339

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources

MOST_NAMES: Final = 12
"""Names of what exists, at most."""
_KNOWN: Final = {
    "types": ("type", "type"),
    "roles": ("role", "role"),
    "categories": ("category", "unnest(categories)"),
    "tags": ("tag", "unnest(tags)"),
    "all_tags": ("tag", "unnest(tags)"),
    "who": ("speaker", "who"),
}
"""By filter: what it names, and where the values are."""
_WITHOUT_CASE: Final = frozenset({"roles", "who"})
_IN: Final = "FROM memory_rows WHERE ($scope IS NULL OR scope = $scope)"


def notices(sources: Sources, request: Any, deleted: bool | None = False) -> list[str]:
    """A sentence for each value of a filter that no memory of the request's scope has, with the
    nearest there is, and for an `as_of` before the first memory was stored. `deleted`: whether
    forgotten memories are asked for; None for both."""
    if not any(getattr(request, name, None) for name in (*_KNOWN, "as_of")):
        return []
    found = [*_unknown(sources, request, deleted)]
    as_of: datetime | None = getattr(request, "as_of", None)
    return found if as_of is None else [*found, *_too_early(sources, request.scope, as_of)]


def _unknown(sources: Sources, request: Any, deleted: bool | None) -> Iterator[str]:
    where = "" if request.scope is None else f" in scope {request.scope}"
    which = "" if deleted is None else f" AND is_deleted = {deleted}"
    for name, (called, column) in _KNOWN.items():
        asked = getattr(request, name, None) or ()
        asked = (asked,) if isinstance(asked, str) else tuple(asked)
        if not asked:
            continue
        select = f"SELECT DISTINCT {column} AS value {_IN}{which}"
        held = rows_of(sources, request.scope, select, {"scope": request.scope})
        known = sorted({str(row["value"]) for row in held if row["value"]})
        by_case = {each.lower(): each for each in known}
        for each in asked:
            is_known = each.lower() in by_case if name in _WITHOUT_CASE else each in known
            if known and not is_known:
                yield f"there is no {called} {each}{where}{_instead(each, by_case)}"


def _instead(asked: str, by_case: dict[str, str]) -> str:
    parts = [part.strip().lower() for part in asked.split(",")]
    if len(parts) > 1 and all(part in by_case for part in parts):
        return f"; give {' and '.join(parts)} as values of their own"
    near = difflib.get_close_matches(asked.lower(), by_case, n=1, cutoff=0.6)
    meant = f"; did you mean {by_case[near[0]]}?" if near else "."
    return f"{meant} There are {_listed([*by_case.values()])}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _too_early(sources: Sources, scope: str, as_of: datetime) -> Iterator[str]:
    select = f"SELECT min(created_at) AS first {_IN}"
    first = rows_of(sources, scope, select, {"scope": scope})[0]["first"]
    if first is not None and datetime.fromisoformat(first) > as_of:
        yield (
            "as_of is the time at which memories were stored, and the first of scope"
            f" {scope} was stored at {first}, after {rfc3339(as_of)}; for what had been said by"
            " then, give until"
        )
