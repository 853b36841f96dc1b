"""The tables of a store: made from the rows in a new one, brought up to date in an old one.

A migration adds the tables and columns whose rows name its number, then runs its own statements."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import duckdb

from palimpsest.schemas.rows.columns import UNIQUE, Column, Row, columns_of
from palimpsest.schemas.rows.row_types import ROW_TYPES
from palimpsest.stores.database.tables import parsed

_TYPES: Final[dict[type, str]] = {
    **{str: "VARCHAR", int: "BIGINT", float: "DOUBLE"},
    **{bool: "BOOLEAN", datetime: "TIMESTAMPTZ"},
}
_ERASED_GRAPH: Final = """
CREATE TABLE erased_graph (scope VARCHAR NOT NULL, id VARCHAR NOT NULL, PRIMARY KEY (scope, id))"""
"""Names and relations that an import must not bring back, by their ids."""
_JOB_RUNS: Final = """
CREATE TABLE job_runs (
    job VARCHAR PRIMARY KEY, scheduled_for TIMESTAMPTZ NOT NULL, started_at TIMESTAMPTZ,
    ended_at TIMESTAMPTZ, outcome VARCHAR, detail VARCHAR NOT NULL DEFAULT '',
    failures BIGINT NOT NULL DEFAULT 0)"""
"""The newest run of each scheduled job: when something ran is this store's own, what it did is in
the log. Without an `outcome` the job has not run yet."""
_TURN_PASSAGES: Final = """
CREATE TABLE turn_passages (
    memory_id VARCHAR, model VARCHAR, embedding_key VARCHAR NOT NULL, content_hash VARCHAR NOT NULL,
    tokens BLOB NOT NULL, passages BLOB NOT NULL, PRIMARY KEY (memory_id, model))"""
"""A cache of all that those turns say which `embeddings` has by their outlines. Two texts may have
the same outline, so it goes by memory; `embedding_key` and `content_hash` are those that the row
had when this was made."""
_BOOKKEEPING: Final = (
    # Caches of what memories hold.
    """CREATE TABLE embeddings (
        embedding_key VARCHAR, model VARCHAR, vector FLOAT[] NOT NULL, tokens BLOB,
        PRIMARY KEY (embedding_key, model))""",
    """CREATE TABLE fts_docs (
        memory_id VARCHAR PRIMARY KEY, scope VARCHAR NOT NULL, length BIGINT NOT NULL)""",
    """CREATE TABLE fts_postings (
        scope VARCHAR NOT NULL, term VARCHAR NOT NULL, memory_id VARCHAR NOT NULL,
        tf USMALLINT NOT NULL)""",
    # The runner's own.
    """CREATE TABLE cursors (
        stage VARCHAR, topic VARCHAR, next_offset BIGINT NOT NULL, PRIMARY KEY (stage, topic))""",
    # Without an index: see stores/state.py.
    """CREATE TABLE seen_messages (
        stage VARCHAR NOT NULL, message_id VARCHAR NOT NULL, seen_offset BIGINT NOT NULL)""",
    """CREATE TABLE outbox (
        stage VARCHAR NOT NULL, seq BIGINT NOT NULL, topic VARCHAR NOT NULL,
        scope VARCHAR NOT NULL, record_key VARCHAR NOT NULL, value BLOB,
        PRIMARY KEY (stage, seq))""",
    "CREATE TABLE shard_state (name VARCHAR PRIMARY KEY, value VARCHAR NOT NULL)",
    """CREATE TABLE erasures (
        erasure_id VARCHAR PRIMARY KEY, scope VARCHAR NOT NULL, position BIGINT NOT NULL,
        phase VARCHAR NOT NULL, memory_ids VARCHAR[] NOT NULL, texts VARCHAR NOT NULL)""",
)
"""Tables without rows of `schemas`, as of the oldest version that is migrated. None of it is
memory, so none of it is in the state hash."""

FEWER_INDEXES: Final = 24
"""The migration since which only rows that are `INDEXED` have an index of their key."""
_UNINDEXED: Final = {
    "fts_docs": """CREATE TABLE fts_docs (
        memory_id VARCHAR NOT NULL, scope VARCHAR NOT NULL, length BIGINT NOT NULL)""",
    "outbox": """CREATE TABLE outbox (
        stage VARCHAR NOT NULL, seq BIGINT NOT NULL, topic VARCHAR NOT NULL,
        scope VARCHAR NOT NULL, record_key VARCHAR NOT NULL, value BLOB)""",
}


def _made_again(table: str, definition: str) -> Iterator[str]:
    """A table with its rows under a new definition, which only a new table can have."""
    yield f"ALTER TABLE {table} RENAME TO before_{table}"
    yield definition
    yield f"INSERT INTO {table} BY NAME FROM before_{table}"
    yield f"DROP TABLE before_{table}"


@dataclass(frozen=True, slots=True)
class Migration:
    """`bookkeeping` changes tables that have no rows of `schemas`, also in a new store; `fill`
    changes stored rows."""

    number: int
    title: str
    bookkeeping: tuple[str, ...] = ()
    fill: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.number:04}-{self.title}"


OLDEST: Final = 11
"""The last migration of the oldest stores that can be brought up to date."""
_BEFORE: Final = (
    *("tables", "extracted-turns", "first-occurred-at", "held-proposals", "names-and-texts"),
    *("token-vectors", "command-digest", "model-cost", "documents", "sessions-and-short-term"),
)
MIGRATIONS: Final = (
    *(Migration(number, title) for number, title in enumerate(_BEFORE, 1)),
    Migration(OLDEST, "erasures", _BOOKKEEPING),
    Migration(12, "promotions"),
    Migration(13, "shadow-proposals"),
    Migration(14, "privacy-levels"),
    Migration(
        15,
        "scope-categories",
        fill=(
            """INSERT INTO scope_categories
        SELECT scope, list(DISTINCT name ORDER BY name)
        FROM (SELECT scope, unnest(categories) AS name FROM memory_rows) GROUP BY scope""",
        ),
    ),
    Migration(16, "roles"),
    Migration(
        17,
        "erased-scopes",
        ("ALTER TABLE erasures ADD COLUMN scope_at TIMESTAMPTZ", _ERASED_GRAPH),
        (
            # What erasures of before have left in rows, and a rebuild would not have.
            """UPDATE memory_rows SET temporal_kind = 'persistent', extraction_model = NULL,
        source_id = CASE WHEN source_type IN ('extraction', 'document') THEN source_id END,
        source_type = CASE WHEN source_type IN ('extraction', 'document') THEN source_type ELSE ''
            END
        WHERE is_deleted AND content_hash = ''""",
            "UPDATE fact_rows SET categories = [] WHERE starts_with(content, '[erased ')",
            "UPDATE held_proposals SET categories = [] WHERE starts_with(content, '[erased ')",
        ),
    ),
    Migration(
        18,
        "decisions-are-applied",
        fill=(
            # Decide writes nothing any more; audit stores the extractions, and goes on where decide
            # was.
            """INSERT INTO cursors (stage, topic, next_offset)
        SELECT 'audit', topic, next_offset FROM cursors WHERE stage = 'decide'""",
            "DELETE FROM cursors WHERE stage = 'decide'",
            "DELETE FROM seen_messages WHERE stage = 'decide'",
        ),
    ),
    Migration(
        19,
        "recalls-and-decay",
        fill=(
            # What has lain unread for years must not be gone after the first night.
            """INSERT INTO shard_state
        SELECT 'decay_since', CAST(max(updated_at) AS VARCHAR) FROM memory_rows
        HAVING count(*) > 0""",
        ),
    ),
    Migration(20, "jobs-and-retention", (_JOB_RUNS,)),
    Migration(
        21,
        "archive-files",
        (
            "CREATE TABLE archive_gone (memory_id VARCHAR PRIMARY KEY)",
            # Of a store without files, until it is opened.
            "CREATE VIEW archived_states AS FROM internal.memory_archive",
        ),
    ),
    Migration(23, "embedding-models"),
    Migration(
        FEWER_INDEXES,
        "fewer-indexes",
        tuple(each for name in _UNINDEXED for each in _made_again(name, _UNINDEXED[name])),
    ),
    Migration(
        25,
        "name-links",
        fill=(
            """INSERT INTO name_links
                (name_id, alias_id, scope, is_active, command_id, updated_at)
        SELECT n.entity_id, n.name_id, n.scope, true, (SELECT min(c.command_id)
            FROM command_results c WHERE c.scope = n.scope AND c.command = 'alias'
                AND c.error IS NULL AND (c.result->>'name' = n.name
                OR list_contains(json_extract_string(c.result, '$.aliases[*]'), n.name))),
            n.updated_at
        FROM name_rows n WHERE n.entity_id <> n.name_id""",
        ),
    ),
    Migration(28, "retained-confidence"),
    Migration(29, "aspects"),
    Migration(30, "speakers-clock"),
    Migration(31, "edited-turns"),
    Migration(
        32,
        "long-texts",
        (
            # Of texts that were embedded up to here; they are made again, whole.
            "UPDATE embeddings SET tokens = NULL WHERE octet_length(tokens) = 4 * 256 * 66",
            "ALTER TABLE embeddings ADD COLUMN passages BLOB",
        ),
    ),
    Migration(33, "denied-mentions"),
    Migration(34, "edited-entities"),
    Migration(36, "turn-passages", (_TURN_PASSAGES,)),
    Migration(37, "role-plays"),
)
"""Append only: one that was released is never edited."""


def _definition(column: Column) -> str:
    """A column as SQL. One that was added to its table may be NULL there, and has a default."""
    parts = [column.name, _TYPES[column.type] + ("[]" if column.is_list else "")]
    if UNIQUE in column.marks:
        parts.append("UNIQUE")
    if not column.is_optional:
        default = "[]" if column.default == () else repr(column.default)
        parts.append(f"DEFAULT {default}" if column.since else "NOT NULL")
    return " ".join(parts)


def _create(row_type: type[Row], known: Collection[int]) -> str:
    """The table of these migrations, its columns in the order in which they came."""
    columns = sorted(columns_of(row_type).values(), key=lambda column: column.since)
    parts = [_definition(each) for each in columns if not each.since or each.since in known]
    if row_type.INDEXED or FEWER_INDEXES not in known:
        parts.append(f"PRIMARY KEY ({', '.join(row_type.KEY)})")
    return f"CREATE TABLE {row_type.TABLE} ({', '.join(parts)})"


def _additions(number: int, row_types: Sequence[type[Row]]) -> Iterator[str]:
    """The statements that bring what a migration adds into an old store."""
    for row_type in row_types:
        if number == row_type.SINCE:
            yield _create(row_type, range(1, number + 1))
            continue
        for column in columns_of(row_type).values():
            if column.since == number:
                yield f"ALTER TABLE {row_type.TABLE} ADD COLUMN {_definition(column)}"
        if number == FEWER_INDEXES and not row_type.INDEXED and number > row_type.SINCE:
            yield from _made_again(row_type.TABLE, _create(row_type, range(1, number + 1)))


_IN_MAIN: Final = """
SELECT 1 FROM duckdb_tables() WHERE schema_name = 'main' AND table_name IN (SELECT unnest(?))
    AND database_name = current_database()"""
_TOO_OLD: Final = (
    "the store is older than what this version can bring up to date, or such an old version worked"
    " on it; `palimpsest replay rebuild --swap` makes it again from the log"
)


def use_tables(connection: duckdb.DuckDBPyConnection) -> None:
    """Let this connection name the tables without their schema."""
    connection.execute(parsed(connection, "SET search_path = 'internal,main'"))


def migrate(
    connection: duckdb.DuckDBPyConnection, only: Collection[str] | None = None
) -> list[str]:
    """Bring the file to the newest version, or to that of `only` these migrations; each migration
    in its own transaction. The connection may then name the tables without their schema.

    Returns the names of those applied to an older store. Raises ValueError for a store that is too
    old, and for one with a migration that this program does not know: a newer one wrote it.
    """
    wanted = [each for each in MIGRATIONS if only is None or each.name in only]
    done = _done(connection)
    unknown = {*(only or ()), *done} - {each.name for each in MIGRATIONS}
    if unknown:
        raise ValueError(
            f"the store has migrations {', '.join(sorted(unknown))}, which this program does not"
            " know; it was written by a newer version: upgrade the program, or let `palimpsest"
            " replay rebuild --swap` make the store again for this one"
        )
    if any(
        each.name not in (done or [every.name for every in wanted]) for each in MIGRATIONS[:OLDEST]
    ):
        raise ValueError(_TOO_OLD)
    if not done:
        known = [each.number for each in wanted]
        tables = [_create(each, known) for each in ROW_TYPES if each.SINCE in known]
        own = [statement for each in wanted for statement in each.bookkeeping]
        _run(connection, tables + own, wanted)
        return []
    left = [each for each in wanted if each.name not in done]
    for migration in left:
        statements = *_additions(migration.number, ROW_TYPES), *migration.bookkeeping
        _run(connection, [*statements, *migration.fill], [migration])
    return [each.name for each in left]


def _done(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """The migrations of a store; none of a new one. Raises ValueError for one that is too old."""
    tables = ["migrations", "outbox", *(each.TABLE for each in ROW_TYPES)]
    if connection.execute(_IN_MAIN, [tables]).fetchone() is not None:
        raise ValueError(_TOO_OLD)
    connection.execute("CREATE SCHEMA IF NOT EXISTS internal")
    use_tables(connection)
    connection.execute(
        "CREATE TABLE IF NOT EXISTS internal.migrations (name VARCHAR PRIMARY KEY, position BIGINT)"
    )
    found = connection.execute("SELECT name FROM internal.migrations").fetchall()
    return [name for (name,) in found]


def _run(
    connection: duckdb.DuckDBPyConnection, statements: Sequence[str], of: Sequence[Migration]
) -> None:
    connection.execute("BEGIN")
    for statement in statements:
        connection.execute(statement)
    connection.executemany(
        "INSERT INTO internal.migrations VALUES (?, ?)",
        [(each.name, each.number - 1) for each in of],
    )
    connection.execute("COMMIT")
