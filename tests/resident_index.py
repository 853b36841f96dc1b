"""What a resident index has, in a form that does not depend on the order of what happened."""

from __future__ import annotations

from typing import Any

from palimpsest.stores.index.scope_index import ScopeIndex


def described(index: ScopeIndex) -> dict[str, Any]:
    """What an index has of living memories, and its graph."""
    texts = {
        memory_id: (segment.contents[place], bytes(segment.vectors[place]))
        for segment in index.segments
        for memory_id, place in segment.place_of.items()
    }
    lengths = [(segment.total_length, segment.vector_count) for segment in index.segments]
    return {"texts": texts, "lengths": lengths, **graph_of(index)}


def graph_of(index: ScopeIndex) -> dict[str, Any]:
    """The graph of an index."""
    graph = index.graph
    mentions = {
        name_id: sorted(
            (graph.ids[number], text, confidence, index.numbers.name(words))
            for number, text, confidence, words in held[
                ["memory", "text", "confidence", "words"]
            ].tolist()
        )
        for name_id, held in graph._mentions.items()
        if len(held)
    }
    relations = {name: {**known} for name, known in graph._relations.items() if known}
    return {
        "names": {**graph.names},
        "by entity": {entity: {*ids} for entity, ids in graph._names_of.items() if ids},
        "relations": relations,
        "mentions": mentions,
        "counts": (sum(map(len, relations.values())), sum(map(len, mentions.values()))),
        "found": graph.named("ben", frozenset({"ben", "ana", "oslo"}), "english"),
    }
