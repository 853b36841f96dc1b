"""Carrying out commands: what people and agents ask for themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from dataclasses import fields, replace
from datetime import timedelta

from pydantic import JsonValue

from palimpsest.schemas.identity import command_memory_id
from palimpsest.schemas.messages import (
    AliasCommand,
    ApplyProposalsCommand,
    Command,
    CommandIntent,
    ConfirmCommand,
    DismissProposalsCommand,
    ForgetCommand,
    GraphWork,
    MemoryPatch,
    ModifyCommand,
    RecoverCommand,
    RememberCommand,
    SetFlagsCommand,
)
from palimpsest.schemas.rows import (
    FlagsRow,
    MemoryRow,
    dedup_key,
    embedding_key,
)
from palimpsest.streams.command_work import (
    Refused,
    Work,
    command_id,
    done,
    known_id,
    refusal,
    refuse_frozen,
)
from palimpsest.streams.memory_rows import (
    CONFIRMED_DECAY_RATE,
    archived,
    changed,
    deleted,
    protected,
    with_content,
)
from palimpsest.streams.outcomes import load_names, texts_after
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.stage import Answer, Ask, Embed, Embedded, Message, Step
from palimpsest.streams.store_port import Load, Loaded, Put
from palimpsest.streams.text.normal_forms import content_hash, normalized_content, storage_content

EXPLICIT_IMPORTANCE = 0.8
PENDING = None
"""The result of a command that a later stage will answer; nobody is shown it."""
PROTECTED = "it is pinned or confirmed: only a person may change what it says, or forget it"

_PREFIX = re.compile(r"^\s*(?:(critical)\s*:\s*)?(?:\[([^\]]{1,400})\]\s*:\s*)?", re.IGNORECASE)
_TYPES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("preference", ("prefers", "likes", "wants")),
    ("decision", ("decided", "agreed", "will use")),
    ("rule", ("never", "always", "must")),
    ("learning", ("learned", "discovered")),
    ("issue", ("bug", "broken", "problem")),
)


def command_step(
    message: Message, intent: CommandIntent, settings: StageSettings
) -> Generator[Ask, Answer, Step]:
    """Carry out one command; its result is kept under the command's id, also a refusal."""
    command = intent.command
    if intent.error is not None or command is None:
        return refusal(message, command, intent.error or "invalid_request: no command")
    texts = _texts(command)
    embedded = yield Embed(texts)
    assert isinstance(embedded, Embedded)
    loaded = yield _load(message, command, texts)
    assert isinstance(loaded, Loaded)
    if loaded.command is not None and loaded.command.error is None:
        return Step(dead=known_id(loaded.command))
    work = Work(
        message,
        intent,
        settings,
        loaded,
        dict(zip(texts, embedded.embeddings, strict=True)),
        {key: row for key, row in loaded.memories.items() if row.scope == message.scope},
        {},
        loaded.write_seq,
        loaded.entities,
    )
    work.know(loaded)
    if isinstance(command, ModifyCommand):
        named = yield load_names(message.scope, texts_after(command, work.memories))
        assert isinstance(named, Loaded)
        work.names = named.entities
    if isinstance(command, RecoverCommand) and command.memory_id in work.memories:
        digest = work.memories[command.memory_id].content_hash
        again = yield Load(message.scope, content_hashes=(digest,))
        assert isinstance(again, Loaded)
        work.know(again)
    try:
        result = _carry_out(work, command)
    except Refused as error:
        return refusal(message, command, str(error))
    return done(work, command, result)


def _texts(command: Command) -> tuple[str, ...]:
    """The texts that may become the content of a memory, in storage form."""
    if isinstance(command, RememberCommand):
        return (storage_content(parse_prefix(command.content)[2]),)
    if isinstance(command, ModifyCommand):
        return tuple(storage_content(p.content) for p in command.patches if p.content is not None)
    return ()


def _load(message: Message, command: Command, texts: tuple[str, ...]) -> Load:
    ids: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    if isinstance(command, ModifyCommand):
        ids = tuple(patch.memory_id for patch in command.patches)
    elif isinstance(command, ForgetCommand):
        ids = command.memory_ids
    elif isinstance(command, RecoverCommand | ConfirmCommand):
        ids = (command.memory_id,)
    elif isinstance(command, RememberCommand) and command.source_id is not None:
        sources = (command.source_id,)
    return replace(
        load_names(message.scope, texts if isinstance(command, RememberCommand) else ()),
        memory_ids=ids,
        content_hashes=tuple(content_hash(text) for text in texts),
        source_ids=sources,
        command_id=command_id(message),
    )


