"""Counts what the health of one partition is judged by.

Everything is read by cursors of its own, so no writer waits. Each domain reads its tables once;
two of them look at samples: `near_duplicates` at the newest `COMPARED` extracted memories, and
`graph` for missing links at `LINKS_LOOKED_AT` memories.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import duckdb
import numpy as np
from numpy.typing import NDArray

from palimpsest.ops.health.domains import LONGEST_CHARACTERS, LOW_IMPORTANCE, Counts
from palimpsest.ops.reading.stage_lags import stage_lags
from palimpsest.schemas.memory_texts import linked_text
from palimpsest.schemas.rows.graph import MentionRow
from palimpsest.schemas.rows.memories import SOURCE_LIST, MemoryRow
from palimpsest.stores.database.tables import select
from palimpsest.stores.index.vector_space import EMBEDDED, embedded_values
from palimpsest.stores.shard import DATABASE_FILE
from palimpsest.streams.apply.command_work import mention_row
from palimpsest.streams.runtime.model_port import Usage
from palimpsest.streams.text.linker import candidate_names, names_in

if TYPE_CHECKING:
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.stores.shard import Shard
    from palimpsest.streams.logs.base import LogReader


_UNNAMED = (
    "NOT is_deleted AND coalesce(scope = ?, true) AND memory_id > ?"
    " AND memory_id NOT IN (SELECT memory_id FROM mention_rows)"
    " ORDER BY memory_id LIMIT ?"
)


@dataclass(frozen=True, slots=True)
class Links:
    """The missing mentions of `looked_at` memories; `last` is the id of the last of them, None if
    there were no more."""

    looked_at: int
    missing: list[MentionRow]
    last: str | None


def missing_links(
    reader: duckdb.DuckDBPyConnection, scope: str | None, limit: int, after: str = ""
) -> Links:
    """Looks at up to `limit` active memories without any mention, in the order of their ids. Names
    in scripts without capitals are not looked for."""
    rows = select(reader, MemoryRow, _UNNAMED, [scope, after, limit])
    texts = {row.memory_id: linked_text(row.type, row.who, row.content) for row in rows}
    candidates = {row.memory_id: [*candidate_names(texts[row.memory_id])] for row in rows}
    wanted = sorted({name for names in candidates.values() for name in names})
    found = reader.execute(
        "SELECT scope, canonical_name, name_id FROM name_rows"
        " WHERE canonical_name IN (SELECT unnest(?::VARCHAR[]))",
        [wanted],
    ).fetchall()
    known = {(scope, name): name_id for scope, name, name_id in found}
    missing = [
        mention_row(row, known[row.scope, name], shown)
        for row in rows
        for name in candidates[row.memory_id]
        if (row.scope, name) in known
        and (shown := names_in(texts[row.memory_id], name)) is not None
    ]
    return Links(len(rows), missing, rows[-1].memory_id if len(rows) == limit else None)


RECENT: Final = timedelta(days=7)
DAY: Final = timedelta(days=1)
COMPARED: Final = 10_000
LINKS_LOOKED_AT: Final = 500
"""Bounds of the samples, per partition or scope."""


@dataclass(frozen=True, slots=True)
class Checkup:
    """One partition to look at, as of `at`; `scope` restricts it to a scope. `silent` are the
    models (of two) that are known not to answer now; `usage` is that of this process."""

    shard: Shard
    partition: int
    settings: Settings
    log: LogReader
    at: datetime
    scope: str | None = None
    silent: Collection[str] = field(default=())
    usage: Usage = field(default_factory=Usage)

    def counts(self, domain: str) -> Counts:
        """The counts of a domain, as `ops.health.domains` reads them."""
        with self.shard.reading() as reader:
            return _COUNTS[domain](self, reader)

    def findings(self, domain: str) -> list[tuple[str, str, str]]:
        """What is wrong with a domain that can be repaired: kind, scope and id of each row."""
        found = self.shard.fetch(
            f"SELECT * FROM ({FINDINGS[domain]}) WHERE coalesce(scope = $scope, true) ORDER BY ALL",
            self.parameters(FINDINGS[domain] + "$scope"),
        )
        return [(kind, scope, key) for kind, scope, key in found]

    def parameters(self, query: str) -> dict[str, object]:
        """The values of the names that a query has."""
        options = self.shard.options
        known = {
            "scope": self.scope,
            **embedded_values(options.embedding_model, options.dimensions),
            "recent": self.at - RECENT,
            "day": self.at - DAY,
            "unused": self.at - timedelta(days=self.settings.maintenance.stale_days),
        }
        return {name: value for name, value in known.items() if f"${name}" in query}

    def row(self, reader: duckdb.DuckDBPyConnection, query: str) -> Counts:
        """The only row of a query, by column."""
        result = reader.execute(query, self.parameters(query))
        names = [column[0] for column in result.description or ()]
        return dict(zip(names, map(int, result.fetchall()[0]), strict=True))


# ---- what can be repaired: kind, scope and id ----
FINDINGS: Final[Mapping[str, str]] = {
    "queue": "SELECT 'dead_letters' AS kind, scope, letter_id FROM dead_letter_rows"
    " WHERE status = 'dead'",
    "index": """
