"""Executes `forget` and `recover`."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from datetime import timedelta

from pydantic import JsonValue

from palimpsest.schemas.commands import ForgetCommand, RecoverCommand
from palimpsest.schemas.identity import forget_token
from palimpsest.schemas.memory_texts import dedup_key
from palimpsest.schemas.rows import SOURCE_TYPES, MemoryRow
from palimpsest.streams.apply.cascade import drawn_from_nothing_else
from palimpsest.streams.apply.command_work import PROTECTED, Refused, Work
from palimpsest.streams.apply.erase import erase_texts
from palimpsest.streams.memory_rows import (
    archived,
    changed,
    deleted,
    is_erased,
    protected,
    without_text,
)
from palimpsest.streams.stage import Answer, Ask
from palimpsest.streams.store_port import FORGOTTEN, Load, Loaded, Put

Sources = Mapping[str, tuple[str, ...]]
"""The memories that each memory was derived from, by id."""


def load_derived(work: Work, command: ForgetCommand) -> Generator[Ask, Answer, Sources]:
    """Loads the sources of everything derived directly or indirectly from the command's memories;
    adds the rows found to those of `work`."""
    sources: dict[str, tuple[str, ...]] = {}
    visited: set[str] = set()
    frontier = tuple(key for key in command.memory_ids if key in work.memories)
    while frontier:
        visited.update(frontier)
        found = yield Load(work.message.scope, derived_from=frontier)
        assert isinstance(found, Loaded)
        sources.update(found.derived)
        frontier = tuple(sorted(found.derived.keys() - visited))
    named = {*sources, *(source for known in sources.values() for source in known)}
    missing = tuple(sorted(named - work.memories.keys()))
    if missing:
        loaded = yield Load(work.message.scope, memory_ids=missing)
        assert isinstance(loaded, Loaded)
        work.memories.update(
            (key, row) for key, row in loaded.memories.items() if row.scope == work.message.scope
        )
    return sources


def forget(work: Work, command: ForgetCommand, sources: Sources) -> JsonValue:
    """Returns the result for each named memory, then for each that is forgotten with them."""
    if command.confirm_token is not None:
        _check_token(work, command, sources)
    if command.cascade and work.intent.guards:
        _refuse_half(work, command, sources)
    before = dict(work.memories)
    results = [_forget(work, memory_id, command) for memory_id in command.memory_ids]
    if command.cascade:
        gone = [
            key for key in command.memory_ids if key in work.memories and not _active(work, key)
        ]
        going = drawn_from_nothing_else(gone, sources, _left(work, command))
        # The version belongs to the named memory.
        each = command.model_copy(update={"if_version": None})
        results += [_forget(work, key, each, sources[key]) for key in going]
    if command.hard:
        erase_texts(work, [row for key, row in before.items() if _was_erased(work, key, row)])
    return [*results]


def _refuse_half(work: Work, command: ForgetCommand, sources: Sources) -> None:
    """Raises Refused if part of a cascade would stay: an erasure cannot be undone, so the rest of
    the cascade must not have been removed before."""
    left = _left(work, command)
    named = [key for key in command.memory_ids if key in left]
    for key in (*named, *drawn_from_nothing_else(named, sources, left)):
        row = work.memories[key]
        if work.by_machine and protected(row):
            raise Refused(f"forbidden: nothing was forgotten: of memory {key}, {PROTECTED}")
        if row.pinned and not command.force:
            raise Refused(
                f"pinned: nothing was forgotten: memory {key} is pinned; forget it by force,"
                " or without the cascade"
            )


def _was_erased(work: Work, memory_id: str, before: MemoryRow) -> bool:
    return is_erased(work.memories[memory_id]) and not is_erased(before)


def _left(work: Work, command: ForgetCommand) -> set[str]:
    """Returns the memories that may still be forgotten; for an erasure, including those forgotten
    before."""
    if not command.hard:
        return _all_active(work)
    return {key for key, row in work.memories.items() if not is_erased(row)}


def _check_token(work: Work, command: ForgetCommand, sources: Sources) -> None:
    left = _left(work, command)
    named = [key for key in command.memory_ids if key in left]
    going = drawn_from_nothing_else(named, sources, left) if command.cascade else ()
    versions = {key: work.memories[key].version for key in (*named, *going)}
    if command.confirm_token != forget_token(work.message.scope, versions):
        raise Refused(
            "confirm_mismatch: these are not the memories that the preview showed, as it showed"
            " them; look at a new preview and confirm that"
        )


def _active(work: Work, memory_id: str) -> bool:
    row = work.memories.get(memory_id)
    return row is not None and not row.is_deleted


def _all_active(work: Work) -> set[str]:
    return {key for key, row in work.memories.items() if not row.is_deleted}


def _forget(
    work: Work, memory_id: str, command: ForgetCommand, drawn_from: tuple[str, ...] = ()
) -> JsonValue:
    """Forgets one memory; `drawn_from` are the sources that cause it, if it was not named
    itself."""
    row = work.memories.get(memory_id)
    if row is None:
        return {"id": memory_id, "status": "not_found"}
    if is_erased(row) and command.hard:
        return {"id": memory_id, "status": "erased", "version": row.version}
    if row.is_deleted and not command.hard:
        return {"id": memory_id, "status": "deleted"}
    if command.if_version is not None and command.if_version != row.version:
        return {"id": memory_id, "status": "version_conflict", "version": row.version}
    if work.by_machine and protected(row):
        return {"id": memory_id, "status": "forbidden", "why": PROTECTED}
    if row.pinned and not command.force:
        return {"id": memory_id, "status": "pinned"}
    after = changed(row, work.at, work.intent.actor.id, 0)
    cause: dict[str, JsonValue] = {"drawn_from": [*drawn_from]} if drawn_from else {}
    if command.hard:
        gone = work.put(without_text(after, work.at))
        work.tell("purged", memory_id, command.reason, metadata=cause)
    else:
        work.writes.append(Put(archived(row, FORGOTTEN, work.at)))
        gone = work.put(deleted(after, work.at))
        work.tell("deleted", memory_id, command.reason, row, gone, metadata=cause)
    answer: dict[str, JsonValue] = {
        "id": memory_id,
        "status": "erased" if command.hard else "forgotten",
        "version": gone.version,
    }
    return answer | cause


def recover(work: Work, command: RecoverCommand) -> JsonValue:
    """Recovers a forgotten memory within the recovery period."""
    row = work.memories.get(command.memory_id)
    if row is None:
        raise Refused(f"not_found: no memory {command.memory_id} in this scope")
    if is_erased(row):
        raise Refused("retention_expired: its text was erased; nothing is left to recover")
    if not row.is_deleted or row.deleted_at is None:
        raise Refused("not_deleted: the memory is active")
    if command.if_version is not None and command.if_version != row.version:
        raise Refused(f"version_conflict: the memory is at version {row.version}")
    if work.by_machine and row.updated_by not in ("pipeline", work.intent.actor.id):
        raise Refused("forbidden: no machine takes back what another actor forgot")
    days = work.settings.pipeline.recovery_days
    if work.at - row.deleted_at > timedelta(days=days):
        raise Refused(f"retention_expired: forgotten more than {days} days ago")
    key = None if row.type in SOURCE_TYPES else dedup_key(row.scope, row.content_hash)
    other = None if key is None else work.same_content(row)
    if other is not None:
        raise Refused(f"duplicate_content_hash: the active memory {other} says the same")
    back = replace(
        changed(row, work.at, work.intent.actor.id, 0),
        is_deleted=False,
        deleted_at=None,
        dedup_key=key,
    )
    back = work.put(back)
    work.tell("recovered", row.memory_id, command.reason or "recovered", row, back)
    return {"id": row.memory_id, "status": "recovered", "version": back.version}
