"""Compares the live memory with a branch, scope by scope."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from palimpsest.ops.errors import NotFoundError
from palimpsest.ops.replay.branches import Branch, Selection, branch_settings, read_branch
from palimpsest.ops.replay.differences import (
    Decision,
    DecisionDifference,
    Diff,
    FactDifference,
    FactState,
    GraphDifference,
    GraphPart,
    ScopeDiff,
    Spent,
)
from palimpsest.ops.replay.pairing import (
    NEAR_WORDS,
    Pair,
    Pairs,
    Statement,
    may_be_pairs,
    near_cosine,
    pair_by_id,
    pair_nearest,
    same,
    shared_words,
)
from palimpsest.ops.replay.progress import Progress, Report, unreported
from palimpsest.ops.replay.reading import ComparedStore, Record
from palimpsest.ops.replay.recall_difference import Question, recall_differences
from palimpsest.ops.service.queries import queries
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import KeptWhy
from palimpsest.schemas.normal_forms import content_hash, storage_content

# --- decision differences -------------------------------------------------------------------------
# Facts on which the two memories decided differently.

NOTHING: Final = "-"
"""Stands for the action where nothing was decided."""


def decision_differences(
    scope: str,
    live: Sequence[Record],
    branch: Sequence[Record],
    memories: Pairs,
    anew: frozenset[str],
) -> tuple[DecisionDifference, ...]:
    """Returns the matching facts of the same turn whose actions differ or whose target memories
    are not counterparts. Facts match by their words: they have no vectors of their own."""
    mine = {str(row["item_id"]): row for row in live if row["turn_memory_id"] in anew}
    theirs = {str(row["item_id"]): row for row in branch if row["turn_memory_id"] in anew}
    pairs = _paired([*mine.values()], [*theirs.values()])
    counterpart = {pair.live: pair.branch for pair in memories.paired.values()}
    said = [{str(row["memory_id"]): str(row["content"]) for row in rows} for rows in (live, branch)]
    found = []
    for item_id, other_id in sorted(pairs.items()):
        one, other = mine[item_id], theirs[other_id]
        target, other_target = one["target_id"], other["target_id"]
        is_same_target = (target is None) == (other_target is None) and (
            target is None or counterpart.get(target, target) == other_target
        )
        if one["action"] != other["action"] or not is_same_target:
            turn = str(one["turn_memory_id"])
            decided = (_decision(one, said[0]), _decision(other, said[1]))
            found.append(DecisionDifference(scope, turn, *decided))
    return tuple(found)


def _paired(live: Sequence[Record], branch: Sequence[Record]) -> dict[str, str]:
    mine, theirs = ([*map(_decided_statement, rows)] for rows in (live, branch))
    pairs = Pairs()
    scores = {}
    by_turn: dict[tuple[str, str], list[Statement]] = defaultdict(list)
    for statement in theirs:
        by_turn[statement.digest, statement.sources[0]].append(statement)
    for statement in mine:
        for equal in by_turn[statement.digest, statement.sources[0]]:
            scores[statement.memory_id, equal.memory_id] = 1.0
    for one, other in may_be_pairs(mine, theirs):
        score = shared_words(one.content, other.content)
        if score >= NEAR_WORDS:
            scores.setdefault((one.memory_id, other.memory_id), score)
    pair_nearest(pairs, scores, frozenset())
    return {pair.live: pair.branch for pair in pairs.paired.values()}


def _decided_statement(row: Record) -> Statement:
    content, turn = str(row["content"]), str(row["turn_memory_id"])
    return Statement(str(row["item_id"]), content, content_hash(content), (turn,))


def _decision(row: Record, said: dict[str, str]) -> Decision:
    target = row["target_id"]
    return Decision(
        item_id=str(row["item_id"]),
        fact=str(row["content"]),
        action=str(row["action"] or NOTHING),
        target=None if target is None else said.get(str(target), str(target)),
        reason=str(row["reason"] or ""),
    )


# --- diff -----------------------------------------------------------------------------------------

Key = TypeVar("Key", bound=tuple[str, ...])

COMPARED_AT_ONCE: Final = 1_000
"""Maximum number of fact pairs whose vectors are in memory at once."""
EVIDENCE_TEXTS: Final = 3
"""Maximum number of source texts shown for a fact."""


@dataclass(frozen=True, slots=True)
class DiffRequest:
    """A request to compare the live memory with this branch, in all scopes or in the named ones.
    `questions` is a file of questions to run against both."""

    branch: str
    scopes: tuple[str, ...] = ()
    questions: Path | None = None


async def diff(settings: Settings, request: DiffRequest, report: Report = unreported) -> Diff:
    """Returns all differences. Raises NotFoundError for an unknown branch or scope, RequestError
    for questions that cannot be read and for memory that cannot be queried."""
    branch = read_branch(settings, request.branch)
    asked = () if request.questions is None else Question.read(request.questions)
    found = [each async for each in scope_diffs(settings, request, report)]
    async with sides(settings, branch) as (live, own):
        recall = await recall_differences(live.queries, own.queries, asked, report)
    return Diff(branch.name, tuple(found), recall)


async def scope_diffs(
    settings: Settings, request: DiffRequest, report: Report = unreported
) -> AsyncIterator[ScopeDiff]:
    """Yields the differences scope by scope, ordered by name, without running the questions.
    Raises the same errors as `diff`."""
    branch = read_branch(settings, request.branch)
    async with sides(settings, branch) as (live, own):
        scopes = scopes_of(live, own, request.scopes)
        for number, scope in enumerate(scopes):
            report(Progress("comparing", number, len(scopes), "scopes"))
            yield await scope_diff(live, own, branch, scope)
        report(Progress("comparing", len(scopes), len(scopes), "scopes"))


@contextlib.asynccontextmanager
async def sides(
    settings: Settings, branch: Branch
) -> AsyncIterator[tuple[ComparedStore, ComparedStore]]:
    """Yields the live memory and the branch, ready for queries."""
    async with (
        queries(settings) as of_live,
        queries(branch_settings(settings, branch)) as of_branch,
    ):
        live, own = ComparedStore(of_live), ComparedStore(of_branch)
        await live.begin()
        await own.begin()
        yield live, own


def scopes_of(live: ComparedStore, branch: ComparedStore, named: Sequence[str]) -> list[str]:
    """Returns the scopes to compare, sorted. A scope that only the branch has was erased in the
    meantime and is left out. Raises NotFoundError for a named scope that the live memory lacks."""
    for scope in named:
        if scope not in live.partitions:
            raise NotFoundError(f"there is no scope {scope}")
    both = live.partitions.keys() & branch.partitions.keys()
    return sorted(both & set(named)) if named else sorted(both)


async def scope_diff(
    live: ComparedStore, own: ComparedStore, branch: Branch, scope: str
) -> ScopeDiff:
    """Returns the differences of one scope, in an order that depends only on the stored data."""
    # Read first, so that promotions made during the comparison can be recognized.
    newest = await live.newest_promotion(scope)
    extracted = [await side.extractions(scope) for side in (live, own)]
    anew = extracted_anew(branch.selection, scope, *extracted)
    facts = [await side.facts(scope) for side in (live, own)]
    forgotten = await live.forgotten(scope)
    superseded = await live.superseded(scope)
    pairs = await _pairs(live, own, scope, facts, forgotten, superseded)
    decisions = [await side.decisions(scope) for side in (live, own)]
    told: dict[str, list[Record]] = defaultdict(list)
    for row in decisions[1]:
        if row["memory_id"] is not None:
            told[str(row["memory_id"])].append(row)
    relations = [await side.relations(scope) for side in (live, own)]
    entities = [await side.entities(scope) for side in (live, own)]
    held_back = await own.held_back(scope)
    found = _differences(scope, facts, (forgotten, superseded), pairs, anew, held_back)
    return ScopeDiff(
        scope=scope,
        same=_same(facts[0], facts[1], pairs),
        facts=await _with_evidence(live, scope, found),
        decisions=decision_differences(scope, decisions[0], decisions[1], pairs, anew),
        graph=_graph(scope, entities, relations),
        live=_spent(extracted[0], anew),
        branch=_spent(extracted[1], anew),
        newest_promotion=None if newest is None else str(newest["promotion_id"]),
        drawn={str(row["memory_id"]): row for row in facts[1]},
        told=told,
        relations=_only_in_branch(*relations),
    )


def extracted_anew(
    selection: Selection | None, scope: str, live: Sequence[Record], branch: Sequence[Record]
) -> frozenset[str]:
    """Returns the turn memories that the branch extracted from with its own settings. Times do not
    identify the turns of a sample, so a sampled turn counts if its model call differs from the
    live one."""
    chosen = selection or Selection()
    if chosen.scope not in (None, scope):
        return frozenset()
    calls = {str(row["turn_memory_id"]): _call(row) for row in live}
    anew = set()
    for row in branch:
        turn, told = str(row["turn_memory_id"]), row["occurred_at"]
        if told is None or (chosen.since is not None and told < chosen.since):
            continue
        if chosen.until is not None and told >= chosen.until:
            continue
        if chosen.sample is None or calls.get(turn) != _call(row):
            anew.add(turn)
    return frozenset(anew)


def _call(row: Record) -> tuple[object, ...]:
    names = ("provider", "model", "prompt_version", "input_tokens", "output_tokens", "latency_ms")
    return tuple(row[name] for name in names)


# --- which is which ---------------------------------------------------------------------------


async def _pairs(
    live: ComparedStore,
    own: ComparedStore,
    scope: str,
    facts: Sequence[Sequence[Record]],
    forgotten: Sequence[Record],
    superseded: Sequence[Record],
) -> Pairs:
    mine, theirs = ([*map(_statement, rows)] for rows in facts)
    gone = [_statement(row) for row in forgotten if row["content"]]
    # A memory's earlier text still makes it the counterpart of a branch memory.
    earlier = [_earlier(row) for row in superseded]
    named = {str(row["item_id"]): str(row["memory_id"]) for row in superseded}
    pairs = same(mine, theirs)
    ids = {each.memory_id for each in theirs} - pairs.taken
    for row in forgotten:
        known = str(row["memory_id"])
        if known in ids:
            pairs.forgotten[known] = Pair(known, known, 1.0)
            pairs.taken.add(known)
    rest = [each for each in mine if each.memory_id not in pairs.paired]
    rest += [each for each in earlier if named[each.memory_id] not in pairs.paired]
    other = [each for each in theirs if each.memory_id not in pairs.taken]
    scores: dict[tuple[str, str], float] = {}
    some: list[tuple[Statement, Statement]] = []
    for two in await asyncio.to_thread(lambda: [*may_be_pairs((*rest, *gone), other)]):
        some.append(two)
        if len(some) == COMPARED_AT_ONCE:
            scores |= await _scores(live, own, scope, some)
            some = []
    scores |= await _scores(live, own, scope, some)
    by_memory: dict[tuple[str, str], float] = {}
    for (one, theirs_id), score in scores.items():
        key = (named.get(one, one), theirs_id)
        by_memory[key] = max(score, by_memory.get(key, 0.0))
    no_more = set(named.values()) - {each.memory_id for each in mine}
    pair_nearest(pairs, by_memory, frozenset({*no_more, *(each.memory_id for each in gone)}))
    pair_by_id(pairs, mine, theirs)
    return pairs


def _earlier(row: Record) -> Statement:
    content = str(row["content"])
    source = (str(row["turn_memory_id"]),)
    return Statement(str(row["item_id"]), content, content_hash(storage_content(content)), source)


def _statement(row: Record) -> Statement:
    content = str(row["content"])
    digest = row.get("content_hash") or content_hash(content)
    return Statement(str(row["memory_id"]), content, str(digest), tuple(row["sources"]))


async def _scores(
    live: ComparedStore, own: ComparedStore, scope: str, some: Sequence[tuple[Statement, Statement]]
) -> dict[tuple[str, str], float]:
    """Returns the similarity of each of these that is near enough to be a pair."""
    mine = sorted({one.memory_id for one, _ in some})
    theirs = sorted({other.memory_id for _, other in some})
    model, of_live = await live.vectors(scope, mine)
    other_model, of_branch = await own.vectors(scope, theirs)
    found = {}
    for one, other in some:
        key = (one.memory_id, other.memory_id)
        left, right = of_live.get(one.memory_id), of_branch.get(other.memory_id)
        if one.digest == other.digest:
            found[key] = 1.0
        elif model is not None and model == other_model and left is not None and right is not None:
            score = float(left @ right)
            if score >= near_cosine(model):
                found[key] = min(score, 1.0)
        else:
            score = shared_words(one.content, other.content)
            if score >= NEAR_WORDS:
                found[key] = score
    return found


# --- what differs -----------------------------------------------------------------------------


def _same(live: Sequence[Record], branch: Sequence[Record], pairs: Pairs) -> dict[str, int]:
    digests = {str(row["memory_id"]): row["content_hash"] for row in branch}
    paired = ((row, pairs.paired.get(str(row["memory_id"]))) for row in live)
    found = Counter(
        str(row["type"])
        for row, pair in paired
        if pair is not None and digests[pair.branch] == row["content_hash"]
    )
    return dict(sorted(found.items()))


def _differences(
    scope: str,
    facts: Sequence[Sequence[Record]],
    gone: tuple[Sequence[Record], Sequence[Record]],
    pairs: Pairs,
    anew: frozenset[str],
    held_back: frozenset[str],
) -> list[FactDifference]:
    """`gone` holds the live facts that people forgot and those that a later statement superseded;
    `held_back` holds the turns that the branch has not fully executed."""
    theirs = {str(row["memory_id"]): row for row in facts[1]}
    found = []
    for row in facts[0]:
        state = FactState.of(row)
        pair = pairs.paired.get(state.memory_id)
        if pair is None:
            if not anew.isdisjoint(state.sources):
                keep = _why_kept(state, state.sources, anew)
                if keep is None and not held_back.isdisjoint(state.sources):
                    keep = "held-back"
                found.append(FactDifference(scope, "lost", state, None, keep=keep))
        elif theirs[pair.branch]["content_hash"] != row["content_hash"]:
            other = FactState.of(theirs[pair.branch])
            sources = (*state.sources, *other.sources)
            if not anew.isdisjoint(sources):
                keep = _why_kept(state, sources, anew)
                if keep is None and _knows_later(row, theirs[pair.branch]):
                    keep = "newer"
                near = pair.similarity or None
                found.append(FactDifference(scope, "changed", state, other, near, keep))
    taken = {pair.branch for pair in pairs.paired.values()}
    rest = [row for row in facts[1] if str(row["memory_id"]) not in taken]
    return [*found, *_only_of_branch(scope, rest, gone, pairs, anew)]


def _only_of_branch(
    scope: str,
    rows: Sequence[Record],
    gone: tuple[Sequence[Record], Sequence[Record]],
    pairs: Pairs,
    anew: frozenset[str],
) -> Iterator[FactDifference]:
    forgotten, superseded = gone
    erased = {source for row in forgotten if not row["content"] for source in row["sources"]}
    by_people = {str(row["memory_id"]) for row in forgotten}
    ended = {
        str(row["memory_id"]): {
            "occurred_at": row["superseded_at"],
            "sources": (row["superseded_by"],),
        }
        for row in sorted(superseded, key=lambda row: row["superseded_at"])
    }
    for row in rows:
        state = FactState.of(row)
        if anew.isdisjoint(state.sources):
            continue
        pair = pairs.forgotten.get(state.memory_id)
        suppressed = pair if pair is not None and pair.live in by_people else None
        said = _gained(scope, state, suppressed, erased, anew)
        if said.keep is None and pair is not None and _knows_later(ended[pair.live], row):
            near = pair.similarity
            said = replace(said, similarity=near, keep="newer", counterpart=pair.live)
        yield said


def _knows_later(live: Record, branch: Record) -> bool:
    """Returns whether the live memory learned this after all turns that the branch's fact was
    extracted from. Among turns with the same time, those that the branch's fact is not from count
    as later."""
    if live["occurred_at"] != branch["occurred_at"]:
        return bool(live["occurred_at"] > branch["occurred_at"])
    return not set(branch["sources"]).issuperset(live["sources"])


def _why_kept(live: FactState, sources: Iterable[str], anew: frozenset[str]) -> KeptWhy | None:
    if live.curated:
        return "curated"
    return None if anew.issuperset(sources) else "other-sources"


def _gained(
    scope: str, state: FactState, forgotten: Pair | None, erased: set[str], anew: frozenset[str]
) -> FactDifference:
    """Returns the difference for a fact that only the branch has. Erased texts cannot be compared,
    so a fact from the source of an erased one is kept out."""
    said = FactDifference(scope, "gained", None, state)
    if forgotten is not None:
        near = forgotten.similarity
        return replace(said, similarity=near, keep="suppressed", counterpart=forgotten.live)
    if not erased.isdisjoint(state.sources):
        return replace(said, keep="erased")
    return said if anew.issuperset(state.sources) else replace(said, keep="other-sources")


async def _with_evidence(
    live: ComparedStore, scope: str, found: Sequence[FactDifference]
) -> tuple[FactDifference, ...]:
    wanted = sorted({source for each in found for source in each.sources[:EVIDENCE_TEXTS]})
    texts = await live.texts(scope, wanted)
    return tuple(
        replace(
            each,
            evidence=tuple(
                texts[source] for source in each.sources[:EVIDENCE_TEXTS] if source in texts
            ),
        )
        for each in found
    )


def _graph(
    scope: str, entities: Sequence[Sequence[Record]], relations: Sequence[Sequence[Record]]
) -> tuple[GraphDifference, ...]:
    names = [{(str(row["canonical_name"]),): str(row["name"]) for row in side} for side in entities]
    edges = [{_edge(row): _shown(row) for row in side} for side in relations]
    return (
        *_only_in_one(scope, "entity", names[0], names[1]),
        *_only_in_one(scope, "relation", edges[0], edges[1]),
    )


def _only_in_one(
    scope: str,
    what: GraphPart,
    live: Mapping[Key, str],
    branch: Mapping[Key, str],
) -> list[GraphDifference]:
    lost, gained = sorted(live.keys() - branch.keys()), sorted(branch.keys() - live.keys())
    found = [GraphDifference(scope, "lost", what, live[key]) for key in lost]
    return [*found, *(GraphDifference(scope, "gained", what, branch[key]) for key in gained)]


def _edge(row: Record) -> tuple[str, str, str]:
    return str(row["source_key"]), str(row["relation_type"]), str(row["target_key"])


def _shown(row: Record) -> str:
    return f"{row['source']} > {row['relation_type']} > {row['target']}"


def _only_in_branch(
    live: Sequence[Record], branch: Sequence[Record]
) -> Mapping[str, Sequence[Record]]:
    known = set(map(_edge, live))
    found: dict[str, list[Record]] = defaultdict(list)
    for row in branch:
        if _edge(row) not in known:
            for memory_id in row["told_by"] or ():
                found[str(memory_id)].append(row)
    return found


def _spent(rows: Sequence[Record], anew: frozenset[str]) -> Spent:
    total = Spent()
    for row in rows:
        if row["turn_memory_id"] in anew:
            tokens = (int(row["input_tokens"] or 0), int(row["output_tokens"] or 0))
            total += Spent(1, int(row["facts"]), *tokens, row["cost"])
    return total