SELECT 'missing' AS kind, scope, memory_id FROM memory_rows ANTI JOIN fts_docs USING (memory_id)
    WHERE NOT is_deleted
UNION ALL
SELECT 'extra', scope, memory_id FROM (
    SELECT scope, memory_id FROM fts_docs UNION SELECT scope, memory_id FROM fts_postings)
    ANTI JOIN (SELECT memory_id FROM memory_rows WHERE NOT is_deleted) USING (memory_id)
UNION ALL
SELECT 'wrong', d.scope, d.memory_id FROM fts_docs d LEFT JOIN (
    SELECT memory_id, sum(tf) AS length FROM fts_postings GROUP BY memory_id) p USING (memory_id)
    WHERE d.length <> coalesce(p.length, 0) AND d.length < 65535""",
    "embeddings": f"""
SELECT 'missing' AS kind, scope, memory_id FROM memory_rows ANTI JOIN (
    SELECT embedding_key FROM embeddings WHERE {EMBEDDED})
    USING (embedding_key) WHERE NOT is_deleted
UNION ALL
SELECT 'stale', scope, memory_id FROM memory_rows
    WHERE NOT is_deleted AND type <> 'episodic' AND embedding_key <> sha256(content)""",
    "graph": """
SELECT 'orphans' AS kind, scope, memory_id || ' ' || name_id AS id FROM mention_rows
    WHERE memory_id NOT IN (SELECT memory_id FROM memory_rows)
    OR name_id NOT IN (SELECT name_id FROM name_rows)
UNION ALL
SELECT 'orphans', scope, aspect_id || ' ' || memory_id FROM attribute_rows
    WHERE memory_id NOT IN (SELECT memory_id FROM memory_rows)
    OR aspect_id NOT IN (SELECT aspect_id FROM aspect_rows)
UNION ALL
SELECT 'dangling', scope, source_name_id || ' ' || target_name_id FROM relation_rows
    WHERE source_name_id NOT IN (SELECT name_id FROM name_rows)
    OR target_name_id NOT IN (SELECT name_id FROM name_rows)
UNION ALL
SELECT 'miscounted', scope, name_id FROM name_rows WHERE mentions < 1 AND name_id IN (
    SELECT source_name_id FROM relation_rows UNION SELECT target_name_id FROM relation_rows)
    AND scope NOT IN (SELECT scope FROM history_rows WHERE event = 'imported')""",
    "duplicates": f"""
