"""What analysts see: views with one meaning each, documented and stable.

They are all that lies in the schema `main`, so that any client of DuckDB that opens the file finds
them and nothing else; the tables they are made of lie in `internal` and are nobody's to rely on.
Meaning and columns are kept in the database itself as comments.
"""

from __future__ import annotations

import contextlib
import hashlib

import duckdb

from palimpsest.stores.database.agreement_views import AGREEMENT_VIEWS
from palimpsest.stores.database.balance import STORED_BALANCE, STORED_ITEMS, STORED_TOTAL
from palimpsest.stores.database.document_views import DOCUMENT_VIEWS
from palimpsest.stores.database.graph_views import GRAPH_VIEWS, INTERNAL_GRAPH_VIEWS
from palimpsest.stores.database.outcome_words import told_word
from palimpsest.stores.database.promotion_views import PROMOTION_VIEWS
from palimpsest.stores.database.view_columns import (
    COLUMNS,
    PIPELINE_COLUMNS,
    View,
    quoted,
)

VIEWS_STATE = "views"
"""What a store remembers of the views that it has."""

LATELY = (
    " Of a store by itself, as of its last commit: what no stage has read yet is not in it, and"
    " what is not settled counts as in flight. `palimpsest sql` looks into the log as well and"
    " gives it as of now."
)


VIEWS: dict[str, View] = {
    "memories": View(
        "Active memories, one row each, conversation turns (type episodic) included.",
        """SELECT m.* EXCLUDE (dedup_key, write_seq, decision_order, is_deleted, deleted_at),
               (SELECT string_agg(e.model, ', ' ORDER BY e.model) FROM internal.embeddings e
                WHERE e.embedding_key = m.embedding_key) AS embedding_model
           FROM internal.memory_rows m WHERE NOT m.is_deleted""",
    ),
    "memories_all": View(
        "Every state of every memory: active, tombstoned, and the archived ones before.",
        """SELECT memory_id, version, scope, type, content, is_deleted,
               CASE WHEN is_deleted THEN 'tombstone' ELSE 'active' END AS state,
               updated_at AS at FROM internal.memory_rows
           UNION ALL SELECT memory_id, version, scope, type, content, false, 'archived',
               archived_at FROM internal.memory_archive""",
        {
            "state": "active, tombstone (forgotten) or archived (what an update replaced)",
            "at": "when it came to be in this state",
        },
    ),
    "turns": View(
        "Stored conversation turns that were not forgotten.",
        """SELECT memory_id, scope, session_id, who AS speaker, role, content, source_id,
               occurred_at, created_at FROM internal.memory_rows
           WHERE type = 'episodic' AND NOT is_deleted""",
    ),
    "facts": View(
        "Every fact that was extracted, with what became of it.",
        f"""SELECT f.*, {told_word("o.event")} AS outcome, o.reason AS outcome_reason, o.memory_id
           FROM internal.fact_rows f LEFT JOIN internal.outcomes o
           ON o.item_kind = 'fact' AND o.item_id = f.item_id""",
        {"memory_id": "the memory that it became or was decided about"},
    ),
    "proposals": View(
        "Every decision about a fact; one that was sent back has a row a round.",
        "SELECT * FROM internal.proposals",
        {
            "memory_id": "the memory that the fact would become",
            "reason": "why it was decided so",
            "confidence": "how sure the decision is, from 0 to 1",
        },
    ),
    "memory_history": View(
        "The audit events, one row for everything that was considered, done or not.",
        f"SELECT * REPLACE ({told_word('event')} AS event) FROM internal.history_rows",
        {
            "event": "created, updated, deleted, recovered, none, deduped, skipped, blocked,"
            " shadowed, dropped, reconsidered, archived, purged, graph, flags, privacy"
            " or session-ended",
            "reason": "why",
        },
    ),
    **GRAPH_VIEWS,
    **DOCUMENT_VIEWS,
    **PROMOTION_VIEWS,
    **AGREEMENT_VIEWS,
    "edges": View(
        "Edges between memories.",
        "SELECT * FROM internal.memory_edges",
        {
            "source_id": "the memory that it goes from",
            "target_id": "the memory (or memory@version) that it goes to",
            "relation_type": "derived_from, supersedes, temporal, entity or causal",
        },
    ),
    "sessions": View(
        "Sessions with their turns counted, and how each ended; those turns that name no session"
        " stand under the empty id, which never ends.",
        """SELECT scope, session_id, turns, first_turn, last_turn, first_at, last_at, ended_at,
               ended_by, ends, extracted_turns FROM internal.session_rows""",
        {"turns": "how many turns it has"},
    ),
    "short_term_memory": View(
        "What is kept of sessions for some hours; rows whose time is over go with the next turn of"
        " any session.",
        """SELECT scope, session_id, turns, turns_expire_at, summary, summary_by, summary_at,
               summary_expires_at, explicit_intent, expires_at FROM internal.short_term_rows""",
        {"turns": "the memories of its newest turns, oldest first", "summary": "what it is about"},
    ),
    "scopes": View(
        "The memory spaces, with how much is in each.",
        """SELECT scope, sum(turn)::BIGINT AS turns, sum(memory)::BIGINT AS memories,
               sum(fact)::BIGINT AS facts, max(updated_at) AS last_activity
           FROM (SELECT scope, (type = 'episodic')::INTEGER AS turn,
                     (type <> 'episodic')::INTEGER AS memory, 0 AS fact, updated_at
                 FROM internal.memory_rows WHERE NOT is_deleted
               UNION ALL SELECT scope, 0, 0, 0, updated_at FROM internal.memory_rows
                 WHERE is_deleted
               UNION ALL SELECT scope, 0, 0, 1, NULL FROM internal.fact_rows
               UNION ALL SELECT scope, 0, 0, 0, NULL FROM internal.scope_flags
               UNION ALL SELECT scope, 0, 0, 0, NULL FROM internal.privacy_rows) GROUP BY scope""",
        {
            "turns": "stored turns that were not forgotten",
            "memories": "active memories that are no turns",
            "facts": "facts that were extracted, whatever became of them",
            "last_activity": "when a memory of it last came to be or was updated",
        },
    ),
    "scope_flags": View(
        "Flags that scopes have of their own; NULL leaves it to the settings.",
        "SELECT * FROM internal.scope_flags",
    ),
    "privacy_levels": View(
        "Privacy levels that were set in scopes; who is not here has the level none.",
        "SELECT * EXCLUDE (recorded_at), recorded_at AS since FROM internal.privacy_rows",
        {
            "person_key": "the name as it is compared; empty for the whole scope",
            "person": "the name as it was given first; empty for the whole scope",
            "level": "none, partial or full",
            "reason": "why it was set",
            "changed_by": "who set it",
            "since": "from when on it holds",
        },
    ),
    "dead_letters": View(
        "Records that could not be processed, with the reason.",
        "SELECT * EXCLUDE (value_base64) FROM internal.dead_letter_rows",
        {"reason": "what was wrong with it", "status": "dead, redriven or dropped"},
    ),
    "extractions": View(
        "Every turn that facts were asked from, with how much came of it; one that was asked again"
        " has a row a round.",
        "SELECT * EXCLUDE (message_id) FROM internal.extractions",
        {
            "facts": "facts that were drawn from it",
            "attempts": "tries until the reply could be read",
        },
    ),
    "model_calls": View(
        "Every model call whose result reached the store, with tokens, cost and latency.",
        """SELECT 'extract' AS stage, scope, provider, model, prompt_version, input_tokens,
               output_tokens, cost, latency_ms, attempts, recorded_at FROM internal.extractions
           WHERE round = 0
           UNION ALL SELECT 'decide', scope, NULL, model, prompt_version, input_tokens,
               output_tokens, cost, latency_ms, NULL, recorded_at FROM internal.proposals
           WHERE model IS NOT NULL
           UNION ALL SELECT 'shadow', scope, NULL, decider, NULL, input_tokens, output_tokens,
               cost, latency_ms, NULL, recorded_at FROM internal.shadow_proposals
           WHERE latency_ms IS NOT NULL""",
        {
            "stage": "the stage that asked, or shadow",
            "attempts": "tries until the reply could be read",
        },
    ),
    "pipeline_items": View(
        "Every turn and every fact with where it is now." + LATELY, STORED_ITEMS, PIPELINE_COLUMNS
    ),
    "pipeline_balance": View(
        "The conservation law, one row a scope: what went in, and what became of it." + LATELY,
        STORED_BALANCE,
        PIPELINE_COLUMNS,
    ),
    "pipeline_total": View(
        "The conservation law over all scopes together, one row." + LATELY,
        STORED_TOTAL,
        PIPELINE_COLUMNS,
    ),
    "migrations": View(
        "The changes of form that this store has had, in order.",
        "SELECT * FROM internal.migrations",
    ),
}

