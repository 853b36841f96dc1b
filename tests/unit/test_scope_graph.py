"""A scope's graph in memory has what its tables have, after any history."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.graph import MentionRow, NameRow, RelationRow
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.stores.index.stored_scopes import Graph, StoredGraph
from palimpsest.stores.recall.filters import VisibilityMask
from palimpsest.stores.recall.graph import (
    GraphBoost,
    GraphBoostLimits,
    graph_boost,
    mentioning,
)
from palimpsest.stores.recall.query import Query
from palimpsest.stores.settings import RecallSettings
from palimpsest.stores.shard import Shard
from palimpsest.streams.store_port import Load, LoadGraph, Progress, Put
from tests.examples import examples
from tests.memory_rows import BEGIN, SCOPE, memory, open_shard, turn
from tests.unit.recall_parts import said_anew

NAMES = (
    "ana", "ana lopez", "ben", "postgresql", "postgres", "the big database", "健太", "健太郎",
    "健", "ольга", "café luna", "study group", "studies", "running club", "a", "c++", "fiona",
    "may", "o'brien", "kai 2", "서울",
)  # fmt: skip
QUESTIONS = (
    "What did Ana say to Ben?", "健太郎は何が好きですか", "подарок Ольге", "studies of the group",
    "who runs", "cafe luna in May", "ﬁona's c++ database", "O'Brien and Kai", "서울에서",
    "the", "", "Ana Lopez, Ben, the running club, postgres and Fiona",
)  # fmt: skip
TEXTS = tuple(f"{a} likes {b}" for a in ("ana", "ben", "健太") for b in ("tea", "ski", "go", "it"))
LATER = datetime(2200, 1, 1, tzinfo=UTC)
TYPES = ("person", "system", "unknown", "extracted", "")
EVERYTHING = GraphBoostLimits(min_idf=0.0)
FEW = GraphBoostLimits(max_entities=3, max_neighbours=2, max_memories=4)
HALF = GraphBoostLimits(neighbour_share=0.0, min_idf=0.2)


def named(canonical: str, **fields: object) -> NameRow:
    row = NameRow(
        name_id=f"n-{canonical}", entity_id=f"n-{canonical}", scope=SCOPE, name=canonical.title(),
        canonical_name=canonical, entity_type="person", first_seen=BEGIN, updated_at=BEGIN,
    )  # fmt: skip
    return replace(row, **fields)  # type: ignore[arg-type]


def commit(shard: Shard, rows: Iterable[Row]) -> None:
    """As stages write: what is rewritten was read."""
    unit = shard.unit()
    unit.prefetch([LoadGraph(SCOPE, NAMES, ())])
    for row in rows:
        if isinstance(row, MemoryRow):
            unit.answer(Load(SCOPE, memory_ids=(row.memory_id,)))
        unit.stage([Put(row)])
    unit.commit(Progress("test", {}, (), (), 0))


class History:
    """Random changes of one scope's memories and graph."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.memories: dict[str, MemoryRow] = {}
        self.names: dict[str, NameRow] = {}
        self.relations: dict[tuple[str, ...], RelationRow] = {}
        self.texts: list[tuple[str, str]] = []
        self.seq = 0

    def batch(self) -> list[Row]:
        changes: tuple[Callable[[], Row], ...] = (
            self.remember, self.remember, self.change, self.name, self.merge, self.relate,
            self.mention, self.mention, self.mention, self.mention, self.mention,
        )  # fmt: skip
        return [self.chance.choice(changes)() for _ in range(self.chance.randint(1, 30))]

    def remember(self) -> Row:
        self.seq += 1
        made = self.chance.choice((memory, turn))
        return self._keep(made(f"m{self.seq:03}", self.chance.choice(TEXTS), self.seq))

    def change(self) -> Row:
        """Another text, the same with another importance, pin or end, forgotten, or recovered."""
        if not self.memories:
            return self.remember()
        self.seq += 1
        row = self.chance.choice(list(self.memories.values()))
        row = replace(row, write_seq=self.seq, version=row.version + 1)
        what = self.chance.choice(("text", "importance", "pin", "end", "forget", "recover"))
        if what == "text" and not row.is_deleted:
            row = said_anew(row, self.chance.choice(TEXTS))
        elif what == "importance":
            row = replace(row, importance=self.chance.random())
        elif what == "pin":
            row = replace(row, pinned=not row.pinned)
        elif what == "end":
            row = replace(row, valid_until=self.chance.choice((None, BEGIN, LATER)))
        else:
            row = replace(row, is_deleted=what == "forget", dedup_key=None)
        return self._keep(row)

    def _keep(self, row: MemoryRow) -> MemoryRow:
        self.memories[row.memory_id] = row
        if (row.memory_id, row.embedding_key) not in self.texts:
            self.texts.append((row.memory_id, row.embedding_key))
        return row

    def name(self) -> NameRow:
        canonical = self.chance.choice(NAMES)
        row = self.names.get(canonical, named(canonical))
        row = replace(
            row,
            mentions=row.mentions + self.chance.randint(0, 3),
            entity_type=self.chance.choice(TYPES),
            summary=self.chance.choice((None, f"about {canonical} {row.mentions}")),
        )
        self.names[canonical] = row
        return row

    def merge(self) -> Row:
        """Another name of an entity that has a main one."""
        main = [row for row in self.names.values() if row.name_id == row.entity_id]
        bound = {row.entity_id for row in self.names.values() if row.name_id != row.entity_id}
        free = [row for row in main if row.name_id not in bound]
        if len(main) < 2 or not free:
            return self.name()
        row = self.chance.choice(free)
        into = self.chance.choice([other for other in main if other is not row])
        row = replace(row, entity_id=into.entity_id, is_alias=True)
        self.names[row.canonical_name] = row
        return row

    def relate(self) -> Row:
        if not self.names:
            return self.name()
        source, target = (self.chance.choice(list(self.names.values())).name_id for _ in "ab")
        key = (source, target, self.chance.choice(("likes", "knows", "likes to use")))
        row = RelationRow(
            source_name_id=key[0], target_name_id=key[1], relation_type=key[2], scope=SCOPE,
            mentions=self.chance.randint(0, 4), confidence=self.chance.choice((0.3, 0.7, 0.9)),
            authored=self.chance.random() < 0.3,
        )  # fmt: skip
        self.relations[key] = row
        return row

    def mention(self) -> Row:
        """Of a text that a memory has or had, or will have again."""
        if not self.names:
            return self.name()
        if not self.texts:
            return self.remember()
        memory_id, text_key = self.chance.choice(self.texts)
        name = self.chance.choice(list(self.names.values()))
        return MentionRow(
            memory_id=memory_id, text_key=text_key, name_id=name.name_id, scope=SCOPE,
            mention_text=self.chance.choice((name.name, name.canonical_name)),
            confidence=self.chance.choice((0.5, 0.8, 1.0)),
            stated=self.chance.choice((-1, -1, 0, 1, 2, 3)),
        )  # fmt: skip


