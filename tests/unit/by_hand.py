"""Driving a stage by hand: values in, asks and a step out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palimpsest.schemas.envelope import Frozen
from palimpsest.schemas.extraction import Fact, ModelCall, TurnReference
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.schemas.memory_texts import dedup_key, embedding_key
from palimpsest.schemas.messages import (
    MemoryChange,
    Outcome,
    Proposal,
    ProposalsIntent,
    ScoredCandidate,
)
from palimpsest.schemas.normal_forms import content_hash, normalized_content
from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.rows.pipeline import FlagsRow, PendingProposalRow
from palimpsest.schemas.rows.sessions import SessionRow, ShortTermRow
from palimpsest.schemas.topics import MEMORY_WRITES, Topic
from palimpsest.streams.logs.base import Record
from palimpsest.streams.memory_rows import CONFIRMED_DECAY_RATE
from palimpsest.streams.models.base import Embedding, Reply
from palimpsest.streams.models.hashing import hashed
from palimpsest.streams.stage import (
    Answer,
    Ask,
    Context,
    Embed,
    Embedded,
    Generate,
    Message,
    Process,
    Step,
)
from palimpsest.streams.store_port import (
    Anticipated,
    Candidates,
    FindCandidates,
    Graph,
    Load,
    Loaded,
    LoadGraph,
    NearDuplicates,
    Put,
    Source,
)
from tests.messages import BEGIN, envelope

SCOPE = "ana"
TURN = TurnReference(
    turn_id="t1", memory_id=turn_memory_id(SCOPE, "t1"), session_id="s1", speaker="Ana"
)
CALL = ModelCall(provider="scripted", model="scripted-1", prompt_version="p1")


def record(offset: int = 0, topic: str = "memory-writes", value: bytes = b"{}") -> Record:
    return Record(topic, 0, offset, SCOPE.encode(), value, BEGIN)


def context(offset: int = 0) -> Context:
    return Context(record(offset))


@dataclass
class Store:
    """What the asks of one record find."""

    memories: Mapping[str, MemoryRow] = field(default_factory=dict)
    session: SessionRow | None = None
    open_sessions: tuple[SessionRow, ...] = ()
    short_term: ShortTermRow | None = None
    entities: Mapping[str, str] = field(default_factory=dict)
    flags: FlagsRow | None = None
    settled: frozenset[str] = frozenset()
    write_seq: int = 10
    candidates: Callable[[FindCandidates], Sequence[ScoredCandidate]] = lambda ask: ()
    near: Sequence[ScoredCandidate] = ()
    derived: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    known_facts: Mapping[str, Any] = field(default_factory=dict)
    proposed: Collection[tuple[str, int]] = ()
    held: Mapping[str, PendingProposalRow] = field(default_factory=dict)
    graph: Graph = field(default_factory=lambda: Graph({}, {}, {}, {}))
    replies: list[str | Exception | None] = field(default_factory=list)
    without_vectors: bool = False
    categories: tuple[str, ...] = ()

    @classmethod
    def of(cls, *rows: MemoryRow, **rest: Any) -> Store:
        return cls(memories={row.memory_id: row for row in rows}, **rest)

    def answer(self, ask: Ask) -> Answer:
        match ask:
            case Embed():
                if self.without_vectors:
                    return Embedded((None,) * len(ask.texts), ("down",) * len(ask.texts))
                return Embedded(tuple(Embedding(hashed(text)) for text in ask.texts))
            case Generate():
                reply = self.replies.pop(0)
                if isinstance(reply, Exception):
                    raise reply
                return None if reply is None else Reply(reply, "scripted-1", "scripted", 10, 5)
            case FindCandidates():
                return Candidates(tuple(self.candidates(ask)), self.write_seq)
            case NearDuplicates():
                return Candidates(tuple(self.near), self.write_seq)
            case LoadGraph():
                return self.graph
            case Load():
                return self._load(ask)

    def anticipate(self, memory: Anticipated) -> None:
        """Nothing: what is asked later finds what the test says."""

    def _load(self, ask: Load) -> Loaded:
        active = [m for m in self.memories.values() if not m.is_deleted and m.type != "episodic"]
        return Loaded(
            memories={k: m for k, m in self.memories.items() if k in ask.memory_ids},
            by_hash={m.content_hash: m for m in active if m.content_hash in ask.content_hashes},
            by_source={m.source_id: m for m in active if m.source_id in ask.source_ids},
            session=self.session,
            open_sessions=self.open_sessions,
            short_term=self.short_term,
            categories=self.categories if ask.categories else (),
            entities={n: e for n, e in self.entities.items() if n in ask.names},
            flags=self.flags,
            settled=self.settled & {*ask.item_ids, *ask.turn_item_ids},
            write_seq=self.write_seq,
            held={
                key: row
                for key, row in self.held.items()
                if key in ask.held_ids
                or row.target_id in ask.held_for
                or row.turn_memory_id in ask.held_from
            },
            facts={k: v for k, v in self.known_facts.items() if k in ask.fact_ids},
            proposed=frozenset(k for k, number in ask.proposed_in if (k, number) in self.proposed),
            derived={k: v for k, v in self.derived.items() if {*v} & {*ask.derived_from}},
            sources={} if not ask.sources_of else self.sources,
        )


@dataclass
class Driven:
    """What a stage asked and anticipated, in order, and what it ended in."""

    asks: list[Ask | Anticipated]
    step: Step

    def of(self, kind: type) -> list[Any]:
        return [ask for ask in self.asks if isinstance(ask, kind)]

    def rows(self, kind: type[Row]) -> list[Any]:
        """Rows put, in order."""
        puts = [write for write in self.step.writes if isinstance(write, Put)]
        return [put.row for put in puts if isinstance(put.row, kind)]

    def emitted(self, topic: Topic) -> list[Frozen]:
        return [emit.body for emit in self.step.emits if emit.topic == topic]

    def outcomes(self) -> list[Outcome]:
        changes = [e.body for e in self.step.emits if isinstance(e.body, MemoryChange)]
        return [outcome for change in changes for outcome in change.outcomes]

    def ends(self) -> list[tuple[str, str]]:
        return [(outcome.event, outcome.reason) for outcome in self.outcomes()]


def drive(process: Process, store: Store | None = None) -> Driven:
    """Run a stage's process to its end; an Exception among the replies is thrown into it."""
    store = store or Store()
    asks: list[Ask | Anticipated] = []
    try:
        ask = next(process)
        while True:
            asks.append(ask)
            if isinstance(ask, Anticipated):
                store.anticipate(ask)
                ask = next(process)
                continue
            try:
                answer = store.answer(ask)
            except Exception as error:
                ask = process.throw(error)
            else:
                ask = process.send(answer)
    except StopIteration as stop:
        return Driven(asks, stop.value)


