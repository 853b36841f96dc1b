"""The tables of the first release, which migrations change."""

from __future__ import annotations

from typing import Final

_MEMORY = """
CREATE TABLE memory_rows (
    memory_id VARCHAR PRIMARY KEY, scope VARCHAR NOT NULL, type VARCHAR NOT NULL,
    content VARCHAR NOT NULL, normalized_content VARCHAR NOT NULL, content_hash VARCHAR NOT NULL,
    dedup_key VARCHAR UNIQUE, embedding_key VARCHAR NOT NULL, importance DOUBLE NOT NULL,
    confidence DOUBLE NOT NULL, decay_rate DOUBLE NOT NULL, pinned BOOLEAN NOT NULL,
    tags VARCHAR[] NOT NULL, categories VARCHAR[] NOT NULL, who VARCHAR NOT NULL,
    why VARCHAR NOT NULL, project VARCHAR, session_id VARCHAR NOT NULL,
    source_type VARCHAR NOT NULL, source_id VARCHAR, extraction_model VARCHAR,
    temporal_kind VARCHAR NOT NULL, valid_from TIMESTAMPTZ, valid_until TIMESTAMPTZ,
    occurred_at TIMESTAMPTZ NOT NULL, created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL, updated_by VARCHAR NOT NULL, last_accessed TIMESTAMPTZ,
    access_count BIGINT NOT NULL, version BIGINT NOT NULL, is_deleted BOOLEAN NOT NULL,
    deleted_at TIMESTAMPTZ, metadata VARCHAR NOT NULL, write_seq BIGINT NOT NULL,
    decision_order BIGINT)
"""