def _carry_out(work: Work, command: Command) -> JsonValue:
    if not isinstance(command, SetFlagsCommand):
        refuse_frozen(work)
    match command:
        case RememberCommand():
            return _remember(work, command)
        case ModifyCommand():
            return [_modify(work, patch, command.reason) for patch in command.patches]
        case ForgetCommand():
            return [_forget(work, memory_id, command) for memory_id in command.memory_ids]
        case RecoverCommand():
            return _recover(work, command)
        case ConfirmCommand():
            return _confirm(work, command)
        case SetFlagsCommand():
            return _set_flags(work, command)
        case AliasCommand():
            work.graph = GraphWork(
                memory_ids=(),
                command_id=command_id(work.message),
                aliases=((command.name, command.alias),),
            )
            return PENDING  # what comes of it depends on the graph
        case ApplyProposalsCommand() | DismissProposalsCommand():
            raise TypeError(f"{command.command} is carried out by palimpsest.streams.apply_held")


def parse_prefix(content: str) -> tuple[bool, tuple[str, ...], str]:
    """(critical, tags, rest) of `critical: [a,b]: text`; both prefixes are optional."""
    match = _PREFIX.match(content)
    assert match is not None
    tags = tuple(tag.strip() for tag in (match.group(2) or "").split(",") if tag.strip())
    rest = content[match.end() :]
    return (match.group(1) is not None, tags, rest) if rest.strip() else (False, (), content)


def inferred_type(text: str) -> str:
    """The type of a remembered text by whole words; `fact` where none is telling."""
    lowered = text.lower()
    for kind, words in _TYPES:
        if any(re.search(rf"\b{word}\b", lowered) for word in words):
            return kind
    return "fact"


def _remember(work: Work, command: RememberCommand) -> JsonValue:
    critical, tags, text = parse_prefix(command.content)
    stored = storage_content(text)
    digest = content_hash(stored)
    existing = work.loaded.by_hash.get(digest) or work.loaded.by_source.get(command.source_id or "")
    if existing is not None:
        work.tell("deduped", existing.memory_id, "same content or source")
        return {"id": existing.memory_id, "deduped": True, "version": existing.version}
    pinned = command.pinned or critical
    importance = 1.0 if critical else EXPLICIT_IMPORTANCE
    row = work.put(
        MemoryRow(
            memory_id=command_memory_id(work.message.scope, command_id(work.message)),
            scope=work.message.scope,
            type=command.type or inferred_type(stored),
            content=stored,
            normalized_content=normalized_content(stored),
            content_hash=digest,
            dedup_key=dedup_key(work.message.scope, digest),
            embedding_key=embedding_key(stored),
            importance=importance if command.importance is None else command.importance,
            confidence=1.0,
            pinned=pinned,
            tags=command.tags or tags,
            who=command.who or work.intent.actor.id,
            why="explicit",
            project=command.project,
            session_id=command.session_id,
            source_type=command.source_type,
            source_id=command.source_id,
            occurred_at=work.message.occurred_at,
            created_at=work.at,
            updated_at=work.at,
            updated_by=work.intent.actor.id,
            metadata=json.dumps(command.metadata, sort_keys=True, ensure_ascii=False),
        )
    )
    work.tell("created", row.memory_id, "remembered", after=row)
    structure = command.structured
    if structure is not None:
        work.graph = GraphWork(
            memory_ids=(row.memory_id,),
            command_id=command_id(work.message),
            triples=structure.relations,
            entities=structure.entities,
            attributes=structure.attributes,
        )
    return {"id": row.memory_id, "deduped": False, "version": row.version}


def _modify(work: Work, patch: MemoryPatch, reason: str) -> JsonValue:
    row = work.memories.get(patch.memory_id)
    if row is None:
        return {"id": patch.memory_id, "status": "not_found"}
    if row.is_deleted:
        return {"id": patch.memory_id, "status": "deleted"}
    if patch.if_version is not None and patch.if_version != row.version:
        return {"id": row.memory_id, "status": "version_conflict", "version": row.version}
    if row.type == "episodic" and patch.type is not None:
        return {"id": row.memory_id, "status": "invalid_request", "why": "a turn stays a turn"}
    updated = _patched(row, patch)
    if work.by_machine and protected(row) and _says_else(row, updated):
        return {"id": row.memory_id, "status": "forbidden", "why": PROTECTED}
    if updated == row:
        return {"id": row.memory_id, "status": "no_changes", "version": row.version}
    if updated.content_hash != row.content_hash:
        other = None if updated.dedup_key is None else work.same_content(updated)
        if other is not None:
            return {
                "id": row.memory_id,
                "status": "duplicate_content_hash",
                "duplicate_of": other,
            }
    if (updated.who, updated.content) != (row.who, row.content):
        work.writes.append(Put(archived(row, "modified", work.at)))
    updated = work.put(changed(updated, work.at, work.intent.actor.id, 0))
    work.tell("modified", row.memory_id, patch.reason or reason, row, updated)
    return {"id": row.memory_id, "status": "updated", "version": updated.version}


