"""What a comparison of two memories reads, by queries alone, and what differs in a scope, as plain
data.

It reads next to a running worker and on Kafka, and writes nothing to a memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from palimpsest.ops.operations.memories import Embeddings
from palimpsest.ops.replay.branches import BranchManifest, TurnSelection
from palimpsest.ops.replay.counterparts import (
    ComparedFact,
    Comparison,
    Pairs,
    Scores,
    may_be_pairs,
    near_cosine,
    scored,
)
from palimpsest.ops.requests import JsonObject, SqlRequest
from palimpsest.ops.service.queries import Queries
from palimpsest.schemas.normal_forms import content_hash, storage_content
from palimpsest.schemas.promotions import KeptWhy
from palimpsest.schemas.rows.memories import SOURCE_TYPES
from palimpsest.schemas.rows.pipeline import PROMOTION
from palimpsest.stores.database.view_columns import quoted
from palimpsest.streams.store_port import SAME_IS_PENDING

Key = TypeVar("Key", bound=tuple[str, ...])

COMPARED_AT_ONCE: Final = 1_000
"""Maximum number of fact pairs whose vectors are in memory at once."""
EVIDENCE_TEXTS: Final = 3
"""Maximum number of source texts shown for a fact."""
SECONDS: Final = 600.0
ROWS: Final = 5_000_000
READ_AT_ONCE: Final = 500
Record = dict[str, Any]
"""A row by column name, or a JSON object."""

_DRAWN = f"""
WITH said AS (
    SELECT memory_id, turn_memory_id AS source FROM facts WHERE scope = {{scope}}
        AND outcome IN ('created', 'updated', 'none', 'deduped') AND memory_id IS NOT NULL
        AND outcome_reason <> {quoted(SAME_IS_PENDING)}
    UNION SELECT source_id, target_id FROM edges
        WHERE scope = {{scope}} AND relation_type = 'derived_from'),
drawn AS (SELECT memory_id, list(source ORDER BY source) AS sources FROM said GROUP BY memory_id)
"""
# The history may lag by some records, so the memory's own row counts as well.
_FACTS = f"""{_DRAWN}, touched AS (SELECT DISTINCT memory_id FROM memory_history
    WHERE scope = {{scope}} AND actor_type <> 'pipeline' AND event IN ('updated', 'recovered')
    AND json_extract_string(metadata, '$.promotion_id') IS NULL)
SELECT m.memory_id, m.type, m.content, m.content_hash, m.version, m.confidence, m.importance,
    m.categories, m.extraction_model, m.temporal_kind, m.valid_from, m.valid_until, m.occurred_at,
    m.first_occurred_at, m.utc_offset_minutes, m.project, m.session_id, m.source_id, d.sources,
    coalesce(m.pinned OR m.decay_rate = 0 OR m.updated_by NOT IN ('pipeline', {quoted(PROMOTION)})
        OR t.memory_id IS NOT NULL, false) AS curated
FROM memories m JOIN drawn d USING (memory_id) LEFT JOIN touched t USING (memory_id)
WHERE m.scope = {{scope}} AND m.source_type = 'extraction'"""
# What the pipeline or a promotion removed may come back; a person removed everything else.
_FORGOTTEN = f"""{_DRAWN}, ended AS (SELECT memory_id, arg_max(actor_type, created_at) AS actor_type
    FROM memory_history WHERE scope = {{scope}} AND event IN ('deleted', 'purged')
    GROUP BY memory_id),
promoted AS (SELECT memory_id,
        version_after + CASE WHEN change = 'gained' THEN 1 ELSE 0 END AS version
    FROM promotion_items WHERE scope = {{scope}}
        AND (change = 'lost' OR (change = 'gained' AND rollback = 'undone')))
SELECT m.memory_id, m.content, d.sources
FROM memories_all m JOIN drawn d USING (memory_id) LEFT JOIN ended e USING (memory_id)
    LEFT JOIN promoted p ON p.memory_id = m.memory_id AND p.version = m.version
