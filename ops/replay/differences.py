"""The result of a comparison of the live memory with a branch, as plain frozen data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from palimpsest.ops.replay.reading import Record
from palimpsest.schemas.commands import KeptWhy

Kind = Literal["same", "changed", "gained", "lost"]
GraphPart = Literal["entity", "relation"]
KINDS: tuple[Kind, ...] = ("same", "changed", "gained", "lost")


@dataclass(frozen=True, slots=True)
class FactState:
    """A fact in one of the two memories; `sources` are the memories that it was extracted from."""

    memory_id: str
    type: str
    content: str
    version: int
    confidence: float
    sources: tuple[str, ...]
    curated: bool

    @classmethod
    def of(cls, row: Record) -> FactState:
        names = ("memory_id", "type", "content", "version", "confidence")
        told = {name: row[name] for name in names}
        return cls(**told, sources=tuple(row["sources"]), curated=bool(row["curated"]))


@dataclass(frozen=True, slots=True)
class FactDifference:
    """A fact that differs between the memories. `similarity` is that of a pair (None for facts
    paired by id). `keep` says why a promotion would leave the fact as it is, `counterpart` which
    forgotten fact it repeats. `evidence` holds texts that it was extracted from."""

    scope: str
    kind: Kind
    live: FactState | None
    branch: FactState | None
    similarity: float | None = None
    keep: KeptWhy | None = None
    counterpart: str | None = None
    evidence: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        state = self.live or self.branch
        return "" if state is None else state.type

    @property
    def sources(self) -> tuple[str, ...]:
        state = self.branch or self.live
        return () if state is None else state.sources


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a fact; `target` is the text of the target memory."""

    item_id: str
    fact: str
    action: str
    target: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class DecisionDifference:
    """A fact that both memories extracted from a turn and decided differently."""

    scope: str
    turn_memory_id: str
    live: Decision
    branch: Decision


@dataclass(frozen=True, slots=True)
class GraphDifference:
    """An entity, or a relation as `source > relation > target`, that only one memory has."""

    scope: str
    kind: Literal["gained", "lost"]
    what: GraphPart
    name: str


@dataclass(frozen=True, slots=True)
class Spent:
    """The yield and usage of extraction for the compared turns; `cost` is None without prices."""

    turns: int = 0
    facts: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None

    def __add__(self, other: Spent) -> Spent:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Spent(
            self.turns + other.turns,
            self.facts + other.facts,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            sum(costs) if costs else None,
        )


@dataclass(frozen=True, slots=True)
class ScopeDiff:
    """The differences of one scope, ordered by id; equal facts are only counted, by type. For a
    promotion, `drawn` holds the branch's memories, `told` the facts that created them, `relations`
    those that only the branch has. `newest_promotion` is as of the start of the comparison."""

    scope: str
    same: Mapping[str, int]
    facts: tuple[FactDifference, ...]
    decisions: tuple[DecisionDifference, ...]
    graph: tuple[GraphDifference, ...]
    live: Spent
    branch: Spent
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
            found.setdefault(each.type, Counter())[each.kind] += 1
        return {kind: {name: found[kind][name] for name in KINDS} for kind in sorted(found)}


@dataclass(frozen=True, slots=True)
class RecallDifference:
    """A question with the rank, from 1, of the first expected result in each memory (None: not
    among the results)."""

    scope: str
    question: str
    live: int | None
    branch: int | None


@dataclass(frozen=True, slots=True)
class Diff:
    """All differences between the live memory and a branch."""

    branch: str
    scopes: tuple[ScopeDiff, ...]
    recall: tuple[RecallDifference, ...] = ()

    def spent(self) -> tuple[Spent, Spent]:
        """Returns the totals of all scopes: live, branch."""
        live, branch = Spent(), Spent()
        for scope in self.scopes:
            live, branch = live + scope.live, branch + scope.branch
        return live, branch

    def facts(self) -> Iterator[FactDifference]:
        for scope in self.scopes:
            yield from scope.facts

    def totals(self) -> dict[str, int]:
        """Returns the total number of facts of each kind."""
        total: Counter[str] = Counter()
        for scope in self.scopes:
            for counted in scope.counts().values():
                total.update(counted)
        return {kind: total[kind] for kind in KINDS}
