"""The texts that memories were drawn from, with all that was drawn from them, as a batch has left
it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable

from palimpsest.schemas.rows.memories import ArchiveRow, EdgeRow, MemoryRow
from palimpsest.schemas.rows.pipeline import FactRow, OutcomeRow, SweepRow
from palimpsest.stores.database.derivations import (
    SAID_AGAIN,
    Pairs,
    Stated,
    answers_of,
    by_memory,
    of_present_text,
    said_by,
    says_it,
    sources_of,
)
from palimpsest.stores.state import ShardState
from palimpsest.stores.writing.batch_rows import BatchRows
from palimpsest.stores.writing.sweeps import is_gone
from palimpsest.streams.store_port import (
    FORGOTTEN,
    HIDDEN,
    SAME_IS_PENDING,
    Load,
    Source,
    Statement,
)

_STATED = f"""
SELECT f.turn_memory_id, o.memory_id, f.content
FROM fact_rows f JOIN outcomes o ON o.item_kind = 'fact' AND o.item_id = f.item_id
    LEFT JOIN memory_rows m ON m.memory_id = o.memory_id
WHERE f.scope = $scope AND o.scope = $scope AND {says_it("m.content = f.content")}
    AND f.turn_memory_id IN (SELECT unnest($ids))"""
_DRAWN = """
SELECT target_id, source_id FROM memory_edges
WHERE relation_type = 'derived_from' AND scope = $scope AND target_id IN (SELECT unnest($ids))"""

Texts = dict[tuple[str, str], set[str]]
"""The texts in which a source stated what a memory says, by the ids of both."""


def sources_of_derived(shard: ShardState, rows: BatchRows, ask: Load) -> dict[str, tuple[str, ...]]:
    """Returns all sources, sorted, of every memory that was derived from one of `derived_from`, or
    derived from another and repeated by one; with `present_text` those of the text that it has
    now."""
    scope, ids = ask.scope, ask.derived_from
    if not ids:
        return {}
    edges, staged = _staged_edges(rows, scope), _staged(rows, scope)
    wanted = {memory_id for memory_id, source in edges if source in ids}
    wanted |= {each.memory_id for each in staged if each.source in ids}
    with shard.reading() as reader:
        wanted |= said_by(reader, scope, ids)
        drawn, stated = sources_of(reader, scope, wanted)
    drawn |= {pair for pair in edges if pair[0] in wanted}
    stated |= {each for each in staged if each.memory_id in wanted}
    found = by_memory(drawn, stated)
    if not ask.present_text:
        return found
    texts = {key: row.content for key in found if (row := rows.get(MemoryRow, (key,))) is not None}
    return of_present_text(found, stated, texts)


def answers_of_derived(
    shard: ShardState, rows: BatchRows, scope: str, ids: Iterable[str]
) -> dict[tuple[str, str], str]:
    """Returns, by each of these memories and a source of it, the question that the source answers,
    where it says nothing without."""
    wanted = set(ids)
    if not wanted:
        return {}
    with shard.reading() as reader:
        found = answers_of(reader, scope, wanted)
    return found | {
        (edge.source_id, edge.evidence): edge.target_id
        for edge in rows.staged(EdgeRow)
        if edge.relation_type == "derived_from" and edge.scope == scope and edge.evidence
    }


def sources_with_statements(
    shard: ShardState, rows: BatchRows, scope: str, ids: Iterable[str]
) -> dict[str, Source]:
    """The sources of these memories by id."""
    wanted = set(ids)
    if not wanted:
        return {}
    edges, staged = _staged_edges(rows, scope), _staged(rows, scope)
    known: Texts = defaultdict(set)
    for each in staged:
        known[each.source, each.memory_id].add(each.text)
    pairs = edges | {(each.memory_id, each.source) for each in staged}
    with shard.reading() as reader:
        drawn_from, stated = sources_of(reader, scope, wanted)
        pairs |= drawn_from | {(each.memory_id, each.source) for each in stated}
        found = sorted({source for memory_id, source in pairs if memory_id in wanted})
        given = {"scope": scope, "ids": found}
        for source, memory_id, text in reader.execute(_STATED, given).fetchall():
            known[source, memory_id].add(text)
        edges |= {(drawn, source) for source, drawn in reader.execute(_DRAWN, given).fetchall()}
    for memory_id, source in edges:
        if (source, memory_id) not in known:
            row = _unswept(rows, memory_id)
            earlier = [] if row is None else [state.content for state in archived_states(rows, row)]
            known[source, memory_id] = set() if row is None else {row.content, *earlier}
    return {
        key: source for key in found if (source := _source(rows, scope, key, known)) is not None
    }


def _staged_edges(rows: BatchRows, scope: str) -> Pairs:
    return rows.anticipated_sources | {
        (edge.source_id, edge.target_id)
        for edge in rows.staged(EdgeRow)
        if edge.relation_type == "derived_from" and edge.scope == scope
    }


def _staged(rows: BatchRows, scope: str) -> list[Stated]:
    stated = []
    for outcome in rows.staged(OutcomeRow):
        if outcome.item_kind == "fact" and outcome.event in SAID_AGAIN and outcome.scope == scope:
            fact = rows.get(FactRow, (outcome.item_id,))
            if fact is None or outcome.memory_id is None:
                continue
            memory = rows.get(MemoryRow, (outcome.memory_id,))
            is_against = memory is not None and memory.content != fact.content
            if outcome.reason != SAME_IS_PENDING or not is_against:
                stated.append(
                    Stated(
                        outcome.memory_id,
                        fact.turn_memory_id,
                        outcome.event,
                        fact.content,
                        outcome.recorded_at,
                    )
                )
    return stated


def _source(rows: BatchRows, scope: str, key: str, stated: Texts) -> Source | None:
    row = rows.get(MemoryRow, (key,))
    if row is None or row.scope != scope:
        return None
    archived = archived_states(rows, row)
    text, metadata = row.content, row.metadata
    for state in reversed(archived):
        if state.reason not in (HIDDEN, FORGOTTEN):
            break
        text, metadata = state.content, str(json.loads(state.state)["metadata"])
    return Source(
        row,
        text,
        metadata,
        is_hidden=row.is_deleted and bool(archived) and archived[-1].reason == HIDDEN,
        statements=tuple(
            Statement(memory_id, stated_text, _is_forgotten(rows, memory_id))
            for (source, memory_id), texts in sorted(stated.items())
            if source == key
            for stated_text in sorted(texts)
        ),
    )


def archived_states(rows: BatchRows, row: MemoryRow) -> list[ArchiveRow]:
    """The states before, oldest first. A change of something else than the text leaves none."""
    return rows.get_all(ArchiveRow, [(row.memory_id, number) for number in range(1, row.version)])


def _unswept(rows: BatchRows, memory_id: str) -> MemoryRow | None:
    row = rows.get(MemoryRow, (memory_id,))
    if row is None or is_gone(row, rows.get(SweepRow, (row.scope, "mentions"))):
        return None
    return row


def _is_forgotten(rows: BatchRows, memory_id: str) -> bool:
    row = _unswept(rows, memory_id)
    if row is None:
        return True  # it was deleted and then swept: what it said must not be shown again
    if not row.is_deleted:
        return False
    before = rows.get(ArchiveRow, (memory_id, row.version - 1))
    return before is not None and before.reason == FORGOTTEN
