"""Carrying out commands: what people and agents ask for themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta

from pydantic import JsonValue

from schemas.identity import command_memory_id
from schemas.messages import (
    AliasCommand,
    Command,
    CommandIntent,
    ConfirmCommand,
    ForgetCommand,
    GraphWork,
    MemoryChange,
    MemoryPatch,
    ModifyCommand,
    Outcome,
    OutcomeEvent,
    RecoverCommand,
    RememberCommand,
    SetFlagsCommand,
)
from schemas.rows import (
    CommandRow,
    FlagsRow,
    MemoryRow,
    dedup_key,
    embedding_key,
)
from streams.linker import candidate_names, unspaced_part
from streams.memory import CONFIRMED_DECAY_RATE, archived, changed, deleted, effective, with_content
from streams.outcomes import changes, link_writes
from streams.settings import ApplySettings
from streams.stage import (
    Answer,
    Ask,
    Embed,
    Embedded,
    KeepVector,
    Load,
    Loaded,
    Message,
    Put,
    Step,
    Vector,
    Write,
)
from streams.text import content_hash, normalized_content, storage_content

EXPLICIT_IMPORTANCE = 0.8
MACHINES = ("agent", "pipeline", "system")

_PREFIX = re.compile(r"^\s*(?:(critical)\s*:\s*)?(?:\[([^\]]{1,400})\]\s*:\s*)?", re.IGNORECASE)
_TYPES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("preference", ("prefers", "likes", "wants")),
    ("decision", ("decided", "agreed", "will use")),
    ("rule", ("never", "always", "must")),
    ("learning", ("learned", "discovered")),
    ("issue", ("bug", "broken", "problem")),
)


class Refused(Exception):
    """A command that is not carried out; the text begins with its error code."""


@dataclass(slots=True)
class _Work:
    message: Message
    intent: CommandIntent
    settings: ApplySettings
    loaded: Loaded
    vectors: dict[str, Vector | None]
    memories: dict[str, MemoryRow]
    by_hash: dict[str, str]
    write_seq: int
    writes: list[Write] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    touched: list[str] = field(default_factory=list)
    graph: GraphWork | None = None

    @property
    def at(self) -> datetime:
        return self.message.recorded

    def put(self, row: MemoryRow) -> MemoryRow:
        """Store the row as the newest write of the shard."""
        self.write_seq += 1
        row = replace(row, write_seq=self.write_seq)
        # A turn's vector is made from more than its content; the tracker makes it anew.
        vector = self.vectors.get(row.content)
        if vector is not None and row.embedding_key == embedding_key(row.content):
            self.writes.append(KeepVector(row.embedding_key, vector))
        self.writes.append(Put(row))
        self.writes += link_writes(row.scope, row.memory_id, self.loaded, row.content)
        self.memories[row.memory_id] = row
        if row.dedup_key is not None:
            self.by_hash[row.content_hash] = row.memory_id
        self.touched.append(row.memory_id)
        return row

    def know(self, loaded: Loaded) -> None:
        """Take note of memories found by their content."""
        for digest, row in loaded.by_hash.items():
            self.memories.setdefault(row.memory_id, row)
            self.by_hash[digest] = row.memory_id

    def same_content(self, row: MemoryRow) -> str | None:
        """Another active memory that says the same, as the command has left things so far."""
        other = self.memories.get(self.by_hash.get(row.content_hash, ""))
        if other is None or other.dedup_key is None or other.content_hash != row.content_hash:
            return None
        return None if other.memory_id == row.memory_id else other.memory_id

    def tell(
        self,
        event: OutcomeEvent,
        memory_id: str | None,
        reason: str,
        before: MemoryRow | None = None,
        after: MemoryRow | None = None,
        metadata: dict[str, JsonValue] | None = None,
    ) -> None:
        self.outcomes.append(
            Outcome(
                event=event,
                item_kind="command",
                item_id=command_id(self.message),
                memory_id=memory_id,
                old_content=None if before is None else before.content,
                new_content=None if after is None else after.content,
                reason=reason,
                changed_by=self.intent.actor.id,
                actor_type=self.intent.actor.type,
                version=None if after is None else after.version,
                metadata=metadata or {},
            )
        )


def command_id(message: Message) -> str:
    """The id of the command that the intent carries out. Not its correlation id: a producer may
    give many commands the same."""
    return message.causation_id or message.correlation_id


def command_step(
    message: Message, intent: CommandIntent, settings: ApplySettings
) -> Generator[Ask, Answer, Step]:
    """Carry out one command; its result is kept under the command's id, also a refusal."""
    command = intent.command
    if intent.error is not None or command is None:
        return _refusal(message, command, intent.error or "invalid_request: no command")
    texts = _texts(command)
    embedded = yield Embed(texts)
    assert isinstance(embedded, Embedded)
    loaded = yield _load(message, command, texts)
    assert isinstance(loaded, Loaded)
    work = _Work(
        message,
        intent,
        settings,
        loaded,
        dict(zip(texts, embedded.vectors, strict=True)),
        {key: row for key, row in loaded.memories.items() if row.scope == message.scope},
        {},
        loaded.write_seq,
    )
    work.know(loaded)
    if isinstance(command, RecoverCommand) and command.memory_id in work.memories:
        digest = work.memories[command.memory_id].content_hash
        again = yield Load(message.scope, content_hashes=(digest,))
        assert isinstance(again, Loaded)
        work.know(again)
    try:
        result = _carry_out(work, command)
    except Refused as error:
        return _refusal(message, command, str(error))
    row = CommandRow(
        command_id=command_id(message),
        scope=message.scope,
        command=command.command,
        error=None,
        result=json.dumps(result, sort_keys=True, ensure_ascii=False),
        recorded_at=message.recorded,
    )
    change = MemoryChange(
        outcomes=tuple(work.outcomes),
        session_id=getattr(command, "session_id", ""),
        graph=work.graph,
    )
    return Step(
        writes=(*work.writes, Put(row)), emits=changes(change, tuple(dict.fromkeys(work.touched)))
    )


