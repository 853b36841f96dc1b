"""Rolls a promotion back: the inverse of its changes to a scope, from the records it left there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import replace

from pydantic import JsonValue

from palimpsest.schemas.commands import RollbackPromotionCommand
from palimpsest.schemas.messages import CommandIntent
from palimpsest.schemas.promotion_rows import PromotionItemRow, PromotionRow
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
from palimpsest.streams.apply.promoted_rows import memory_of, returned, tombstone
from palimpsest.streams.apply.promotion_work import split_outcomes
from palimpsest.streams.memory_rows import archived, is_erased
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.stage import Answer, Ask, Message, Step
from palimpsest.streams.store_port import Load, Loaded, LoadPromotion, Promotions, Put

UNDONE = "undone"


def rollback_step(
    message: Message,
    intent: CommandIntent,
    command: RollbackPromotionCommand,
    settings: StageSettings,
) -> Generator[Ask, Answer, Step]:
    """Removes what was added and restores what was replaced or forgotten, unless it changed since;
    the result counts the outcomes."""
    known = yield LoadPromotion(message.scope, command.promotion_id, items=True)
    assert isinstance(known, Promotions)
    states = {key: memory_of(state) for key, state in known.states.items()}
    loaded = yield Load(
        message.scope,
        memory_ids=tuple(item.memory_id for item in known.items),
        content_hashes=tuple(dict.fromkeys(state.content_hash for state in states.values())),
        command_id=command_id(message),
    )
    assert isinstance(loaded, Loaded)
    if loaded.command is not None and loaded.command.error is None:
        return known_id(loaded.command, intent.digest)
    work = Work.begun(message, intent, settings, loaded)
    promotion = known.promotion
    try:
        refuse_frozen(work)
        if work.by_machine:
            raise Refused("forbidden: a promotion is rolled back by a person")
        if promotion is None:
            raise Refused(f"not_found: no promotion {command.promotion_id} in this scope")
    except Refused as error:
        return refusal(message, intent, str(error))
    if promotion.status == "rolled-back":
        return done(work, command, _result(promotion, known.items))
    reason = command.reason or f"promotion {promotion.promotion_id} was rolled back"
    # Added memories go first: they may have the content of those restored.
    items = [item for item in known.items if item.change == "gained"]
    ended = [_take_out(work, item, reason) for item in items]
    for item in known.items:
        if item.change in ("changed", "lost"):
            state = states.get(item.memory_id)
            named = yield load_names(message.scope, () if state is None else (state.content,))
            assert isinstance(named, Loaded)
            work.names = named.entities
            ended.append(_bring_back(work, item, state, reason))
    over = replace(
        promotion, status="rolled-back", rolled_back_by=intent.actor.id, updated_at=work.at
    )
    work.writes += [Put(over), *map(Put, ended)]
    split_outcomes(work)
    return done(work, command, _result(over, ended))


def _take_out(work: Work, item: PromotionItemRow, reason: str) -> PromotionItemRow:
    row = work.memories.get(item.memory_id)
    if row is None or row.is_deleted or row.version != item.version_after:
        return replace(item, rollback=_why_left(row))
    work.writes.append(Put(archived(row, "rolled back", work.at)))
    gone = work.put(tombstone(row, work.at))
    work.tell("deleted", row.memory_id, reason, row, gone, _told(item))
    return replace(item, rollback=UNDONE)


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
    if item.change == "changed":
        work.writes.append(Put(archived(row, "rolled back", work.at)))
    back = work.put(returned(row, state, work.at))
    if item.change == "changed":
        work.tell("modified", row.memory_id, reason, row, back, _told(item))
    else:
        work.tell("recovered", row.memory_id, reason, row, back, _told(item))
    return replace(item, rollback=UNDONE)


def _why_left(row: MemoryRow | None) -> str:
    if row is None or is_erased(row):
        return "erased"
    return "forgotten-since" if row.is_deleted else "changed-since"


def _told(item: PromotionItemRow) -> dict[str, JsonValue]:
    return {"promotion_id": item.promotion_id, "rollback": True}


def _result(row: PromotionRow, items: Sequence[PromotionItemRow]) -> JsonValue:
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
