"""Promotion: applies the differences between a branch and the live memory to a scope at once.

All parts but the last are stored; the last one executes the changes of all parts in the transaction
of one record. Memories that changed since branch and live memory were compared are left unchanged
and reported."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import replace

from pydantic import JsonValue, TypeAdapter

from palimpsest.schemas.commands import (
    GainChange,
    KeepChange,
    LoseChange,
    PromoteCommand,
    PromotedMemory,
    PromotionChange,
    ReplaceChange,
)
from palimpsest.schemas.enumerations import OutcomeEvent
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.memory_texts import embedding_key
from palimpsest.schemas.messages import (
    CommandIntent,
    GraphWork,
)
from palimpsest.schemas.normal_forms import content_hash, storage_content
from palimpsest.schemas.promotion_rows import (
    PROMOTION,
    PromotionPartRow,
    PromotionRow,
)
from palimpsest.schemas.rows import MemoryRow
from palimpsest.streams.apply.command_work import (
    Refused,
    Work,
    command_id,
    done,
    known_id,
    refusal,
    refuse_frozen,
)
from palimpsest.streams.apply.outcomes import load_names
from palimpsest.streams.apply.promoted_rows import (
    edge_rows,
    fact_rows,
    promoted_row,
    replaced_row,
    revived,
    tombstone,
)
from palimpsest.streams.apply.promotion_work import Promoting, split_outcomes
from palimpsest.streams.memory_rows import archived, archived_id, is_erased
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.stage import Answer, Ask, Embed, Embedded, Message, Step
from palimpsest.streams.store_port import KeepVector, Load, Loaded, LoadPromotion, Promotions, Put

_CHANGES = TypeAdapter[tuple[PromotionChange, ...]](tuple[PromotionChange, ...])
Asking = Generator[Ask, Answer, Step]


def promote_step(
    message: Message, intent: CommandIntent, command: PromoteCommand, settings: StageSettings
) -> Asking:
    """Stores a part, or with the last one executes all; the result counts the outcomes."""
    texts = tuple(storage_content(memory.content) for memory in _memories(command.changes))
    embedded = yield Embed(texts)
    assert isinstance(embedded, Embedded)
    known = yield LoadPromotion(message.scope, command.promotion_id, command.plan_id)
    assert isinstance(known, Promotions)
    loaded = yield Load(message.scope, command_id=command_id(message))
    assert isinstance(loaded, Loaded)
    if loaded.command is not None and loaded.command.error is None:
        return known_id(loaded.command, intent.digest)
    work = Work.begun(message, intent, settings, loaded)
    for text, found in zip(texts, embedded.embeddings, strict=True):
        work.embeddings[text] = found
    try:
        refuse_frozen(work)
        if work.by_machine:
            raise Refused("forbidden: a branch is promoted by a person")
        if known.promotion is not None:
            return done(work, command, _known(known.promotion, command))
        if command.part + 1 < command.parts:
            return _keep_part(work, command)
        changes = _whole(command, known)
    except Refused as error:
        return refusal(message, intent, str(error))
    return (yield from _carry_out(work, command, changes, known))


def _known(row: PromotionRow, command: PromoteCommand) -> JsonValue:
    """Returns the result of a plan that was executed before. Raises Refused for another plan under
    the promotion's id."""
    if row.plan_id != command.plan_id:
        raise Refused(
            f"version_conflict: the promotion {row.promotion_id} was carried out in this scope"
            " with other changes; compare and promote again"
        )
    return _result(row)


def _keep_part(work: Work, command: PromoteCommand) -> Step:
    for text, found in work.embeddings.items():
        if found is not None:
            work.writes.append(KeepVector(embedding_key(text), found.vector, found.tokens))
    payload = [change.model_dump(mode="json") for change in command.changes]
    row = PromotionPartRow(
        scope=work.message.scope,
        plan_id=command.plan_id,
        part=command.part,
        promotion_id=command.promotion_id,
        payload=json.dumps(payload, sort_keys=True, ensure_ascii=False),
    )
    work.writes.append(Put(row))
    return done(work, command, {"status": "kept", "part": command.part, "parts": command.parts})


def _whole(command: PromoteCommand, known: Promotions) -> list[PromotionChange]:
    """Returns the changes of all parts, in order. Raises Refused if a part is missing, or another
    promotion came between."""
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
    return [*changes, *command.changes]


def _memories(changes: Sequence[PromotionChange]) -> list[PromotedMemory]:
    return [each.memory for each in changes if isinstance(each, GainChange | ReplaceChange)]


