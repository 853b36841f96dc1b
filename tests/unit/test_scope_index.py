"""How the memories of a scope hang together in its index."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.stores.database.analysis import query_tokens
from palimpsest.stores.index import cache
from palimpsest.stores.index.scope_index import ScopeIndex
from tests.memory_rows import SCOPE, open_shard
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
