"""DuckDB's errors where Arrow fetches the rows: it hands on their text alone."""

from __future__ import annotations

from typing import Final

import duckdb

_KINDS: Final[dict[str, type[duckdb.Error]]] = {
    "INTERRUPT": duckdb.InterruptException,
    "Out of Memory": duckdb.OutOfMemoryException,
}


def as_duckdb_error(error: Exception) -> Exception:
    """DuckDB's own error that another one tells of; the same where it tells of none."""
    for words, kind in _KINDS.items():
        if words in str(error):
            return kind(str(error))
    return error
