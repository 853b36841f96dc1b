"""What stages have committed and not sent: in copies of stores, and after a fold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import duckdb
from pydantic_core import from_json

from palimpsest.ops.replay.stored_embeddings import opened, table_in
from palimpsest.schemas.topics import CACHE_INVALIDATIONS, MEMORY_HISTORY, TURNS_NORMALIZED
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import LogReader, Record
from palimpsest.streams.runtime.output import LOOKED_BACK_RECORDS
from palimpsest.streams.store_port import Outbound


def unsent_in(files: Sequence[Path], stage: str) -> Iterator[Outbound]:
    """The outboxes of a stage in copies of stores; of a file that cannot be read none."""
    for file in files:
        try:
            with opened(file) as store:
                rows = store.execute(
                    "SELECT seq, topic, scope, record_key, value"
                    f" FROM {table_in(store, 'outbox')} WHERE stage = ? ORDER BY seq",
                    [stage],
                ).fetchall()
        except duckdb.Error:
            continue
        yield from (Outbound(*row) for row in rows)


def settle_outbox(shard: Shard, stage: str, log: LogReader, partition: int) -> None:
    """Take out of a stage's outbox what the log has. What is left was never sent, and will be when
    a worker starts."""
    waiting = shard.unsent(stage)
    sent: list[int] = []
    for topic in {out.topic for out in waiting}:
        of_topic = [out for out in waiting if out.topic == topic]
        names = _NAMES.get(topic, _id_of)
        known = {
            names(record.key, record.value)
            for record in _newest(log, topic, partition, len(of_topic) + LOOKED_BACK_RECORDS)
        }
        sent += [out.seq for out in of_topic if names(out.key.encode(), out.value) in known]
    if sent:
        with shard.writing() as connection:
            connection.execute(
                "DELETE FROM outbox WHERE stage = ? AND seq IN (SELECT unnest(?))", [stage, sent]
            )


def _newest(log: LogReader, topic: str, partition: int, count: int) -> Iterator[Record]:
    """The last `count` records of a topic."""
    offset = max(0, log.end_offset(topic, partition) - count)
    while records := log.read(topic, partition, offset, count):
        offset = records[-1].offset + 1
        yield from records


def _key_of(key: bytes | None, value: bytes | None) -> bytes | None:
    """What tells the records of a compacted topic apart: what they said may be erased since."""
    return key


def _id_of(key: bytes | None, value: bytes | None) -> object:
    """The message's id, not what it says: a dead letter says when it was written."""
    return _field("id", value)


def _cause_of(key: bytes | None, value: bytes | None) -> object:
    """Whose caches a memory lay in is not known any more once it is erased."""
    return _field("causation_id", value)


def _turn_of(key: bytes | None, value: bytes | None) -> object:
    """The turn and not the message: of an earlier release its messages had other ids, and who
    sends a turn again has it extracted from again."""
    scope, turn = _field("scope", value), _field("body", value)
    return (scope, turn.get("turn_id")) if isinstance(turn, dict) else None


def _field(name: str, value: bytes | None) -> object:
    try:
        raw = from_json(value or b"")
    except ValueError:
        return None
    return raw.get(name) if isinstance(raw, dict) else None


_NAMES: Final[Mapping[str, Callable[[bytes | None, bytes | None], object]]] = {
    MEMORY_HISTORY.name: _key_of,
    CACHE_INVALIDATIONS.name: _cause_of,
    TURNS_NORMALIZED.name: _turn_of,
}
"""How the records of a topic are distinguished; by their ids where nothing else is said."""