SELECT CASE WHEN pinned OR decay_rate = 0 THEN 'protected' ELSE 'repeated' END AS kind, scope,
    memory_id FROM memory_rows
    WHERE NOT is_deleted AND type NOT IN {SOURCE_LIST} AND content_hash <> ''
        AND (valid_from IS NULL OR valid_until IS NULL)
    QUALIFY row_number() OVER (PARTITION BY scope, type, content_hash
        ORDER BY pinned OR decay_rate = 0 DESC, created_at, memory_id) > 1""",
    "storage": "SELECT 'tombstones' AS kind, scope, memory_id FROM memory_rows WHERE is_deleted",
}
"""Whoever tells of a relation tells of its ends, so a name with a relation was told of; but an
imported relation may be of a name that was there before."""


# ---- counts ----
_IN: Final = "coalesce(scope = $scope, true)"
_EXTRACTED: Final = f"memory_rows WHERE NOT is_deleted AND type NOT IN {SOURCE_LIST} AND {_IN}"
_ACTIVE: Final = f"(SELECT count(*) FROM memory_rows WHERE NOT is_deleted AND {_IN}) AS active"


def _counted(domain: str, *kinds: str) -> str:
    """The columns with the numbers of findings of these kinds."""
    return (
        ", ".join(f"count(*) FILTER (kind = '{kind}') AS {kind}" for kind in kinds)
        + f" FROM ({FINDINGS[domain]}) WHERE {_IN}"
    )


def _queue(checkup: Checkup, reader: duckdb.DuckDBPyConnection) -> Counts:
    counts = checkup.row(
        reader,
        "SELECT count(*) AS accepted, count(*) FILTER (recorded_at >= $recent) AS recent,"
        " count(*) FILTER (recorded_at >= $day) AS turns_of_day,"
        f" (SELECT count(*) FROM dead_letter_rows WHERE status = 'dead' AND {_IN}) AS dead,"
        " (SELECT count(*) FROM dead_letter_rows WHERE status = 'dead'"
        f" AND last_failed_at >= $day AND {_IN}) AS dead_of_day"
        f" FROM accepted_turns WHERE {_IN}",
    )
    shards = {checkup.partition: checkup.shard}
    lags = stage_lags(checkup.settings, shards, checkup.log)
    waiting = [each for each in lags if each.lag]
    waits = [
        (checkup.at - record.timestamp).total_seconds()
        for each in waiting
        for topic, offset in each.offsets.items()
        for record in checkup.log.read(topic, checkup.partition, offset, 1)
    ]
    return {
        **counts,
        "lag": sum(each.lag for each in waiting),
        "oldest_seconds": max(0, int(max(waits, default=0))),
    }


def _index(checkup: Checkup, reader: duckdb.DuckDBPyConnection) -> Counts:
    found = _counted("index", "missing", "extra", "wrong")
    counts = checkup.row(reader, f"SELECT {_ACTIVE}, {found}")
    return {**counts, "vectors": sum(differing_vectors(checkup).values())}


def differing_vectors(checkup: Checkup) -> dict[str, int]:
    """The number of memories by scope whose vector in LanceDB is not DuckDB's."""
    found = checkup.shard.vector_table().differing()
    return {s: n for s, n in found.items() if checkup.scope in (None, s)}


def _embeddings(checkup: Checkup, reader: duckdb.DuckDBPyConnection) -> Counts:
    found = _counted("embeddings", "missing", "stale")
    other = (
        "(SELECT count(*) FROM memory_rows SEMI JOIN (SELECT embedding_key FROM embeddings"
        "  WHERE model <> $model) USING (embedding_key) WHERE NOT is_deleted AND embedding_key"
        "  NOT IN (SELECT embedding_key FROM embeddings WHERE model = $model)"
        f" AND {_IN}) AS other_model"
    )
    return checkup.row(reader, f"SELECT {_ACTIVE}, {other}, {found}")


def _storage(checkup: Checkup, reader: duckdb.DuckDBPyConnection) -> Counts:
    counts = checkup.row(
        reader,
        "SELECT count(*) AS stored, count(*) FILTER (is_deleted) AS tombstones"
        f" FROM memory_rows WHERE {_IN}",
    )
    folder = checkup.shard.folder
    files = [folder / DATABASE_FILE, *(each for each in folder.rglob("*.lance") if each.is_file())]
    used = sum(each.stat().st_size for each in files if each.exists())
    return {**counts, "file_bytes": used, "free_bytes": shutil.disk_usage(folder).free}


