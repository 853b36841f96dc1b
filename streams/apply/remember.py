"""Executes `remember`: stores a text on request, which is then extracted from."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime
from typing import Final

from pydantic import JsonValue

from palimpsest.schemas.commands import RememberCommand
from palimpsest.schemas.identity import command_memory_id
from palimpsest.schemas.messages import NormalizedTurn
from palimpsest.schemas.normal_forms import content_hash, parse_prefix, storage_content
from palimpsest.schemas.rows.columns import row_of
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.topics import TURNS_NORMALIZED
from palimpsest.streams.apply.authoring import (
    EXPLICIT_IMPORTANCE,
    end_of_text,
    own_memories,
    own_texts,
    stated,
    structure_work,
)
from palimpsest.streams.apply.command_work import (
    LOWERED,
    Refused,
    Work,
    command_id,
    is_guarded,
    kinds_of,
    load_names,
    refuse_frozen,
    refuse_others,
    refuse_untaught,
)
from palimpsest.streams.apply.privacy import refuse_about_private, refuse_in_private_scope
from palimpsest.streams.memory_rows import (
    as_owned,
    edge_rows,
    is_of_another,
    owned_hash,
    protected,
    text_columns,
)
from palimpsest.streams.stage import Asking, Emit
from palimpsest.streams.store_port import Put

_TYPES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("preference", ("prefers", "likes", "wants")),
    ("decision", ("decided", "agreed", "will use")),
    ("rule", ("never", "always", "must")),
    ("learning", ("learned", "discovered")),
    ("issue", ("bug", "broken", "problem")),
)


def inferred_type(text: str) -> str:
    """Returns the type of a remembered text by whole words; `fact` if none indicates one."""
    lowered = text.lower()
    for kind, words in _TYPES:
        if any(re.search(rf"\b{word}\b", lowered) for word in words):
            return kind
    return "fact"


def remember(work: Work, command: RememberCommand) -> Asking[JsonValue]:
    """Returns the new memory, or the existing one with the same source, or with the same content of
    the same owner, which gets what the command wishes of it."""
    critical, tags, text = parse_prefix(command.content)
    stored = storage_content(text)
    digest = content_hash(stored)
    texts = (stored, *own_texts(command.structured))
    yield from work.embed(texts)
    owner = work.intent.actor.id if command.who is None else command.who
    own_digest = owned_hash(stored, owner)
    known = replace(
        load_names(work.scope, texts),
        content_hashes=(digest, own_digest, *map(content_hash, texts[1:])),
        source_ids=() if command.source_id is None else (command.source_id,),
    )
    drawn_from = [each.memory_id for each in command.drawn_from or ()]
    yield from work.begin([*drawn_from, *own_memories(command.structured)], known)
    refuse_frozen(work)
    refuse_untaught(work, command)
    refuse_about_private(work, command, {})
    if command.drawn_from is not None:
        _replace_drawn(work, command)
    same = work.loaded.by_hash.get(digest)
    is_anothers = same is not None and is_of_another(same, owner, command.who is not None)
    same = work.loaded.by_hash.get(own_digest) if same is None or is_anothers else same
    importance = 1.0 if critical else EXPLICIT_IMPORTANCE
    importance = importance if command.importance is None else command.importance
    is_pinned = command.pinned or critical
    # Only a person may protect a memory: a machine's request is stored as an ordinary one.
    is_lowered = is_guarded(work) and (is_pinned or importance > EXPLICIT_IMPORTANCE)
    if is_lowered:
        importance, is_pinned = min(importance, EXPLICIT_IMPORTANCE), False
    lowered: dict[str, JsonValue] = {"lowered": LOWERED} if is_lowered else {}
    if same is not None and command.drawn_from is None:
        is_rated = critical or command.importance is not None
        wished = _wished(work, command, same, importance if is_rated else None, is_pinned, tags)
        return {**_known(work, command, same, wished, lowered), **lowered}
    existing = work.loaded.by_source.get(command.source_id or "")
    if existing is not None and command.drawn_from is None:
        work.record_outcome("deduped", existing.memory_id, "same content or source")
        return {"id": existing.memory_id, "deduped": True, "version": existing.version}
    new = _row(work, command, stored, importance, is_pinned, tags)
    row = work.put(as_owned(new) if is_anothers else new)
    work.record_outcome("created", row.memory_id, "remembered", after=row, metadata=lowered)
    work.graph = structure_work(work, command.structured, (row.memory_id,))
    if command.drawn_from is not None:
        work.writes += map(Put, edge_rows(row, drawn_from))
    elif work.flags.enabled:
        work.emits.append(Emit(TURNS_NORMALIZED, _to_extract(row, command), "extract"))
    return {"id": row.memory_id, "deduped": False, "version": row.version, **lowered}


def _known(
    work: Work,
    command: RememberCommand,
    same: MemoryRow,
    wished: MemoryRow,
    lowered: dict[str, JsonValue],
) -> dict[str, JsonValue]:
    """Gives the memory that has the text what the command wishes of it. Returns the result, which
    names the fields that changed."""
    work.graph = structure_work(work, command.structured, (same.memory_id,))
    new = [name for name in _WISHES if getattr(wished, name) != getattr(same, name)]
    if not new:
        if wished != same:
            # The same version: no result may follow from what the text says, or a rebuild from a
            # log in which it is erased would have another one.
            work.writes.append(Put(wished))
            work.touched += [(same.memory_id, kind) for kind in kinds_of(same, wished)]
            work.memories[same.memory_id] = wished
        work.record_outcome("deduped", same.memory_id, "same content or source")
        return {"id": same.memory_id, "deduped": True, "version": same.version}
    row = work.change(same, wished, "modified", "remembered again", lowered)
    why = f"the text was known; changed: {', '.join(new)}"
    done: dict[str, JsonValue] = {"id": row.memory_id, "deduped": True, "version": row.version}
    return {**done, "status": "updated", "why": why}


_BY_HAND: Final = RememberCommand.model_fields["source_type"].default
_WISHES = ("pinned", "importance", "tags", "type", "project", "metadata")


def _wished(
    work: Work,
    command: RememberCommand,
    same: MemoryRow,
    importance: float | None,
    is_pinned: bool,
    tags: tuple[str, ...],
) -> MemoryRow:
    """Returns the known memory with what the command says of it beyond its text: nothing that it
    has gets lost, except for a value that is replaced.

    What another program keeps (`source_type`) has type, project and metadata of its own: the memory
    of another item with the same text does not take them over."""
    source = (command.source_type, command.source_id)
    is_same_item = command.source_id is not None and source == (same.source_type, same.source_id)
    if command.source_type != _BY_HAND and not is_same_item:
        command = command.model_copy(update={"type": None, "project": None, "metadata": {}})
    is_type_open = not (work.by_machine and protected(same))
    rated = same.importance if importance is None else importance
    if is_guarded(work) and same.importance > EXPLICIT_IMPORTANCE:
        rated = same.importance
    metadata = {**json.loads(same.metadata), **_metadata(command)}
    end = _end(work, same)
    if end != same.valid_until:
        same = replace(same, temporal_kind="temporal" if end else "persistent", valid_until=end)
    return replace(
        same,
        pinned=same.pinned or is_pinned,
        importance=rated,
        tags=tuple(dict.fromkeys((*same.tags, *(command.tags or tags)))),
        type=command.type if command.type and is_type_open else same.type,
        project=command.project or same.project,
        metadata=json.dumps(metadata, sort_keys=True, ensure_ascii=False),
    )


def _end(work: Work, same: MemoryRow) -> datetime | None:
    """Returns when a known memory ends whose text is said again: "until Friday" is another Friday a
    week later, and what has ended holds again."""
    until, now = same.valid_until, work.message.occurred_at
    if work.edition < 2 or (work.by_machine and protected(same)):
        return until
    end = end_of_text(same.content, now)
    if until is None or until <= now:
        return end
    return until if end is None else max(until, end)


def _row(
    work: Work,
    command: RememberCommand,
    stored: str,
    importance: float,
    is_pinned: bool,
    tags: tuple[str, ...],
) -> MemoryRow:
    kind = command.type or inferred_type(stored)
    owner = work.intent.actor.id if command.who is None else command.who
    columns = text_columns(work.scope, kind, stored) | stated(work, stored, owner)
    if command.drawn_from:
        columns["dedup_key"] = None
    return row_of(
        MemoryRow,
        command,
        **columns,
        memory_id=command_memory_id(work.scope, command_id(work.message)),
        scope=work.scope,
        type=kind,
        importance=importance,
        confidence=1.0,
        pinned=is_pinned,
        tags=command.tags or tags,
        who=owner,
        why="drawn" if command.drawn_from else "explicit",
        occurred_at=work.message.occurred_at,
        created_at=work.at,
        updated_at=work.at,
        updated_by=work.intent.actor.id,
        metadata=json.dumps(_metadata(command), sort_keys=True, ensure_ascii=False),
    )


def _replace_drawn(work: Work, command: RememberCommand) -> None:
    """Forgets what was drawn before. Raises Refused where a source was changed meanwhile, or a
    person had a hand in what is to be replaced."""
    refuse_others(work, "only the worker says that a memory was drawn from others")
    refuse_in_private_scope(work)
    for each in command.drawn_from or ():
        row = work.memories.get(each.memory_id)
        if row is None or row.is_deleted or row.version != each.version:
            raise Refused(f"version_conflict: memory {each.memory_id} was changed meanwhile")
    before = work.loaded.by_source.get(command.source_id or "")
    if before is None:
        return
    if protected(before) or before.updated_by != work.intent.actor.id:
        raise Refused(f"forbidden: a person had a hand in memory {before.memory_id}")
    work.memories[before.memory_id] = before
    work.remove(before, "drawn again", archive="replaced")


def _metadata(command: RememberCommand) -> dict[str, JsonValue]:
    if command.lineage is None:
        return command.metadata
    return {**command.metadata, "lineage": command.lineage}


def _to_extract(row: MemoryRow, command: RememberCommand) -> NormalizedTurn:
    """Returns the text in the form of a turn for extract. Its speaker is the one named by the
    request, since the actor may be a program."""
    return NormalizedTurn(
        turn_id=row.memory_id,
        memory_id=row.memory_id,
        item_id=row.memory_id,
        session_id=row.session_id,
        speaker=command.who or "",
        content=row.content,
        normalized_content=row.normalized_content,
        content_hash=row.content_hash,
        explicit_long_term_memory_intent=True,
        project=row.project,
    )