def memory(memory_id: str, content: str, **fields: Any) -> MemoryRow:
    """An active fact; `confirmed=True` for one that a person vouched for."""
    digest = content_hash(content)
    scope = fields.get("scope", SCOPE)
    episodic = fields.get("type") == "episodic" or fields.get("is_deleted")
    if fields.pop("confirmed", False):
        fields["decay_rate"] = CONFIRMED_DECAY_RATE
    values: dict[str, Any] = {
        "memory_id": memory_id,
        "scope": scope,
        "type": "fact",
        "content": content,
        "normalized_content": normalized_content(content),
        "content_hash": digest,
        "dedup_key": None if episodic else dedup_key(scope, digest),
        "embedding_key": embedding_key(content),
        "importance": 0.9,
        "confidence": 0.9,
        "occurred_at": BEGIN,
        "created_at": BEGIN,
        "updated_at": BEGIN,
        "updated_by": "pipeline",
        **fields,
    }
    return MemoryRow(**values)


def candidate(row: MemoryRow, cosine: float | None = 0.8, keyword: float = 0.5) -> ScoredCandidate:
    return ScoredCandidate(
        memory_id=row.memory_id,
        version=row.version,
        type=row.type,
        content=row.content,
        score=0.6,
        cosine=cosine,
        keyword=keyword,
    )


def fact(content: str, number: int = 0, confidence: float = 0.9, **fields: Any) -> Fact:
    return Fact(item_id=f"f{number}", content=content, confidence=confidence, **fields)


def proposal(content: str, action: str = "ADD", number: int = 0, **fields: Any) -> Proposal:
    confidence = fields.pop("fact_confidence", 0.9)
    return Proposal.model_validate(
        {
            "item_id": f"f{number}",
            "memory_id": f"m-f{number}",
            "fact": fact(content, number, confidence),
            "action": action,
            "confidence": 0.9,
            "reason": "because",
            **fields,
        }
    )


def proposals(*given: Proposal, **fields: Any) -> ProposalsIntent:
    return ProposalsIntent.model_validate(
        {
            "turn": TURN,
            "proposals": given,
            "call": CALL,
            "as_of": 10,
            "decision_order": 3,
            **fields,
        }
    )


def write_message(body: Frozen, message_id: str = "w1", **fields: Any) -> Message:
    return envelope(body, MEMORY_WRITES, message_id, SCOPE, **fields)


def vector_of(text: str) -> np.ndarray[Any, Any]:
    return hashed(text)
