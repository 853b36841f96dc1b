"""How healthy the memory is: a score from 0 to 1 a domain, from counts of all open shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, cast

from palimpsest.ops.queries.errors import NotFoundError
from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.queries.sources import Sources, from_all
from palimpsest.ops.queries.status import lag

Counts: TypeAlias = dict[str, int]

HEALTHY: Final = 0.8
DEGRADED: Final = 0.5
"""Scores from which a domain is healthy, or only degraded; below it is unhealthy."""
LONGEST_CHARACTERS: Final = 2_000
"""Of a memory that is no turn: a longer one is no single fact."""

_COUNTS: Final[Mapping[str, str]] = {
    "queue": "SELECT (SELECT count(*) FROM accepted_turns) AS accepted,"
    " (SELECT count(*) FROM dead_letter_rows WHERE status = 'dead') AS dead",
    "index": "SELECT (SELECT count(*) FROM memory_rows WHERE NOT is_deleted) AS active,"
    " (SELECT count(*) FROM memory_rows m ANTI JOIN fts_docs USING (memory_id)"
    "  WHERE NOT m.is_deleted) AS missing",
    "embeddings": "SELECT count(*) AS active, count(*) FILTER (embedding_key NOT IN"
    " (SELECT embedding_key FROM embeddings WHERE model = $model)) AS missing"
    " FROM memory_rows WHERE NOT is_deleted",
    "storage": "SELECT count(*) AS stored, count(*) FILTER (is_deleted) AS tombstones"
    " FROM memory_rows",
    "graph": "SELECT count(*) AS relations, count(*) FILTER (source_name_id NOT IN"
    " (SELECT name_id FROM name_rows) OR target_name_id NOT IN (SELECT name_id FROM name_rows))"
    " AS dangling FROM relation_rows",
    "duplicates": "SELECT count(*) AS memories,"
    " count(*) - count(DISTINCT (scope, content_hash)) AS repeated"
    " FROM memory_rows WHERE NOT is_deleted AND type NOT IN ('episodic', 'document_chunk')",
    # Memories of a scope with the same words, however often and in whatever order: one may say what
    # another does, and whether it does is for people to say.
    "near_duplicates": "SELECT count(*) AS memories, count(*) - count(DISTINCT (scope, words))"
    " - (count(*) - count(DISTINCT (scope, content_hash))) AS same_words FROM"
    " (SELECT scope, content_hash, list_sort(list_distinct("
    "regexp_extract_all(lower(normalized_content), '[\\p{L}\\p{N}]+'))) AS words"
    " FROM memory_rows WHERE NOT is_deleted AND type NOT IN ('episodic', 'document_chunk'))",
    "overlong": "SELECT count(*) AS memories,"
    f" count(*) FILTER (length(content) > {LONGEST_CHARACTERS}) AS overlong"
    " FROM memory_rows WHERE NOT is_deleted AND type NOT IN ('episodic', 'document_chunk')",
}


def _without(part: str, whole: str, weight: float = 1.0) -> Callable[[Counts], float]:
    """A score that falls by `weight` times the share of `part` in `whole`."""
    return lambda counts: max(0.0, 1.0 - weight * counts[part] / max(1, counts[whole]))


_SCORES: Final[Mapping[str, Callable[[Counts], float]]] = {
    "queue": _without("dead", "accepted", 20.0),  # healthy up to one in a hundred
    "index": _without("missing", "active"),
    "embeddings": _without("missing", "active"),
    "storage": _without("tombstones", "stored", 2 / 3),  # healthy up to three in ten
    "graph": _without("dangling", "relations"),
    "providers": _without("waiting", "providers"),
    "duplicates": _without("repeated", "memories"),
    "near_duplicates": _without("same_words", "memories"),
    "overlong": _without("overlong", "memories"),
}
DOMAINS: Final = tuple(_SCORES)


def diagnostics(sources: Sources, domain: str | None) -> JsonObject:
    """`domains`, each with its `score`, `status` and `counts`; `score` is their mean, `status`
    that of the worst. Raises NotFoundError for a domain that there is not."""
    return judged({name: _counts(sources, name) for name in _asked(domain)})


def _asked(domain: str | None) -> Sequence[str]:
    if domain is None:
        return DOMAINS
    if domain not in DOMAINS:
        raise NotFoundError(f"there is no domain {domain}; there are {', '.join(DOMAINS)}")
    return (domain,)


def _counts(sources: Sources, domain: str) -> Counts:
    if domain == "providers":
        embedding = "embedding" in sources.outages
        language = sources.unusable() is not None or len(sources.outages) > embedding
        return {"providers": 2, "waiting": embedding + language}
    asked = {"model": sources.embedding.model} if "$model" in _COUNTS[domain] else {}
    total: Counts = {}
    for _, row in from_all(sources, _COUNTS[domain], asked):
        for name, value in row.items():
            total[name] = total.get(name, 0) + cast("int", value)
    return {**total, "lag": lag(sources)} if domain == "queue" else total


def judged(counted: Mapping[str, Counts]) -> JsonObject:
    """The answer, from the counts of the domains."""
    domains: JsonObject = {}
    scores = []
    for name, counts in counted.items():
        score = round(_SCORES[name](counts), 4)
        scores.append(score)
        domains[name] = {"score": score, "status": _status(score), "counts": {**counts}}
    return {
        "score": round(sum(scores) / len(scores), 4),
        "status": _status(min(scores)),
        "domains": domains,
    }


def merged(answers: Sequence[JsonObject]) -> JsonObject:
    """The health of all workers together."""
    counted: dict[str, Counts] = {}
    for answer in answers:
        domains = cast("dict[str, dict[str, Counts]]", answer["domains"])
        for domain, found in domains.items():
            total = counted.setdefault(domain, {})
            for name, number in found["counts"].items():
                total[name] = total.get(name, 0) + number
    return judged(counted)


def _status(score: float) -> str:
    return "healthy" if score >= HEALTHY else "degraded" if score >= DEGRADED else "unhealthy"
