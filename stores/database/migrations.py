"""The shard's tables, as named migrations. Append only: one that was released is never edited."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass

import duckdb

from palimpsest.schemas.identity import entity_id
from palimpsest.stores.database.first_tables import FIRST_TABLES
from palimpsest.stores.database.tables import parsed

Statement = str | Callable[[duckdb.DuckDBPyConnection], None]
"""SQL, or what SQL cannot do."""


@dataclass(frozen=True, slots=True)
class Migration:
    name: str
    statements: tuple[Statement, ...]


_FIRST_OCCURRED_AT = ("ALTER TABLE memory_rows ADD COLUMN first_occurred_at TIMESTAMPTZ",)

_HELD_PROPOSALS = (
    """CREATE TABLE held_proposals (
        item_id VARCHAR PRIMARY KEY, scope VARCHAR NOT NULL, action VARCHAR NOT NULL,
        target_id VARCHAR NOT NULL, target_version BIGINT, reason VARCHAR NOT NULL,
        turn_memory_id VARCHAR NOT NULL, content VARCHAR NOT NULL, type VARCHAR NOT NULL,
        confidence DOUBLE NOT NULL, importance DOUBLE, temporal_kind VARCHAR NOT NULL,
        valid_until TIMESTAMPTZ, categories VARCHAR[] NOT NULL, model VARCHAR NOT NULL,
        occurred_at TIMESTAMPTZ NOT NULL, recorded_at TIMESTAMPTZ NOT NULL)""",
    # What was held back before there was this table, from what decide took note of. The version
    # that it saw stands with the candidates.
    """INSERT INTO held_proposals BY NAME
        SELECT item_id, f.scope, p.action, p.target_id,
            list_filter(
                from_json(p.candidates, '[{"memory_id": "VARCHAR", "version": "BIGINT"}]'),
                lambda candidate: candidate.memory_id = p.target_id
            )[1].version AS target_version,
            p.reason, f.turn_memory_id, f.content, f.type, f.confidence, f.importance,
            f.temporal_kind, f.valid_until, f.categories, f.model, f.occurred_at, o.recorded_at
        FROM outcomes o
        JOIN fact_rows f USING (item_id)
        JOIN (FROM proposals QUALIFY row_number() OVER (PARTITION BY item_id ORDER BY round DESC)
            = 1) p USING (item_id)
        WHERE o.item_kind = 'fact' AND o.event = 'blocked' AND p.target_id IS NOT NULL""",
)


def _name_rows_of_aliases(connection: duckdb.DuckDBPyConnection) -> None:
    """A row for each alias, with the id that a name has."""
    known = connection.execute(
        "SELECT DISTINCT ON (scope, alias) scope, alias, entity_id, first_seen, updated_at FROM"
        " (SELECT *, unnest(aliases) AS alias FROM entities) ORDER BY scope, alias, entity_id"
    ).fetchall()
    for scope, alias, entity, first_seen, updated_at in known:
        connection.execute(
            "INSERT INTO name_rows VALUES (?, ?, ?, ?, ?, true, 'unknown', NULL, 0, false, ?, ?)"
            " ON CONFLICT DO NOTHING",
            [entity_id(scope, alias), scope, alias, alias, entity, first_seen, updated_at],
        )


# What said of a memory that it mentions an entity did not say in which of its texts: it is held for
# all that have the words, or where none has them for the first one, which triples are about.
_MENTIONS_OF_TEXTS = """INSERT INTO mention_rows
    WITH texts AS (
        SELECT memory_id, version, type, content, json_extract_string(state, '$.who') AS who,
            json_extract_string(state, '$.embedding_key') AS text_key
        FROM memory_archive
        UNION ALL SELECT memory_id, version, type, content, who, embedding_key FROM memory_rows),
    said AS (
        SELECT memory_id, version, text_key, CASE WHEN type = 'episodic' AND coalesce(who, '') <> ''
            THEN who || ': ' || content ELSE content END AS text FROM texts),
    held AS (
        SELECT m.*, said.text_key, said.version,
            contains(lower(said.text), lower(m.mention_text)) AS has_it
        FROM memory_entity_mentions m JOIN said USING (memory_id))
    SELECT memory_id, text_key, entity_id, any_value(scope), min(mention_text), max(confidence)
    FROM (SELECT *, bool_or(has_it) OVER one AS is_written, min(version) OVER one AS first_version
        FROM held WINDOW one AS (PARTITION BY memory_id, entity_id))
    WHERE has_it OR (NOT is_written AND version = first_version)
    GROUP BY memory_id, text_key, entity_id"""

_NAMES: tuple[Statement, ...] = (
    """CREATE TABLE name_rows (
        name_id VARCHAR PRIMARY KEY, scope VARCHAR NOT NULL, name VARCHAR NOT NULL,
        canonical_name VARCHAR NOT NULL, entity_id VARCHAR NOT NULL, is_alias BOOLEAN NOT NULL,
        entity_type VARCHAR NOT NULL, summary VARCHAR, mentions BIGINT NOT NULL,
        pinned BOOLEAN NOT NULL, first_seen TIMESTAMPTZ NOT NULL, updated_at TIMESTAMPTZ NOT NULL)
    """,
    """CREATE TABLE relation_rows (
        source_name_id VARCHAR, target_name_id VARCHAR, relation_type VARCHAR,
        scope VARCHAR NOT NULL, strength DOUBLE NOT NULL, mentions BIGINT NOT NULL,
        confidence DOUBLE NOT NULL,
        PRIMARY KEY (source_name_id, target_name_id, relation_type))""",
    """CREATE TABLE mention_rows (
        memory_id VARCHAR, text_key VARCHAR, name_id VARCHAR, scope VARCHAR NOT NULL,
        mention_text VARCHAR NOT NULL, confidence DOUBLE NOT NULL,
        PRIMARY KEY (memory_id, text_key, name_id))""",
    """CREATE TABLE aspect_rows (
        aspect_id VARCHAR PRIMARY KEY, name_id VARCHAR NOT NULL, scope VARCHAR NOT NULL,
        name VARCHAR NOT NULL, canonical_name VARCHAR NOT NULL, weight DOUBLE NOT NULL,
        updated_at TIMESTAMPTZ NOT NULL)""",
    """CREATE TABLE attribute_rows (
        aspect_id VARCHAR, memory_id VARCHAR, scope VARCHAR NOT NULL, kind VARCHAR NOT NULL,
        status VARCHAR NOT NULL, confidence DOUBLE NOT NULL, importance DOUBLE NOT NULL,
        PRIMARY KEY (aspect_id, memory_id))""",
    """INSERT INTO name_rows SELECT entity_id, scope, name, canonical_name, entity_id, false,
        entity_type, summary, mentions, pinned, first_seen, updated_at FROM entities""",
    _name_rows_of_aliases,
    "INSERT INTO relation_rows SELECT * FROM relations",
    "INSERT INTO aspect_rows SELECT * FROM entity_aspects",
    "INSERT INTO attribute_rows SELECT * FROM entity_attributes",
    _MENTIONS_OF_TEXTS,
    "DROP VIEW IF EXISTS mentions",
    # Their names go to views over the new tables.
    *(
        f"DROP TABLE {table}"
        for table in (
            *("entities", "relations", "memory_entity_mentions"),
            *("entity_aspects", "entity_attributes"),
        )
    ),
)

_TOKENS = (
    "ALTER TABLE embeddings ADD COLUMN tokens BLOB",
    # Vectors of a model whose tokens were not kept yet: rebuilt, with them.
    "DELETE FROM embeddings WHERE model = 'answerai-colbert-small-int8'",
)

_DOCUMENTS = (
    """CREATE TABLE document_rows (
        document_id VARCHAR PRIMARY KEY, scope VARCHAR NOT NULL, kind VARCHAR NOT NULL,
        source VARCHAR, title VARCHAR NOT NULL, same_key VARCHAR, digest VARCHAR,
        content_type VARCHAR, characters BIGINT, chunk_characters BIGINT NOT NULL,
        chunk_overlap BIGINT NOT NULL, chunks BIGINT, taken BIGINT NOT NULL, error VARCHAR,
        added_by VARCHAR NOT NULL, created_at TIMESTAMPTZ NOT NULL,
        updated_at TIMESTAMPTZ NOT NULL, deleted_at TIMESTAMPTZ)""",
    """CREATE TABLE document_memory_rows (
        document_id VARCHAR, position BIGINT, memory_id VARCHAR NOT NULL, scope VARCHAR NOT NULL,
        PRIMARY KEY (document_id, position))""",
)

_SESSIONS: tuple[Statement, ...] = (
    "ALTER TABLE session_rows ADD COLUMN first_turn VARCHAR DEFAULT ''",
    "ALTER TABLE session_rows ADD COLUMN last_recorded_at TIMESTAMPTZ",
    "ALTER TABLE session_rows ADD COLUMN ended_at TIMESTAMPTZ",
    "ALTER TABLE session_rows ADD COLUMN ended_by VARCHAR",
    "ALTER TABLE session_rows ADD COLUMN ends BIGINT DEFAULT 0",
    """CREATE TABLE open_sessions (
        scope VARCHAR PRIMARY KEY, session_ids VARCHAR[] NOT NULL)""",
    """CREATE TABLE short_term_rows (
        scope VARCHAR NOT NULL, session_id VARCHAR NOT NULL, turns VARCHAR[] NOT NULL,
        turns_expire_at TIMESTAMPTZ, explicit_intent BOOLEAN NOT NULL, summary VARCHAR,
        summary_by VARCHAR, summary_at TIMESTAMPTZ, summary_expires_at TIMESTAMPTZ,
        summarized_through VARCHAR, expires_at TIMESTAMPTZ NOT NULL,
        PRIMARY KEY (scope, session_id))""",
    # What sessions of before tell of themselves: the newest one of a scope is the open one.
    """UPDATE session_rows SET first_turn = m.first_turn, last_recorded_at = m.last_recorded_at
        FROM (SELECT scope, session_id, arg_min(memory_id, created_at) AS first_turn,
                max(created_at) AS last_recorded_at
            FROM memory_rows WHERE type = 'episodic' GROUP BY scope, session_id) m
        WHERE session_rows.scope = m.scope AND session_rows.session_id = m.session_id""",
    """INSERT INTO open_sessions
        SELECT scope, [arg_max(session_id, (last_recorded_at, session_id))] FROM session_rows
        WHERE session_id <> '' AND last_recorded_at IS NOT NULL GROUP BY scope""",
    """UPDATE session_rows SET ended_at = coalesce(last_recorded_at, last_at),
            ended_by = 'new-session', ends = 1
        WHERE session_id <> '' AND NOT EXISTS (FROM open_sessions o
            WHERE o.scope = session_rows.scope
            AND list_contains(o.session_ids, session_rows.session_id))""",
    "ALTER TABLE scope_flags ADD COLUMN self_teaching_enabled BOOLEAN",
)

_PRIVACY = """
CREATE TABLE privacy_rows (
    scope VARCHAR NOT NULL, person_key VARCHAR NOT NULL, person VARCHAR NOT NULL,
    level VARCHAR NOT NULL, reason VARCHAR NOT NULL, changed_by VARCHAR NOT NULL,
    recorded_at TIMESTAMPTZ NOT NULL, PRIMARY KEY (scope, person_key)
)"""
_ERASURES = """
CREATE TABLE erasures (
    erasure_id VARCHAR PRIMARY KEY, scope VARCHAR NOT NULL, position BIGINT NOT NULL,
    phase VARCHAR NOT NULL, memory_ids VARCHAR[] NOT NULL, texts VARCHAR NOT NULL)
