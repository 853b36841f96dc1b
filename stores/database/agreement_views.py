"""The views over what further deciders proposed, and what people made of decisions."""

from __future__ import annotations

from palimpsest.stores.database.view_columns import View

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
            "decider": "as it is named in pipeline.shadow_deciders",
            "action": "what it would do; NULL where it said nothing usable",
            "target_id": "the memory that it would change, or that says the same",
            "confidence": "how sure it is, from 0 to 1",
            "reason": "why",
            "error": "why there is no action",
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
