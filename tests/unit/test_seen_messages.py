"""Seen messages: exact, also across a merge, a restart and two ids of one hash."""

from __future__ import annotations

from functools import cache, partial
from itertools import pairwise

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.stores.database import membership as hashes
from palimpsest.stores.database.cursors import cursor_of
from palimpsest.stores.state import SeenMessages
from tests.examples import examples
from tests.unit.small_store import empty_store


def note(connection: duckdb.DuckDBPyConnection, known: SeenMessages, stage: str, *ids: str) -> None:
    for message_id in ids:
        connection.execute("INSERT INTO seen_messages VALUES (?, ?, 0)", [stage, message_id])
    known.add(stage, ids)


@cache
def shared_store() -> duckdb.DuckDBPyConnection:
    """One for all examples: to make it takes longer than what is tried."""
    return empty_store()


@settings(max_examples=examples(12))
@given(
    st.lists(st.lists(st.text(min_size=1, max_size=6), max_size=8), min_size=1, max_size=8),
    st.integers(1, 12),
)
def test_what_was_noted_is_known_and_nothing_else(batches: list[list[str]], merge_at: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashes, "MERGE_AT", merge_at)
        connection = shared_store()
        connection.execute("DELETE FROM seen_messages")
        known = SeenMessages(partial(cursor_of, connection))
        noted: set[str] = set()
        for batch in batches:
            asked = [*batch, "never noted"]
            assert known.among("a", asked) == noted & set(asked)
            assert known.among("b", asked) == set()
            fresh = sorted(set(batch) - noted)
            note(connection, known, "a", *fresh)
            noted |= set(fresh)
        again = SeenMessages(partial(cursor_of, connection))
        assert again.among("a", [*noted, "never noted"]) == noted
        assert again.among("b", [*noted]) == set()


def test_ids_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "hash_of", lambda key: 7)
    connection = empty_store()
    known = SeenMessages(partial(cursor_of, connection))
    assert known.among("a", ["one"]) == set()
    note(connection, known, "a", "one")
    assert known.among("a", ["one", "two"]) == {"one"}


def test_a_merge_keeps_the_hashes_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "MERGE_AT", 3)
    connection = empty_store()
    known = SeenMessages(partial(cursor_of, connection))
    assert known.among("a", ["m0"]) == set()
    note(connection, known, "a", *(f"m{n}" for n in range(10)))
    hashed = known._known._sets[hashes.SEEN]
    ordered = hashed._sorted.tolist()
    assert all(first < second for first, second in pairwise(ordered))
    assert len(ordered) + len(hashed._new) == 10