def _carry_out(
    work: Work, command: PromoteCommand, changes: Sequence[PromotionChange], known: Promotions
) -> Asking:
    memories = _memories(changes)
    loaded = yield _load(work, changes, memories)
    assert isinstance(loaded, Loaded)
    facts = tuple(dict.fromkeys(fact.item_id for each in memories for fact in each.facts))
    of_facts = yield LoadPromotion(work.message.scope, command.promotion_id, fact_ids=facts)
    assert isinstance(of_facts, Promotions)
    work.memories = {
        key: row for key, row in loaded.memories.items() if row.scope == work.message.scope
    }
    work.know(loaded)
    promoting = Promoting(work, command, of_facts.facts)
    # Removals come first and make room for memories with the same content.
    for lost in changes:
        if isinstance(lost, LoseChange):
            _lose(promoting, lost)
    for change in changes:
        if isinstance(change, GainChange | ReplaceChange):
            text = storage_content(change.memory.content)
            named = yield load_names(work.message.scope, (text,))
            assert isinstance(named, Loaded)
            work.names = named.entities
            if isinstance(change, GainChange):
                _gain(promoting, change.memory)
            else:
                _replace(promoting, change)
        elif isinstance(change, KeepChange):
            _keep(promoting, change)
    return _end(promoting, known)


def _load(
    work: Work, changes: Sequence[PromotionChange], memories: Sequence[PromotedMemory]
) -> Load:
    ids = [each.memory_id for each in changes if not isinstance(each, GainChange)]
    for memory in memories:
        ids += (memory.memory_id, _other_id(work, memory), *memory.sources)
    return Load(
        work.message.scope,
        memory_ids=tuple(dict.fromkeys(ids)),
        content_hashes=tuple(
            dict.fromkeys(content_hash(storage_content(each.content)) for each in memories)
        ),
    )


def _other_id(work: Work, memory: PromotedMemory) -> str:
    """The id of a gained memory whose own is taken."""
    return derived_id("promoted", work.message.scope, memory.memory_id)


# --- each change ------------------------------------------------------------------------------


def _lose(promoting: Promoting, change: LoseChange) -> None:
    work, row = promoting.work, promoting.work.memories.get(change.memory_id)
    if row is None or row.is_deleted or row.version != change.if_version:
        promoting.item("kept", change.memory_id, "changed-meanwhile", row)
        return
    reason = f"replaced by branch {promoting.command.branch}"
    work.writes.append(Put(archived(row, reason, work.at)))
    gone = work.put(tombstone(row, work.at))
    work.tell("deleted", row.memory_id, reason, row, gone, promoting.told)
    promoting.item("lost", row.memory_id, "", row, gone)


def _gain(promoting: Promoting, memory: PromotedMemory) -> None:
    work, scope = promoting.work, promoting.work.message.scope
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
    _tell_of(promoting, "created", memory, None, row)
    work.writes += map(Put, edge_rows(row, memory.sources, None))
    _take_facts(promoting, memory, row)
    promoting.item("gained", row.memory_id, "", there, row, memory.memory_id)


def _replace(promoting: Promoting, change: ReplaceChange) -> None:
    work, memory = promoting.work, change.memory
    row = work.memories.get(change.memory_id)
    if row is None or row.is_deleted or row.version != change.if_version:
        promoting.item("kept", change.memory_id, "changed-meanwhile", row, None, memory.memory_id)
        return
    why, same = _why_not(promoting, memory)
    if why is not None and same != row.memory_id:
        promoting.item("kept", row.memory_id, why, row, None, same)
        return
    how = f"replaced by branch {promoting.command.branch}"
    work.writes.append(Put(archived(row, how, work.at)))
    updated = work.put(replaced_row(row, memory, work.at))
    _tell_of(promoting, "modified", memory, row, updated)
    work.writes += map(Put, edge_rows(updated, memory.sources, archived_id(row)))
    _take_facts(promoting, memory, updated)
    promoting.item("changed", row.memory_id, "", row, updated, memory.memory_id)


def _keep(promoting: Promoting, change: KeepChange) -> None:
    row = promoting.work.memories.get(change.memory_id)
    promoting.item("kept", change.memory_id, change.why, row, None, change.counterpart)


def _why_not(promoting: Promoting, memory: PromotedMemory) -> tuple[str | None, str | None]:
    """Returns why the branch's memory cannot be applied to the current state, and the memory that
    already has its content."""
    work = promoting.work
    for source in memory.sources:
        row = work.memories.get(source)
        if row is None or row.is_deleted:
            return "source-forgotten", None
    stored = storage_content(memory.content)
    same = work.active(content_hash(stored))
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


def _tell_of(
    promoting: Promoting,
    event: OutcomeEvent,
    memory: PromotedMemory,
    before: MemoryRow | None,
    after: MemoryRow,
) -> None:
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
    promoting.work.tell(event, after.memory_id, reason, before, after, metadata)


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


# --- the end ----------------------------------------------------------------------------------


def _end(promoting: Promoting, known: Promotions) -> Step:
    work, command = promoting.work, promoting.command
    counted = Counter(item.change for item in promoting.items)
    row = PromotionRow(
        promotion_id=command.promotion_id,
        scope=work.message.scope,
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
    work.writes.append(Put(row))
    work.writes += map(Put, promoting.items)
    work.writes += [Put(replace(part, payload="[]")) for part in known.parts]
    why = Counter(item.why for item in promoting.items if item.change == "kept")
    split_outcomes(work, promoting.graph)
    return done(work, command, _result(row) | {"kept_because": {**dict(sorted(why.items()))}})


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
