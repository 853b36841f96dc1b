"""Executes `forget` and `recover`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from types import MappingProxyType

from pydantic import JsonValue

from palimpsest.schemas.commands import EraseScopeCommand, ForgetCommand, RecoverCommand
from palimpsest.schemas.identity import earlier_text_id, erase_token, forget_token
from palimpsest.schemas.memory_texts import dedup_key, linked_text
from palimpsest.schemas.messages import GraphWork
from palimpsest.schemas.normal_forms import content_hash
from palimpsest.schemas.rows.enumerations import OutcomeEvent
from palimpsest.schemas.rows.memories import (
    DOCUMENT_CHUNK,
    PROFILE,
    SELF_TAUGHT,
    SOURCE_TYPES,
    MemoryRow,
)
from palimpsest.streams.apply.authoring import restated
from palimpsest.streams.apply.command_work import (
    PROTECTED,
    MemoryChanges,
    Refused,
    Work,
    command_id,
    load_names,
    refuse_frozen,
    refuse_untaught,
)
from palimpsest.streams.apply.upkeep import recovery_days
from palimpsest.streams.fading import RECOVERED
from palimpsest.streams.memory_rows import (
    STATEMENT,
    archived,
    changed,
    is_erased,
    may_be_repeated,
    memory_of,
    protected,
    with_content,
    without_text,
)
from palimpsest.streams.stage import Asking
from palimpsest.streams.store_port import (
    FORGOTTEN,
    HIDDEN,
    EarlierText,
    Erase,
    Load,
    Loaded,
    Put,
    Source,
)
from palimpsest.streams.text.hiding import Hidden, without_sentences, without_statements

Sources = Mapping[str, tuple[str, ...]]
"""The memories that each memory was derived from, by id."""
Answers = Mapping[tuple[str, str], str]
"""By a memory and a source of it, the question without which that source says nothing."""


OF_PRESENT_TEXT = 8
"""The edition since which a memory goes with the turns that its present text was drawn from."""
OF_EARLIER_TEXTS = 9
"""The edition since which an erasure removes what memories that stay said before."""
TAKEN_BACK = 10
"""The edition since which a memory is taken back to what another source still says."""
TAKEN_BACK_BY = "stated only by what was forgotten"
NOT_TAUGHT = "an agent may delete by itself only what an agent wrote by itself"


def _load_derived(work: Work, command: ForgetCommand) -> Asking[tuple[Sources, Answers]]:
    """Loads the sources of everything derived directly from the command's memories, with a cascade
    also indirectly; adds the rows found to those of `work`."""
    sources: dict[str, tuple[str, ...]] = {}
    answers: dict[tuple[str, str], str] = {}
    visited: set[str] = set()
    frontier = tuple(key for key in command.memory_ids if key in work.memories)
    while frontier:
        visited.update(frontier)
        # What a memory said before is not what keeps it.
        found = yield from Load(
            work.scope, derived_from=frontier, present_text=work.edition >= OF_PRESENT_TEXT
        )
        sources.update(found.derived)
        answers.update(found.answers)
        is_deep = command.cascade or command.confirm_token
        frontier = tuple(sorted(found.derived.keys() - visited)) if is_deep else ()
    named = {*sources, *(source for known in sources.values() for source in known)}
    missing = tuple(sorted(named - work.memories.keys()))
    if missing:
        work.add((yield from Load(work.scope, memory_ids=missing)))
    return sources, answers


def forget(work: Work, command: ForgetCommand) -> Asking[JsonValue]:
    """Returns the result for each named memory, then for each that is forgotten with them. Hides
    what was forgotten in its sources; an erasure removes only what it names."""
    yield from work.begin(command.memory_ids)
    sources, answers = yield from _load_derived(work, command)
    refuse_frozen(work)
    refuse_untaught(work, command)
    if command.confirm_token is not None:
        _check_token(work, command, sources, answers)
    if command.cascade and work.intent.guards:
        _refuse_half(work, command, sources, answers)
    before = dict(work.memories)
    results = [_forget(work, memory_id, command) for memory_id in command.memory_ids]
    if command.cascade:
        gone = [
            key for key in command.memory_ids if key in work.memories and not _active(work, key)
        ]
        going = drawn_from_nothing_else(gone, sources, _left(work, command), answers)
        rows = [work.memories[key] for key in going if _active(work, key)]
        is_taken_back = work.edition >= TAKEN_BACK
        back = (yield from said_before(work, rows, (*gone, *going))) if is_taken_back else {}
        # The version belongs to the named memory.
        each = command.model_copy(update={"if_version": None})
        results += [_forget(work, key, each, sources[key], back.get(key)) for key in going]
    results += _forget_profiles(work, command, sources, before)
    if command.hard:
        gone_now = (key for key, row in work.memories.items() if is_erased(row))
        rows = [before[key] for key in gone_now if not is_erased(before[key])]
        is_whole = command.cascade and work.edition >= OF_EARLIER_TEXTS
        earlier = (yield from _earlier_texts(work, sources, before)) if is_whole else ()
        erase_texts(work, rows, earlier=earlier)
    return results if command.hard else (yield from _with_sources(work, results, command.reason))


def _forget_profiles(
    work: Work, command: ForgetCommand, sources: Sources, before: Mapping[str, MemoryRow]
) -> list[JsonValue]:
    """Forgets the profiles drawn from what is forgotten now, or says something else than `before`,
    pinned or not: they say what must not be said any more."""
    forced = command.model_copy(update={"if_version": None, "force": True})
    still = _left(work, command)
    gone = {
        key
        for key, row in work.memories.items()
        if row.is_deleted or (key in before and row.content != before[key].content)
    }
    return [
        _forget(work, key, forced, drawn_from)
        for key, drawn_from in sorted(sources.items())
        if key in still and work.memories[key].type == PROFILE
        if not gone.isdisjoint(drawn_from)
    ]


def said_before(
    work: MemoryChanges, drawn: Collection[MemoryRow], gone: Collection[str]
) -> Asking[dict[str, MemoryRow]]:
    """Returns memories, of which only sources that are `gone` stated the present text, as they were
    when they said what another source still says: as if those had never changed them."""
    rows = {each.memory_id: each for each in drawn if each.version > 1}
    if not rows:
        return {}
    ids = tuple(rows)
    earlier = still_said((yield from Load(work.scope, sources_of=ids, states_of=ids)), gone)
    hashes = tuple(row.content_hash for row in earlier.values())
    work.know((yield from Load(work.scope, content_hashes=hashes)))
    columns = (*STATEMENT, "importance", "first_occurred_at")
    return {
        key: replace(rows[key], **{name: getattr(row, name) for name in columns})
        for key, row in earlier.items()
    }


def still_said(found: Loaded, gone: Collection[str]) -> dict[str, MemoryRow]:
    """Returns memories as they were when they last said what a source of theirs that is not `gone`
    states; `found` are their sources and states."""
    said = {
        (statement.memory_id, statement.text)
        for key, source in found.sources.items()
        if key not in gone and not source.row.is_deleted
        for statement in source.statements
    }
    return {
        key: memory_of(state)
        for key, states in found.states.items()
        for state in states
        if (key, state.content) in said
    }


def _earlier_texts(
    work: Work, drawn: Collection[str], before: Mapping[str, MemoryRow]
) -> Asking[tuple[EarlierText, ...]]:
    """Returns what those of the memories that stay said `before` and earlier, and no source that is
    left says."""
    rows = {key: row for key in sorted(drawn) if (row := work.memories.get(key)) is not None}
    ids = tuple(key for key, row in rows.items() if row.version > 1 and not is_erased(row))
    if not ids:
        return ()
    found = yield from Load(work.scope, sources_of=ids, states_of=ids)
    texts = {key: [(each.content, each.version) for each in found.states[key]] for key in ids}
    for key in ids:
        texts[key].append((before[key].content, before[key].version))
    first = {
        (key, text): version
        for key in ids
        for text, version in reversed(texts[key])
        if text != rows[key].content
    }
    said: dict[tuple[str, str], list[str]] = {each: [] for each in first}
    for source_id, source in sorted(found.sources.items()):
        for each in source.statements:
            if (each.memory_id, each.text) in said:
                said[each.memory_id, each.text].append(source_id)
    erased = {key for key, row in work.memories.items() if is_erased(row)}
    erased |= {key for key, source in found.sources.items() if is_erased(source.row)}
    return tuple(
        EarlierText(memory_id, sources[0], text, earlier_text_id(memory_id, first[memory_id, text]))
        for (memory_id, text), sources in sorted(said.items())
        if sources and erased.issuperset(sources)
    )


def _with_sources(work: Work, result: JsonValue, reason: str) -> Asking[JsonValue]:
    """Returns the result, after hiding what was forgotten in its sources, and showing what was
    recovered."""
    if not work.intent.hides:
        return result
    # A profile says what its sources say: these stay as they are.
    touched = [key for key, _ in work.touched if work.memories[key].type != PROFILE]
    return told_hiding(result, (yield from hide_or_show(work, touched, reason)))


def _refuse_half(work: Work, command: ForgetCommand, sources: Sources, answers: Answers) -> None:
    """Raises Refused if part of a cascade would stay: an erasure cannot be undone, so the rest of
    the cascade must not have been removed before."""
    left = _left(work, command)
    named = [key for key in command.memory_ids if key in left]
    for key in (*named, *drawn_from_nothing_else(named, sources, left, answers)):
        row = work.memories[key]
        if work.by_machine and protected(row):
            raise Refused(f"forbidden: nothing was forgotten: of memory {key}, {PROTECTED}")
        if row.pinned and not command.force:
            raise Refused(
                f"pinned: nothing was forgotten: memory {key} is pinned; forget it by force,"
                " or without the cascade"
            )


def _left(work: Work, command: ForgetCommand) -> set[str]:
    """Returns the memories that may still be forgotten; for an erasure, including those forgotten
    before."""
    if not command.hard:
        return {key for key, row in work.memories.items() if not row.is_deleted}
    return {key for key, row in work.memories.items() if not is_erased(row)}


def _check_token(work: Work, command: ForgetCommand, sources: Sources, answers: Answers) -> None:
    left = _left(work, command)
    named = [key for key in command.memory_ids if key in left]
    going = drawn_from_nothing_else(named, sources, left, answers) if command.cascade else ()
    versions = {key: work.memories[key].version for key in (*named, *going)}
    if command.confirm_token != forget_token(work.scope, versions):
        raise Refused(
            "confirm_mismatch: these are not the memories that the preview showed, as it showed"
            " them; look at a new preview and confirm that"
        )


def _active(work: Work, memory_id: str) -> bool:
    row = work.memories.get(memory_id)
    return row is not None and not row.is_deleted


def _forget(
    work: Work,
    memory_id: str,
    command: ForgetCommand,
    drawn_from: tuple[str, ...] = (),
    back: MemoryRow | None = None,
) -> JsonValue:
    """Forgets one memory, or takes it `back` to what it said before; `drawn_from` are the sources
    that cause it, if it was not named itself."""
    row = work.memories.get(memory_id)
    if row is None:
        return {"id": memory_id, "status": "not_found"}
    if is_erased(row) and command.hard:
        return {"id": memory_id, "status": "erased", "version": row.version}
    if row.is_deleted and not command.hard:
        return {"id": memory_id, "status": "deleted"}
    if command.if_version is not None and command.if_version != row.version:
        return {"id": memory_id, "status": "version_conflict", "version": row.version}
    if (work.by_machine or command.self_taught) and protected(row):
        return {"id": memory_id, "status": "forbidden", "why": PROTECTED}
    if command.self_taught and not drawn_from and row.source_type != SELF_TAUGHT:
        return {"id": memory_id, "status": "forbidden", "why": NOT_TAUGHT}
    if row.pinned and not command.force:
        return {"id": memory_id, "status": "pinned"}
    cause: dict[str, JsonValue] = {"drawn_from": [*drawn_from]} if drawn_from else {}
    if back is not None and work.same_content(back) is None:
        work.writes.append(Put(archived(row, TAKEN_BACK_BY, work.at)))
        now = work.put(changed(back, work.at, row.updated_by, 0))
        # An erasure tells of no text.
        was, is_now = (None, None) if command.hard else (row, now)
        work.record_outcome("modified", memory_id, command.reason, was, is_now, cause)
        return cause | {"id": memory_id, "status": "updated", "version": now.version}
    if command.hard:
        gone = _without_text(work, row)
        work.record_outcome("purged", memory_id, command.reason, metadata=cause)
    else:
        gone = work.remove(row, command.reason, cause, archive=FORGOTTEN)
    answer: dict[str, JsonValue] = {
        "id": memory_id,
        "status": "erased" if command.hard else "forgotten",
        "version": gone.version,
    }
    return answer | cause


def _without_text(work: Work, row: MemoryRow) -> MemoryRow:
    return work.put(without_text(changed(row, work.at, work.intent.actor.id, 0), work.at))


def recover(work: Work, command: RecoverCommand) -> Asking[JsonValue]:
    """Recovers a forgotten memory within the recovery period."""
    yield from work.begin([command.memory_id], Load(work.scope, retention=True))
    if command.memory_id in work.memories:
        digest = work.memories[command.memory_id].content_hash
        work.know((yield from Load(work.scope, content_hashes=(digest,))))
    refuse_frozen(work)
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
    days = recovery_days(work.loaded, work.settings)
    if work.at - row.deleted_at > timedelta(days=days):
        raise Refused(f"retention_expired: forgotten more than {days} days ago")
    key = None if may_be_repeated(row) else dedup_key(row.scope, row.content_hash)
    other = None if key is None else work.same_content(row)
    if other is not None:
        raise Refused(f"duplicate_content_hash: the active memory {other} says the same")
    back = replace(row, is_deleted=False, deleted_at=None, dedup_key=key)
    if row.decayed_at is not None:
        # It does not fade for the time in which it was forgotten, nor the next night.
        confidence = max(row.confidence, RECOVERED)
        back = replace(back, confidence=confidence, decayed_at=work.at, retained=1.0)
    back = work.change(row, back, "recovered", command.reason or "recovered")
    result: JsonValue = {"id": row.memory_id, "status": "recovered", "version": back.version}
    return (yield from _with_sources(work, result, command.reason or command.command))


def erase_texts(
    work: Work,
    before: Iterable[MemoryRow],
    whole_scope: bool = False,
    earlier: tuple[EarlierText, ...] = (),
) -> None:
    """Removes from the stores the texts of these memories, as they were `before` their rows became
    tombstones, with the `earlier` texts of others, and requests the same of the graph."""
    rows = list(before)
    if not rows and not whole_scope and not earlier:
        return
    gone = {row.memory_id for row in rows} | {each.source for each in earlier}
    work.writes.append(
        Erase(
            erasure_id=command_id(work.message),
            scope=work.scope,
            texts={row.memory_id: row.content for row in rows},
            embedding_keys=tuple(row.embedding_key for row in rows),
            scope_at=work.at if whole_scope else None,
            earlier=earlier,
        )
    )
    work.graph = GraphWork(
        memory_ids=(),
        command_id=command_id(work.message),
        erased=None if whole_scope else tuple(sorted(gone)),
        erased_scope=whole_scope or None,
    )


def erase_scope(work: Work, command: EraseScopeCommand) -> Asking[JsonValue]:
    """Erases all memories of the scope. Returns their number."""
    yield from work.begin(also=Load(work.scope, whole_scope=True))
    refuse_frozen(work)
    if work.by_machine:
        raise Refused("forbidden: only a person may erase a whole scope")
    rows = [row for _, row in sorted(work.memories.items()) if not is_erased(row)]
    if command.confirm_token != erase_token(work.scope, len(rows)):
        raise Refused(
            f"confirm_mismatch: the scope holds {len(rows)} memories now, not as many as the"
            " preview counted; look at a new preview and confirm that"
        )
    for row in rows:
        _without_text(work, row)
    work.record_outcome("purged", None, command.reason, metadata={"memories": len(rows)})
    erase_texts(work, rows, whole_scope=True)
    return {"status": "erased", "memories": len(rows)}


# --- hiding what was forgotten in its source texts ------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Change:
    """The new state of a source; `left` has no text if all of it is hidden."""

    source: Source
    left: Hidden


def hide_or_show(
    work: Work, memory_ids: Iterable[str], reason: str
) -> Asking[Mapping[str, list[str]]]:
    """Updates the sources of memories that a command forgot or recovered to what remains visible.
    Returns the changed sources, by memory."""
    ids = tuple(dict.fromkeys(memory_ids))
    if not ids:
        return {}
    found = yield from Load(work.scope, sources_of=ids)
    changes = [_change(work, source) for _, source in sorted(found.sources.items())]
    making = [each for each in changes if each is not None]
    texts = [
        linked_text(each.source.row.type, each.source.row.who, each.left.text) for each in making
    ]
    loaded = yield from replace(
        load_names(work.scope, texts),
        content_hashes=tuple(content_hash(each.left.text) for each in making),
    )
    work.know(loaded)
    work.names = loaded.entities
    changed: dict[str, list[str]] = {}
    for each in making:
        _execute(work, each, reason)
        for statement in each.source.statements:
            source_ids = changed.setdefault(statement.memory_id, [])
            if each.source.row.memory_id not in source_ids:
                source_ids.append(each.source.row.memory_id)
    return changed


def hidden_text(source: Source, forgotten: Iterable[str]) -> Hidden:
    """Returns what remains of a source without what these memories say."""
    gone = set(forgotten)
    statements = [each.text for each in source.statements if each.memory_id in gone]
    return without_statements(source.text, statements, source.row.who)


def _change(work: Work, source: Source) -> _Change | None:
    row = work.memories.get(source.row.memory_id, source.row)
    if row.type == DOCUMENT_CHUNK or is_erased(row) or (row.is_deleted and not source.is_hidden):
        return None
    if work.by_machine and protected(row):
        return None
    # What the command itself changed is not yet in the source's statements.
    now = {memory_id: work.memories[memory_id].is_deleted for memory_id, _ in work.touched}
    said = source.statements
    gone = [each.memory_id for each in said if now.get(each.memory_id, each.is_forgotten)]
    left = hidden_text(source, gone)
    is_as_it_is = row.is_deleted if not left.text else left.text == row.content
    if is_as_it_is and row.is_deleted == (not left.text):
        return None
    return _Change(source, left)


def _execute(work: Work, change: _Change, reason: str) -> None:
    row, left = change.source.row, change.left
    if not left.text:
        work.remove(row, reason, {"hidden": True}, archive=HIDDEN)
        return
    after = with_content(replace(row, is_deleted=False, deleted_at=None), left.text)
    metadata = change.source.metadata
    if left.sentences:
        shown = without_sentences(json.loads(metadata), left.sentences)
        metadata = json.dumps(shown, sort_keys=True, ensure_ascii=False)
    after = replace(after, metadata=metadata)
    if after.type not in SOURCE_TYPES and work.same_content(after) is not None:
        # Memories are unique by content: this one only keeps the remaining text.
        after = replace(after, dedup_key=None)
    if after.type not in SOURCE_TYPES and work.edition >= 2:
        after = restated(row, after, row.occurred_at)
    event: OutcomeEvent = "recovered" if row.is_deleted else "modified"
    told: dict[str, JsonValue] = {"hidden": bool(left.sentences)}
    work.change(row, after, event, reason, told, archive=HIDDEN)


def told_hiding(result: JsonValue, hidden: Mapping[str, list[str]]) -> JsonValue:
    """Returns a command's result that lists, with each memory, the texts in which it is hidden or
    shown."""
    if isinstance(result, list):
        return [told_hiding(each, hidden) for each in result]
    if not isinstance(result, dict):
        return result
    sources = hidden.get(str(result.get("id")))
    return result if not sources else result | {"hidden_in": [*sources]}


def drawn_from_nothing_else(
    gone: Collection[str],
    sources: Mapping[str, Collection[str]],
    active: Collection[str],
    answers: Answers = MappingProxyType({}),
) -> tuple[str, ...]:
    """Returns the memories of `sources`, sorted, all of whose sources are `gone`, inactive, or
    forgotten with them in turn. `sources` maps each memory to those that it was derived from or
    that repeated it; `active` are the memories among all these that are not forgotten. A source
    that `answers` a question is as good as gone without it, and a question says nothing alone."""
    going = set(gone)
    asked = {(memory_id, question) for (memory_id, _), question in answers.items()}

    def is_left(memory_id: str, source: str) -> bool:
        question = answers.get((memory_id, source))
        needed = (source,) if question is None else (source, question)
        is_there = all(each in active and each not in going for each in needed)
        return is_there and (memory_id, source) not in asked

    while True:
        more = {
            memory_id
            for memory_id, known in sources.items()
            if memory_id in active
            and memory_id not in going
            and not going.isdisjoint(known)
            and not any(is_left(memory_id, source) for source in known)
        }
        if not more:
            return tuple(sorted(going - set(gone)))
        going |= more
