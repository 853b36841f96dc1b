"""Promotion: applies the differences between a branch and the live memory to a scope at once; and
its inverse, from the records that it left there.

All parts but the last are stored; the last one executes the changes of all parts in the transaction
of one record. Memories that changed since branch and live memory were compared are left unchanged
and reported."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from pydantic import JsonValue, TypeAdapter

from palimpsest.schemas.commands import PromoteCommand, RollbackPromotionCommand
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.memory_texts import embedding_key
from palimpsest.schemas.messages import GraphWork, MemoryChange, Outcome
from palimpsest.schemas.normal_forms import content_hash, storage_content
from palimpsest.schemas.promotions import (
    GainChange,
    KeepChange,
    LoseChange,
    PromotedFact,
    PromotedMemory,
    PromotionChange,
    ReplaceChange,
)
from palimpsest.schemas.rows.columns import Row, row_of
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.rows.pipeline import (
    PROMOTION,
    FactRow,
    OutcomeRow,
    PromotionItemRow,
    PromotionPartRow,
    PromotionRow,
    ProposalRow,
)
from palimpsest.schemas.topics import MEMORY_CHANGES
from palimpsest.streams.apply.command_work import Refused, Work, refuse_machines
from palimpsest.streams.memory_rows import (
    DRAWN,
    edge_rows,
    is_erased,
    memory_of,
    text_columns,
    with_content,
)
from palimpsest.streams.stage import Asking, Emit
from palimpsest.streams.store_port import KeepVector, Load, LoadPromotion, Promotions, Put

_CHANGES = TypeAdapter[tuple[PromotionChange, ...]](tuple[PromotionChange, ...])


def promote(work: Work, command: PromoteCommand) -> Asking[JsonValue]:
    """Stores a part, or with the last one executes all; the result counts the outcomes."""
    yield from work.embed(storage_content(each.content) for each in _memories(command.changes))
    known = yield from LoadPromotion(work.scope, command.promotion_id, command.plan_id)
    yield from work.begin()
    refuse_machines(work, "a branch is promoted by a person")
    if known.promotion is not None:
        if known.promotion.plan_id != command.plan_id:
            raise Refused(
                f"version_conflict: the promotion {known.promotion.promotion_id} was carried out in"
                " this scope with other changes; compare and promote again"
            )
        return _result(known.promotion)
    if command.part + 1 < command.parts:
        for text, found in work.embeddings.items():
            if found is not None:
                work.writes.append(KeepVector(embedding_key(text), found.vector, found.tokens))
        payload = [change.model_dump(mode="json") for change in command.changes]
        row = PromotionPartRow(
            scope=work.scope,
            plan_id=command.plan_id,
            part=command.part,
            promotion_id=command.promotion_id,
            payload=json.dumps(payload, sort_keys=True, ensure_ascii=False),
        )
        work.writes.append(Put(row))
        return {"status": "kept", "part": command.part, "parts": command.parts}
    # The changes of all parts, in order. Refused if a part is missing, or another promotion came
    # between.
    newest = None if known.newest is None else known.newest.promotion_id
    if newest != command.after:
        raise Refused(
            f"version_conflict: the promotion {newest} came between; compare and promote again"
        )
    parts = {row.part: row for row in known.parts}
    missing = [number for number in range(command.parts - 1) if number not in parts]
    if missing:
        raise Refused(
            f"not_found: of the {command.parts} parts of the promotion number {missing[0]} is not"
            " there; promote again"
        )
    changes: list[PromotionChange] = []
    for number in range(command.parts - 1):
        changes += _CHANGES.validate_json(parts[number].payload)
    return (yield from _execute(work, command, [*changes, *command.changes], known))


def _memories(changes: Sequence[PromotionChange]) -> list[PromotedMemory]:
    return [each.memory for each in changes if isinstance(each, GainChange | ReplaceChange)]


def _execute(
    work: Work, command: PromoteCommand, changes: Sequence[PromotionChange], known: Promotions
) -> Asking[JsonValue]:
    memories = _memories(changes)
    facts = tuple(dict.fromkeys(fact.item_id for each in memories for fact in each.facts))
    of_facts = yield from LoadPromotion(work.scope, command.promotion_id, fact_ids=facts)
    yield from work.load(*_wanted(work, changes, memories))
    promoting = Promoting(work, command, of_facts.facts)
    # Removals come first and make room for memories with the same content.
    for lost in changes:
        if isinstance(lost, LoseChange):
            _lose(promoting, lost)
    for change in changes:
        if isinstance(change, GainChange | ReplaceChange):
            text = storage_content(change.memory.content)
            yield from work.know_names((text,))
            if isinstance(change, GainChange):
                _gain(promoting, change.memory)
            else:
                _replace(promoting, change)
        elif isinstance(change, KeepChange):
            row = work.memories.get(change.memory_id)
            promoting.item("kept", change.memory_id, change.why, row, None, change.counterpart)
    counted = Counter(item.change for item in promoting.items)
    promotion = PromotionRow(
        promotion_id=command.promotion_id,
        scope=work.scope,
        number=1 if known.newest is None else known.newest.number + 1,
        branch=command.branch,
        plan_id=command.plan_id,
        gained=counted["gained"],
        changed=counted["changed"],
        lost=counted["lost"],
        kept=counted["kept"],
        reason=command.reason,
        promoted_by=work.intent.actor.id,
        recorded_at=work.at,
        updated_at=work.at,
    )
    work.writes.append(Put(promotion))
    work.writes += map(Put, promoting.items)
    work.writes += [Put(replace(part, payload="[]")) for part in known.parts]
    why = Counter(item.why for item in promoting.items if item.change == "kept")
    split_outcomes(work, promoting.graph)
    return _result(promotion) | {"kept_because": {**dict(sorted(why.items()))}}


def _wanted(
    work: Work, changes: Sequence[PromotionChange], memories: Sequence[PromotedMemory]
) -> tuple[list[str], Load]:
    """The memories that are concerned, and what else to load."""
    ids = [each.memory_id for each in changes if not isinstance(each, GainChange)]
    for memory in memories:
        ids += (memory.memory_id, _other_id(work, memory), *memory.sources)
    hashes = (content_hash(storage_content(each.content)) for each in memories)
    return list(dict.fromkeys(ids)), Load(work.scope, content_hashes=tuple(dict.fromkeys(hashes)))


def _other_id(work: Work, memory: PromotedMemory) -> str:
    """The id of a gained memory whose own is taken."""
    return derived_id("promoted", work.scope, memory.memory_id)


# --- each change -----------------------------------------------------------------------------


def _lose(promoting: Promoting, change: LoseChange) -> None:
    work, row = promoting.work, promoting.work.memories.get(change.memory_id)
    if row is None or not unchanged(row, change.if_version):
        promoting.item("kept", change.memory_id, "changed-meanwhile", row)
        return
    reason = f"replaced by branch {promoting.command.branch}"
    gone = work.remove(row, reason, promoting.told, archive=reason, by=PROMOTION)
    promoting.item("lost", row.memory_id, "", row, gone)


def _gain(promoting: Promoting, memory: PromotedMemory) -> None:
    work, scope = promoting.work, promoting.work.scope
    memory_id = memory.memory_id
    why, same = _why_not(promoting, memory)
    if why is None:
        memory_id, why = _free_id(work, memory)
    if why is not None:
        promoting.item("kept", memory.memory_id, why, counterpart=same)
        return
    metadata = {"promotion": promoting.command.promotion_id, "branch": promoting.command.branch}
    if memory.facts:
        metadata["prompt_version"] = memory.facts[0].prompt_version
    row = promoted_row(memory, scope, memory_id, work.at, metadata)
    there = work.memories.get(memory_id)
    row = work.put(row if there is None else revived(there, row, work.at))
    reason, told = _origin(promoting, memory)
    work.record_outcome("created", row.memory_id, reason, None, row, told)
    work.writes += map(Put, edge_rows(row, memory.sources))
    _take_facts(promoting, memory, row)
    promoting.item("gained", row.memory_id, "", there, row, memory.memory_id)


def _replace(promoting: Promoting, change: ReplaceChange) -> None:
    work, memory = promoting.work, change.memory
    row = work.memories.get(change.memory_id)
    if row is None or not unchanged(row, change.if_version):
        promoting.item("kept", change.memory_id, "changed-meanwhile", row, None, memory.memory_id)
        return
    why, same = _why_not(promoting, memory)
    if why is not None and same != row.memory_id:
        promoting.item("kept", row.memory_id, why, row, None, same)
        return
    how = f"replaced by branch {promoting.command.branch}"
    why, told = _origin(promoting, memory)
    # The id, tags and project of the memory stay.
    stated = {name: getattr(memory, name) for name in _STATED}
    content = with_content(replace(row, **stated), memory.content)
    updated = work.change(row, content, "modified", why, told, archive=how, by=PROMOTION)
    work.writes += map(Put, edge_rows(updated, memory.sources, row))
    _take_facts(promoting, memory, updated)
    promoting.item("changed", row.memory_id, "", row, updated, memory.memory_id)


def _why_not(promoting: Promoting, memory: PromotedMemory) -> tuple[str | None, str | None]:
    """Returns why the branch's memory cannot be applied to the current state, and the memory that
    already has its content."""
    work = promoting.work
    for source in memory.sources:
        row = work.memories.get(source)
        if row is None or row.is_deleted:
            return "source-forgotten", None
    stored = storage_content(memory.content)
    is_past = memory.valid_from is not None and memory.valid_until is not None
    same = None if is_past else work.active(content_hash(stored))
    return (None, None) if same is None else ("says-the-same", same)


def _free_id(work: Work, memory: PromotedMemory) -> tuple[str, str | None]:
    """Returns the id of a gained memory: the branch's, unless an active memory with other content
    has it. A memory that a person forgot is not created again under its id."""
    for memory_id in (memory.memory_id, _other_id(work, memory)):
        there = work.memories.get(memory_id)
        if there is None:
            return memory_id, None
        if is_erased(there):
            return memory_id, "erased"
        if there.is_deleted:
            by_person = there.updated_by not in ("pipeline", PROMOTION)
            return memory_id, "suppressed" if by_person else None
    return memory.memory_id, "id-taken"


def _origin(promoting: Promoting, memory: PromotedMemory) -> tuple[str, dict[str, JsonValue]]:
    """Returns what is reported about a memory of the branch: the reason and the metadata."""
    last = memory.facts[-1] if memory.facts else None
    metadata = promoting.told | {"source_memory": memory.sources[0] if memory.sources else None}
    if last is not None:
        metadata |= {
            "proposed_action": last.action,
            "fact": last.content,
            "extraction_model": last.model,
            "prompt_version": last.prompt_version,
            "decision_reason": last.decision_reason,
            "decision_model": last.decider,
        }
    reason = promoting.command.reason or f"promoted from branch {promoting.command.branch}"
    return reason, metadata


def _take_facts(promoting: Promoting, memory: PromotedMemory, row: MemoryRow) -> None:
    """Stores the facts; those already in the store keep their outcome. Each memory's triples form
    their own change, because all triples of a change are linked to its memories."""
    work = promoting.work
    reason = f"promoted from branch {promoting.command.branch}"
    for fact in memory.facts:
        if fact.item_id not in promoting.facts:
            rows = fact_rows(fact, row.scope, row.memory_id, reason, work.at)
            work.writes += map(Put, rows)
    if memory.triples:
        ids = (*memory.sources[:1], row.memory_id) if row.version == 1 else memory.sources[:1]
        triples = [triple.model_dump() for triple in memory.triples]
        work_of_graph = {
            "memory_ids": ids,
            "triples": triples,
            "from_turns": work.settings.graph.takes_from_turns,
        }
        promoting.graph.append(GraphWork.model_validate(work_of_graph))


# --- the end ---------------------------------------------------------------------------------


def _result(row: PromotionRow) -> dict[str, JsonValue]:
    """Counts the outcomes of the changes."""
    return {
        "promotion_id": row.promotion_id,
        "status": row.status,
        "gained": row.gained,
        "changed": row.changed,
        "lost": row.lost,
        "kept": row.kept,
    }


TOLD_BYTES = 128 * 1024
"""Maximum bytes of changes in one record: a log takes records of 1 MiB, or less if configured."""


@dataclass(slots=True)
class Promoting:
    """A promotion while it executes. `facts` are those already in the store."""

    work: Work
    command: PromoteCommand
    facts: frozenset[str] = frozenset()
    items: list[PromotionItemRow] = field(default_factory=list)
    graph: list[GraphWork] = field(default_factory=list)

    @property
    def told(self) -> dict[str, JsonValue]:
        return {"promotion_id": self.command.promotion_id, "branch": self.command.branch}

    def item(
        self,
        change: str,
        memory_id: str,
        why: str = "",
        before: MemoryRow | None = None,
        after: MemoryRow | None = None,
        counterpart: str | None = None,
    ) -> None:
        row = PromotionItemRow(
            promotion_id=self.command.promotion_id,
            memory_id=memory_id,
            scope=self.work.scope,
            change=change,
            why=why,
            counterpart=counterpart,
            version_before=None if before is None else before.version,
            version_after=None if after is None else after.version,
        )
        self.items.append(row)


def split_outcomes(work: Work, graph: Sequence[GraphWork] = ()) -> None:
    """Splits the reported changes into records small enough for any log."""
    groups: list[list[Outcome]] = [[]]
    size = 0
    for outcome in work.outcomes:
        length = len(outcome.model_dump_json())
        if groups[-1] and size + length > TOLD_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(outcome)
        size += length
    work.outcomes = groups[0]
    batches = [MemoryChange(outcomes=tuple(group)) for group in groups[1:]]
    batches += [MemoryChange(outcomes=(), graph=each) for each in graph]
    work.emits += [
        Emit(MEMORY_CHANGES, change, f"change-{number}") for number, change in enumerate(batches, 1)
    ]


# --- changes -------------------------------------------------------------------------------------

Metadata = dict[str, JsonValue]


def unchanged(row: MemoryRow | None, version: int | None) -> bool:
    """Returns whether the memory is active and still in this version."""
    return row is not None and not row.is_deleted and row.version == version


# --- rows ----------------------------------------------------------------------------------------

_STATED = (
    *("type", "confidence", "importance", "categories", "extraction_model", "temporal_kind"),
    *("valid_from", "valid_until", "occurred_at", "first_occurred_at"),
    "utc_offset_minutes",
)
"""Fields of a promoted memory about its content, its derivation and its validity."""


def promoted_row(
    memory: PromotedMemory, scope: str, memory_id: str, at: datetime, metadata: dict[str, str]
) -> MemoryRow:
    """Returns a new memory with the content of the branch's; `metadata` names its origin."""
    row = row_of(
        MemoryRow,
        memory,
        **text_columns(scope, memory.type, memory.content),
        memory_id=memory_id,
        scope=scope,
        who="pipeline",
        why=DRAWN,
        source_type="extraction",
        created_at=at,
        updated_at=at,
        updated_by=PROMOTION,
        metadata=json.dumps(metadata, sort_keys=True, ensure_ascii=False),
    )
    return with_content(row, row.content)


