"""The conservation law, true at every moment: where every turn and every fact is.

What went in and what became of it are counted apart: `accepted_turns` and `fact_rows` by the
stages that read them, `outcomes` and `dead_letter_rows` by those that settled them. Everything
that is not settled must be *found* in the log or in an outbox; what cannot be found is `lost`,
and a balance that loses anything does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from schemas.codec import InvalidRecord, decode
from schemas.identity import UNREADABLE_SCOPE, items_of, items_of_unreadable
from schemas.messages import DeadLetter
from schemas.topics import (
    CONVERSATION_TURNS,
    DEAD_LETTERS,
    FACTS_EXTRACTED,
    MEMORY_WRITES,
    TOPICS,
)
from stores.readers import Readable
from stores.words import told_word
from streams.logs.base import LogReader, Record, partition_for

READ_RECORDS = 1_000

TURN_STATES = ("stored", "rejected", "dead", "in_flight", "lost")
FACT_STATES = (
    "created",
    "updated",
    "deleted",
    "none",
    "deduped",
    "skipped",
    "blocked",
    "shadowed",
    "dropped",
    "dead",
    "in_flight",
    "lost",
)

_ITEMS = f"""
known AS (
    SELECT 'turn' AS item_kind, item_id, scope FROM internal.accepted_turns
    UNION SELECT 'fact', item_id, scope FROM internal.fact_rows
    UNION SELECT item_kind, unnest(item_ids), scope FROM internal.dead_letter_rows
        WHERE item_kind IN ('turn', 'fact')
    UNION SELECT item_kind, item_id, scope FROM log_items WHERE found_as = 'known'
), items AS (
    SELECT item_kind, item_id, min(scope) AS scope FROM known GROUP BY ALL
), buried AS (
    SELECT item_kind, item_id, min(reason) AS reason FROM (
        SELECT item_kind, unnest(item_ids) AS item_id, reason FROM internal.dead_letter_rows
        WHERE status <> 'redriven'
        UNION ALL SELECT item_kind, item_id, place FROM log_items WHERE found_as = 'dead'
    ) GROUP BY ALL
), moving AS (
    SELECT item_kind, item_id, min(place) AS place FROM log_items
    WHERE found_as = 'in_flight' GROUP BY ALL
)
SELECT i.item_kind, i.item_id, i.scope,
    CASE WHEN o.event = 'created' AND i.item_kind = 'turn' THEN 'stored'
         WHEN o.event IS NOT NULL THEN {told_word("o.event")}
         WHEN m.place IS NOT NULL THEN 'in_flight'
         WHEN b.item_id IS NOT NULL THEN 'dead'
         ELSE 'lost' END AS state,
    coalesce(o.reason, m.place, b.reason) AS detail,
    o.memory_id
FROM items i
LEFT JOIN internal.outcomes o USING (item_kind, item_id)
LEFT JOIN moving m USING (item_kind, item_id)
LEFT JOIN buried b USING (item_kind, item_id)
"""


def _balance(by_scope: bool) -> str:
    """The query of the balance over `pipeline_items`: a row a scope, or one for all."""
    turns = ", ".join(_count("turn", state) for state in TURN_STATES)
    facts = ", ".join(_count("fact", state) for state in FACT_STATES)
    return f"""
SELECT {"scope, " if by_scope else ""}
    count(*) FILTER (item_kind = 'turn') AS turns_accepted, {turns},
    count(*) FILTER (item_kind = 'fact') AS facts_extracted, {facts},
    turns_accepted = turns_stored + turns_rejected + turns_dead + turns_in_flight
      AND facts_extracted = {" + ".join(f"facts_{s}" for s in FACT_STATES if s != "lost")}
      AS holds