def _says_else(row: MemoryRow, updated: MemoryRow) -> bool:
    """Whether what protection keeps has changed: what a memory says, who says it, its pin."""
    return (row.content, row.type, row.who, row.pinned) != (
        updated.content,
        updated.type,
        updated.who,
        updated.pinned,
    )


def _patched(row: MemoryRow, patch: MemoryPatch) -> MemoryRow:
    row = replace(
        row,
        type=row.type if patch.type is None else patch.type,
        importance=row.importance if patch.importance is None else patch.importance,
        tags=row.tags if patch.tags is None else patch.tags,
        pinned=row.pinned if patch.pinned is None else patch.pinned,
        who=row.who if patch.who is None else patch.who,
    )
    # Also where only the speaker is another: what a turn is embedded as names it.
    return with_content(row, row.content if patch.content is None else patch.content)


def _forget(work: Work, memory_id: str, command: ForgetCommand) -> JsonValue:
    row = work.memories.get(memory_id)
    if row is None:
        return {"id": memory_id, "status": "not_found"}
    if row.is_deleted:
        return {"id": memory_id, "status": "deleted"}
    if command.if_version is not None and command.if_version != row.version:
        return {"id": memory_id, "status": "version_conflict", "version": row.version}
    if work.by_machine and protected(row):
        return {"id": memory_id, "status": "forbidden", "why": PROTECTED}
    if row.pinned and not command.force:
        return {"id": memory_id, "status": "pinned"}
    work.writes.append(Put(archived(row, "forgotten", work.at)))
    gone = work.put(deleted(changed(row, work.at, work.intent.actor.id, 0), work.at))
    work.tell("deleted", memory_id, command.reason, before=row, after=gone)
    return {"id": memory_id, "status": "forgotten", "version": gone.version}


def _recover(work: Work, command: RecoverCommand) -> JsonValue:
    row = work.memories.get(command.memory_id)
    if row is None:
        raise Refused(f"not_found: no memory {command.memory_id} in this scope")
    if not row.is_deleted or row.deleted_at is None:
        raise Refused("not_deleted: the memory is active")
    if command.if_version is not None and command.if_version != row.version:
        raise Refused(f"version_conflict: the memory is at version {row.version}")
    if work.by_machine and row.updated_by not in ("pipeline", work.intent.actor.id):
        raise Refused("forbidden: no machine takes back what another actor forgot")
    days = work.settings.pipeline.recovery_days
    if work.at - row.deleted_at > timedelta(days=days):
        raise Refused(f"retention_expired: forgotten more than {days} days ago")
    key = None if row.type == "episodic" else dedup_key(row.scope, row.content_hash)
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


def _confirm(work: Work, command: ConfirmCommand) -> JsonValue:
    row = work.memories.get(command.memory_id)
    if row is None or row.is_deleted:
        raise Refused(f"not_found: no active memory {command.memory_id} in this scope")
    # To protect is a person's: a machine's word must not bar all machines from mending it.
    rate = row.decay_rate if work.by_machine else CONFIRMED_DECAY_RATE
    sure = replace(changed(row, work.at, work.intent.actor.id, 0), decay_rate=rate, confidence=1.0)
    sure = work.put(sure)
    work.tell("modified", row.memory_id, command.reason or "confirmed", row, sure)
    return {
        "id": row.memory_id,
        "status": "confirmed",
        "version": sure.version,
        "protected": protected(sure),
    }


def _set_flags(work: Work, command: SetFlagsCommand) -> JsonValue:
    before = work.loaded.flags or FlagsRow(scope=work.message.scope)
    names = tuple(column.name for column in fields(FlagsRow) if column.name != "scope")
    given = {name: getattr(command, name) for name in names if getattr(command, name) is not None}
    after = replace(before, **given)
    work.writes.append(Put(after))
    now: dict[str, JsonValue] = {name: getattr(after, name) for name in names}
    work.tell("flags", None, command.reason, metadata={"flags": now})
    return {"status": "set", "flags": now}
