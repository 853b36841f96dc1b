"""Executes document commands: ingests documents chunk by chunk, and forgets them."""

from __future__ import annotations

import json
from dataclasses import replace

from pydantic import JsonValue

from palimpsest.schemas.commands import (
    AddDocumentCommand,
    DeleteDocumentCommand,
    DocumentTextCommand,
)
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.identity import chunk_memory_id, document_id
from palimpsest.schemas.messages import CommandIntent, ForgetChunksIntent
from palimpsest.schemas.normal_forms import content_hash
from palimpsest.schemas.rows.columns import row_of
from palimpsest.schemas.rows.memories import DOCUMENT_CHUNK, MemoryRow
from palimpsest.schemas.rows.pipeline import DocumentMemoryRow, DocumentRow, same_key
from palimpsest.streams.apply.command_work import (
    Refused,
    Work,
    command_id,
    continued,
    load_names,
    refuse_frozen,
)
from palimpsest.streams.apply.privacy import PRIVATE_SCOPE, refuse_in_private_scope
from palimpsest.streams.memory_rows import answer_row, protected, text_columns
from palimpsest.streams.privacy import is_withheld
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.stage import Asking, Embed, Emit, Message, Step
from palimpsest.streams.store_port import LoadDocuments, Put

CHUNK_IMPORTANCE = 0.3
FORGOTTEN_AT_ONCE = 25
"""Maximum number of chunks per step: their outcomes form one record."""
FROZEN = "frozen: memory was not to be changed when the text came; add the document again"
CHANGED = "changed: the page said something else while it was taken in; add it again"


def add_document(work: Work, command: AddDocumentCommand) -> Asking[JsonValue]:
    """Returns the new document, or the existing equal one: a URL is compared by its address, other
    documents by their text."""
    key = same_key(command.kind, command.source, command.digest)
    found = yield from LoadDocuments(work.scope, same_keys=(key,))
    yield from work.begin()
    refuse_frozen(work)
    refuse_in_private_scope(work)
    same = found.by_key.get(key)
    if same is not None:
        return {"id": same.document_id, "deduped": True}
    row = row_of(
        DocumentRow,
        command,
        document_id=document_id(work.scope, command_id(work.message)),
        scope=work.scope,
        same_key=key,
        added_by=work.intent.actor.id,
        created_at=work.at,
        updated_at=work.at,
    )
    work.writes.append(Put(row))
    return {"id": row.document_id, "deduped": False}