WHERE m.scope = {{scope}} AND m.state = 'tombstone' AND m.type NOT IN {tuple(sorted(SOURCE_TYPES))}
    AND coalesce(e.actor_type, '') <> 'pipeline' AND p.memory_id IS NULL"""
_SUPERSEDED = """
SELECT f.item_id, f.memory_id, f.content, f.turn_memory_id, max(g.occurred_at) AS superseded_at,
    arg_max(g.turn_memory_id, (g.occurred_at, g.item_id)) AS superseded_by
FROM facts f JOIN facts g ON g.memory_id = f.memory_id AND g.scope = f.scope
    AND g.occurred_at >= f.occurred_at AND g.turn_memory_id <> f.turn_memory_id
    AND g.outcome IN ('updated', 'deleted')
WHERE f.scope = {scope} AND f.outcome IN ('created', 'updated', 'none', 'deduped')
GROUP BY f.item_id, f.memory_id, f.content, f.turn_memory_id"""
_HELD_BACK = """
SELECT DISTINCT turn_memory_id FROM facts
WHERE scope = {scope} AND outcome IN ('blocked', 'shadowed')"""
_EXTRACTIONS = """
SELECT e.turn_memory_id, e.provider, e.model, e.prompt_version, e.facts, e.input_tokens,
    e.output_tokens, e.cost, e.latency_ms, e.recorded_at, m.occurred_at
FROM extractions e LEFT JOIN memories m ON m.memory_id = e.turn_memory_id
WHERE e.scope = {scope} AND e.round = 0 AND NOT starts_with(e.prompt_version, 'consolidate-')
QUALIFY row_number() OVER (PARTITION BY e.turn_memory_id ORDER BY e.recorded_at DESC) = 1"""
_DECISIONS = """
SELECT f.item_id, f.turn_memory_id, f.content, f.type, f.confidence, f.importance, f.temporal_kind,
    f.valid_until, f.categories, f.model, f.prompt_version, f.occurred_at, f.outcome, f.memory_id,
    p.action, p.target_id, p.reason, p.confidence AS sure, p.model AS decider, p.cost,
    p.input_tokens, p.output_tokens
FROM facts f LEFT JOIN (FROM proposals WHERE scope = {scope}
    QUALIFY row_number() OVER (PARTITION BY item_id ORDER BY round DESC) = 1) p USING (item_id)
WHERE f.scope = {scope}"""
_ENTITIES = "SELECT name, canonical_name FROM entities WHERE scope = {scope}"
_RELATIONS = """
SELECT s.name AS source, s.canonical_name AS source_key, s.entity_type AS source_type,
    r.relation_type, t.name AS target, t.canonical_name AS target_key,
    t.entity_type AS target_type, r.confidence,
    (SELECT list(a.memory_id ORDER BY a.memory_id) FROM mentions a JOIN mentions b USING (memory_id)
     WHERE a.entity_id = r.source_entity_id AND b.entity_id = r.target_entity_id) AS outcomes_by
FROM relations r JOIN entities s ON s.entity_id = r.source_entity_id AND s.scope = r.scope
    JOIN entities t ON t.entity_id = r.target_entity_id AND t.scope = r.scope