INTERNAL_VIEWS: dict[str, str] = {
    **INTERNAL_GRAPH_VIEWS,
    # In how many memories of its scope a term occurs.
    "fts_terms": "SELECT scope, term, count(*) AS df FROM internal.fts_postings GROUP BY ALL",
    # Documents of a scope and their average length in terms.
    "fts_stats": """SELECT scope, count(*) AS documents, avg(length) AS average_length
        FROM internal.fts_docs GROUP BY ALL""",
}


def install_views(connection: duckdb.DuckDBPyConnection, macros: str) -> None:
    """Make the views and `macros` those of this program's version, where they are not yet: a store
    that is only read is then not written."""
    version = _version(connection, macros)
    state = "SELECT value FROM internal.shard_state WHERE name = ?"
    if connection.execute(state, [VIEWS_STATE]).fetchone() == (version,):
        return
    connection.execute("BEGIN")
    try:
        for name, query in INTERNAL_VIEWS.items():
            connection.execute(f"CREATE OR REPLACE VIEW internal.{name} AS {query}")
        for name, view in VIEWS.items():
            connection.execute(f"CREATE OR REPLACE VIEW main.{name} AS {view.query}")
        _explain(connection)
        connection.execute(macros)
        connection.execute(
            "INSERT OR REPLACE INTO internal.shard_state VALUES (?, ?)", [VIEWS_STATE, version]
        )
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(duckdb.Error):  # a commit that failed has ended it already
            connection.execute("ROLLBACK")
        raise


def _explain(connection: duckdb.DuckDBPyConnection) -> None:
    columns = connection.execute(
        "SELECT table_name, column_name FROM duckdb_columns()"
        " WHERE schema_name = 'main' AND NOT internal"
    ).fetchall()
    statements = [
        f"COMMENT ON VIEW main.{name} IS {quoted(view.meaning)}" for name, view in VIEWS.items()
    ]
    for name, column in columns:
        said = VIEWS[name].explained(column) if name in VIEWS else None
        if said is not None:
            statements.append(f"COMMENT ON COLUMN main.{name}.{column} IS {quoted(said)}")
    connection.execute("; ".join(statements))


def _version(connection: duckdb.DuckDBPyConnection, macros: str) -> str:
    """Of all that the views are made of. A migration may have given a table another column."""
    migrations = connection.execute("SELECT name FROM internal.migrations ORDER BY 1").fetchall()
    parts = [duckdb.__version__, repr(VIEWS), repr(COLUMNS), repr(INTERNAL_VIEWS), macros]
    return hashlib.sha256("\n".join([*parts, repr(migrations)]).encode()).hexdigest()