def text_step(message: Message, text: DocumentTextCommand, settings: StageSettings) -> Asking[Step]:
    """Stores the next chunks of a document, or records why it has no text. Chunks out of order, or
    of a document that does not wait for them, have no effect."""
    embedded = yield from Embed(text.chunks)
    key = same_key("text", None, text.digest)
    found = yield from LoadDocuments(message.scope, ids=(text.document_id,), same_keys=(key,))
    row = found.by_id.get(text.document_id) or found.by_key.get(key)
    if row is None or row.deleted_at is not None or row.error is not None:
        return Step()
    if text.error is not None:
        return _failed(message, row, text.error) if row.chunks is None else Step()
    if row.chunks is None:
        row = replace(
            row,
            digest=text.digest,
            chunks=text.total,
            characters=text.characters,
            title=row.title or text.title,
            content_type=text.content_type,
        )
    elif (row.digest, row.chunks) != (text.digest, text.total):
        waits = row.kind == "url" and row.taken < row.chunks
        return _failed(message, row, CHANGED) if waits and text.first == 0 else Step()
    if text.first != row.taken:
        return Step()
    ids = tuple(chunk_memory_id(row.document_id, content_hash(each)) for each in text.chunks)
    intent = CommandIntent(actor=Actor(id=row.added_by, type="system"))
    work = Work(message, settings, intent)
    yield from work.load(ids, load_names(message.scope, text.chunks))
    if work.flags.mutations_frozen:
        return _failed(message, row, FROZEN)
    if is_withheld(work.loaded.privacy, ""):
        return _failed(message, row, PRIVATE_SCOPE)
    work.embeddings = dict(zip(text.chunks, embedded.embeddings, strict=True))
    for number, memory_id in enumerate(ids):
        _store(work, row, memory_id, text.chunks[number], text.first + number)
    row = replace(row, taken=row.taken + len(ids), updated_at=message.recorded)
    return Step(writes=(*work.writes, Put(row)), emits=work.changes())


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
    where: dict[str, JsonValue] = {"document_id": document.document_id, "position": position}
    row = work.put(
        row_of(
            MemoryRow,
            link,
            **text_columns(document.scope, DOCUMENT_CHUNK, text),
            type=DOCUMENT_CHUNK,
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
    work.record_outcome("created", row.memory_id, "document", after=row, metadata=where)


def _failed(message: Message, row: DocumentRow, error: str) -> Step:
    """Stores the document with its error; its existing chunks are forgotten."""
    failed = replace(row, error=error, same_key=None, updated_at=message.recorded)
    emits: tuple[Emit, ...] = ()
    if row.taken:
        actor = Actor(id=row.added_by, type="system")
        intent = ForgetChunksIntent(document_id=row.document_id, reason=error, actor=actor)
        emits = (continued(message, intent, "forget-chunks"),)
    return Step(writes=(Put(failed),), emits=emits)


def delete_document(work: Work, command: DeleteDocumentCommand) -> Asking[JsonValue | Step]:
    """Marks the document as deleted, and starts forgetting its chunks; the last of these steps
    answers the command."""
    message = work.message
    found = yield from LoadDocuments(work.scope, ids=(command.document_id,))
    yield from work.begin()
    row = found.by_id.get(command.document_id)
    refuse_frozen(work)
    if row is None:
        raise Refused(f"not_found: there is no document {command.document_id} in this scope")
    if row.deleted_at is not None or row.taken == 0:
        if row.deleted_at is None:
            work.writes.append(Put(_deleted(message, row)))
        return _result(row.document_id, 0, 0)
    forgetting = ForgetChunksIntent(
        document_id=row.document_id,
        reason=command.reason,
        actor=work.intent.actor,
        command_id=command_id(message),
        digest=work.intent.digest,
    )
    return Step(
        writes=(Put(_deleted(message, row)),),
        emits=(continued(message, forgetting, "forget-chunks"),),
    )


def _deleted(message: Message, row: DocumentRow) -> DocumentRow:
    at = message.recorded
    return replace(row, deleted_at=at, updated_at=at, same_key=None)


def forget_chunks_step(
    message: Message, intent: ForgetChunksIntent, settings: StageSettings
) -> Asking[Step]:
    """Forgets some chunks of a document; pinned and confirmed ones stay."""
    found = yield from LoadDocuments(
        message.scope, chunks_of=intent.document_id, after=intent.after, limit=FORGOTTEN_AT_ONCE
    )
    ids = tuple(dict.fromkeys(memory_id for _, memory_id in found.chunks))
    work = Work(message, settings, CommandIntent(actor=intent.actor))
    yield from work.load(ids)
    forgotten, kept = intent.forgotten, intent.kept
    for memory_id in ids:
        row = work.memories.get(memory_id)
        if row is None or row.is_deleted:
            continue
        if protected(row):
            kept += 1
            continue
        work.remove(row, intent.reason, archive="forgotten")
        forgotten += 1
    emits = [*work.changes()]
    if len(found.chunks) == FORGOTTEN_AT_ONCE:
        after = found.chunks[-1][0]
        counted = {"after": after, "forgotten": forgotten, "kept": kept}
        next_some = intent.model_copy(update=counted)
        emits.append(continued(message, next_some, "forget-chunks"))
    elif intent.command_id is not None:
        result = _result(intent.document_id, forgotten, kept)
        answer = answer_row(message, intent.command_id, "delete-document", intent.digest, result)
        work.writes.append(Put(answer))
    return Step(writes=tuple(work.writes), emits=tuple(emits))


def _result(document: str, forgotten: int, kept: int) -> dict[str, JsonValue]:
    """`kept` counts the chunks that are pinned or confirmed."""
    return {"id": document, "status": "deleted", "forgotten": forgotten, "kept": kept}
