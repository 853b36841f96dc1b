"""The graph as analysts and recall see it: entities made of their names.

The tables keep relations and mentions per name (schemas/rows/graph.py), and mentions of each text
that a memory has had. These views join names that denote the same entity, and count only active
memories' present texts. So nothing has to be rewritten when a name becomes an alias, or a text is
replaced."""

from __future__ import annotations

from palimpsest.schemas.rows.graph import LEAST_WEIGHT, MOST_WEIGHT, VAGUE_TYPES
from palimpsest.stores.database.view_columns import View

_ORDER = "CASE WHEN name_id = entity_id THEN '0' ELSE '1' END || canonical_name"

_SHOWN = f"{{'chosen': -chosen, 'name': {_ORDER}}}"

WEIGHT = f"greatest({LEAST_WEIGHT}, least({MOST_WEIGHT}, a.weight + coalesce(w.gain, 0)))"
"""The weight of an aspect `a` by what is known of it in `aspect_weights w`."""

RELATION_KEY = r"""(SELECT left(word, greatest(3, length(word) - 2)) FROM (
    SELECT list_sort(list_transform(regexp_split_to_array(lower(e.relation_type), '[\s_]+'),
        lambda w: {'length': length(w), 'word': w}))[-1].word AS word))"""
"""The beginning of the longest word of a relation's type, by which a text tells of it."""

