"""From the differences of a scope to the commands that promote them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from palimpsest.ops.replay.differences import FactDifference, FactState, ScopeDiff
from palimpsest.ops.replay.reading import Record
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.promotion_commands import (
    GainChange,
    KeepChange,
    LoseChange,
    PromoteCommand,
    PromotedMemory,
    PromotionChange,
    ReplaceChange,
)

PART_BYTES: Final = 256 * 1024
"""Of the changes of a command; one that is longer goes alone."""
SHARE: Final = 3
"""What of a record the changes may fill is a third: on its way a command gets an envelope, and what
is no ASCII may be written in longer form."""
_SAID: Final = {"created": "created", "updated": "modified", "none": "none", "deduped": "deduped"}
_OF_MEMORY: Final = (
    *("memory_id", "content", "type", "confidence", "importance", "categories"),
    *("extraction_model", "temporal_kind", "valid_from", "valid_until", "occurred_at"),
    *("first_occurred_at", "project", "session_id", "source_id", "sources"),
)
_OF_FACT: Final = (
    *("item_id", "turn_memory_id", "content", "type", "confidence", "importance"),
    *("temporal_kind", "valid_until", "categories", "model", "prompt_version", "occurred_at"),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a promotion does in one scope."""

    scope: str
    changes: tuple[PromotionChange, ...]
    after: str | None
    losses: tuple[str, ...] = ()
    """What the facts say that the live memory would lose."""

    @property
    def changes_something(self) -> bool:
        return any(not isinstance(change, KeepChange) for change in self.changes)

    def counts(self) -> dict[str, int]:
        """How many changes of each kind there are."""
        found = Counter(change.change for change in self.changes)
        return {name: found[name] for name in ("gain", "replace", "lose", "keep")}

    def kept_because(self) -> dict[str, int]:
        kept = (change for change in self.changes if isinstance(change, KeepChange))
        return dict(sorted(Counter(change.why for change in kept).items()))

    def commands(
        self, promotion_id: str, branch: str, reason: str, max_record_bytes: int
    ) -> Iterator[PromoteCommand]:
        """The parts in order. The same plan is the same commands."""
        limit = min(PART_BYTES, max_record_bytes // SHARE)
        plan = derived_id("promotion-plan", self.after or "", *map(_json, self.changes))
        parts = [*_parts(self.changes, limit)]
        for number, changes in enumerate(parts):
            yield PromoteCommand(
                promotion_id=promotion_id,
                branch=branch,
                plan_id=plan,
                part=number,
                parts=len(parts),
                after=self.after,
                reason=reason,
                changes=tuple(changes),
            )


def _json(change: PromotionChange) -> str:
    return change.model_dump_json(exclude_defaults=True)


def _parts(changes: Sequence[PromotionChange], limit: int) -> Iterator[list[PromotionChange]]:
    some: list[PromotionChange] = []
    size = 0
    for change in changes:
        length = len(change.model_dump_json().encode())
        if some and size + length > limit:
            yield some
            some, size = [], 0
        some.append(change)
        size += length
    yield some


def plan_of(diff: ScopeDiff) -> Plan:
    """What makes the scope's live facts those of the branch."""
    changes = tuple(_change(diff, each) for each in diff.facts)
    losses = tuple(
        each.live.content
        for each in diff.facts
        if each.live is not None and each.branch is None and each.keep is None
    )
    return Plan(diff.scope, changes, diff.newest_promotion, losses)


def _change(diff: ScopeDiff, each: FactDifference) -> PromotionChange:
    live, branch = each.live, each.branch
    if each.keep is not None:
        state = live or branch
        assert state is not None
        other = None if live is None or branch is None else branch.memory_id
        return KeepChange(
            memory_id=state.memory_id, why=each.keep, counterpart=each.counterpart or other
        )
    if live is None:
        assert branch is not None
        return GainChange(memory=_promoted(diff, branch))
    if branch is None:
        return LoseChange(memory_id=live.memory_id, if_version=live.version)
    memory = _promoted(diff, branch)
    return ReplaceChange(memory_id=live.memory_id, if_version=live.version, memory=memory)


def _promoted(diff: ScopeDiff, state: FactState) -> PromotedMemory:
    row = diff.drawn[state.memory_id]
    told = [each for each in diff.told.get(state.memory_id, ()) if each["outcome"] in _SAID]
    told.sort(key=lambda each: (each["occurred_at"], each["item_id"]))
    return PromotedMemory.model_validate(
        {
            **{name: row[name] for name in _OF_MEMORY},
            "facts": [_fact(each) for each in told],
            "triples": [_triple(each) for each in diff.relations.get(state.memory_id, ())],
        }
    )


def _fact(row: Record) -> Record:
    sure = row["sure"]
    return {
        **{name: row[name] for name in _OF_FACT},
        "event": _SAID[row["outcome"]],
        "action": row["action"] or "ADD",
        "decision_reason": row["reason"] or "",
        "decision_confidence": 1.0 if sure is None else sure,
        "decider": row["decider"],
    }


def _triple(row: Record) -> Record:
    return {
        "source": row["source"],
        "source_type": row["source_type"],
        "relationship": row["relation_type"],
        "target": row["target"],
        "target_type": row["target_type"],
        "confidence": row["confidence"],
    }