def _graph(checkup: Checkup, reader: duckdb.DuckDBPyConnection) -> Counts:
    found = _counted("graph", "orphans", "dangling", "miscounted")
    tables = ", ".join(
        f"(SELECT count(*) FROM {table} WHERE {_IN}) AS {name}"
        for name, table in (
            *(("names", "name_rows"), ("relations", "relation_rows")),
            ("mentions", "mention_rows"),
        )
    )
    unnamed = (
        f"(SELECT count(*) FROM {_EXTRACTED} AND memory_id NOT IN"
        " (SELECT memory_id FROM mention_rows)) AS unnamed"
    )
    counts = checkup.row(reader, f"SELECT {tables}, {unnamed}, {found}")
    links = missing_links(reader, checkup.scope, LINKS_LOOKED_AT)
    graph = checkup.settings.graph
    return {
        **counts,
        "enabled": int(graph.enabled),
        "extraction_writes_enabled": int(graph.extraction_writes_enabled),
        "sampled": links.looked_at,
        "unlinked": len({mention.memory_id for mention in links.missing}),
    }


_PROVIDERS: Final = (
    "SELECT 2 AS providers,"
    f" (SELECT count(*) FROM extractions WHERE recorded_at >= $recent AND {_IN}) AS calls,"
    " (SELECT count(*) FROM dead_letter_rows WHERE failure = 'malformed-output'"
    f" AND last_failed_at >= $recent AND {_IN}) AS failed"
)


def _providers(checkup: Checkup, reader: duckdb.DuckDBPyConnection) -> Counts:
    counts = {**checkup.row(reader, _PROVIDERS), "waiting": len(checkup.silent)}
    for model in ("llm", "embedding"):
        used = checkup.usage.by_provider.items()
        newest = [
            each
            for name, usage in [*used]
            if name.partition(":")[0] == model
            for each in [*usage.newest]
        ]
        counts |= {f"{model}_calls": len(newest), f"{model}_failed": newest.count(False)}
    return counts


def _duplicates(checkup: Checkup, reader: duckdb.DuckDBPyConnection) -> Counts:
    memories = f"(SELECT count(*) FROM {_EXTRACTED}) AS memories"
    found = _counted("duplicates", "repeated")
    return checkup.row(reader, f"SELECT {memories}, {found}")


_SAME_WORDS = (
    "SELECT count(*) AS memories, count(*) - count(DISTINCT (scope, words))"
    " - (count(*) - count(DISTINCT (scope, content_hash))) AS same_words FROM"
    " (SELECT scope, content_hash, list_sort(list_distinct("
    f"regexp_extract_all(lower(normalized_content), '[\\p{{L}}\\p{{N}}]+'))) AS words"
    f" FROM {_EXTRACTED})"
)
_NEWEST_VECTORS = (
    "SELECT k.scope, k.memory_id, vector FROM embeddings JOIN ("
    "  SELECT scope, embedding_key, max(memory_id) AS memory_id, max(write_seq) AS newest"
    f" FROM {_EXTRACTED} GROUP BY ALL ORDER BY newest DESC LIMIT {COMPARED}) k"
    " USING (embedding_key) WHERE model = $model AND len(vector) = $dimensions ORDER BY k.newest"
)


def _near_duplicates(checkup: Checkup, reader: duckdb.DuckDBPyConnection) -> Counts:
    counts = checkup.row(reader, _SAME_WORDS)
    table = reader.sql(_NEWEST_VECTORS, params=checkup.parameters(_NEWEST_VECTORS)).to_arrow_table()
    flat = table["vector"].combine_chunks().flatten().to_numpy()
    vectors = flat.reshape(-1, checkup.shard.options.dimensions)
    scopes: Any = table["scope"].combine_chunks().dictionary_encode().indices
    pairs = nearly_equal(vectors, scopes.to_numpy().astype(np.int64), checkup.settings.exact)
    return {**counts, "compared": len(vectors), "alike": len(np.unique(pairs[:, 1]))}