def revived(row: MemoryRow, update: MemoryRow, at: datetime) -> MemoryRow:
    """Returns a tombstone as an active memory again, with the content of `update`."""
    return replace(
        update, version=row.version + 1, created_at=row.created_at, updated_at=at, tags=row.tags
    )


def returned(row: MemoryRow, before: MemoryRow) -> MemoryRow:
    """Returns the state `before`, in the version of the memory."""
    back = replace(before, version=row.version, is_deleted=False, deleted_at=None)
    return with_content(back, before.content)


def fact_rows(
    fact: PromotedFact, scope: str, memory_id: str, reason: str, at: datetime
) -> list[Row]:
    """Returns a fact with its outcome, required for the balance, and its decision."""
    return [
        row_of(FactRow, fact, scope=scope, correlation_id=fact.item_id),
        OutcomeRow(
            item_kind="fact",
            item_id=fact.item_id,
            scope=scope,
            event=fact.event,
            memory_id=memory_id,
            reason=reason,
            recorded_at=at,
        ),
        ProposalRow(
            item_id=fact.item_id,
            round=0,
            scope=scope,
            memory_id=memory_id,
            action=fact.action,
            target_id=None if fact.action == "ADD" else memory_id,
            confidence=fact.decision_confidence,
            reason=fact.decision_reason,
            candidates="[]",
            contradiction_risk=False,
            review_needed=False,
            dropped=None,
            model=fact.decider,
            prompt_version=None,
            input_tokens=None,
            output_tokens=None,
            latency_ms=None,
            as_of=0,
            recorded_at=at,
        ),
    ]