FIRST_TABLES: Final = (
    _MEMORY,
    """CREATE TABLE memory_archive (
        memory_id VARCHAR, version BIGINT, scope VARCHAR NOT NULL, type VARCHAR NOT NULL,
        content VARCHAR NOT NULL, state VARCHAR NOT NULL, reason VARCHAR NOT NULL,
        archived_at TIMESTAMPTZ NOT NULL, PRIMARY KEY (memory_id, version))""",
    """CREATE TABLE embeddings (
        embedding_key VARCHAR, model VARCHAR, vector FLOAT[] NOT NULL,
        PRIMARY KEY (embedding_key, model))""",
    """CREATE TABLE fts_docs (
        memory_id VARCHAR PRIMARY KEY, scope VARCHAR NOT NULL, length BIGINT NOT NULL)""",
    """CREATE TABLE fts_postings (
        scope VARCHAR NOT NULL, term VARCHAR NOT NULL, memory_id VARCHAR NOT NULL,
        tf USMALLINT NOT NULL)""",
    """CREATE TABLE memory_edges (
        source_id VARCHAR, target_id VARCHAR, relation_type VARCHAR, scope VARCHAR NOT NULL,
        predicate VARCHAR NOT NULL, weight DOUBLE NOT NULL, confidence DOUBLE NOT NULL,
        valid_from TIMESTAMPTZ, valid_until TIMESTAMPTZ, evidence VARCHAR NOT NULL,
        PRIMARY KEY (source_id, target_id, relation_type))""",
    """CREATE TABLE session_rows (
        scope VARCHAR, session_id VARCHAR, last_turn VARCHAR NOT NULL, turns BIGINT NOT NULL,
        first_at TIMESTAMPTZ NOT NULL, last_at TIMESTAMPTZ NOT NULL,
        PRIMARY KEY (scope, session_id))""",
    """CREATE TABLE entities (
        entity_id VARCHAR PRIMARY KEY, scope VARCHAR NOT NULL, name VARCHAR NOT NULL,
        canonical_name VARCHAR NOT NULL, entity_type VARCHAR NOT NULL, aliases VARCHAR[] NOT NULL,
        summary VARCHAR, mentions BIGINT NOT NULL, pinned BOOLEAN NOT NULL,
        first_seen TIMESTAMPTZ NOT NULL, updated_at TIMESTAMPTZ NOT NULL)""",
    """CREATE TABLE relations (
        source_entity_id VARCHAR, target_entity_id VARCHAR, relation_type VARCHAR,
        scope VARCHAR NOT NULL, strength DOUBLE NOT NULL, mentions BIGINT NOT NULL,
        confidence DOUBLE NOT NULL,
        PRIMARY KEY (source_entity_id, target_entity_id, relation_type))""",
    """CREATE TABLE memory_entity_mentions (
        memory_id VARCHAR, entity_id VARCHAR, scope VARCHAR NOT NULL,
        mention_text VARCHAR NOT NULL, confidence DOUBLE NOT NULL,
        PRIMARY KEY (memory_id, entity_id))""",
    """CREATE TABLE entity_aspects (
        aspect_id VARCHAR PRIMARY KEY, entity_id VARCHAR NOT NULL, scope VARCHAR NOT NULL,
        name VARCHAR NOT NULL, canonical_name VARCHAR NOT NULL, weight DOUBLE NOT NULL,
        updated_at TIMESTAMPTZ NOT NULL)""",
    """CREATE TABLE entity_attributes (
        aspect_id VARCHAR, memory_id VARCHAR, scope VARCHAR NOT NULL, kind VARCHAR NOT NULL,
        status VARCHAR NOT NULL, confidence DOUBLE NOT NULL, importance DOUBLE NOT NULL,
        PRIMARY KEY (aspect_id, memory_id))""",
    """CREATE TABLE fact_rows (
        item_id VARCHAR PRIMARY KEY, scope VARCHAR NOT NULL, turn_memory_id VARCHAR NOT NULL,
        content VARCHAR NOT NULL, type VARCHAR NOT NULL, confidence DOUBLE NOT NULL,
        importance DOUBLE, temporal_kind VARCHAR NOT NULL, valid_until TIMESTAMPTZ,
        categories VARCHAR[] NOT NULL, model VARCHAR NOT NULL, prompt_version VARCHAR NOT NULL,
        occurred_at TIMESTAMPTZ NOT NULL, correlation_id VARCHAR NOT NULL)""",
    """CREATE TABLE extractions (
        message_id VARCHAR PRIMARY KEY, scope VARCHAR NOT NULL, turn_memory_id VARCHAR NOT NULL,
        provider VARCHAR NOT NULL, model VARCHAR NOT NULL, prompt_version VARCHAR NOT NULL,
        facts BIGINT NOT NULL, triples BIGINT NOT NULL, input_tokens BIGINT, output_tokens BIGINT,
        latency_ms DOUBLE NOT NULL, attempts BIGINT NOT NULL, warnings VARCHAR[] NOT NULL,
        round BIGINT NOT NULL, recorded_at TIMESTAMPTZ NOT NULL)""",
    """CREATE TABLE proposals (
        item_id VARCHAR, round BIGINT, scope VARCHAR NOT NULL, memory_id VARCHAR NOT NULL,
        action VARCHAR NOT NULL, target_id VARCHAR, confidence DOUBLE NOT NULL,
        reason VARCHAR NOT NULL, candidates VARCHAR NOT NULL, contradiction_risk BOOLEAN NOT NULL,
        review_needed BOOLEAN NOT NULL, dropped VARCHAR, model VARCHAR, prompt_version VARCHAR,
        input_tokens BIGINT, output_tokens BIGINT, latency_ms DOUBLE, as_of BIGINT NOT NULL,
        recorded_at TIMESTAMPTZ NOT NULL, PRIMARY KEY (item_id, round))""",
    """CREATE TABLE outcomes (
        item_kind VARCHAR, item_id VARCHAR, scope VARCHAR NOT NULL, event VARCHAR NOT NULL,
        memory_id VARCHAR, reason VARCHAR NOT NULL, recorded_at TIMESTAMPTZ NOT NULL,
        PRIMARY KEY (item_kind, item_id))""",
    """CREATE TABLE accepted_turns (
        item_id VARCHAR PRIMARY KEY, scope VARCHAR NOT NULL, log_offset BIGINT NOT NULL,
        recorded_at TIMESTAMPTZ NOT NULL)""",
    """CREATE TABLE history_rows (
        event_id VARCHAR PRIMARY KEY, scope VARCHAR NOT NULL, memory_id VARCHAR,
        event VARCHAR NOT NULL, old_content VARCHAR, new_content VARCHAR,
        changed_by VARCHAR NOT NULL, actor_type VARCHAR NOT NULL, reason VARCHAR NOT NULL,
        metadata VARCHAR NOT NULL, session_id VARCHAR NOT NULL, correlation_id VARCHAR NOT NULL,
        created_at TIMESTAMPTZ NOT NULL)""",
    """CREATE TABLE dead_letter_rows (
        letter_id VARCHAR PRIMARY KEY, scope VARCHAR NOT NULL, stage VARCHAR NOT NULL,
        topic VARCHAR NOT NULL, partition BIGINT NOT NULL, log_offset BIGINT NOT NULL,
        record_key VARCHAR, value_base64 VARCHAR NOT NULL, headers VARCHAR NOT NULL,
        failure VARCHAR NOT NULL, reason VARCHAR NOT NULL, raw_output VARCHAR,
        attempts BIGINT NOT NULL, item_kind VARCHAR, item_ids VARCHAR[] NOT NULL,
        first_failed_at TIMESTAMPTZ NOT NULL, last_failed_at TIMESTAMPTZ NOT NULL,
        status VARCHAR NOT NULL)""",
    """CREATE TABLE command_results (
        command_id VARCHAR PRIMARY KEY, scope VARCHAR NOT NULL, command VARCHAR NOT NULL,
        error VARCHAR, result VARCHAR NOT NULL, recorded_at TIMESTAMPTZ NOT NULL)""",
    """CREATE TABLE scope_flags (
        scope VARCHAR PRIMARY KEY, enabled BOOLEAN, shadow_mode BOOLEAN,
        allow_update_delete BOOLEAN, mutations_frozen BOOLEAN, autonomous_frozen BOOLEAN)""",
    # The runner's own: none of it is memory, so none of it is in the state hash.
    """CREATE TABLE cursors (
        stage VARCHAR, topic VARCHAR, next_offset BIGINT NOT NULL,
        PRIMARY KEY (stage, topic))""",
    # Without an index: see stores/database/seen_messages.py.
    """CREATE TABLE seen_messages (
        stage VARCHAR NOT NULL, message_id VARCHAR NOT NULL, seen_offset BIGINT NOT NULL)""",
    """CREATE TABLE outbox (
        stage VARCHAR NOT NULL, seq BIGINT NOT NULL, topic VARCHAR NOT NULL,
        scope VARCHAR NOT NULL, record_key VARCHAR NOT NULL, value BLOB,
        PRIMARY KEY (stage, seq))""",
    "CREATE TABLE shard_state (name VARCHAR PRIMARY KEY, value VARCHAR NOT NULL)",
)