"""

_ERASED_SCOPES = (
    "ALTER TABLE erasures ADD COLUMN scope_at TIMESTAMPTZ",
    # Names and relations that an import must not bring back, by their ids.
    """CREATE TABLE erased_graph (
        scope VARCHAR NOT NULL, id VARCHAR NOT NULL, PRIMARY KEY (scope, id))""",
    # What erasures of before have left in rows, and a rebuild would not have.
    """UPDATE memory_rows SET temporal_kind = 'persistent', extraction_model = NULL,
        source_id = CASE WHEN source_type IN ('extraction', 'document') THEN source_id END,
        source_type = CASE WHEN source_type IN ('extraction', 'document') THEN source_type ELSE ''
            END
        WHERE is_deleted AND content_hash = ''""",
    "UPDATE fact_rows SET categories = [] WHERE starts_with(content, '[erased ')",
    "UPDATE held_proposals SET categories = [] WHERE starts_with(content, '[erased ')",
)

_SHADOW_PROPOSALS = (
    """CREATE TABLE shadow_proposals (
        item_id VARCHAR NOT NULL, round BIGINT NOT NULL, decider VARCHAR NOT NULL,
        scope VARCHAR NOT NULL, turn_memory_id VARCHAR NOT NULL, action VARCHAR,
        target_id VARCHAR, confidence DOUBLE NOT NULL, reason VARCHAR NOT NULL, error VARCHAR,
        input_tokens BIGINT, output_tokens BIGINT, latency_ms DOUBLE, cost DOUBLE,
        recorded_at TIMESTAMPTZ NOT NULL, PRIMARY KEY (item_id, round, decider))""",
    "ALTER TABLE scope_flags ADD COLUMN earned_update_delete BOOLEAN",
)

_PROMOTIONS = (
    """CREATE TABLE promotion_rows (
        promotion_id VARCHAR, scope VARCHAR, number BIGINT NOT NULL, branch VARCHAR NOT NULL,
        plan_id VARCHAR NOT NULL, status VARCHAR NOT NULL, gained BIGINT NOT NULL,
        changed BIGINT NOT NULL, lost BIGINT NOT NULL, kept BIGINT NOT NULL,
        reason VARCHAR NOT NULL, promoted_by VARCHAR NOT NULL, recorded_at TIMESTAMPTZ NOT NULL,
        rolled_back_by VARCHAR, updated_at TIMESTAMPTZ NOT NULL,
        PRIMARY KEY (promotion_id, scope))""",
    """CREATE TABLE promotion_item_rows (
        promotion_id VARCHAR, memory_id VARCHAR, scope VARCHAR NOT NULL, change VARCHAR NOT NULL,
        why VARCHAR NOT NULL, counterpart VARCHAR, version_before BIGINT, version_after BIGINT,
        rollback VARCHAR, PRIMARY KEY (promotion_id, memory_id))""",
    """CREATE TABLE promotion_part_rows (
        scope VARCHAR, plan_id VARCHAR, part BIGINT, promotion_id VARCHAR NOT NULL,
        payload VARCHAR NOT NULL, PRIMARY KEY (scope, plan_id, part))""",
)

_CATEGORIES: tuple[Statement, ...] = (
    "CREATE TABLE scope_categories (scope VARCHAR PRIMARY KEY, names VARCHAR[] NOT NULL)",
    """INSERT INTO scope_categories
        SELECT scope, list(DISTINCT name ORDER BY name)
        FROM (SELECT scope, unnest(categories) AS name FROM memory_rows) GROUP BY scope""",
)

_DECISIONS: tuple[Statement, ...] = (
    # Decide writes nothing any more; audit stores the extractions, and goes on where decide was.
    """INSERT INTO cursors (stage, topic, next_offset)
        SELECT 'audit', topic, next_offset FROM cursors WHERE stage = 'decide'""",
    "DELETE FROM cursors WHERE stage = 'decide'",
    "DELETE FROM seen_messages WHERE stage = 'decide'",
)


MIGRATIONS: tuple[Migration, ...] = (
    Migration("0001-tables", FIRST_TABLES),
    Migration(
        "0002-extracted-turns",
        ("ALTER TABLE session_rows ADD COLUMN extracted_turns VARCHAR[] DEFAULT []",),
    ),
    Migration("0003-first-occurred-at", _FIRST_OCCURRED_AT),
    Migration("0004-held-proposals", _HELD_PROPOSALS),
    Migration("0005-names-and-texts", _NAMES),
    Migration("0006-token-vectors", _TOKENS),
    Migration("0007-command-digest", ("ALTER TABLE command_results ADD COLUMN digest VARCHAR",)),
    Migration(
        "0008-model-cost",
        tuple(
            f"ALTER TABLE {table} ADD COLUMN cost DOUBLE" for table in ("extractions", "proposals")
        ),
    ),
    Migration("0009-documents", _DOCUMENTS),
    Migration("0010-sessions-and-short-term", _SESSIONS),
    Migration("0011-erasures", (_ERASURES,)),
    Migration("0012-promotions", _PROMOTIONS),
    Migration("0013-shadow-proposals", _SHADOW_PROPOSALS),
    Migration("0014-privacy-levels", (_PRIVACY,)),
    Migration("0015-scope-categories", _CATEGORIES),
    Migration("0016-roles", ("ALTER TABLE memory_rows ADD COLUMN role VARCHAR DEFAULT ''",)),
    Migration("0017-erased-scopes", _ERASED_SCOPES),
    Migration("0018-decisions-are-applied", _DECISIONS),
)


_TAKEN = (
    "the store has tables in both schemas, main.{0} and internal.{0}: an older version of the"
    " program worked on it after a newer one; `palimpsest replay rebuild --swap` makes it again"
    " from the log"
)


def use_tables(connection: duckdb.DuckDBPyConnection) -> None:
    """Let this connection name the tables without their schema."""
    connection.execute(parsed(connection, "SET search_path = 'internal,main'"))


def migrate(
    connection: duckdb.DuckDBPyConnection, only: Collection[str] | None = None
) -> list[str]:
    """Bring the file to the newest version, or to that of `only` these migrations; each migration
    in its own transaction. The connection may then name the tables without their schema.

    Returns the names of those applied now. Raises ValueError when the file carries a migration
    that this program does not know: it was written by a newer one.
    """
    if connection.execute(_SCHEMA_KNOWN).fetchone() is None:
        connection.execute("CREATE SCHEMA IF NOT EXISTS internal")
    _move_tables(connection)
    use_tables(connection)
    connection.execute(
        "CREATE TABLE IF NOT EXISTS internal.migrations (name VARCHAR PRIMARY KEY, position BIGINT)"
    )
    done = {
        name for (name,) in connection.execute("SELECT name FROM internal.migrations").fetchall()
    }
    unknown = done.union(only or ()) - {migration.name for migration in MIGRATIONS}
    if unknown:
        raise ValueError(
            f"the store has migrations {', '.join(sorted(unknown))}, which this program does not"
            " know; it was written by a newer version: upgrade the program, or let `palimpsest"
            " replay rebuild --swap` make the store again for this one"
        )
    applied = []
    for position, migration in enumerate(MIGRATIONS):
        if migration.name in done or (only is not None and migration.name not in only):
            continue
        connection.execute("BEGIN")
        for statement in migration.statements:
            if isinstance(statement, str):
                connection.execute(statement)
            else:
                statement(connection)
        connection.execute(
            "INSERT INTO internal.migrations VALUES (?, ?)", [migration.name, position]
        )
        connection.execute("COMMIT")
        applied.append(migration.name)
    return applied


_SCHEMA_KNOWN = """
SELECT 1 FROM duckdb_schemas()
WHERE schema_name = 'internal' AND database_name = current_database()"""
_IN_MAIN = """
SELECT table_name, sql FROM duckdb_tables()
WHERE schema_name = 'main' AND database_name = current_database() ORDER BY table_oid"""


def _move_tables(connection: duckdb.DuckDBPyConnection) -> None:
    """Bring the tables of a store from before there was a schema of their own into it, each in a
    transaction: after an interruption the next call goes on with the rest."""
    tables = connection.execute(_IN_MAIN).fetchall()
    if not tables:
        return
    for (view,) in connection.execute(
        "SELECT view_name FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal"
    ).fetchall():
        connection.execute(f"DROP VIEW main.{view}")
    for name, sql in tables:
        connection.execute("BEGIN")
        try:
            connection.execute(str(sql).replace("CREATE TABLE ", "CREATE TABLE internal.", 1))
            connection.execute(f"INSERT INTO internal.{name} SELECT * FROM main.{name}")
            connection.execute(f"DROP TABLE main.{name}")
            connection.execute("COMMIT")
        except duckdb.CatalogException as error:
            connection.execute("ROLLBACK")
            raise ValueError(_TAKEN.format(name)) from error
        except BaseException:
            with contextlib.suppress(duckdb.Error):
                connection.execute("ROLLBACK")
            raise
