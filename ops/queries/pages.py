"""Lists that come in pages, the newest first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

from palimpsest.ops.queries.errors import RequestError
from palimpsest.ops.queries.requests import JsonObject


def cursor(before: str) -> tuple[datetime, str]:
    """Time and id that the `next_cursor` of a page names. Raises RequestError."""
    at, _, identity = before.partition("/")
    try:
        return datetime.fromisoformat(at).astimezone(UTC), identity
    except (ValueError, OverflowError):
        raise RequestError(
            f"{before!r} is no place in this list; give the `next_cursor` of the page before"
        ) from None


def page(
    rows: Sequence[JsonObject], limit: int, name: str, columns: Sequence[str], more: bool
) -> JsonObject:
    """The newest rows by these columns, of equal ones the first given, as `name`; `next_cursor` is
    the page after, null on the last. `more`: some are left that are not among the rows."""

    def place(row: JsonObject) -> list[datetime | str]:
        values = [(column, str(row[column])) for column in columns]
        return [datetime.fromisoformat(v) if c.endswith("_at") else v for c, v in values]

    newest = sorted(rows, key=place, reverse=True)
    last = newest[:limit][-1] if newest and (more or len(newest) > limit) else None
    named = dict.fromkeys((*columns, "id"))
    return {
        name: [*newest[:limit]],
        "next_cursor": last and "/".join(str(last[column]) for column in named),
    }


def paged(parts: Sequence[JsonObject], limit: int, name: str, columns: Sequence[str]) -> JsonObject:
    """Pages of several workers as one."""
    rows = [row for part in parts for row in cast("list[JsonObject]", part[name])]
    return page(rows, limit, name, columns, any(part["next_cursor"] for part in parts))