def boosted(graph: Graph, question: str, limits: GraphBoostLimits) -> GraphBoost:
    found = graph_boost(graph, question, lambda: 0.0, RecallSettings(), limits=limits)
    assert found.error is None
    return found


def compare(shard: Shard, chance: random.Random) -> int:
    """By some questions; returns how many memories were boosted in all."""
    boosts = 0
    index = shard.indexes.get(SCOPE)
    stored = StoredGraph(shard.reading, SCOPE)
    for question in chance.sample(QUESTIONS, 4):
        for limits in chance.sample((GraphBoostLimits(), EVERYTHING, FEW, HALF), 2):
            one = boosted(index.graph, question, limits)
            other = boosted(stored, question, limits)
            assert one == other
            assert list(one.strengths) == list(other.strengths)
            boosts += len(one.strengths)
        query = chance.choice((Query(SCOPE, question), Query(SCOPE, question, types=("fact",))))
        allowed = VisibilityMask.by(index, query)
        graphs = (index.graph, stored)
        few, more = (mentioning(graph, one.named, 3, allowed) for graph in graphs)
        assert few == more
    return boosts


@pytest.mark.parametrize("seed", range(examples(1)))
def test_it_has_what_the_tables_have(tmp_path: Path, seed: int) -> None:
    history = History(seed)
    shard = open_shard(tmp_path)
    boosts = 0
    for _ in range(6):
        commit(shard, history.batch())
        boosts += compare(shard, history.chance)
    shard.indexes.clear()
    boosts += compare(shard, history.chance)
    shard.close()
    shard = open_shard(tmp_path)
    boosts += compare(shard, history.chance)
    commit(shard, history.batch())
    boosts += compare(shard, history.chance)
    shard.close()
    assert boosts


def test_a_mention_that_the_tables_replace_is_replaced(tmp_path: Path) -> None:
    """Of a name that a text writes in two ways, the least stays, whichever comes first."""
    shard = open_shard(tmp_path)
    shard.indexes.get(SCOPE)
    tea = memory("m1", "o'brien likes tea, O'Brien likes ski")
    commit(shard, [named("o'brien"), tea])
    for text, confidence in (("o'brien", 0.5), ("O'Brien", 1.0), ("o'brien", 0.8)):
        commit(shard, [said(tea, "o'brien", text, confidence)])
        compare(shard, random.Random(0))
    one = boosted(shard.indexes.get(SCOPE).graph, "O'Brien and Kai", EVERYTHING)
    everything = VisibilityMask.by(shard.indexes.get(SCOPE), Query(SCOPE, "?"))
    [found] = mentioning(shard.indexes.get(SCOPE).graph, one.named, 3, everything)
    assert found == ("m1", ["O'Brien"], 1.0)
    shard.close()


