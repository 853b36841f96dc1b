"""One query over the stores of several partitions.

Each partition gives the columns that the query reads of its views, in one answer and so as of one
moment; the query then runs over all of them together. Partitions are read one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import duckdb
import pyarrow as pa

from palimpsest.stores.database.sql import QueryLimits, QueryTooLarge, run_query
from palimpsest.stores.database.sql_check import MATCH, QueryRefused, checked
from palimpsest.stores.database.view_columns import quoted

MEMORY_LIMIT_MIB = 1024
_MATCHES = "matches"
_FOUND = f"""
CREATE MACRO {MATCH}(in_scope, query) AS TABLE
SELECT memory_id, score, content FROM {_MATCHES} found
WHERE found.asked_scope = in_scope AND found.asked_words = query ORDER BY score DESC, memory_id"""


class UnitedQuery:
    """`part` is what to ask every partition; None when the query reads nothing of theirs, and any
    one can answer it. Raises QueryRefused. To be closed."""

    def __init__(self, query: str, memory_mib: int = MEMORY_LIMIT_MIB) -> None:
        self._query = query
        self._connection = duckdb.connect(
            config={
                "memory_limit": f"{memory_mib}MiB",
                "threads": 1,
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "enable_external_access": "false",
                "python_enable_replacements": "false",
            }
        )
        self._connection.execute("SET GLOBAL TimeZone = 'UTC'")
        self._reading = checked(self._connection, query)
        if self._reading.matches is None:
            raise QueryRefused(
                f"over several partitions, {MATCH} needs its scope and its words written out as"
                " texts; or name a partition"
            )
        self.part = self._part()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def _part(self) -> str | None:
        parts = [
            f"({_rows(view, self._reading.columns)}) AS {view}" for view in self._reading.views
        ]
        matches = self._reading.matches or ()
        found = [
            f"SELECT {quoted(scope)} AS asked_scope, {quoted(words)} AS asked_words, *"
            f" FROM {MATCH}({quoted(scope)}, {quoted(words)})"
            for scope, words in matches
        ]
        if found:
            parts.append(f"(SELECT list(r) FROM ({' UNION ALL '.join(found)}) r) AS {_MATCHES}")
        return f"SELECT {', '.join(parts)}" if parts else None

    def answer(self, parts: Sequence[pa.Table], limits: QueryLimits) -> pa.Table:
        """The result over what the partitions answered. Raises as `read_only_query` does."""
        for name in parts[0].column_names:
            self._connection.register(name, _joined([part.column(name) for part in parts]))
        if self._reading.matches:
            self._connection.execute(_FOUND)
        self._connection.execute("SET lock_configuration = true")
        return run_query(self._connection, self._query, limits)


def _rows(view: str, columns: tuple[str, ...] | None) -> str:
    if columns is None:
        return f"SELECT list(r) FROM {view} r"
    named = ", ".join(map(quoted, columns))
    return f"SELECT list(r) FROM (SELECT COLUMNS(lambda c: c IN ({named})) FROM {view}) r"


def _joined(columns: Sequence[pa.ChunkedArray]) -> pa.Table:
    """The rows of all lists of structs, one list a partition."""
    try:
        return pa.concat_tables(
            pa.Table.from_struct_array(chunk.flatten())
            for column in columns
            for chunk in column.chunks
        )
    except pa.ArrowException as error:
        raise QueryTooLarge(f"the partitions hold too much for one answer: {error}") from error
