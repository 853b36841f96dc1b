"""Known keys: all that are stored are among them, whenever they came."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.stores.database import membership as hashes
from palimpsest.stores.database.cursors import cursor_of
from palimpsest.stores.database.membership import DEDUP_KEYS, KnownKeys
from palimpsest.stores.database.tables import Tables
from tests.examples import examples
from tests.unit.small_store import empty_store, memory

MEMORY_IDS = ("memory_rows", "memory_id")
KEYS = st.text(min_size=1, max_size=6)


def put(connection: duckdb.DuckDBPyConnection, known: KnownKeys, *ids: str) -> None:
    Tables(connection).insert([memory(memory_id) for memory_id in ids])
    known.add(MEMORY_IDS, ids)


@cache
def shared_store() -> duckdb.DuckDBPyConnection:
    """One for all examples: to make it takes longer than what is tried."""
    return empty_store()


@settings(max_examples=examples(12))
@given(st.lists(st.lists(KEYS, min_size=1, max_size=8, unique=True), max_size=6), st.integers(1, 9))
def test_what_is_stored_is_known_and_hardly_anything_else(
    batches: list[list[str]], merge_at: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashes, "MERGE_AT", merge_at)
        connection = shared_store()
        connection.execute("DELETE FROM memory_rows")
        early, late = (
            KnownKeys(partial(cursor_of, connection)),
            KnownKeys(partial(cursor_of, connection)),
        )
        stored: set[str] = set()
        assert early.among(MEMORY_IDS, ["never stored"]) == set()
        for batch in batches:
            fresh = [key for key in batch if key not in stored]
            assert early.among(MEMORY_IDS, batch) == set(batch) - set(fresh)
            if fresh:
                put(connection, early, *fresh)
            stored.update(fresh)
        for known in (early, late):  # told one by one, and read from the table
            assert known.among(MEMORY_IDS, [*stored, "never stored"]) == stored
            assert known.among(DEDUP_KEYS, sorted(stored)) == set()


def test_what_is_committed_while_a_column_is_read_is_not_missed() -> None:
    connection = empty_store()
    reading, go_on = threading.Event(), threading.Event()

    @contextmanager
    def slowly() -> Iterator[duckdb.DuckDBPyConnection]:
        cursor = cursor_of(connection)
        cursor.execute("BEGIN")
        cursor.execute("SELECT count(*) FROM memory_rows").fetchall()  # what it sees is fixed
        reading.set()
        assert go_on.wait(30)
        yield cursor

    known = KnownKeys(slowly)
    asking = threading.Thread(target=known.among, args=(MEMORY_IDS, ["m"]))
    asking.start()
    assert reading.wait(30)
    Tables(connection).insert([memory("m")])
    telling = threading.Thread(target=known.add, args=(MEMORY_IDS, ["m"]))
    telling.start()
    go_on.set()
    asking.join(30)
    telling.join(30)
    assert known.among(MEMORY_IDS, ["m"]) == {"m"}
