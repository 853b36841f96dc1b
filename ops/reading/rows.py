"""Rows of the stores as JSON, and pages of them, newest first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from palimpsest.ops.errors import RequestError
from palimpsest.ops.sql.values import plain, rfc3339

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources
    from palimpsest.stores.shard import Shard

Row: TypeAlias = dict[str, Any]
Parameters: TypeAlias = Sequence[object] | Mapping[str, object]
"""Values for `?`, in order, or for `$name`."""
SHORTEST_ID: Final = 8
"""Minimum length of an id prefix."""


def rows(shard: Shard, query: str, parameters: Parameters = ()) -> list[Row]:
    """Returns the rows of a query as JSON objects; times as RFC 3339 in UTC. `$space` is the vector
    space that the shard searches."""
    with shard.reading() as reader:
        values = {**parameters} if isinstance(parameters, Mapping) else list(parameters)
        if "$space" in query:
            values = {
                **(values if isinstance(values, dict) else {}),
                "space": shard.embedding_space,
            }
        result = reader.execute(query, values)
        names = [column[0] for column in result.description or ()]
        return [
            {name: plain(value) for name, value in zip(names, row, strict=True)}
            for row in result.fetchall()
        ]


def at_own_clock(row: Row) -> Row:
    """Returns the row of a memory with `occurred_at` by the clock of who said it, as results of a
    recall have it; its `utc_offset_minutes` goes."""
    zone = row.pop("utc_offset_minutes")
    if zone:
        from palimpsest.schemas.envelope import local_time

        row["occurred_at"] = plain(local_time(datetime.fromisoformat(row["occurred_at"]), zone))
    return row


def from_all(sources: Sources, query: str, parameters: Parameters = ()) -> list[tuple[int, Row]]:
    """The rows of a query on every partition, with the partition's number."""
    return [
        (number, row)
        for number, shard in sources.shards.items()
        for row in rows(shard, query, parameters)
    ]


def all_rows(sources: Sources, query: str, parameters: Parameters = ()) -> list[Row]:
    """The rows of a query on every partition."""
    return [row for _, row in from_all(sources, query, parameters)]


def rows_of(
    sources: Sources, scope: str | None, query: str, parameters: Parameters = ()
) -> list[Row]:
    """The rows of a query on the partition of a scope, or on all partitions without a scope."""
    if scope is None:
        return all_rows(sources, query, parameters)
    return rows(sources.shard_of(scope), query, parameters)


def where(filters: Iterable[tuple[str, object]]) -> tuple[str, list[object]]:
    """The conditions whose value is not None, joined by AND, and a value for each of their `?`."""
    used = [(condition, value) for condition, value in filters if value is not None]
    values = [value for condition, value in used for _ in range(condition.count("?"))]
    return " AND ".join(condition for condition, _ in used), values


def by_id(
    sources: Sources, select: str, column: str, named: str, unknown: Exception
) -> tuple[int, Row]:
    """Returns the row whose `column` equals or begins with the id, and its partition. Raises
    `unknown` if there is none, RequestError if several begin with it."""
    matches = from_all(
        sources,
        f"{select} WHERE {column} = $id"
        f" OR (len($id) >= {SHORTEST_ID} AND starts_with({column}, $id)) ORDER BY {column} LIMIT 2",
        {"id": named},
    )
    if not matches:
        raise unknown
    if len(matches) > 1:
        raise RequestError(f"more than one id begins with {named}; write more of it")
    return matches[0]


def cursor(before: str) -> tuple[datetime, str]:
    """Parses the `next_cursor` of a page into time and id. Raises RequestError."""
    at, _, identity = before.partition("/")
    try:
        return datetime.fromisoformat(at).astimezone(UTC), identity
    except (ValueError, OverflowError):
        raise no_cursor(before) from None


def no_cursor(value: str) -> RequestError:
    return RequestError(
        f"{value!r} is no place in this list; give the `next_cursor` of the page before"
    )


def page(
    found: Sequence[Row], limit: int, name: str, columns: Sequence[str], more: bool = False
) -> Row:
    """A page with the newest rows by these columns (ties keep their order) as `name`; `next_cursor`
    is the next page, null on the last. `more`: there are rows beyond `found`."""

    def value(row: Row, column: str) -> datetime | str:
        said = str(row[column])
        return datetime.fromisoformat(said) if column.endswith("_at") else said

    newest = sorted(found, key=lambda row: [value(row, each) for each in columns], reverse=True)
    last = newest[:limit][-1] if newest and (more or len(newest) > limit) else None
    named = [] if last is None else [value(last, each) for each in dict.fromkeys((*columns, "id"))]
    # Times in UTC: the sign of another zone would be a space in an address.
    parts = [rfc3339(each) if isinstance(each, datetime) else each for each in named]
    return {name: newest[:limit], "next_cursor": "/".join(parts) or None}


def paged(parts: Sequence[Row], limit: int, name: str, columns: Sequence[str]) -> Row:
    """Merges the pages of several workers."""
    found = [row for part in parts for row in part[name]]
    return page(found, limit, name, columns, any(part["next_cursor"] for part in parts))
