"""Built-in queries for analysts' most common questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from palimpsest.ops.health.domains import LOW_IMPORTANCE
from palimpsest.schemas.rows.memories import SOURCE_LIST
from palimpsest.stores.database.balance import FACT_STATES, TURN_STATES


@dataclass(frozen=True, slots=True)
class SavedQuery:
    meaning: str
    sql: str


_COUNTED = (
    *("turns_accepted", *(f"turns_{state}" for state in TURN_STATES)),
    *("facts_extracted", *(f"facts_{state}" for state in FACT_STATES)),
)

SAVED_QUERIES: Final[Mapping[str, SavedQuery]] = {
    "facts-by-outcome": SavedQuery(
        "What became of the facts, and for which reasons.",
        """SELECT coalesce(outcome, 'on its way') AS outcome, outcome_reason AS reason,
       count(*) AS facts, min(content) AS example
FROM facts GROUP BY ALL ORDER BY facts DESC, outcome, reason""",
    ),
    "changed-memories": SavedQuery(
        "The newest changes of memories, with text before and after, and why.",
        """SELECT created_at AS changed_at, scope, memory_id, event, old_content, new_content,
       reason, changed_by
FROM memory_history WHERE event IN ('updated', 'deleted', 'recovered')
ORDER BY changed_at DESC, memory_id, event LIMIT 100""",
    ),
    "turns-without-facts": SavedQuery(
        "Turns that no fact was drawn from, newest first; model is NULL while none was asked.",
        """SELECT t.occurred_at, t.scope, t.memory_id, t.speaker, t.content, e.model, e.triples,
       e.warnings
FROM turns t LEFT JOIN (
    SELECT scope, turn_memory_id, sum(facts) AS facts, sum(triples)::BIGINT AS triples,
           max(model) AS model, list_distinct(flatten(list(warnings))) AS warnings
    FROM extractions GROUP BY scope, turn_memory_id
) e ON e.scope = t.scope AND e.turn_memory_id = t.memory_id
WHERE coalesce(e.facts, 0) = 0
ORDER BY t.occurred_at DESC, t.created_at DESC, t.memory_id LIMIT 100""",
    ),
    "model-calls": SavedQuery(
        "Model calls by cost, where prices are set, by tokens and by latency in milliseconds.",
        """SELECT stage, provider, model, prompt_version, count(*) AS calls,
       sum(input_tokens)::BIGINT AS input_tokens, sum(output_tokens)::BIGINT AS output_tokens,
       sum(cost) AS cost, round(quantile_cont(latency_ms, 0.5), 1) AS p50_ms,
       round(quantile_cont(latency_ms, 0.95), 1) AS p95_ms, round(max(latency_ms), 1) AS max_ms
FROM model_calls GROUP BY ALL
ORDER BY sum(model_calls.cost) DESC NULLS LAST,
    coalesce(sum(model_calls.input_tokens), 0) + coalesce(sum(model_calls.output_tokens), 0)
    DESC, calls DESC, stage, model""",
    ),
    "low-value": SavedQuery(
        "Memories of low importance that are not pinned, the longest unused first.",
        f"""SELECT coalesce(last_accessed, created_at) AS last_used, scope, memory_id, importance,
       content
FROM memories WHERE importance < {LOW_IMPORTANCE} AND NOT pinned AND type NOT IN {SOURCE_LIST}
ORDER BY last_used, memory_id LIMIT 100""",
    ),
    "top-entities": SavedQuery(
        "Whom and what the most memories name.",
        """SELECT e.scope, e.name, e.entity_type, e.mentions, e.times_told,
       count(r.relation_type) AS relations
FROM entities e LEFT JOIN relations r
    ON r.scope = e.scope AND e.entity_id IN (r.source_entity_id, r.target_entity_id)
GROUP BY ALL ORDER BY e.mentions DESC, e.times_told DESC, e.scope, e.name LIMIT 50""",
    ),
    "balance": SavedQuery(
        "The conservation law over everything: what went in, and what became of it.",
        "SELECT "
        + ",\n       ".join(f"sum({name})::BIGINT AS {name}" for name in _COUNTED)
        + ",\n       bool_and(holds) AS holds\nFROM pipeline_total",
    ),
}

COLUMNS: Final = """
SELECT "view", "column", type, meaning FROM (
    SELECT view_name AS "view", '{partition}' AS "column", 'BIGINT' AS type,
        'the partition of log and stores that the row lies in' AS meaning, -1 AS place
    FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal
    UNION ALL SELECT table_name, column_name, data_type, comment, column_index
    FROM duckdb_columns() WHERE schema_name = 'main' AND NOT internal
        AND column_name <> '{partition}'){named} ORDER BY "view", place"""
"""The columns of the views in order, with types and meanings; `named` is a condition, or empty."""
