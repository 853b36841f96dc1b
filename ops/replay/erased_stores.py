"""Erasing from a store of a branch what was erased from the live one.

The memories become tombstones as they are live, all that quotes them loses it, and the files of log
and store are written again. Nothing is reported: no record follows from it, and no cursor moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from palimpsest.ops.maintenance.erasing import carry_out_in
from palimpsest.schemas.redaction import is_mark
from palimpsest.schemas.rows import MemoryRow
from palimpsest.stores.shard import Shard
from palimpsest.stores.writing.erased_graph import erase_graph
from palimpsest.stores.writing.erasures import DONE
from palimpsest.stores.writing.unit_of_work import UnitOfWork
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.memory_rows import changed, is_erased, without_text
from palimpsest.streams.store_port import Erase, Load, Loaded, Progress, Put

BY: Final = "erasure"
"""Who has changed a memory of a branch that was erased."""
_STAGE: Final = "apply-writes"


@dataclass(frozen=True, slots=True)
class Erased:
    """An erasure that is finished in the live memory: the memories whose texts are gone, and when
    that was of all of the scope."""

    erasure_id: str
    scope: str
    memory_ids: tuple[str, ...]
    scope_at: datetime | None = None


def erased_in(shard: Shard) -> list[Erased] | None:
    """What was erased from a live store; None while something of it is left to be done."""
    with shard.reading() as reader:
        rows = reader.execute(
            "SELECT erasure_id, scope, memory_ids, scope_at, phase FROM erasures ORDER BY position"
        ).fetchall()
    if any(phase != DONE for *_, phase in rows):
        return None
    return [Erased(key, scope, tuple(ids), scope_at) for key, scope, ids, scope_at, _ in rows]


def count_erasures(shards: Mapping[int, Shard]) -> tuple[int, ...]:
    """How many there are, and how many are finished, by shard."""
    counts: list[int] = []
    for _, shard in sorted(shards.items()):
        with shard.reading() as reader:
            [found] = reader.execute(
                "SELECT count(*), count(*) FILTER (phase = ?) FROM erasures", [DONE]
            ).fetchall()
        counts += found
    return tuple(counts)


def erase_in_store(
    log: EmbeddedLog,
    partition: int,
    shard: Shard,
    erasures: Iterable[Erased],
    at: datetime,
    under_way: bool,
) -> bool:
    """Erase these memories from a store that no one else has open, and from the branch's log;
    whether there was anything of them. `under_way`: records of the log may be of memories that are
    not there yet. May be repeated. Raises LogError, OSError, duckdb.Error and StoreError."""
    found = False
    for erased in erasures:
        unit = shard.unit()
        rows = _texts_left(unit, erased)
        is_wanted = under_way or erased.scope_at is not None
        if rows or (is_wanted and not _is_known(shard, erased)):
            _forget_in_graph(shard, erased)
            _erase(unit, erased, rows, at)
            found = True
    if shard.has_erasures:
        carry_out_in(log, partition, shard)
        found = True
    return found


def _texts_left(unit: UnitOfWork, erased: Erased) -> list[MemoryRow]:
    load = Load(erased.scope, memory_ids=erased.memory_ids)
    unit.prefetch([load])
    loaded = unit.answer(load)
    assert isinstance(loaded, Loaded)
    rows = [row for _, row in sorted(loaded.memories.items()) if row.scope == erased.scope]
    return [row for row in rows if not is_erased(row) and not is_mark(row.content)]


def _is_known(shard: Shard, erased: Erased) -> bool:
    with shard.reading() as reader:
        query = "SELECT 1 FROM erasures WHERE erasure_id = ?"
        return reader.execute(query, [erased.erasure_id]).fetchone() is not None


def _forget_in_graph(shard: Shard, erased: Erased) -> None:
    """First, for it is told by the memories' rows what is left to be done. With the last memory of
    a scope goes all that its graph has."""
    with shard.writing() as connection:
        others = connection.execute(
            "SELECT 1 FROM memory_rows WHERE scope = ? AND content_hash <> ''"
            " AND memory_id NOT IN (SELECT unnest(?)) LIMIT 1",
            [erased.scope, [*erased.memory_ids]],
        ).fetchone()
        connection.execute("BEGIN")
        try:
            erase_graph(connection, erased.scope, erased.memory_ids if others else None)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def _erase(unit: UnitOfWork, erased: Erased, rows: Sequence[MemoryRow], at: datetime) -> None:
    for number, row in enumerate(rows, unit.write_seq + 1):
        unit.stage([Put(without_text(changed(row, at, BY, number), at))])
    texts = dict.fromkeys(erased.memory_ids, "") | {row.memory_id: row.content for row in rows}
    keys = tuple(row.embedding_key for row in rows)
    unit.stage([Erase(erased.erasure_id, erased.scope, texts, keys, erased.scope_at)])
    unit.commit(Progress(_STAGE, {}, (), (), sent_through=-1))
