"""Files of a store that cannot be read any more, and what is done about them. DuckDB's errors where
Arrow fetches the rows: it hands on their text alone."""

from __future__ import annotations

from typing import Final

import duckdb

REBUILD: Final = (
    "stop the worker if one runs; `palimpsest replay rebuild --swap` then makes the store again"
    " from the log"
)
_SAID: Final = (
    "Corrupt database file",
    "Could not read enough bytes",
    "not a valid DuckDB database file",
    "deserialize",
    "Failed to load metadata pointer",
)
"""What DuckDB says of a file that was cut or overwritten, by any of its kinds of errors."""


class StoreDamaged(Exception):
    """A store of which something cannot be read; the text says what to do."""

    def __init__(self, error: duckdb.Error) -> None:
        first = str(error).partition("\n")[0]
        super().__init__(f"the store's file is damaged: {REBUILD} ({first})")


def is_damage(error: BaseException) -> bool:
    """Whether the database says that its file is not what it wrote."""
    return isinstance(error, duckdb.Error) and any(words in str(error) for words in _SAID)


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