_USE = (
    "SELECT count(last_accessed) AS recalled,"
    " count(*) FILTER (last_accessed < $unused) AS stale,"
    " count(*) FILTER (created_at < $unused) AS old,"
    " count(*) FILTER (created_at < $unused AND last_accessed IS NULL) AS never"
    f" FROM {_EXTRACTED}"
)


def _use(checkup: Checkup, reader: duckdb.DuckDBPyConnection) -> Counts:
    days = checkup.settings.maintenance.stale_days
    return {**checkup.row(reader, _USE), "stale_days": days}


_LOW_VALUE: Final = (
    "SELECT count(*) AS memories, count(*) FILTER (NOT pinned AND"
    f" importance < {LOW_IMPORTANCE} AND coalesce(last_accessed, created_at) < $unused)"
    f" AS low_value FROM {_EXTRACTED}"
)


def _low_value(checkup: Checkup, reader: duckdb.DuckDBPyConnection) -> Counts:
    days = checkup.settings.maintenance.stale_days
    return {**checkup.row(reader, _LOW_VALUE), "stale_days": days}


_OVERLONG = (
    f"SELECT count(*) AS memories, count(*) FILTER (length(content) > {LONGEST_CHARACTERS})"
    f" AS overlong FROM {_EXTRACTED}"
)


_COUNTS: Final[Mapping[str, Callable[[Checkup, duckdb.DuckDBPyConnection], Counts]]] = {
    "queue": _queue,
    "index": _index,
    "embeddings": _embeddings,
    "storage": _storage,
    "graph": _graph,
    "providers": _providers,
    "duplicates": _duplicates,
    "near_duplicates": _near_duplicates,
    "stale": _use,
    "never_recalled": _use,
    "low_value": _low_value,
    "overlong": lambda checkup, reader: checkup.row(reader, _OVERLONG),
}


def checked(
    checkups: Collection[Checkup], domains: Collection[str]
) -> dict[str, dict[str, Counts]]:
    """The counts by domain and partition."""
    return {name: {str(each.partition): each.counts(name) for each in checkups} for name in domains}


ORDERS: Final = 8
"""How often the vectors are sorted, each time by other signs."""
SIGNS: Final = 32
NEIGHBOURS: Final = 4
"""Vectors that follow in an order with which each one is compared."""


def nearly_equal(
    vectors: NDArray[np.float32], groups: NDArray[np.int64], cosine: float
) -> NDArray[np.int64]:
    """Returns pairs (p, 2) of rows of `vectors` (n, d) of the same group whose cosine is at least
    `cosine`, the smaller number first, sorted.

    Each vector gets, `ORDERS` times, the signs of `SIGNS` random projections, and is compared with
    its `NEIGHBOURS` in the order of these signs: vectors with a small angle have most signs in
    common (Charikar, "Similarity estimation techniques from rounding algorithms", 2002). So it
    finds most pairs, not all; what it finds is exact.
    """
    count, dimensions = vectors.shape
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(norms > 0, norms, 1)
    planes = np.random.default_rng(0).standard_normal((dimensions, ORDERS * SIGNS))
    signs = (unit @ planes.astype(np.float32) > 0).reshape(count, ORDERS, SIGNS)
    keys = signs @ (1 << np.arange(SIGNS, dtype=np.int64))
    found = [np.empty((0, 2), dtype=np.int64)]
    for number in range(ORDERS):
        order = np.lexsort((keys[:, number], groups))
        ordered, of_group = unit[order], groups[order]
        for step in range(1, NEIGHBOURS + 1):
            alike = np.einsum("nd,nd->n", ordered[:-step], ordered[step:]) >= cosine
            alike &= of_group[:-step] == of_group[step:]
            pairs = np.stack((order[:-step][alike], order[step:][alike]), axis=1)
            found.append(np.sort(pairs, axis=1))
    return np.unique(np.concatenate(found), axis=0)