# --- rolling a promotion back ---------------------------------------------------------------------


UNDONE = "undone"


def roll_back(work: Work, command: RollbackPromotionCommand) -> Asking[JsonValue]:
    """Removes what was added and restores what was replaced or forgotten, unless it changed since;
    the result counts the outcomes."""
    known = yield from LoadPromotion(work.scope, command.promotion_id, items=True)
    states = {key: memory_of(state) for key, state in known.states.items()}
    hashes = tuple(dict.fromkeys(state.content_hash for state in states.values()))
    of_items = [item.memory_id for item in known.items]
    yield from work.begin(of_items, Load(work.scope, content_hashes=hashes))
    refuse_machines(work, "a promotion is rolled back by a person")
    promotion = known.promotion
    if promotion is None:
        raise Refused(f"not_found: no promotion {command.promotion_id} in this scope")
    if promotion.status == "rolled-back":
        return _rollback_result(promotion, known.items)
    reason = command.reason or f"promotion {promotion.promotion_id} was rolled back"
    # Added memories go first: they may have the content of those restored.
    ended: list[PromotionItemRow] = []
    for item in known.items:
        if item.change == "gained":
            row = work.memories.get(item.memory_id)
            if row is None or not unchanged(row, item.version_after):
                ended.append(replace(item, rollback=_why_left(row)))
                continue
            work.remove(row, reason, _told(item), archive="rolled back", by=PROMOTION)
            ended.append(replace(item, rollback=UNDONE))
    for item in known.items:
        if item.change in ("changed", "lost"):
            state = states.get(item.memory_id)
            yield from work.know_names(() if state is None else (state.content,))
            ended.append(_bring_back(work, item, state, reason))
    over = replace(
        promotion, status="rolled-back", rolled_back_by=work.intent.actor.id, updated_at=work.at
    )
    work.writes += [Put(over), *map(Put, ended)]
    split_outcomes(work)
    return _rollback_result(over, ended)


