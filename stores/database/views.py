"""What analysts see: views with one meaning each, documented and stable.

They are all that lies in the schema `main`, so that any client of DuckDB that opens the file finds
them and nothing else; the tables they are made of lie in `internal` and are no one's to rely on.
Meaning and columns are kept in the database itself as comments.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Mapping
from functools import cache

import duckdb

from palimpsest.schemas.rows.columns import columns_of
from palimpsest.schemas.rows.memories import ArchiveRow
from palimpsest.schemas.rows.row_types import ROW_TYPES
from palimpsest.stores.database.archive import states_query
from palimpsest.stores.database.balance import STORED_BALANCE, STORED_ITEMS, STORED_TOTAL
from palimpsest.stores.database.derivations import told_word
from palimpsest.stores.database.graph_views import GRAPH_VIEWS, INTERNAL_GRAPH_VIEWS
from palimpsest.stores.database.view_columns import COLUMNS, PIPELINE_COLUMNS, View, quoted

# The views over what further deciders proposed, and what people made of decisions.

_CARRIED_OUT = """
    SELECT p.scope, p.item_id, p.action, p.target_id, o.memory_id, o.recorded_at AS at,
        row(o.recorded_at, p.as_of, p.action <> 'ADD', p.item_id) AS place
    FROM internal.outcomes o
    JOIN internal.proposals p ON p.item_id = o.item_id
        AND p.round = (SELECT max(round) FROM internal.proposals l WHERE l.item_id = o.item_id)
    WHERE o.item_kind = 'fact' AND o.event IN ('created', 'modified', 'deleted')
      AND NOT EXISTS (FROM internal.held_proposals h WHERE h.item_id = o.item_id)"""
"""What was done without asking anybody, and its place in the order of decisions: those of one
commit have the same time. A row of `held_proposals` stays when it is settled."""

_PEOPLE = """
    SELECT memory_id, created_at AS at, CASE
        WHEN event = 'modified' AND old_content IS NOT DISTINCT FROM new_content THEN 'confirmed'
        WHEN event = 'modified' THEN 'corrected'
        WHEN event = 'deleted' THEN 'forgotten' ELSE 'recovered' END AS what
    FROM internal.history_rows
    WHERE actor_type = 'human' AND event IN ('modified', 'deleted', 'recovered')
      AND memory_id IS NOT NULL AND json_extract_string(metadata, '$.was') IS NULL
      AND (event <> 'modified' OR old_content IS DISTINCT FROM new_content
           OR json_extract_string(metadata, '$.confirmed') IS NOT NULL)