FROM pipeline_items {"GROUP BY scope ORDER BY scope" if by_scope else ""}
"""


def _count(kind: str, state: str) -> str:
    return f"count(*) FILTER (item_kind = '{kind}' AND state = '{state}') AS {kind}s_{state}"


STORED_ITEMS = f"""
WITH log_items AS (
    SELECT NULL::VARCHAR AS item_kind, NULL::VARCHAR AS item_id, NULL::VARCHAR AS scope,
        NULL::VARCHAR AS found_as, NULL::VARCHAR AS place WHERE false
), {_ITEMS.replace("'lost'", "'in_flight'")}
"""
"""The items as the store alone tells them: `in_flight` is all that is not settled."""
STORED_BALANCE = _balance(by_scope=True).replace("FROM pipeline", "FROM main.pipeline")
STORED_TOTAL = _balance(by_scope=False).replace("FROM pipeline", "FROM main.pipeline")


@dataclass(frozen=True, slots=True)
class Balance:
    """Numbers of items by state; `scope` is None for all together. The law holds when nothing is
    lost."""

    scope: str | None
    turns: Mapping[str, int]
    facts: Mapping[str, int]
    holds: bool


@dataclass(frozen=True, slots=True)
class _LogItem:
    item_kind: str
    item_id: str
    scope: str
    found_as: str
    place: str


def read_balance(shard: Readable, log: LogReader, partition: int) -> list[Balance]:
    """The balance of one partition: all scopes together first, then each scope by name."""
    with shard.reading() as reader:
        install_balance(reader, log, partition)
        return [
            _balance_of(dict(zip(names, row, strict=True)))
            for view in ("pipeline_total", "pipeline_balance")
            for names, rows in [_rows(reader, f"SELECT * FROM temp.{view}")]
            for row in rows
        ]


def _rows(
    reader: duckdb.DuckDBPyConnection, query: str
) -> tuple[list[str], list[tuple[object, ...]]]:
    result = reader.execute(query)
    return [column[0] for column in result.description or ()], result.fetchall()


def add_balances(balances: Sequence[Balance]) -> Balance:
    """The balances of several partitions as one."""
    return Balance(
        scope=None,
        turns=_summed([balance.turns for balance in balances], ("accepted", *TURN_STATES)),
        facts=_summed([balance.facts for balance in balances], ("extracted", *FACT_STATES)),
        holds=all(balance.holds for balance in balances),
    )


def install_balance(connection: duckdb.DuckDBPyConnection, log: LogReader, partition: int) -> None:
    """Give this connection the views `pipeline_items`, `pipeline_balance` and `pipeline_total` as
    of now, before those of the store.

    Order matters. One transaction fixes what is seen of the store; the log is then read from the
    first topic of the flow to the last: an item that moves meanwhile is met again further down,
    never missed.
    """
    connection.execute("BEGIN TRANSACTION")
    try:
        cursors = {
            (stage, topic): offset
            for stage, topic, offset in connection.execute(
                "SELECT stage, topic, next_offset FROM internal.cursors"
            ).fetchall()
        }
        outbox = connection.execute(
            "SELECT topic, value FROM internal.outbox WHERE value IS NOT NULL ORDER BY stage, seq"
        ).fetchall()
        items = [
            *_on_their_way(log, partition, cursors),
            *(item for topic, value in outbox for item in _in_outbox(topic, bytes(value))),
        ]
        _materialize(connection, items)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    for name, by_scope in (("pipeline_balance", True), ("pipeline_total", False)):
        query = _balance(by_scope).replace("FROM pipeline", "FROM temp.pipeline")
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {query}")


def _materialize(connection: duckdb.DuckDBPyConnection, items: Sequence[_LogItem]) -> None:
    columns = ("item_kind", "item_id", "scope", "found_as", "place")
    table = pa.table(
        {name: pa.array([getattr(item, name) for item in items], pa.string()) for name in columns}
    )
    connection.register("log_items", table)
    try:
        connection.execute(f"CREATE OR REPLACE TEMP TABLE pipeline_items AS WITH {_ITEMS}")
    finally:
        connection.unregister("log_items")


def _on_their_way(
    log: LogReader, partition: int, cursors: Mapping[tuple[str, str], int]
) -> Iterator[_LogItem]:
    turns = CONVERSATION_TURNS.name
    partitions = log.partitions(turns)
    normalized = log.position("normalize", turns, partition)
    audited = cursors.get(("audit", turns), 0)
    for record in _tail(log, turns, partition, min(normalized, audited)):
        for item in _items(record, partitions):
            if record.offset >= audited:
                yield item("known")
            if record.offset >= normalized:
                yield item("in_flight")
    decided = cursors.get(("decide", FACTS_EXTRACTED.name), 0)
    for record in _tail(log, FACTS_EXTRACTED.name, partition, decided):
        for item in _items(record, partitions):
            yield item("known")
            yield item("in_flight")
    applied = cursors.get(("apply-writes", MEMORY_WRITES.name), 0)
    for record in _tail(log, MEMORY_WRITES.name, partition, applied):
        for item in _items(record, partitions):
            yield item("in_flight")
    buried = cursors.get(("audit", DEAD_LETTERS.name), 0)
    for record in _tail(log, DEAD_LETTERS.name, partition, buried):
        yield from _dead_items(record.value)


def _tail(log: LogReader, topic: str, partition: int, offset: int) -> Iterator[Record]:
    end = log.end_offset(topic, partition)
    while offset < end:
        records = log.read(topic, partition, offset, READ_RECORDS)
        if not records:
            return
        yield from records
        offset = records[-1].offset + 1


@dataclass(frozen=True, slots=True)
class _Found:
    """An item met in the log; called with what its being there means."""

    item_kind: str
    item_id: str
    scope: str
    place: str

    def __call__(self, found_as: str) -> _LogItem:
        return _LogItem(self.item_kind, self.item_id, self.scope, found_as, self.place)


def _items(record: Record, partitions: int) -> Iterator[_Found]:
    place = f"{record.topic}[{record.partition}]@{record.offset}"
    try:
        message = decode(record.value, TOPICS[record.topic], record.timestamp)
    except InvalidRecord:
        topic = TOPICS[record.topic]
        unread = items_of_unreadable(topic, record.partition, record.offset, record.value)
        if unread.kind in ("turn", "fact"):
            for item_id in unread.item_ids:
                yield _Found(unread.kind, item_id, UNREADABLE_SCOPE, place)
        return
    if (
        record.topic == CONVERSATION_TURNS.name
        and partition_for(message.scope, partitions) != record.partition
    ):
        return  # normalize moves it to its partition, where it counts
    carried = items_of(message)
    if carried.kind in ("turn", "fact"):
        for item_id in carried.item_ids:
            yield _Found(carried.kind, item_id, message.scope, place)


def _in_outbox(topic: str, value: bytes) -> Iterator[_LogItem]:
    if topic == DEAD_LETTERS.name:
        yield from _dead_items(value)
        return
    message = decode(value, TOPICS[topic], None)
    carried = items_of(message)
    if carried.kind in ("turn", "fact"):
        for item_id in carried.item_ids:
            yield _LogItem(carried.kind, item_id, message.scope, "in_flight", "outbox")


def _dead_items(value: bytes | None) -> Iterator[_LogItem]:
    try:
        message = decode(value, DEAD_LETTERS, None)
    except InvalidRecord:
        return  # audit dead-letters the unreadable dead letter; it names no item
    letter = message.body
    assert isinstance(letter, DeadLetter)
    if letter.item_kind in ("turn", "fact"):
        for item_id in letter.item_ids:
            yield _LogItem(letter.item_kind, item_id, message.scope, "dead", letter.reason)


def _balance_of(row: Mapping[str, object]) -> Balance:
    def numbers(prefix: str) -> dict[str, int]:
        return {
            name.removeprefix(prefix): int(str(value))
            for name, value in row.items()
            if name.startswith(prefix)
        }

    scope = row.get("scope")
    return Balance(
        None if scope is None else str(scope),
        numbers("turns_"),
        numbers("facts_"),
        bool(row["holds"]),
    )


def _summed(parts: Sequence[Mapping[str, int]], names: Sequence[str]) -> dict[str, int]:
    return {name: sum(part.get(name, 0) for part in parts) for name in names}