INTERNAL_GRAPH_VIEWS: dict[str, str] = {
    # Entities with all their names, without the number of memories that mention them: cheap to
    # query.
    "known_entities": f"""SELECT entity_id, scope,
               arg_min(name, {_SHOWN}) AS name, arg_min(canonical_name, {_SHOWN}) AS canonical_name,
               coalesce(arg_min(set_type, {_ORDER}) FILTER (WHERE set_type IS NOT NULL),
                   arg_min(entity_type, {_ORDER}) FILTER (WHERE entity_type NOT IN {VAGUE_TYPES}),
                   arg_min(entity_type, {_ORDER})) AS entity_type,
               list_filter(list(canonical_name ORDER BY canonical_name),
                   lambda each: each <> arg_min(canonical_name, {_SHOWN})) AS aliases,
               arg_min(summary, {_ORDER}) FILTER (WHERE summary IS NOT NULL) AS summary,
               CAST(sum(mentions) AS BIGINT) AS times_told,
               bool_or(pinned) AS pinned, bool_or(archived) AS archived,
               bool_or(authored) AS authored,
               CAST(1 + sum(edits) AS BIGINT) AS version, min(first_seen) AS first_seen,
               max(updated_at) AS updated_at
           FROM internal.name_rows GROUP BY entity_id, scope""",
    "archived_entities": "SELECT DISTINCT entity_id FROM internal.name_rows WHERE archived",
    # Names in the present texts of active memories, one row per name: cheap to query.
    "present_mentions": """SELECT m.memory_id, n.entity_id, m.scope, m.mention_text, m.confidence
           FROM internal.mention_rows m JOIN internal.name_rows n USING (name_id)
               JOIN internal.memory_rows r ON r.memory_id = m.memory_id
                   AND r.embedding_key = m.text_key AND NOT r.is_deleted""",
    # Names in texts that no memory has any more, or only one that is deleted or has ended.
    "lost_mentions": """SELECT m.memory_id, m.text_key, n.entity_id, m.scope,
               r.type = 'episodic' AS is_turn
           FROM internal.mention_rows m JOIN internal.name_rows n USING (name_id)
               JOIN internal.memory_rows r ON r.memory_id = m.memory_id
           WHERE r.is_deleted OR r.embedding_key <> m.text_key OR r.valid_until <= now()""",
    # Relations as they are shown: while a memory supports them, where one ever did, as in
    # `stores.index.scope_graph`. `lost`: lost texts that mention both ends of a relation, `by_fact`
    # where not only turns do. `supported`: those that a living memory supports all the same, unless
    # its text has both ends only in what it denies.
    "living_relations": f"""WITH gone AS MATERIALIZED (FROM internal.lost_mentions),
           lost AS MATERIALIZED (
               SELECT e.scope, e.source_name_id, e.target_name_id, e.relation_type,
                   s.entity_id AS source_id, t.entity_id AS target_id, p.by_fact,
                   {RELATION_KEY} AS relation_key
               FROM internal.relation_rows e
                   JOIN internal.name_rows s ON s.name_id = e.source_name_id
                   JOIN internal.name_rows t ON t.name_id = e.target_name_id
                   JOIN (SELECT a.scope, a.entity_id AS source_id, b.entity_id AS target_id,
                             bool_or(NOT a.is_turn) AS by_fact
                         FROM gone a JOIN gone b ON b.memory_id = a.memory_id
                             AND b.text_key = a.text_key AND b.scope = a.scope
                             AND b.entity_id <> a.entity_id
                         GROUP BY ALL) p ON p.scope = e.scope AND p.source_id = s.entity_id
                             AND p.target_id = t.entity_id
               WHERE e.mentions > 0),
           ends AS (SELECT scope, source_id AS entity_id FROM lost
               UNION SELECT scope, target_id FROM lost),
           told AS (
               SELECT r.memory_id, r.scope, r.content, r.type = 'episodic' AS is_turn,
                   n.entity_id, bool_or(contains(r.content, m.mention_text)) AS stands,
                   bit_or(m.stated) AS stated
               FROM ends JOIN internal.name_rows n USING (entity_id, scope)
                   JOIN internal.mention_rows m ON m.name_id = n.name_id
                   JOIN internal.memory_rows r ON r.memory_id = m.memory_id
                       AND r.embedding_key = m.text_key AND NOT r.is_deleted
               WHERE r.valid_until IS NULL OR r.valid_until > now() GROUP BY ALL),
           tells AS (
               SELECT q.source_name_id, q.target_name_id, q.relation_type, q.source_id,
                   q.target_id, a.memory_id, contains(lower(a.content), q.relation_key) AS tells
               FROM lost q JOIN told a ON a.scope = q.scope AND a.entity_id = q.source_id
                   JOIN told b ON b.scope = q.scope AND b.entity_id = q.target_id
                       AND b.memory_id = a.memory_id AND a.stated & b.stated <> 0
               WHERE CASE WHEN a.is_turn THEN NOT q.by_fact ELSE a.stands AND b.stands END),
           supported AS (
               SELECT DISTINCT source_name_id, target_name_id, relation_type FROM tells
               QUALIFY tells
                   OR NOT bool_or(tells) OVER (PARTITION BY memory_id, source_id, target_id))
           SELECT e.* FROM internal.relation_rows e
           LEFT JOIN lost q USING (source_name_id, target_name_id, relation_type)
           LEFT JOIN supported k USING (source_name_id, target_name_id, relation_type)
           WHERE e.mentions > 0
               AND (q.scope IS NULL OR k.relation_type IS NOT NULL OR e.authored)""",
    # Which active memory names which entity in its present text, and how.
    "memory_entity_mentions": """SELECT memory_id, entity_id, scope,
               min(mention_text) AS mention_text, max(confidence) AS confidence
           FROM internal.present_mentions GROUP BY memory_id, entity_id, scope""",
}
"""Name to query, each after those that it is made of."""