"""
"""Without proposals that were applied by hand, and without what changed no text: tags, a pin."""

AGREEMENT_VIEWS: dict[str, View] = {
    "shadow_proposals": View(
        "What further deciders (pipeline.shadow_deciders) proposed, beside what the live one did;"
        " nothing of it was carried out.",
        """SELECT s.scope, s.item_id, s.round, s.decider, s.action, s.target_id, s.confidence,
               s.reason, s.error, p.action AS live_action, p.target_id AS live_target_id,
               s.action = p.action AS same_action,
               s.action = p.action AND s.target_id IS NOT DISTINCT FROM p.target_id AS agrees,
               s.input_tokens, s.output_tokens, s.cost, s.latency_ms, s.recorded_at
           FROM internal.shadow_proposals s
           LEFT JOIN internal.proposals p USING (item_id, round)""",
        {
            "live_action": "what the live decider would do",
            "live_target_id": "the memory that the live decider named",
            "same_action": "whether both named the same action",
            "agrees": "whether both named the same action and the same memory",
        },
    ),
    "decision_verdicts": View(
        "Decisions that a person judged by what they did: a proposal applied or dismissed, and the"
        " first thing done by a person to a memory after a decision changed or made it.",
        f"""SELECT h.scope, h.item_id, h.action, h.target_id,
               CASE WHEN o.event = 'skipped' THEN 'dismissed' ELSE 'applied' END AS verdict,
               o.event <> 'skipped' AS is_right, o.recorded_at AS judged_at
           FROM internal.held_proposals h
           JOIN internal.outcomes o ON o.item_kind = 'fact' AND o.item_id = h.item_id
           WHERE o.event IN ('modified', 'deleted', 'deduped')
              OR (o.event = 'skipped' AND o.reason = 'dismissed')
           UNION ALL
           SELECT d.scope, d.item_id, d.action, d.target_id, arg_min(e.what, e.at),
               arg_min(e.what, e.at) = 'confirmed', min(e.at)
           FROM ({_CARRIED_OUT}) d JOIN ({_PEOPLE}) e
             ON e.memory_id = d.memory_id AND e.at >= d.at
           WHERE NOT EXISTS (FROM ({_CARRIED_OUT}) l WHERE l.memory_id = d.memory_id
               AND l.place > d.place AND l.at <= e.at)
           GROUP BY ALL""",
        {
            "action": "what the live decider proposed",
            "target_id": "the memory that it named",
            "verdict": "applied, dismissed, confirmed, corrected, forgotten or recovered",
            "is_right": "whether that agrees with it: applied and confirmed do",
            "judged_at": "when",
        },
    ),
}


# The views over documents.

_CHUNKS = """
    SELECT l.document_id,
        count(*) FILTER (NOT EXISTS (SELECT 1 FROM internal.embeddings e
            WHERE e.embedding_key = m.embedding_key)) AS unembedded,
        count(*) FILTER (NOT EXISTS (SELECT 1 FROM internal.fts_docs f
            WHERE f.memory_id = m.memory_id)) AS unindexed
    FROM internal.document_memory_rows l
    JOIN internal.memory_rows m ON m.memory_id = l.memory_id AND m.scope = l.scope
    WHERE NOT m.is_deleted GROUP BY l.document_id"""

DOCUMENT_VIEWS: dict[str, View] = {
    "documents": View(
        "Every document that was added, also deleted ones, with how far it has come.",
        f"""SELECT d.document_id, d.scope, d.kind, d.source, d.title,
               CASE WHEN d.deleted_at IS NOT NULL THEN 'deleted'
                   WHEN d.error IS NOT NULL THEN 'failed'
                   WHEN d.chunks IS NULL THEN 'queued'
                   WHEN d.taken = 0 THEN 'extracting'
                   WHEN d.taken < d.chunks THEN 'chunking'
                   WHEN coalesce(c.unembedded, 0) > 0 THEN 'embedding'
                   WHEN coalesce(c.unindexed, 0) > 0 THEN 'indexing'
                   ELSE 'done' END AS status,
               d.error, d.content_type, d.characters, d.chunks, d.taken, d.digest, d.added_by,
               d.created_at, d.updated_at, d.deleted_at
           FROM internal.document_rows d LEFT JOIN ({_CHUNKS}) c USING (document_id)""",
        {
            "status": "queued (its text is to be fetched), extracting (its text is on its way),"
            " chunking, embedding, indexing, done, failed or deleted"
        },
    ),
    "document_memories": View(
        "The chunks of documents, one row a position, with the memory that each is.",
        """SELECT l.document_id, l.position, l.memory_id, l.scope
           FROM internal.document_memory_rows l""",
    ),
}


# The views over promotions.

PROMOTION_VIEWS: dict[str, View] = {
    "promotions": View(
        "What was promoted from branches, a row a scope, also what was rolled back.",
        """SELECT promotion_id, scope, number, branch, status, gained, changed, lost, kept, reason,
               promoted_by, recorded_at, rolled_back_by, updated_at
           FROM internal.promotion_rows""",
    ),
    "promotion_items": View(
        "What promotions did with each memory, also what they left as it is.",
        """SELECT promotion_id, scope, memory_id, change, why, counterpart, version_before,
               version_after, rollback FROM internal.promotion_item_rows""",
    ),
}


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
        """SELECT memory_id, version, scope, type, who, role, content, is_deleted,
               CASE WHEN is_deleted THEN 'tombstone' ELSE 'active' END AS state,
               updated_at AS at FROM internal.memory_rows
           UNION ALL SELECT memory_id, version, scope, type,
               coalesce(json_extract_string(state, '$.who'), ''),
               coalesce(json_extract_string(state, '$.role'), ''), content, false, 'archived',
               archived_at FROM internal.archived_states""",
        {
            "state": "active, tombstone (forgotten) or archived (what an update replaced)",
            "at": "when it came to be in this state",
        },
    ),
    "memory_archive": View(
        "Archived states alone, old ones in files included, each as it was before an update or"
        " deletion.",
        f"""SELECT * REPLACE ({told_word("reason")} AS reason) FROM internal.archived_states""",
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
    ),
    "memory_history": View(
        "The audit events, one row for everything that was considered, done or not.",
        f"SELECT * REPLACE ({told_word('event')} AS event) FROM internal.history_rows",
    ),
    **GRAPH_VIEWS,
    **DOCUMENT_VIEWS,
    **PROMOTION_VIEWS,
    **AGREEMENT_VIEWS,
    "edges": View("Edges between memories.", "SELECT * FROM internal.memory_edges"),
    "sessions": View(
        "Sessions with their turns counted, and how each ended; those turns that name no session"
        " stand under the empty id, which never ends.",
        """SELECT scope, session_id, turns, first_turn, last_turn, first_at, last_at, ended_at,
               ended_by, ends, extracted_turns, role_play FROM internal.session_rows""",
    ),
    "short_term_memory": View(
        "What is kept of sessions for some hours; rows whose time is over go with the next turn of"
        " any session.",
        """SELECT scope, session_id, turns, turns_expire_at, summary, summary_by, summary_at,
               summary_expires_at, explicit_intent, expires_at FROM internal.short_term_rows""",
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
        {"since": "from when on it holds"},
    ),
    "recalls": View(
        "Recalls, contexts and gets that were answered.",
        """SELECT r.*, (SELECT count(*) FROM internal.recall_results f
               WHERE f.recall_id = r.recall_id AND f.scope = r.scope) AS results
           FROM internal.recalls r""",
        {"results": "how many memories it returned; without those erased since"},
    ),
    "recall_results": View(
        "Which memories each recall returned, best first.", "SELECT * FROM internal.recall_results"
    ),
    "dead_letters": View(
        "Records that could not be processed, with the reason.",
        "SELECT * EXCLUDE (value_base64) FROM internal.dead_letter_rows",
    ),
    "extractions": View(
        "Every turn that facts were asked from, with how much came of it; one that was asked again"
        " has a row a round.",
        "SELECT * EXCLUDE (message_id) FROM internal.extractions",
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
        {"stage": "the stage that asked, or shadow"},
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
        {"name": "its name", "position": "its place among the migrations"},
    ),
}

INTERNAL_VIEWS: dict[str, str] = {
    **INTERNAL_GRAPH_VIEWS,
    ArchiveRow.SOURCE: states_query(),
    # In how many memories of its scope a term occurs.
    "fts_terms": "SELECT scope, term, count(*) AS df FROM internal.fts_postings GROUP BY ALL",
    # Documents of a scope and their average length in terms.
    "fts_stats": """SELECT scope, count(*) AS documents, avg(length) AS average_length
        FROM internal.fts_docs GROUP BY ALL""",
}


_ROWS = {row_type.SOURCE: row_type for row_type in ROW_TYPES}
_READ = re.compile(r"\b(internal|main)\.(\w+)")


@cache
def columns_in(query: str) -> Mapping[str, str]:
    """Returns the meanings of the columns of all tables that a view reads, also by other views; of
    two with the same name that of the first."""
    found: dict[str, str] = {}
    for schema, name in dict.fromkeys(_READ.findall(query)):
        if schema == "main":
            meanings = dict(columns_in(VIEWS[name].query))
        elif name in _ROWS:
            meanings = {each.name: each.meaning for each in columns_of(_ROWS[name]).values()}
        else:
            meanings = dict(columns_in(INTERNAL_VIEWS.get(name, "")))
        found = meanings | found
    return found


def install_views(
    connection: duckdb.DuckDBPyConnection, macros: str, states: str = states_query()
) -> None:
    """Make the views and `macros` those of this program's version, where they are not yet: a store
    that is only read is then not written. `states` is the query of its archived states."""
    internal = {**INTERNAL_VIEWS, ArchiveRow.SOURCE: states}
    # Of all that the views are made of. A migration may have given a table another column.
    migrations = connection.execute("SELECT name FROM internal.migrations ORDER BY 1").fetchall()
    parts = [duckdb.__version__, repr(VIEWS), repr(COLUMNS), repr(internal), macros]
    parts += [each.meaning for row_type in ROW_TYPES for each in columns_of(row_type).values()]
    version = hashlib.sha256("\n".join([*parts, repr(migrations)]).encode()).hexdigest()
    state = "SELECT value FROM internal.shard_state WHERE name = ?"
    if connection.execute(state, [VIEWS_STATE]).fetchone() == (version,):
        return
    connection.execute("BEGIN")
    try:
        for name, query in internal.items():
            connection.execute(f"CREATE OR REPLACE VIEW internal.{name} AS {query}")
        for name, view in VIEWS.items():
            connection.execute(f"CREATE OR REPLACE VIEW main.{name} AS {view.query}")
        explain(connection)
        connection.execute(macros)
        connection.execute(
            "INSERT OR REPLACE INTO internal.shard_state VALUES (?, ?)", [VIEWS_STATE, version]
        )
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(duckdb.Error):  # a commit that failed has ended it already
            connection.execute("ROLLBACK")
        raise


def explain(connection: duckdb.DuckDBPyConnection) -> None:
    """Says in the database what its views and their columns mean."""
    columns = connection.execute(
        "SELECT table_name, column_name FROM duckdb_columns()"
        " WHERE schema_name = 'main' AND NOT internal"
    ).fetchall()
    statements = [
        f"COMMENT ON VIEW main.{name} IS {quoted(view.meaning)}" for name, view in VIEWS.items()
    ]
    for name, column in columns:
        view = VIEWS.get(name)
        known = {**COLUMNS, **columns_in(view.query), **view.columns} if view else {}
        if column in known:
            comment = quoted(known[column])
            statements.append(f"COMMENT ON COLUMN main.{name}.{column} IS {comment}")
    connection.execute("; ".join(statements))
