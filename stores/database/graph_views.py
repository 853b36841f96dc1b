"""The graph as analysts and recall see it: entities made of their names.

The tables keep what is said of each name by itself (schemas/rows.py), and mentions of each text
that a memory has had. Here names that mean the same are one, and only active memories' present
texts count. So nothing has to be rewritten when names are told to be one, or a text is replaced.
"""

from __future__ import annotations

from palimpsest.stores.database.view_columns import View

VAGUE = ("extracted", "unknown", "")
"""Types of entities that say nothing: any other name's type comes first."""
VAGUE_TYPES = str(VAGUE)

_ORDER = "CASE WHEN name_id = entity_id THEN '0' ELSE '1' END || canonical_name"

INTERNAL_GRAPH_VIEWS: dict[str, str] = {
    # Entities with all their names, without how many memories mention them: cheap to ask.
    "known_entities": f"""SELECT entity_id, scope,
               min(name) FILTER (WHERE name_id = entity_id) AS name,
               min(canonical_name) FILTER (WHERE name_id = entity_id) AS canonical_name,
               coalesce(arg_min(entity_type, {_ORDER})
                   FILTER (WHERE entity_type NOT IN {VAGUE_TYPES}),
                   arg_min(entity_type, {_ORDER})) AS entity_type,
               coalesce(list(canonical_name ORDER BY canonical_name)
                   FILTER (WHERE name_id <> entity_id), []) AS aliases,
               arg_min(summary, {_ORDER}) FILTER (WHERE summary IS NOT NULL) AS summary,
               CAST(sum(mentions) AS BIGINT) AS times_told,
               bool_or(pinned) AS pinned, min(first_seen) AS first_seen,
               max(updated_at) AS updated_at
           FROM internal.name_rows GROUP BY entity_id, scope""",
    # Names in the present texts of active memories, a row a name: cheap to ask.
    "present_mentions": """SELECT m.memory_id, n.entity_id, m.scope, m.mention_text, m.confidence
           FROM internal.mention_rows m JOIN internal.name_rows n USING (name_id)
               JOIN internal.memory_rows r ON r.memory_id = m.memory_id
                   AND r.embedding_key = m.text_key AND NOT r.is_deleted""",
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
        {"confidence": "how sure it is that the entity is meant, from 0 to 1"},
    ),
    "entities": View(
        "Who and what memories name: the nodes of the graph.",
        """SELECT e.entity_id, e.scope, e.name, e.canonical_name, e.entity_type, e.aliases,
               e.summary, coalesce(c.memories, 0) AS mentions, e.times_told, e.pinned,
               e.first_seen, e.updated_at
           FROM internal.known_entities e LEFT JOIN (
               SELECT entity_id, scope, count(*) AS memories FROM internal.memory_entity_mentions
               GROUP BY entity_id, scope) c USING (entity_id, scope)""",
    ),
    "relations": View(
        "Relations between entities: the edges of the graph.",
        """SELECT s.entity_id AS source_entity_id, t.entity_id AS target_entity_id,
               r.relation_type, r.scope, max(r.strength) AS strength,
               CAST(sum(r.mentions) AS BIGINT) AS mentions,
               sum(r.confidence * r.mentions) / sum(r.mentions) AS confidence
           FROM internal.relation_rows r JOIN internal.name_rows s ON s.name_id = r.source_name_id
               JOIN internal.name_rows t ON t.name_id = r.target_name_id
           GROUP BY s.entity_id, t.entity_id, r.relation_type, r.scope""",
        {
            "mentions": "how often it was told",
            "confidence": "the average of all that told it, from 0 to 1",
            "relation_type": "what the source is to the target",
        },
    ),
    "entity_aspects": View(
        "Facets of entities, under which attributes are grouped.",
        """SELECT min(a.aspect_id) AS aspect_id, n.entity_id, a.scope, min(a.name) AS name,
               a.canonical_name, max(a.weight) AS weight, max(a.updated_at) AS updated_at
           FROM internal.aspect_rows a JOIN internal.name_rows n USING (name_id)
           GROUP BY n.entity_id, a.canonical_name, a.scope""",
        {
            "name": "the facet as it was first written",
            "canonical_name": "the facet lower-cased",
        },
    ),
    "entity_attributes": View(
        "Memories that say something about an aspect; superseded once a memory is forgotten.",
        """SELECT f.aspect_id, t.memory_id, t.scope, min(t.kind) AS kind,
               CASE WHEN bool_or(coalesce(r.is_deleted, false)) AND min(t.status) = 'active'
                   THEN 'superseded' ELSE min(t.status) END AS status,
               max(t.confidence) AS confidence, max(t.importance) AS importance
           FROM internal.attribute_rows t JOIN internal.aspect_rows a ON a.aspect_id = t.aspect_id
               JOIN internal.name_rows n USING (name_id)
               JOIN main.entity_aspects f ON f.entity_id = n.entity_id
                   AND f.canonical_name = a.canonical_name
               LEFT JOIN internal.memory_rows r ON r.memory_id = t.memory_id
           GROUP BY f.aspect_id, t.memory_id, t.scope""",
    ),
}
"""What analysts see, each after those that it is made of."""