WHERE r.scope = {scope}"""
_NEWEST = "SELECT promotion_id, -number AS place FROM promotions WHERE scope = {scope}"
_TEXTS = (
    "SELECT memory_id, content, who FROM memories WHERE scope = {scope} AND memory_id IN ({ids})"
)
_BOTH: Final = {
    "facts": (_FACTS, "memory_id"),
    "extractions": (_EXTRACTIONS, "turn_memory_id"),
    "decisions": (_DECISIONS, "turn_memory_id, found.item_id"),
    "entities": (_ENTITIES, "canonical_name"),
    "relations": (_RELATIONS, "source_key, found.relation_type, found.target_key"),
}
LIVE: Final = _BOTH | {
    "forgotten": (_FORGOTTEN, "memory_id"),
    "superseded": (_SUPERSEDED, "item_id"),
    "promotions": (_NEWEST, "place"),
}
"""What is read of the live memory, as a query and its order: active memories that were derived from
others (`facts`), with their sources; derived ones that a person forgot, without content if they
were erased; facts that a later statement replaced or deleted, with its time; the last extraction of
each turn; every extracted fact with the last decision about it; entities; relations with the
memories that mention both ends; promotions, the newest first."""
BRANCH: Final = _BOTH | {"held_back": (_HELD_BACK, "turn_memory_id")}
"""What is read of the branch: `held_back` are turns with facts that were not executed."""
StoredScope = Mapping[str, Sequence[Record]]


@dataclass(frozen=True, slots=True)
class ComparedStore:
    """One memory: its queries and the partitions of its scopes."""

    queries: Queries
    partitions: Mapping[str, int]

    @classmethod
    async def begun(cls, queries: Queries) -> Self:
        """Reads the scopes and their partitions."""
        found = await rows_of(queries, "SELECT scope, partition FROM scopes ORDER BY scope")
        return cls(queries, {row["scope"]: row["partition"] for row in found})

    async def read(self, scope: str, parts: Mapping[str, tuple[str, str]]) -> StoredScope:
        """Returns the rows of all these queries, as of one moment."""
        if scope not in self.partitions:
            return dict.fromkeys(parts, ())
        lists = (
            f"(SELECT list(found ORDER BY found.{order}) FROM ({query}) found) AS {name}"
            for name, (query, order) in parts.items()
        )
        [row] = await self._of(scope, f"SELECT {', '.join(lists)}")
        return {name: row[name] or () for name in parts}

    async def texts(self, scope: str, memory_ids: Sequence[str]) -> dict[str, str]:
        """Returns the texts of memories, turns with their speaker, without forgotten memories."""
        told: dict[str, str] = {}
        for first in range(0, len(memory_ids), READ_AT_ONCE):
            ids = ", ".join(map(quoted, memory_ids[first : first + READ_AT_ONCE]))
            for row in await self._of(scope, _TEXTS, ids=ids):
                is_turn = row["who"] not in ("", "pipeline", None)
                speaker = f"{row['who']}: " if is_turn else ""
                told[row["memory_id"]] = f"{speaker}{row['content']}"
        return told

    async def vectors(
        self, scope: str, memory_ids: Sequence[str]
    ) -> tuple[str | None, dict[str, NDArray[np.float32]]]:
        """Returns the model in use and the unit vectors of the memories that have one of it."""
        model: str | None = None
        found: dict[str, NDArray[np.float32]] = {}
        for first in range(0, len(memory_ids), READ_AT_ONCE):
            some = tuple(memory_ids[first : first + READ_AT_ONCE])
            request = Embeddings(scope, limit=len(some), memory_ids=some)
            answer = cast("JsonObject", await self.queries.answer(request))
            for row in cast("list[Record]", answer["embeddings"]):
                vector = np.asarray(row["vector"], np.float32)
                length = float(np.linalg.norm(vector))
                if length > 0.0:
                    model = str(row["model"])
                    found[str(row["id"])] = vector / length
        return model, found

    async def _of(self, scope: str, query: str, **parts: str) -> list[Record]:
        query = query.format(scope=quoted(scope), **parts)
        return await rows_of(self.queries, query, self.partitions[scope])


async def rows_of(queries: Queries, query: str, partition: int | None = None) -> list[Record]:
    table = await queries.table(SqlRequest(query, partition, SECONDS, ROWS))
    return cast("list[Record]", table.to_pylist())


# --- differences ----------------------------------------------------------------------------------
# The result of a comparison of the live memory with a branch, as plain frozen data.

Kind = Literal["same", "changed", "gained", "lost"]
KINDS: tuple[Kind, ...] = ("same", "changed", "gained", "lost")


SHOWN: Final = ("memory_id", "type", "content", "version", "confidence", "sources", "curated")
"""The columns of a fact that a difference shows; `sources` are the memories that it was extracted
from."""


@dataclass(frozen=True, slots=True)
class FactDifference:
    """A fact that differs between the memories, as it is SHOWN in each. `similarity` is that of a
    pair (None for facts paired by id). `keep` says why a promotion would leave the fact as it is,
    `counterpart` which forgotten fact it repeats. `evidence` holds texts that it was extracted
    from."""

    scope: str
    kind: Kind
    live: Record | None
    branch: Record | None
    similarity: float | None = None
    keep: KeptWhy | None = None
    counterpart: str | None = None
    evidence: tuple[str, ...] = ()

    @property
    def state(self) -> Record:
        """The live memory's side of it, or else the branch's."""
        state = self.live or self.branch
        assert state is not None
        return state

    @property
    def sources(self) -> list[str]:
        return [*(self.branch or self.state)["sources"]]

    def as_json(self) -> Record:
        """Returns the difference without its scope."""
        told: Record = {**asdict(self), "type": self.state["type"], "sources": self.sources}
        del told["scope"]
        return told


@dataclass(frozen=True, slots=True)
class ScopeDiff:
    """The differences of one scope, ordered by id; equal facts are only counted, by type.
    `decisions` are facts that both memories extracted from a turn and decided differently; `graph`
    has the entities, and the relations as `source > relation > target`, that only one memory has;
    `spent` is what the extraction of the compared turns yielded and used in each, as `summed` adds
    it up. For a promotion, `drawn` holds the branch's memories, `told` the facts that created them,
    `relations` those that only the branch has. `newest_promotion` is as of the start of the
    comparison."""

    scope: str
    same: Mapping[str, int]
    facts: tuple[FactDifference, ...]
    decisions: tuple[Record, ...]
    graph: tuple[Record, ...]
    spent: Mapping[str, Record]
    newest_promotion: str | None = None
    drawn: Mapping[str, Record] = field(default_factory=dict)
    told: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    relations: Mapping[str, Sequence[Record]] = field(default_factory=dict)

    def counts(self) -> dict[str, dict[str, int]]:
        """Returns the number of facts of each kind, by type."""
        found: dict[str, Counter[str]] = {}
        for kind, number in self.same.items():
            found.setdefault(kind, Counter())["same"] = number
        for each in self.facts:
            found.setdefault(each.state["type"], Counter())[each.kind] += 1
        return {kind: {name: found[kind][name] for name in KINDS} for kind in sorted(found)}

    def as_json(self) -> Record:
        return {
            "scope": self.scope,
            "counts": self.counts(),
            "spent": self.spent,
            "facts": [fact.as_json() for fact in self.facts],
            "decisions": [*self.decisions],
            "graph": [*self.graph],
        }


def summed(extractions: Iterable[Record]) -> Record:
    """Returns the sums of turns, facts, tokens and cost; the cost is None without prices."""
    found = [*extractions]
    costs = [each["cost"] for each in found if each["cost"] is not None]
    names = ("turns", "facts", "input_tokens", "output_tokens")
    told: Record = {name: sum(each[name] or 0 for each in found) for name in names}
    return {**told, "cost": sum(costs) if costs else None}


async def scope_diff(
    live: ComparedStore, own: ComparedStore, branch: BranchManifest, scope: str
) -> ScopeDiff:
    """Returns the differences of one scope, in an order that depends only on the stored data."""
    mine, theirs = await live.read(scope, LIVE), await own.read(scope, BRANCH)
    again = extracted_again(branch.selection, scope, mine["extractions"], theirs["extractions"])
    pairs = await _Pairing(live, own, scope).pairs(mine, theirs)
    compared = _Compared(scope, mine, theirs, pairs, again)
    told: dict[str, list[Record]] = defaultdict(list)
    for row in theirs["decisions"]:
        if row["memory_id"] is not None:
            told[row["memory_id"]].append(row)
    facts = [*compared.facts()]
    evidence = [each.sources[:EVIDENCE_TEXTS] for each in facts]
    texts = await live.texts(scope, sorted({source for some in evidence for source in some}))
    return ScopeDiff(
        scope=scope,
        same=compared.same(),
        facts=tuple(
            replace(each, evidence=tuple(texts[source] for source in some if source in texts))
            for each, some in zip(facts, evidence, strict=True)
        ),
        decisions=tuple(compared.decisions()),
        graph=tuple(compared.graph()),
        spent={
            side: summed(
                {**row, "turns": 1} for row in read["extractions"] if row["turn_memory_id"] in again
            )
            for side, read in (("live", mine), ("branch", theirs))
        },
        newest_promotion=next((row["promotion_id"] for row in mine["promotions"]), None),
        drawn={row["memory_id"]: row for row in theirs["facts"]},
        told=told,
        relations=compared.relations_of_branch(),
    )


def extracted_again(
    selection: TurnSelection | None, scope: str, live: Sequence[Record], branch: Sequence[Record]
) -> frozenset[str]:
    """Returns the turn memories that the branch extracted from with its own settings. Times do not
    identify the turns of a sample, so a sampled turn counts if its model call differs from the
    live one."""
    chosen = selection or TurnSelection()
    calls = {row["turn_memory_id"]: _call(row) for row in live}
    return frozenset(
        row["turn_memory_id"]
        for row in branch
        if row["occurred_at"] is not None
        and chosen.has(scope, row["occurred_at"])
        and (chosen.sample is None or calls.get(row["turn_memory_id"]) != _call(row))
    )


def _call(row: Record) -> tuple[object, ...]:
    names = ("provider", "model", "prompt_version", "input_tokens", "output_tokens", "latency_ms")
    return tuple(row[name] for name in names)


# --- which is which ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pairing:
    live: ComparedStore
    own: ComparedStore
    scope: str

    async def pairs(self, of_live: StoredScope, of_branch: StoredScope) -> Pairs:
        """Pairs the facts of the scope: by equal text, by likeness, by id. An id depends on the
        position in a reply, so pairing by similarity comes first."""
        mine, theirs = ([*map(_statement, side["facts"])] for side in (of_live, of_branch))
        gone = [_statement(row) for row in of_live["forgotten"] if row["content"]]
        # A memory's earlier text still makes it the counterpart of a branch memory.
        earlier = [
            ComparedFact(
                row["memory_id"],
                row["content"],
                content_hash(storage_content(row["content"])),
                (row["turn_memory_id"],),
                is_earlier=True,
            )
            for row in of_live["superseded"]
        ]
        active, ids = ({each.memory_id for each in side} for side in (mine, theirs))
        forgotten = {row["memory_id"] for row in of_live["forgotten"]}
        ended = frozenset(forgotten | {each.memory_id for each in earlier} - active)
        pairs = Pairs(ended)
        pairs.take_equal(mine, theirs)
        pairs.take_same_id(forgotten, ids, 1.0)
        rest = [each for each in (*mine, *earlier) if each.memory_id not in pairs.paired]
        other = [each for each in theirs if each.memory_id not in pairs.taken]
        some = await asyncio.to_thread(lambda: [*may_be_pairs((*rest, *gone), other)])
        scores: dict[tuple[str, str], float] = {}
        for first in range(0, len(some), COMPARED_AT_ONCE):
            found = await self._scores(some[first : first + COMPARED_AT_ONCE])
            scores |= {key: max(score, scores.get(key, 0.0)) for key, score in found.items()}
        pairs.take(scores)
        pairs.take_same_id(active, ids, 0.0)
        return pairs

    async def _scores(self, some: Sequence[tuple[ComparedFact, ComparedFact]]) -> Scores:
        """Returns the similarity of each of these that is near enough to be a pair."""
        mine = sorted({one.memory_id for one, _ in some if not one.is_earlier})
        theirs = sorted({other.memory_id for _, other in some})
        model, of_live = await self.live.vectors(self.scope, mine)
        other_model, of_branch = await self.own.vectors(self.scope, theirs)
        same_model = model is not None and model == other_model
        vectors = {
            each.content: None if each.is_earlier else of_side.get(each.memory_id)
            for pair in (some if same_model else ())
            for each, of_side in zip(pair, (of_live, of_branch), strict=True)
        }
        return scored(Comparison(vectors, near_cosine(model or "")), some)


def _statement(row: Record) -> ComparedFact:
    digest = row.get("content_hash") or content_hash(row["content"])
    return ComparedFact(row["memory_id"], row["content"], digest, tuple(row["sources"]))


# --- what differs -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Compared:
    """One scope of both memories, with the facts that correspond, and the turns that the branch
    extracted from again."""

    scope: str
    live: StoredScope
    branch: StoredScope
    pairs: Pairs
    again: frozenset[str]

    def same(self) -> dict[str, int]:
        """Counts the facts with equal content on both sides, by type."""
        digests = {row["memory_id"]: row["content_hash"] for row in self.branch["facts"]}
        paired = ((row, self.pairs.paired.get(row["memory_id"])) for row in self.live["facts"])
        found = Counter(
            row["type"]
            for row, pair in paired
            if pair is not None and digests[pair.branch] == row["content_hash"]
        )
        return dict(sorted(found.items()))

    def facts(self) -> Iterator[FactDifference]:
        theirs = {row["memory_id"]: row for row in self.branch["facts"]}
        held_back = {row["turn_memory_id"] for row in self.branch["held_back"]}
        for row in self.live["facts"]:
            pair = self.pairs.paired.get(row["memory_id"])
            if pair is None:
                said = self._difference("lost", row, None)
                if said and said.keep is None and not held_back.isdisjoint(said.sources):
                    said = replace(said, keep="held-back")
            else:
                other = theirs.pop(pair.branch)
                if other["content_hash"] == row["content_hash"]:
                    continue
                said = self._difference("changed", row, other)
                if said and said.keep is None and _knows_later(row, other):
                    said = replace(said, keep="newer")
                if said:
                    said = replace(said, similarity=pair.similarity or None)
            if said:
                yield said
        yield from self._only_of_branch(theirs.values())

    def _difference(
        self, kind: Kind, live: Record | None, branch: Record | None
    ) -> FactDifference | None:
        """Returns the difference, None if it is not about turns that were extracted again."""
        mine, theirs = (row and {name: row[name] for name in SHOWN} for row in (live, branch))
        sources = {source for row in (live, branch) if row for source in row["sources"]}
        if self.again.isdisjoint(sources):
            return None
        said = FactDifference(self.scope, kind, mine, theirs)
        if live is not None and live["curated"]:
            return replace(said, keep="curated")
        return said if self.again.issuperset(sources) else replace(said, keep="other-sources")

    def _only_of_branch(self, rows: Iterable[Record]) -> Iterator[FactDifference]:
        """Erased texts cannot be compared, so a fact from the source of an erased one is kept
        out."""
        forgotten, superseded = self.live["forgotten"], self.live["superseded"]
        erased = {source for row in forgotten if not row["content"] for source in row["sources"]}
        by_people = {row["memory_id"] for row in forgotten}
        ended = {
            row["memory_id"]: {
                "occurred_at": row["superseded_at"],
                "sources": (row["superseded_by"],),
            }
            for row in sorted(superseded, key=lambda row: row["superseded_at"])
        }
        for row in rows:
            said = self._difference("gained", None, row)
            if said is None:
                continue
            pair = self.pairs.repeated.get(row["memory_id"])
            if pair is not None and pair.live in by_people:
                near = pair.similarity
                said = replace(said, similarity=near, keep="suppressed", counterpart=pair.live)
            elif not erased.isdisjoint(row["sources"]):
                said = replace(said, keep="erased")
            elif said.keep is None and pair is not None and _knows_later(ended[pair.live], row):
                near = pair.similarity
                said = replace(said, similarity=near, keep="newer", counterpart=pair.live)
            yield said

    def decisions(self) -> Iterator[Record]:
        """Yields the matching facts of the same turn whose actions differ or whose target memories
        are not counterparts. Facts match by their words: they have no vectors of their own."""
        sides = (self.live["decisions"], self.branch["decisions"])
        mine, theirs = (
            {row["item_id"]: row for row in rows if row["turn_memory_id"] in self.again}
            for rows in sides
        )
        said = [{row["memory_id"]: row["content"] for row in rows} for rows in sides]
        counterpart = {pair.live: pair.branch for pair in self.pairs.paired.values()}
        statements = [
            [
                ComparedFact(item_id, content, content_hash(content), (row["turn_memory_id"],))
                for item_id, row in side.items()
                for content in [row["content"]]
            ]
            for side in (mine, theirs)
        ]
        pairs = Pairs()
        pairs.take(scored(Comparison({}, 1.0), may_be_pairs(*statements)))
        for item_id, pair in sorted(pairs.paired.items()):
            one, other = mine[item_id], theirs[pair.branch]
            target = one["target_id"]
            is_same_target = counterpart.get(target, target) == other["target_id"]
            if one["action"] != other["action"] or not is_same_target:
                yield {
                    "scope": self.scope,
                    "turn_memory_id": one["turn_memory_id"],
                    "live": _decision(one, said[0]),
                    "branch": _decision(other, said[1]),
                }

    def graph(self) -> Iterator[Record]:
        sides = (self.live, self.branch)
        names = ({(e["canonical_name"],): e["name"] for e in side["entities"]} for side in sides)
        shown = "{source} > {relation_type} > {target}".format_map
        edges = ({_edge(row): shown(row) for row in side["relations"]} for side in sides)
        yield from _only_in_one(self.scope, "entity", *names)
        yield from _only_in_one(self.scope, "relation", *edges)

    def relations_of_branch(self) -> Mapping[str, Sequence[Record]]:
        """Returns the relations that only the branch has, by the memories that mention them."""
        known = set(map(_edge, self.live["relations"]))
        found: dict[str, list[Record]] = defaultdict(list)
        for row in self.branch["relations"]:
            if _edge(row) not in known:
                for memory_id in row["outcomes_by"] or ():
                    found[memory_id].append(row)
        return found


def _knows_later(live: Record, branch: Record) -> bool:
    """Returns whether the live memory learned this after all turns that the branch's fact was
    extracted from. Among turns with the same time, those that the branch's fact is not from count
    as later."""
    if live["occurred_at"] != branch["occurred_at"]:
        return bool(live["occurred_at"] > branch["occurred_at"])
    return not set(branch["sources"]).issuperset(live["sources"])


def _decision(row: Record, said: Mapping[str, str]) -> Record:
    """Returns the decision about a fact; `target` is the text of the target memory."""
    target = row["target_id"]
    return {
        "item_id": row["item_id"],
        "fact": row["content"],
        "action": row["action"] or "-",  # nothing was decided
        "target": None if target is None else said.get(target, target),
        "reason": row["reason"] or "",
    }


def _only_in_one(
    scope: str, what: str, live: Mapping[Key, str], branch: Mapping[Key, str]
) -> Iterator[Record]:
    for kind, side, other in (("lost", live, branch), ("gained", branch, live)):
        for key in sorted(side.keys() - other.keys()):
            yield {"scope": scope, "kind": kind, "what": what, "name": side[key]}


def _edge(row: Record) -> tuple[str, str, str]:
    return row["source_key"], row["relation_type"], row["target_key"]
