"""Removes what a step of the retention sweep names, in sets.

The graph keeps what texts support that were there when the step was recorded: a rebuild, which has
written later memories by then, must remove the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import duckdb

from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.rows.pipeline import (
    AcceptedRow,
    CommandRow,
    DeadLetterRow,
    ExtractionRow,
    HistoryRow,
    OutcomeRow,
    RecallRow,
    SweepRow,
)
from palimpsest.stores.database.archive import drop_states
from palimpsest.stores.index.scope_graph import NAME_COLUMNS, GraphRemoval, name_row
from palimpsest.stores.writing.erased_graph import (
    EMPTY_ASPECTS,
    LOOSE_LINKS,
    UNTOLD_RELATIONS,
    note_told_then,
    without_untold_names,
)
from palimpsest.streams.store_port import OF_TOMBSTONES, Sweep

_OF_TURNS: Final = "item_kind = 'turn'"
BY_TIME: Final[Mapping[str, tuple[tuple[type[Row], str, str], ...]]] = {
    "history": ((HistoryRow, "created_at", "true"),),
    "completed": (
        (AcceptedRow, "recorded_at", "true"),
        (OutcomeRow, "recorded_at", _OF_TURNS),
        (ExtractionRow, "recorded_at", "true"),
        (CommandRow, "recorded_at", "true"),
    ),
    "dead-letters": ((DeadLetterRow, "last_failed_at", "true"),),
    "recalls": ((RecallRow, "recorded_at", "true"),),
}
"""The tables of the steps that go by time alone: the column, and which rows."""
_STEPS: Final = {row: (step, column) for step, all_ in BY_TIME.items() for row, column, _ in all_}

GONE: Final = (
    "(SELECT memory_id FROM memory_rows WHERE scope = $scope AND is_deleted"
    " AND deleted_at <= $before)"
)
"""The tombstones of `$scope` that the sweep removes: those deleted by `$before`."""


def is_swept(row: Row, swept: Mapping[tuple[str, str], SweepRow]) -> bool:
    """Returns whether a row to be stored is as old as what was swept already: a stage that comes
    late, as in a rebuild, has written it."""
    if not swept:
        return False
    step, column = _STEPS.get(type(row), ("", ""))
    if not step:
        return False
    if isinstance(row, OutcomeRow) and row.item_kind != "turn":
        return False
    before = swept.get((str(getattr(row, "scope", "")), step))
    return before is not None and bool(getattr(row, column) <= before.before)


def is_gone(row: MemoryRow, swept: SweepRow | None) -> bool:
    """Returns whether a memory was swept: its row may still be there until graph-persist has come
    so far."""
    return (
        swept is not None
        and row.is_deleted
        and row.deleted_at is not None
        and row.deleted_at <= swept.before
    )


def _given(sweep: Sweep) -> dict[str, object]:
    return {"scope": sweep.scope, "before": sweep.before}


def _by_time(connection: duckdb.DuckDBPyConnection, sweep: Sweep) -> None:
    for row_type, column, which in BY_TIME[sweep.step]:
        connection.execute(
            f"DELETE FROM {row_type.TABLE} WHERE scope = $scope AND {column} <= $before"
            f" AND {which}",
            _given(sweep),
        )
    if sweep.step == "recalls":
        connection.execute(
            "DELETE FROM recall_results WHERE scope = $scope AND recall_id NOT IN"
            " (SELECT recall_id FROM recalls WHERE scope = $scope)",
            {"scope": sweep.scope},
        )


def _mentions(connection: duckdb.DuckDBPyConnection, sweep: Sweep) -> GraphRemoval | None:
    """Removes the mentions of tombstones, and what of the graph nothing else supports."""
    given = _given(sweep)
    mentions = connection.execute(
        f"DELETE FROM mention_rows WHERE scope = $scope AND memory_id IN {GONE}"
        " RETURNING name_id, memory_id",
        given,
    ).fetchall()
    connection.execute(
        f"DELETE FROM attribute_rows WHERE scope = $scope AND memory_id IN {GONE}", given
    )
    lost = Counter(name_id for name_id, _ in mentions)
    names = sorted(lost)
    if not names:
        return None
    of_names = {"scope": sweep.scope, "names": names}
    kept = connection.execute(
        "UPDATE name_rows SET mentions = greatest(1, mentions - lost) FROM"
        " (SELECT unnest(?::VARCHAR[]) AS lost_id, unnest(?::BIGINT[]) AS lost)"
        f" WHERE name_id = lost_id AND scope = ? RETURNING {NAME_COLUMNS}",
        [names, [lost[name] for name in names], sweep.scope],
    ).fetchall()
    connection.execute(EMPTY_ASPECTS, of_names)
    was_there = "created_at < $at AND NOT (is_deleted AND deleted_at <= $before)"
    note_told_then(connection, was_there, {**given, "names": names, "at": sweep.at})
    relations = connection.execute(UNTOLD_RELATIONS, of_names).fetchall()
    gone = [name_id for name_id, _ in without_untold_names(connection, of_names)]
    connection.execute(LOOSE_LINKS, {"scope": sweep.scope})
    return GraphRemoval(mentions, relations, gone, [name_row(row) for row in kept])


_KEYS: Final = f"""
(SELECT embedding_key FROM memory_rows WHERE memory_id IN {GONE}
UNION SELECT json_extract_string(state, '$.embedding_key') FROM archived_states
    WHERE scope = $scope AND memory_id IN {GONE})"""


def _vectors(connection: duckdb.DuckDBPyConnection, sweep: Sweep) -> None:
    """Removes postings, and vectors of texts that nothing else has."""
    given = _given(sweep)
    for table in ("fts_docs", "fts_postings"):
        connection.execute(
            f"DELETE FROM {table} WHERE scope = $scope AND memory_id IN {GONE}", given
        )
    connection.execute(f"DELETE FROM turn_passages WHERE memory_id IN {GONE}", given)
    connection.execute(
        f"DELETE FROM embeddings WHERE embedding_key IN {_KEYS} AND embedding_key NOT IN"
        f" (SELECT embedding_key FROM memory_rows WHERE memory_id NOT IN {GONE})",
        given,
    )


_MEMORIES: Final = (
    # What a living memory was derived from is asked for by its id: that stays.
    f"DELETE FROM memory_edges WHERE scope = $scope AND (source_id IN {GONE}"
    f" OR (relation_type <> 'derived_from' AND target_id IN {GONE}))",
    f"DELETE FROM memory_rows WHERE memory_id IN {GONE}",
)
# The facts of a source are needed as long as it, or a memory that says them, is there.
_FACTS: Final = """
SELECT f.item_id FROM fact_rows f
LEFT JOIN outcomes o ON o.item_kind = 'fact' AND o.item_id = f.item_id
WHERE f.scope = $scope
    AND (f.turn_memory_id IN (SELECT unnest($ids)) OR o.memory_id IN (SELECT unnest($ids)))
    AND NOT EXISTS (FROM memory_rows WHERE memory_id = f.turn_memory_id)
    AND NOT EXISTS (FROM memory_rows m WHERE m.memory_id = o.memory_id)"""
_OF_FACTS: Final = ("fact_rows", "proposals", "held_proposals", "shadow_proposals")


def _memories(connection: duckdb.DuckDBPyConnection, sweep: Sweep) -> None:
    given = _given(sweep)
    ids = [key for (key,) in connection.execute(f"FROM {GONE}", given).fetchall()]
    drop_states(connection, sweep.scope, ids)
    for statement in _MEMORIES:
        connection.execute(statement, given)
    facts = connection.execute(_FACTS, {"scope": sweep.scope, "ids": ids}).fetchall()
    items = [[item_id for (item_id,) in facts]]
    if facts:
        for table in _OF_FACTS:
            connection.execute(f"DELETE FROM {table} WHERE item_id IN (SELECT unnest(?))", items)
        connection.execute(
            "DELETE FROM outcomes WHERE item_kind = 'fact' AND item_id IN (SELECT unnest(?))", items
        )


STEPS: Final = (*OF_TOMBSTONES, *BY_TIME)
SWEEPS: Final[Mapping[str, Callable[[duckdb.DuckDBPyConnection, Sweep], GraphRemoval | None]]] = {
    "mentions": _mentions,
    "vectors": _vectors,
    "memories": _memories,
    **dict.fromkeys(BY_TIME, _by_time),
}
