"""How the memories of a scope hang together in its index."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from palimpsest.stores.database.analysis import query_tokens
from palimpsest.stores.index import cache
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.settings import StoreSettings
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.memory_rows import SCOPE, open_shard, options, write
from tests.memory_rows import memory as stored_memory
from tests.messages import published
from tests.messages import turn as said
from tests.unit.small_store import edge, memory, turn


@pytest.mark.parametrize("forgotten_first", [True, False])
def test_what_is_derived_from_a_remembered_text_is_linked_to_no_turn(forgotten_first: bool) -> None:
    """A remembered text is no turn: its place must not be taken for that of one, also when it was
    forgotten before what was drawn from it came."""
    index = ScopeIndex(4)
    index.put(turn("t1", "a turn"), {"turn": 1}, None)
    for number in range(3):
        index.put(memory(f"m{number}", f"text {number}"), {"text": 1}, None)
    if forgotten_first:
        index.remove("m2")
    index.put(memory("drawn", "drawn from the text"), {"drawn": 1}, None)
    index.link(edge("drawn", "derived_from", "m2"))
    assert index.pairs.tolist() == []
    index.link(edge("drawn", "derived_from", "t1"))
    assert index.pairs.tolist() == [[0, index.facts.place_of["drawn"]]]


def test_a_turn_that_is_recovered_has_its_links_again() -> None:
    index = ScopeIndex(4)
    index.put(turn("t1", "a turn"), {"turn": 1}, None)
    index.remove("t1")
    index.put(memory("drawn", "drawn from the turn"), {"drawn": 1}, None)
    index.link(edge("drawn", "derived_from", "t1"))
    index.put(turn("t1", "a turn", version=3), {"turn": 1}, None)
    assert index.pairs.tolist() == [[index.turns.place_of["t1"], index.facts.place_of["drawn"]]]


@pytest.mark.parametrize(
    ("names", "asked", "named"),
    [
        (("Fahim Khan", "Akib"), "What does Fahim like?", "Fahim Khan"),
        (("Fahim Khan", "Akib"), "What does Fahim Khan like?", "Fahim Khan"),
        (("Fahim Khan", "Akib"), "What do Fahim and Akib like?", None),
        (("Fahim Khan", "Akib"), "What is a khan?", None),
        (("Ana Ruiz", "Ana Lopez"), "What does Ana like?", None),
        (("Ana Ruiz", "Ana Lopez"), "What does Ana Lopez like?", "Ana Lopez"),
        (("Ana", "Ana Lopez"), "What does Ana like?", "Ana"),
        (("Борис Петров", "Анна"), "Где живёт Борис?", "Борис Петров"),
        (("The Boss", "Ana"), "What is the time?", None),
        (("Fahim Khan", "Fahim Khan"), "What does Fahim like?", None),
    ],
)
def test_the_one_speaker_who_is_named(
    names: tuple[str, ...], asked: str, named: str | None
) -> None:
    index = ScopeIndex(4)
    for number, name in enumerate(names):
        index.put(turn(f"t{number}", "a turn", who=name), {"turn": 1}, None)
    found = index.named_speaker(frozenset(query_tokens(asked, "english")), "english")
    assert (None if found is None else index.numbers.names[found]) == named


def test_what_is_forgotten_while_it_is_loaded_is_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before the change that it is forgotten for must not stay."""
    shard = open_shard(tmp_path)
    loaded: list[ScopeIndex] = []
    load = cache.load_index

    def loading(*given: object) -> ScopeIndex:
        loaded.append(load(*given))  # type: ignore[arg-type]
        if len(loaded) == 1:
            shard.indexes.forget(SCOPE)
        return loaded[-1]

    monkeypatch.setattr(cache, "load_index", loading)
    assert shard.indexes.get(SCOPE) is shard.indexes.resident(SCOPE) is loaded[1]
    shard.close()


