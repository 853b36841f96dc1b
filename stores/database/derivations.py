"""The stored derivations: what memories were derived from, and what repeated them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import duckdb

from palimpsest.streams.store_port import SAME_IS_PENDING

REPEATED = ("none", "deduped")
"""Outcomes of a fact that a memory said already."""
SAID_AGAIN = ("created", "modified", *REPEATED)
"""Outcomes of a fact after which a memory has the fact's content, unless it waits for review."""


def says_it(has_text: str) -> str:
    """SQL: whether the memory of the outcome `o` says the fact `f`. What was said again while its
    change was pending is against the memory, until the change is applied: `has_text` is whether the
    memory has the fact's text, or had it."""
    return f"o.event IN {SAID_AGAIN} AND (o.reason <> '{SAME_IS_PENDING}' OR {has_text})"


_HAS_TEXT = "f.content = (SELECT m.content FROM memory_rows m WHERE m.memory_id = o.memory_id)"

Pairs = set[tuple[str, str]]
"""A memory with one of its sources."""

_EDGES = """
SELECT source_id, target_id FROM memory_edges
WHERE relation_type = 'derived_from' AND scope = $scope AND {column} IN (SELECT unnest($ids))"""
_STATED = f"""
SELECT o.memory_id, f.turn_memory_id, o.event, f.content, o.recorded_at
FROM outcomes o JOIN fact_rows f ON f.item_id = o.item_id
WHERE o.item_kind = 'fact' AND o.scope = $scope AND {says_it(_HAS_TEXT)}
    AND {{column}} IN (SELECT unnest($ids))"""
_ANSWERS = """
SELECT source_id, evidence, target_id FROM memory_edges
WHERE relation_type = 'derived_from' AND scope = $scope AND evidence <> ''
    AND source_id IN (SELECT unnest($ids))"""


@dataclass(frozen=True, slots=True)
class Stated:
    """A text that a source stated of a memory: the memory was made of it or changed to it, or said
    the same already (`event`)."""

    memory_id: str
    source: str
    event: str
    text: str
    recorded_at: datetime


def said_by(reader: duckdb.DuckDBPyConnection, scope: str, ids: Iterable[str]) -> set[str]:
    """The memories of the scope that were derived from any of these, or repeated by one."""
    given = {"scope": scope, "ids": sorted(ids)}
    drawn = reader.execute(_EDGES.format(column="target_id"), given).fetchall()
    stated = reader.execute(_STATED.format(column="f.turn_memory_id"), given).fetchall()
    return {memory_id for memory_id, *_ in (*drawn, *stated)}


def sources_of(
    reader: duckdb.DuckDBPyConnection, scope: str, ids: Iterable[str]
) -> tuple[Pairs, set[Stated]]:
    """Returns each of these memories with every other that it was derived from; and what others
    stated of them."""
    given = {"scope": scope, "ids": sorted(ids)}
    drawn = reader.execute(_EDGES.format(column="source_id"), given).fetchall()
    stated = reader.execute(_STATED.format(column="o.memory_id"), given).fetchall()
    return set(drawn), {Stated(*row) for row in stated}


def of_present_text(
    sources: Mapping[str, tuple[str, ...]], stated: Iterable[Stated], texts: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """Returns the sources of each memory without those that stated only what the memory said before
    its present text; `texts` are the present ones by id. Of a memory whose text no source stated, a
    person's or a model's, all stay."""
    by_id: dict[str, list[Stated]] = {}
    for each in stated:
        by_id.setdefault(each.memory_id, []).append(each)
    left = dict(sources)
    for memory_id, known in sources.items():
        of = by_id.get(memory_id, [])
        changes = [each.recorded_at for each in of if each.event == "modified"]
        literal = {each.source for each in of if each.text == texts.get(memory_id)}
        if not changes or not literal:
            continue
        # A repeat after the last change is of the present text, in whatever words.
        again = [each for each in of if each.event in REPEATED and each.recorded_at >= max(changes)]
        earlier = {each.source for each in of} - literal - {each.source for each in again}
        left[memory_id] = tuple(source for source in known if source not in earlier)
    return left


def answers_of(
    reader: duckdb.DuckDBPyConnection, scope: str, ids: Iterable[str]
) -> dict[tuple[str, str], str]:
    """Returns, by each of these memories and a source of it, the question that the source answers,
    where it says nothing without."""
    found = reader.execute(_ANSWERS, {"scope": scope, "ids": sorted(ids)}).fetchall()
    return {(memory_id, answer): question for memory_id, answer, question in found}


def by_memory(drawn: Pairs, stated: Iterable[Stated]) -> dict[str, tuple[str, ...]]:
    """Returns all sources, sorted, of the memories that were derived from any: what a person saved
    stays a person's, even if others repeat it."""
    sources: dict[str, list[str]] = {memory_id: [] for memory_id, _ in sorted(drawn)}
    again = {(each.memory_id, each.source) for each in stated}
    for memory_id, source in sorted(drawn | again):
        if memory_id in sources:
            sources[memory_id].append(source)
    return {memory_id: tuple(found) for memory_id, found in sources.items()}


# The words in which outcomes are reported, one word for one outcome. Messages on the log, and the
# rows made of them, keep the words that they were written with.

TOLD = {"modified": "updated"}
"""From the stored word to the one that is reported, where they differ."""


def told_word(column: str) -> str:
    """The word of a column's outcome as it is reported, as SQL."""
    cases = " ".join(f"WHEN '{stored}' THEN '{word}'" for stored, word in TOLD.items())
    return f"CASE {column} {cases} ELSE {column} END"
