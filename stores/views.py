"""What analysts see: views with one meaning each, documented and stable."""

from __future__ import annotations

import duckdb

VIEWS: dict[str, tuple[str, str]] = {
    "memories": (
        "Active memories, turns included, with their embedding model.",
        """SELECT m.* EXCLUDE (dedup_key, write_seq, decision_order),
               e.model AS embedding_model
           FROM memory_rows m LEFT JOIN embeddings e USING (embedding_key)
           WHERE NOT m.is_deleted""",
    ),
    "memories_all": (
        "Every state of every memory: active, tombstoned, and the archived ones before.",
        """SELECT memory_id, version, scope, type, content, is_deleted,
               CASE WHEN is_deleted THEN 'tombstone' ELSE 'active' END AS state,
               updated_at AS at FROM memory_rows
           UNION ALL SELECT memory_id, version, scope, type, content, false, 'archived',
               archived_at FROM memory_archive""",
    ),
    "turns": (
        "Stored conversation turns.",
        """SELECT memory_id, scope, session_id, who AS speaker, content, source_id, occurred_at,
               created_at FROM memory_rows WHERE type = 'episodic' AND NOT is_deleted""",
    ),
    "facts": (
        "Every fact that was extracted, with what became of it.",
        """SELECT f.*, o.event AS outcome, o.reason AS outcome_reason, o.memory_id
           FROM fact_rows f LEFT JOIN outcomes o
           ON o.item_kind = 'fact' AND o.item_id = f.item_id""",
    ),
    "memory_history": ("The audit events, one row an outcome.", "SELECT * FROM history_rows"),
    "mentions": (
        "Which memory names which entity.",
        """SELECT m.*, e.name AS entity_name, e.entity_type
           FROM memory_entity_mentions m JOIN entities e USING (entity_id)""",
    ),
    "edges": ("Edges between memories.", "SELECT * FROM memory_edges"),
    "sessions": ("Sessions with their turns counted.", "SELECT * FROM session_rows"),
    "dead_letters": (
        "Records that could not be processed, with the reason.",
        "SELECT * EXCLUDE (value_base64) FROM dead_letter_rows",
    ),
    "model_calls": (
        "Every model call whose result reached the store, with tokens and latency.",
        """SELECT 'extract' AS stage, scope, provider, model, prompt_version, input_tokens,
               output_tokens, latency_ms, attempts, recorded_at FROM extractions
           WHERE round = 0
           UNION ALL SELECT 'decide', scope, NULL, model, prompt_version, input_tokens,
               output_tokens, latency_ms, NULL, recorded_at FROM proposals
           WHERE model IS NOT NULL""",
    ),
    "fts_terms": (
        "In how many memories of its scope a term occurs.",
        "SELECT scope, term, count(*) AS df FROM fts_postings GROUP BY ALL",
    ),
    "fts_stats": (
        "Documents of a scope and their average length in terms.",
        """SELECT scope, count(*) AS documents, avg(length) AS average_length
           FROM fts_docs GROUP BY ALL""",
    ),
}
"""Name to (meaning, query). `proposals`, `entities` and `relations` are tables as they are;
`pipeline_items` and `pipeline_balance` are made for each query (stores/balance.py)."""


def install_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the views anew, so that they are those of this program's version."""
    for name, (_, query) in VIEWS.items():
        connection.execute(f"CREATE OR REPLACE VIEW {name} AS {query}")