def test_nothing_is_read_of_a_new_scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service with many users has many scopes; the index of a new one is kept from its first
    record on, and has what the store has."""
    read: list[str] = []
    load = cache.load_index

    def loading(connection: duckdb.DuckDBPyConnection, scope: str, *given: object) -> ScopeIndex:
        read.append(scope)
        return load(connection, scope, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(cache, "load_index", loading)
    scopes = [f"user-{number}" for number in range(20)]
    with Pipeline(tmp_path, pipeline_settings(FULL)) as pipeline:
        for text in ("I live in Graz.", "I moved to Linz."):
            pipeline.publish(*(published(said(text, text), scope) for scope in scopes))
            pipeline.run()
        indexes = pipeline.shard.indexes
        assert read == []
        for scope in scopes:
            kept = indexes.resident(scope)
            assert kept is not None
            indexes.forget(scope)
            assert shown(kept) == shown(indexes.get(scope)) != ([], [], [])
        assert read == scopes


def test_many_scopes_ask_the_store_no_more_often_than_a_few(tmp_path: Path) -> None:
    reads: list[int] = []
    with Pipeline(tmp_path, pipeline_settings(FULL)) as pipeline:
        for users in (5, 40):
            before = pipeline.shard.readers.count
            text = "I live in Graz and my sister is called Eva."
            pipeline.publish(
                *(
                    published(said(text, f"{users}-{user}"), f"{users}-{user}")
                    for user in range(users)
                )
            )
            pipeline.run()
            reads.append(pipeline.shard.readers.count - before)
        facts = "SELECT count(DISTINCT scope) FROM memories WHERE type = 'fact'"
        assert pipeline.values(facts) == [45]
    few, many = reads
    assert many < few + 10, reads


def shown(index: ScopeIndex) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    """The turns, the facts, and which fact is from which turn."""
    turns, facts = (sorted(segment.place_of) for segment in index.segments)
    pairs = index.pairs.tolist()
    return turns, facts, sorted((index.turns.ids[t], index.facts.ids[f]) for t, f in pairs)


def test_what_is_committed_while_a_new_scope_begins_is_in_its_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = open_shard(tmp_path)
    reading = shard.readers.reading

    @contextmanager
    def committing_after() -> Iterator[duckdb.DuckDBPyConnection]:
        with reading() as reader:
            yield reader
        shard.indexes.change(
            SCOPE, lambda index: index.put(turn("t1", "a turn"), {"turn": 1}, None)
        )

    monkeypatch.setattr(shard.indexes, "_reading", committing_after)
    shard.indexes.begin([SCOPE])
    index = shard.indexes.resident(SCOPE)
    assert index is not None
    assert index.find("t1") is not None
    shard.close()


def test_a_scope_with_anything_stored_is_read_when_it_is_searched(tmp_path: Path) -> None:
    shard = open_shard(tmp_path)
    write(shard, [stored_memory("tea", "Ana drinks tea")])
    shard.indexes.begin([SCOPE, "new"])
    shard.indexes.begin([SCOPE])
    assert shard.indexes.resident("new") is not None
    assert shard.indexes.resident(SCOPE) is None
    assert shard.indexes.get(SCOPE).find("tea") is not None
    shard.close()


def test_new_scopes_share_the_memory_of_all(tmp_path: Path) -> None:
    """Those whose index was not used for longest leave, also if they grew after they began."""
    shard = open_shard(tmp_path)
    allowed = 1_048_576
    indexes = cache.IndexCache(
        shard.reading,
        options(store=StoreSettings(index_bytes=allowed)),
        tmp_path,
        lambda scope: None,
        shard.indexes._stored,
    )
    for number in range(200):
        indexes.begin([f"user-{number}"])
        row = turn(f"t{number}", "a turn of some words")
        indexes.change(f"user-{number}", lambda index, row=row: index.put(row, {"turn": 1}, None))
    last = indexes.resident("user-199")
    assert last is not None
    assert indexes.bytes_used() <= allowed + last.bytes_used()
    assert indexes.resident("user-0") is None
    indexes.clear()
    assert indexes.bytes_used() == 0
    shard.close()