@pytest.mark.parametrize(
    ("clauses", "is_living"),
    [((-1, -1), True), ((1, 1), True), ((3, 2), True), ((-1, 2), True), ((0, 0), False),
     ((1, 2), False), ((-1, 0), False)],
)  # fmt: skip
def test_a_text_supports_no_relation_that_it_only_denies(
    tmp_path: Path, clauses: tuple[int, int], is_living: bool
) -> None:
    shard = open_shard(tmp_path)
    shard.indexes.get(SCOPE)
    before = memory("m1", "ana likes ben")
    after = replace(said_anew(before, "ana no longer likes ben"), version=2, write_seq=2)
    relation = RelationRow(
        source_name_id="n-ana", target_name_id="n-ben", relation_type="likes", scope=SCOPE,
        confidence=0.9,
    )  # fmt: skip
    commit(shard, [named("ana"), named("ben"), relation, before])
    commit(shard, [said(before, name, name, 0.9) for name in ("ana", "ben")])
    assert living(shard) == {"n-ben"}
    commit(shard, [after])
    texts = zip(("ana", "ben"), clauses, strict=True)
    commit(shard, [replace(said(after, name, name, 0.9), stated=each) for name, each in texts])
    assert living(shard) == ({"n-ben"} if is_living else set())
    shard.indexes.clear()
    assert living(shard) == ({"n-ben"} if is_living else set())
    shard.close()


def living(shard: Shard) -> set[str]:
    """What Ana is related to, by the tables and by the graph in memory."""
    graphs = (shard.indexes.get(SCOPE).graph, StoredGraph(shard.reading, SCOPE))
    one, other = ({entity for entity, _ in graph.related(["n-ana"])} for graph in graphs)
    assert one == other
    return one


def said(row: MemoryRow, canonical: str, text: str, confidence: float) -> MentionRow:
    return MentionRow(
        memory_id=row.memory_id, text_key=row.embedding_key, name_id=f"n-{canonical}", scope=SCOPE,
        mention_text=text, confidence=confidence,
    )  # fmt: skip


def test_what_the_graph_takes_is_counted(tmp_path: Path) -> None:
    shard = open_shard(tmp_path)
    index = shard.indexes.get(SCOPE)
    before = index.bytes_used()
    commit(shard, [named("ana"), named("ben")])
    names = index.bytes_used()
    ana = memory("m1", "ana likes tea")
    said = MentionRow(
        memory_id="m1", text_key=ana.embedding_key, name_id="n-ana", scope=SCOPE,
        mention_text="Ana", confidence=0.9,
    )  # fmt: skip
    commit(shard, [said])
    mentioned = index.bytes_used()
    commit(shard, [replace(said, confidence=0.5)])
    assert before < names < mentioned == index.bytes_used()
    shard.close()


def test_a_relation_that_was_authored_by_one_name_stands_beside_that_by_another(
    tmp_path: Path,
) -> None:
    """And what a text states of one relation says nothing of the others, authored or not."""
    shard = open_shard(tmp_path)
    shard.indexes.get(SCOPE)
    before = memory("m1", "ana likes ben")
    likes = RelationRow(
        source_name_id="n-ana", target_name_id="n-ben", relation_type="likes", scope=SCOPE,
        confidence=0.9,
    )  # fmt: skip
    other = replace(named("anna"), entity_id="n-ana", is_alias=True)
    commit(shard, [named("ana"), other, named("ben"), before])
    commit(shard, [likes, replace(likes, source_name_id="n-anna", authored=True)])
    commit(shard, [said(before, name, name, 0.9) for name in ("ana", "ben")])
    commit(shard, [replace(before, is_deleted=True, version=2, write_seq=2)])
    assert stated(shard) == [("n-ben", (1, 0.9))]
    commit(shard, [replace(likes, relation_type="knows", authored=True)])
    after = memory("m2", "ana knows ben")
    commit(shard, [after, *(said(after, name, name, 0.9) for name in ("ana", "ben"))])
    assert stated(shard) == [("n-ben", (1, 0.9))] * 2
    shard.close()


def stated(shard: Shard) -> list[tuple[str, tuple[int, float]]]:
    """What Ana is related to and how, by the tables and by the graph in memory."""
    graphs = (shard.indexes.get(SCOPE).graph, StoredGraph(shard.reading, SCOPE))
    one, other = (sorted(graph.related(["n-ana"])) for graph in graphs)
    assert one == other
    return one