GRAPH_VIEWS: dict[str, View] = {
    "mentions": View(
        "Which memory names which entity in its present text.",
        """SELECT m.*, e.name AS entity_name, e.entity_type
           FROM internal.memory_entity_mentions m
               JOIN internal.known_entities e USING (entity_id, scope)""",
    ),
    "entities": View(
        "Who and what memories name: the nodes of the graph.",
        """SELECT e.entity_id, e.scope, e.name, e.canonical_name, e.entity_type, e.aliases,
               coalesce(e.summary, p.content) AS summary, coalesce(c.memories, 0) AS mentions,
               e.times_told, e.pinned, e.archived, e.version, e.first_seen, e.updated_at
           FROM internal.known_entities e LEFT JOIN (
               SELECT entity_id, scope, count(*) AS memories FROM internal.memory_entity_mentions
               GROUP BY entity_id, scope) c USING (entity_id, scope)
               LEFT JOIN (SELECT scope, source_id, content FROM internal.memory_rows
                   WHERE type = 'profile' AND NOT is_deleted) p
                   ON p.scope = e.scope AND p.source_id = e.entity_id
           WHERE c.memories > 0 OR e.pinned OR e.authored
               OR ((e.times_told > 0 OR len(e.aliases) > 0)
               AND (e.entity_id, e.scope) NOT IN
                   (SELECT (entity_id, scope) FROM internal.lost_mentions))""",
        {
            "mentions": "active memories that mention it: its rows in mentions",
            "version": "rises with each edit",
        },
    ),
    "relations": View(
        "Relations between entities, the edges of the graph, while a memory supports them; without"
        " those of archived entities.",
        """SELECT s.entity_id AS source_entity_id, t.entity_id AS target_entity_id,
               r.relation_type, r.scope, max(r.strength) AS strength,
               CAST(sum(r.mentions) AS BIGINT) AS mentions,
               sum(r.confidence * r.mentions) / sum(r.mentions) AS confidence
           FROM internal.living_relations r
               JOIN internal.name_rows s ON s.name_id = r.source_name_id
               JOIN internal.name_rows t ON t.name_id = r.target_name_id
           WHERE s.entity_id NOT IN (FROM internal.archived_entities)
               AND t.entity_id NOT IN (FROM internal.archived_entities)
           GROUP BY s.entity_id, t.entity_id, r.relation_type, r.scope""",
        {
            "mentions": "how often it was told",
            "confidence": "the average of all that told it, from 0 to 1",
        },
    ),
    "entity_aspects": View(
        "Facets of entities, under which attributes are grouped.",
        f"""SELECT min(a.aspect_id) AS aspect_id, n.entity_id, a.scope, min(a.name) AS name,
               a.canonical_name, max({WEIGHT}) AS weight, max(a.updated_at) AS updated_at,
               CAST(coalesce(sum(w.confirmations), 0) AS BIGINT) AS confirmations,
               max(w.used_at) AS used_at, max(w.decayed_at) AS decayed_at
           FROM internal.aspect_rows a JOIN internal.name_rows n USING (name_id)
               LEFT JOIN internal.aspect_weights w ON w.aspect_id = a.aspect_id
           WHERE a.weight > 0 GROUP BY n.entity_id, a.canonical_name, a.scope""",
    ),
    "entity_attributes": View(
        "Memories that say something about an aspect; superseded once a memory is forgotten or has"
        " ended. What a model said of a text is left out once the memory has another text.",
        """SELECT f.aspect_id, t.memory_id, t.scope,
               coalesce(min(t.kind) FILTER (WHERE t.text_key IS NULL), min(t.kind)) AS kind,
               CASE WHEN bool_or(coalesce(r.is_deleted OR r.valid_until <= now(), false))
                       AND min(t.status) = 'active'
                   THEN 'superseded' ELSE min(t.status) END AS status,
               max(t.confidence) AS confidence, max(t.importance) AS importance,
               bool_and(t.text_key IS NOT NULL) AS by_model
           FROM internal.attribute_rows t JOIN internal.aspect_rows a ON a.aspect_id = t.aspect_id
               JOIN internal.name_rows n USING (name_id)
               JOIN main.entity_aspects f ON f.entity_id = n.entity_id
                   AND f.canonical_name = a.canonical_name
               LEFT JOIN internal.memory_rows r ON r.memory_id = t.memory_id
           WHERE t.text_key IS NULL OR t.text_key = r.embedding_key
           GROUP BY f.aspect_id, t.memory_id, t.scope""",
        {"by_model": "whether only a model said so"},
    ),
}
"""What analysts see, each after those that it is made of."""
