"""Executes document commands: ingests documents chunk by chunk, and forgets them."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import replace

from pydantic import JsonValue

from palimpsest.schemas.commands import (
    Actor,
    AddDocumentCommand,
    DeleteDocumentCommand,
    DocumentTextCommand,
)
from palimpsest.schemas.identity import chunk_memory_id, document_id
from palimpsest.schemas.memory_texts import embedding_key
from palimpsest.schemas.messages import CommandIntent, ForgetChunksIntent, MemoryChange, MemoryWrite
from palimpsest.schemas.normal_forms import content_hash, normalized_content, storage_content
from palimpsest.schemas.rows import (
    DOCUMENT_CHUNK,
    CommandRow,
    DocumentMemoryRow,
    DocumentRow,
    MemoryRow,
    same_key,
)
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.streams.apply.command_work import (
    Refused,
    Work,
    command_id,
    done,
    known_id,
    refusal,
    refuse_frozen,
)
from palimpsest.streams.apply.outcomes import changes, load_names
from palimpsest.streams.memory_rows import archived, changed, deleted, effective, protected
from palimpsest.streams.privacy import PRIVATE_SCOPE, is_withheld, refuse_in_private_scope
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.stage import Answer, Ask, Embed, Embedded, Emit, Message, Step
from palimpsest.streams.store_port import Documents, Load, LoadDocuments, Loaded, Put

CHUNK_IMPORTANCE = 0.3
FORGOTTEN_AT_ONCE = 25
"""Maximum number of chunks per step: their outcomes form one record."""
FROZEN = "frozen: memory was not to be changed when the text came; add the document again"
CHANGED = "changed: the page said something else while it was taken in; add it again"

Asking = Generator[Ask, Answer, Step]


def add_step(
    message: Message, intent: CommandIntent, command: AddDocumentCommand, settings: StageSettings
) -> Asking:
    """Returns the new document, or the existing equal one: a URL is compared by its address, other
    documents by their text."""
    if intent.error is not None:
        return refusal(message, intent, intent.error)
    key = same_key(command.kind, command.source, command.digest)
    found = yield LoadDocuments(message.scope, same_keys=(key,))
    assert isinstance(found, Documents)
    work = yield from _work(message, intent, settings, command_id=command_id(message))
    if work.loaded.command is not None and work.loaded.command.error is None:
        return known_id(work.loaded.command, intent.digest)
    try:
        refuse_frozen(work)
        refuse_in_private_scope(work)
    except Refused as error:
        return refusal(message, intent, str(error))
    same = found.by_key.get(key)
    if same is not None:
        return done(work, command, {"id": same.document_id, "deduped": True})
    row = DocumentRow(
        document_id=document_id(message.scope, command_id(message)),
        scope=message.scope,
        kind=command.kind,
        source=command.source,
        title=command.title,
        same_key=key,
        digest=command.digest,
        content_type=command.content_type,
        characters=command.characters,
        chunk_characters=command.chunk_characters,
        chunk_overlap=command.chunk_overlap,
        chunks=command.chunks,
        added_by=intent.actor.id,
        created_at=message.recorded,
        updated_at=message.recorded,
    )
    work.writes.append(Put(row))
    return done(work, command, {"id": row.document_id, "deduped": False})


def text_step(message: Message, text: DocumentTextCommand, settings: StageSettings) -> Asking:
    """Stores the next chunks of a document, or records why it has no text. Chunks out of order, or
    of a document that does not wait for them, have no effect."""
    embedded = yield Embed(text.chunks)
    assert isinstance(embedded, Embedded)
    key = same_key("text", None, text.digest)
    found = yield LoadDocuments(message.scope, ids=(text.document_id,), same_keys=(key,))
    assert isinstance(found, Documents)
    row = found.by_id.get(text.document_id) or found.by_key.get(key)
    if row is None or row.deleted_at is not None or row.error is not None:
        return Step()
    if text.error is not None:
        return _failed(message, row, text.error) if row.chunks is None else Step()
    if row.chunks is None:
        row = _fetched(row, text)
    elif (row.digest, row.chunks) != (text.digest, text.total):
        waits = row.kind == "url" and row.taken < row.chunks
        return _failed(message, row, CHANGED) if waits and text.first == 0 else Step()
    if text.first != row.taken:
        return Step()
    ids = tuple(chunk_memory_id(row.document_id, content_hash(each)) for each in text.chunks)
    intent = CommandIntent(actor=Actor(id=row.added_by, type="system"))
    work = yield from _work(message, intent, settings, ids, text.chunks)
    if effective(settings.pipeline, work.loaded.flags).mutations_frozen:
        return _failed(message, row, FROZEN)
    if is_withheld(work.loaded.privacy, ""):
        return _failed(message, row, PRIVATE_SCOPE)
    work.embeddings = dict(zip(text.chunks, embedded.embeddings, strict=True))
    for number, memory_id in enumerate(ids):
        _store(work, row, memory_id, text.chunks[number], text.first + number)
    row = replace(row, taken=row.taken + len(ids), updated_at=message.recorded)
    change_emits = changes(MemoryChange(outcomes=tuple(work.outcomes)), work.touched)
    return Step(writes=(*work.writes, Put(row)), emits=change_emits if work.outcomes else ())


def _fetched(row: DocumentRow, text: DocumentTextCommand) -> DocumentRow:
    """The document once its text was fetched."""
    return replace(
        row,
        digest=text.digest,
        chunks=text.total,
        characters=text.characters,
        title=row.title or text.title,
        content_type=text.content_type,
    )


def _store(work: Work, document: DocumentRow, memory_id: str, text: str, position: int) -> None:
    """Stores the memory of a chunk, unless an earlier chunk of the document has the same text."""
    link = DocumentMemoryRow(
        document_id=document.document_id,
        position=position,
        memory_id=memory_id,
        scope=document.scope,
    )
    work.writes.append(Put(link))
    if memory_id in work.memories:
        return
    stored = storage_content(text)
    where: dict[str, JsonValue] = {"document_id": document.document_id, "position": position}
    row = work.put(
        MemoryRow(
            memory_id=memory_id,
            scope=document.scope,
            type=DOCUMENT_CHUNK,
            content=stored,
            normalized_content=normalized_content(stored),
            content_hash=content_hash(stored),
            dedup_key=None,
            embedding_key=embedding_key(stored),
            importance=CHUNK_IMPORTANCE,
            confidence=1.0,
            tags=(document.title,) if document.title else (),
            why="document",
            source_type="document",
            source_id=document.document_id,
            occurred_at=work.message.occurred_at,
            created_at=work.at,
            updated_at=work.at,
            updated_by=document.added_by,
            metadata=json.dumps(where, sort_keys=True),
        )
    )
    work.tell("created", row.memory_id, "document", after=row, metadata=where)


def _failed(message: Message, row: DocumentRow, error: str) -> Step:
    """Stores the document with its error; its existing chunks are forgotten."""
    failed = replace(row, error=error, same_key=None, updated_at=message.recorded)
    emits: tuple[Emit, ...] = ()
    if row.taken:
        actor = Actor(id=row.added_by, type="system")
        intent = ForgetChunksIntent(document_id=row.document_id, reason=error, actor=actor)
        emits = (_forget(message, intent),)
    return Step(writes=(Put(failed),), emits=emits)


def delete_step(
    message: Message, intent: CommandIntent, command: DeleteDocumentCommand, settings: StageSettings
) -> Asking:
    """Marks the document as deleted, and starts forgetting its chunks; the last of these steps
    answers the command."""
    if intent.error is not None:
        return refusal(message, intent, intent.error)
    found = yield LoadDocuments(message.scope, ids=(command.document_id,))
    assert isinstance(found, Documents)
    work = yield from _work(message, intent, settings, command_id=command_id(message))
    if work.loaded.command is not None and work.loaded.command.error is None:
        return known_id(work.loaded.command, intent.digest)
    row = found.by_id.get(command.document_id)
    try:
        refuse_frozen(work)
        if row is None:
            raise Refused(f"not_found: there is no document {command.document_id} in this scope")
    except Refused as error:
        return refusal(message, intent, str(error))
    if row.deleted_at is not None or row.taken == 0:
        if row.deleted_at is None:
            work.writes.append(Put(_deleted(message, row)))
        return done(work, command, _result(row.document_id, 0, 0))
    forgetting = ForgetChunksIntent(
        document_id=row.document_id,
        reason=command.reason,
        actor=intent.actor,
        command_id=command_id(message),
        digest=intent.digest,
    )
    return Step(writes=(Put(_deleted(message, row)),), emits=(_forget(message, forgetting),))


def _deleted(message: Message, row: DocumentRow) -> DocumentRow:
    at = message.recorded
    return replace(row, deleted_at=at, updated_at=at, same_key=None)


def _forget(message: Message, intent: ForgetChunksIntent) -> Emit:
    assert isinstance(message.body, MemoryWrite)
    write = MemoryWrite(write=intent, settings=message.body.settings)
    return Emit(MEMORY_WRITES, write, "forget-chunks")


def forget_chunks_step(
    message: Message, intent: ForgetChunksIntent, settings: StageSettings
) -> Asking:
    """Forgets some chunks of a document; pinned and confirmed ones stay."""
    found = yield LoadDocuments(
        message.scope,
        chunks_of=intent.document_id,
        after=intent.after,
        limit=FORGOTTEN_AT_ONCE,
    )
    assert isinstance(found, Documents)
    ids = tuple(dict.fromkeys(memory_id for _, memory_id in found.chunks))
    work = yield from _work(message, CommandIntent(actor=intent.actor), settings, ids)
    forgotten, kept = intent.forgotten, intent.kept
    for memory_id in ids:
        row = work.memories.get(memory_id)
        if row is None or row.is_deleted:
            continue
        if protected(row):
            kept += 1
            continue
        work.writes.append(Put(archived(row, "forgotten", work.at)))
        gone = work.put(deleted(changed(row, work.at, intent.actor.id, 0), work.at))
        work.tell("deleted", memory_id, intent.reason, row, gone)
        forgotten += 1
    emits: list[Emit] = []
    if work.outcomes:
        emits += changes(MemoryChange(outcomes=tuple(work.outcomes)), work.touched)
    if len(found.chunks) == FORGOTTEN_AT_ONCE:
        after = found.chunks[-1][0]
        counted = {"after": after, "forgotten": forgotten, "kept": kept}
        emits.append(_forget(message, intent.model_copy(update=counted)))
    elif intent.command_id is not None:
        work.writes.append(Put(_answer(message, intent, forgotten, kept)))
    return Step(writes=tuple(work.writes), emits=tuple(emits))


def _answer(message: Message, intent: ForgetChunksIntent, forgotten: int, kept: int) -> CommandRow:
    assert intent.command_id is not None
    return CommandRow(
        command_id=intent.command_id,
        scope=message.scope,
        command="delete-document",
        error=None,
        result=json.dumps(_result(intent.document_id, forgotten, kept), sort_keys=True),
        recorded_at=message.recorded,
        digest=intent.digest,
    )


def _result(document: str, forgotten: int, kept: int) -> dict[str, JsonValue]:
    """`kept` counts the chunks that are pinned or confirmed."""
    return {"id": document, "status": "deleted", "forgotten": forgotten, "kept": kept}


def _work(
    message: Message,
    intent: CommandIntent,
    settings: StageSettings,
    memory_ids: tuple[str, ...] = (),
    texts: Sequence[str] = (),
    command_id: str | None = None,
) -> Generator[Ask, Answer, Work]:
    """Loads these memories and the names in these texts."""
    names = load_names(message.scope, texts) if texts else Load(message.scope)
    loaded = yield replace(names, memory_ids=memory_ids, command_id=command_id)
    assert isinstance(loaded, Loaded)
    return Work.begun(message, intent, settings, loaded)