def _bring_back(
    work: Work, item: PromotionItemRow, state: MemoryRow | None, reason: str
) -> PromotionItemRow:
    row = work.memories.get(item.memory_id)
    if row is None or row.version != item.version_after:
        return replace(item, rollback=_why_left(row))
    if state is None:
        return replace(item, rollback="erased")
    other = work.active(state.content_hash)
    if other not in (None, row.memory_id):
        return replace(item, rollback="says-the-same")
    back = returned(row, state)
    if row.is_deleted:
        work.change(row, back, "recovered", reason, _told(item), by=PROMOTION)
    else:
        told = _told(item)
        work.change(row, back, "modified", reason, told, archive="rolled back", by=PROMOTION)
    return replace(item, rollback=UNDONE)


def _why_left(row: MemoryRow | None) -> str:
    if row is None or is_erased(row):
        return "erased"
    return "forgotten-since" if row.is_deleted else "changed-since"


def _told(item: PromotionItemRow) -> dict[str, JsonValue]:
    return {"promotion_id": item.promotion_id, "rollback": True}


def _rollback_result(row: PromotionRow, items: Sequence[PromotionItemRow]) -> JsonValue:
    counted = Counter(item.rollback for item in items if item.rollback is not None)
    undone = Counter(item.change for item in items if item.rollback == UNDONE)
    kept: dict[str, JsonValue] = {
        why: number for why, number in sorted(counted.items()) if why != UNDONE
    }
    return {
        "promotion_id": row.promotion_id,
        "status": row.status,
        "removed": undone["gained"],
        "restored": undone["changed"] + undone["lost"],
        "kept": sum(counted.values()) - counted[UNDONE],
        "kept_because": kept,
    }