def _refusal(message: Message, command: Command | None, error: str) -> Step:
    row = CommandRow(
        command_id=command_id(message),
        scope=message.scope,
        command="" if command is None else command.command,
        error=error,
        result="{}",
        recorded_at=message.recorded,
    )
    return Step(writes=(Put(row),))


def _texts(command: Command) -> tuple[str, ...]:
    """The texts that may become the content of a memory, in storage form."""
    if isinstance(command, RememberCommand):
        return (storage_content(parse_prefix(command.content)[2]),)
    if isinstance(command, ModifyCommand):
        return tuple(storage_content(p.content) for p in command.patches if p.content is not None)
    return ()


def _load(message: Message, command: Command, texts: tuple[str, ...]) -> Load:
    names: dict[str, str] = {}
    for text in texts:
        names.update(candidate_names(text))
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
    return Load(
        message.scope,
        memory_ids=ids,
        content_hashes=tuple(content_hash(text) for text in texts),
        source_ids=sources,
        names=tuple(names),
        unspaced_text=" ".join(filter(None, map(unspaced_part, texts))),
    )


def _carry_out(work: _Work, command: Command) -> JsonValue:
    flags = effective(work.settings.flags, work.loaded.flags)
    if flags.mutations_frozen and not isinstance(command, SetFlagsCommand):
        raise Refused("frozen: memory may not be changed now (flag mutations_frozen)")
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
            work.graph = GraphWork(memory_ids=(), aliases=((command.name, command.alias),))
            return {"status": "accepted"}


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


def _remember(work: _Work, command: RememberCommand) -> JsonValue:
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
            memory_id=command_memory_id(command_id(work.message)),
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
            triples=structure.relations,
            entities=structure.entities,
            attributes=structure.attributes,
        )
    return {"id": row.memory_id, "deduped": False, "version": row.version}


def _modify(work: _Work, patch: MemoryPatch, reason: str) -> JsonValue:
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


def _forget(work: _Work, memory_id: str, command: ForgetCommand) -> JsonValue:
    row = work.memories.get(memory_id)
    if row is None:
        return {"id": memory_id, "status": "not_found"}
    if row.is_deleted:
        return {"id": memory_id, "status": "deleted"}
    if command.if_version is not None and command.if_version != row.version:
        return {"id": memory_id, "status": "version_conflict", "version": row.version}
    if row.pinned and not command.force:
        return {"id": memory_id, "status": "pinned"}
    if row.pinned and work.intent.actor.type in MACHINES:
        return {"id": memory_id, "status": "forbidden"}
    work.writes.append(Put(archived(row, "forgotten", work.at)))
    gone = work.put(deleted(changed(row, work.at, work.intent.actor.id, 0), work.at))
    work.tell("deleted", memory_id, command.reason, before=row, after=gone)
    return {"id": memory_id, "status": "forgotten", "version": gone.version}


def _recover(work: _Work, command: RecoverCommand) -> JsonValue:
    row = work.memories.get(command.memory_id)
    if row is None:
        raise Refused(f"not_found: no memory {command.memory_id} in this scope")
    if not row.is_deleted or row.deleted_at is None:
        raise Refused("not_deleted: the memory is active")
    if command.if_version is not None and command.if_version != row.version:
        raise Refused(f"version_conflict: the memory is at version {row.version}")
    if work.at - row.deleted_at > timedelta(days=work.settings.recovery_days):
        raise Refused(
            f"retention_expired: forgotten more than {work.settings.recovery_days} days ago"
        )
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


def _confirm(work: _Work, command: ConfirmCommand) -> JsonValue:
    row = work.memories.get(command.memory_id)
    if row is None or row.is_deleted:
        raise Refused(f"not_found: no active memory {command.memory_id} in this scope")
    sure = replace(
        changed(row, work.at, work.intent.actor.id, 0),
        decay_rate=CONFIRMED_DECAY_RATE,
        confidence=1.0,
    )
    sure = work.put(sure)
    work.tell("modified", row.memory_id, command.reason or "confirmed", row, sure)
    return {"id": row.memory_id, "status": "confirmed", "version": sure.version}


def _set_flags(work: _Work, command: SetFlagsCommand) -> JsonValue:
    before = work.loaded.flags or FlagsRow(scope=work.message.scope)
    names = tuple(column.name for column in fields(FlagsRow) if column.name != "scope")
    given = {name: getattr(command, name) for name in names if getattr(command, name) is not None}
    after = replace(before, **given)
    work.writes.append(Put(after))
    now: dict[str, JsonValue] = {name: getattr(after, name) for name in names}
    work.tell("flags", None, command.reason, metadata={"flags": now})
    return {"status": "set", "flags": now}
