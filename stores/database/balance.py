"""The conservation law, true at every moment: where every turn and every fact is.

What went in and what became of it are counted apart: `accepted_turns` and `fact_rows` by the
stages that read them, `outcomes` and `dead_letter_rows` by those that settled them. Everything
that is not settled must be *found* in the log or in an outbox; what cannot be found is `lost`,
and a balance that loses anything does not hold.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import duckdb
import pyarrow as pa

from palimpsest.schemas.rows.enumerations import FactOutcome
from palimpsest.stores.database.cursors import Readable
from palimpsest.stores.database.derivations import TOLD, told_word
from palimpsest.streams.store_port import FindItems

TURN_STATES = ("stored", "rejected", "dead", "in_flight", "lost")
FACT_STATES = (
    *(TOLD.get(event, event) for event in get_args(FactOutcome)),
    *("dead", "in_flight", "lost"),
)

_ITEMS = f"""
known AS (
    SELECT 'turn' AS item_kind, item_id, scope FROM internal.accepted_turns
    UNION SELECT 'fact', item_id, scope FROM internal.fact_rows
    UNION SELECT item_kind, unnest(item_ids), scope FROM internal.dead_letter_rows
        WHERE item_kind IN ('turn', 'fact') AND status <> 'redriven'
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
_TOTAL_NOW = _balance(by_scope=False).replace("pipeline_items", f"(WITH {_ITEMS})")


@dataclass(frozen=True, slots=True)
class Balance:
    """Numbers of items by state. The law holds when nothing is lost."""

    turns: Mapping[str, int]
    facts: Mapping[str, int]
    holds: bool


def read_balance(shard: Readable, find_items: FindItems) -> Balance:
    """The balance of one partition, over all scopes."""
    with shard.reading() as reader, _log_items(reader, find_items):
        result = reader.execute(_TOTAL_NOW)
        names = [column[0] for column in result.description or ()]
        [values] = result.fetchall()
    row = dict(zip(names, values, strict=True))
    turns, facts = (
        {name.removeprefix(kind): row[name] for name in names if name.startswith(kind)}
        for kind in ("turns_", "facts_")
    )
    return Balance(turns, facts, row["holds"])


def add_balances(balances: Sequence[Balance]) -> Balance:
    """The balances of several partitions as one."""
    return Balance(
        turns=_summed([balance.turns for balance in balances], ("accepted", *TURN_STATES)),
        facts=_summed([balance.facts for balance in balances], ("extracted", *FACT_STATES)),
        holds=all(balance.holds for balance in balances),
    )


def install_balance(connection: duckdb.DuckDBPyConnection, find_items: FindItems) -> None:
    """Give this connection the views `items_now`, `balance_now` and `total_now`: what the views
    `pipeline_items`, `pipeline_balance` and `pipeline_total` of the store are, as of now."""
    with _log_items(connection, find_items):
        connection.execute(f"CREATE OR REPLACE TEMP TABLE items_now AS WITH {_ITEMS}")
    for name, by_scope in (("balance_now", True), ("total_now", False)):
        query = _balance(by_scope).replace("FROM pipeline_items", "FROM temp.items_now")
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {query}")


@contextlib.contextmanager
def _log_items(connection: duckdb.DuckDBPyConnection, find_items: FindItems) -> Iterator[None]:
    """Gives the enclosed queries the table `log_items`.

    Order matters. One transaction fixes what is seen of the store; only then is the log read.
    """
    connection.execute("BEGIN TRANSACTION")
    try:
        items = [*find_items(*progress_of(connection))]
        columns = ("item_kind", "item_id", "scope", "found_as", "place")
        table = {
            name: pa.array([getattr(each, name) for each in items], pa.string()) for name in columns
        }
        connection.register("log_items", pa.table(table))
        try:
            yield
        finally:
            connection.unregister("log_items")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def progress_of(
    connection: duckdb.DuckDBPyConnection,
) -> tuple[dict[tuple[str, str], int], list[tuple[str, bytes]]]:
    """What FindItems is given: the next offsets, and the outboxes."""
    cursors = {
        (stage, topic): offset
        for stage, topic, offset in connection.execute(
            "SELECT stage, topic, next_offset FROM internal.cursors"
        ).fetchall()
    }
    outbox = connection.execute(
        "SELECT topic, value FROM internal.outbox WHERE value IS NOT NULL ORDER BY stage, seq"
    ).fetchall()
    return cursors, outbox


def _summed(parts: Sequence[Mapping[str, int]], names: Sequence[str]) -> dict[str, int]:
    return {name: sum(part.get(name, 0) for part in parts) for name in names}
