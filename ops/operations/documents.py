"""Documents: adding, listing, showing and deleting them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from palimpsest.ops.errors import RequestError, no_document
from palimpsest.ops.operations.answers import Applied
from palimpsest.ops.operations.operation import (
    AnyScope,
    Ask,
    Cursor,
    Doc,
    Json,
    Limit,
    Read,
    RequiredReason,
    Scope,
    ScopeOfId,
    Surface,
    Write,
)
from palimpsest.ops.operations.rows import all_rows, by_id, cursor, page, paged, rows

if TYPE_CHECKING:
    from palimpsest.ops.operations.rows import Row
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.ops.sources import Sources
    from palimpsest.schemas.commands import Command

_SURFACE = partial(Surface, tag="documents", panel="Data in and out")

DocumentId = Annotated[
    str,
    Doc(
        "a document's id, or its first 8 characters (whole over HTTP)",
        min_length=1,
        max_length=64,
        argument=True,
        metavar="ID",
    ),
]
Status = Literal[
    "queued", "extracting", "chunking", "embedding", "indexing", "done", "failed", "deleted"
]
ContentType = Literal[
    "text/plain", "text/markdown", "text/html", "application/json", "application/xml"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedDocument(Applied):
    """The document; `deduped`: it already existed."""

    id: str
    deduped: bool


@dataclass(frozen=True, slots=True)
class AddDocument(Write[AddedDocument]):
    """Add a document: a text, or a URL to fetch.

    Its chunks become memories shortly after; `status` shows the progress. Adding the same URL or
    text again returns the same document: `deduped`.
    """

    text: Annotated[str | None, Doc("the text", min_length=1, not_blank=True)] = None
    url: Annotated[str | None, Doc("the URL to fetch", min_length=1, max_length=2_048)] = None
    name: Annotated[str | None, Doc("file name of the text", min_length=1, max_length=256)] = None
    title: Annotated[
        str, Doc("its title; by default that of the content, else its name", max_length=512)
    ] = ""
    content_type: Annotated[
        ContentType | None, Doc("media type of the text; boilerplate is removed from HTML")
    ] = None
    is_read: Annotated[bool, Doc("the text has no markup", surfaces=("library",))] = False
    scope: Scope = ""

    surface: ClassVar = Surface(("POST", "/api/documents"), tag="documents", permission="remember")

    def validate(self) -> None:
        if (self.text is None) == (self.url is None):
            raise RequestError("give a text or a url")
        if self.url is not None and (self.name or self.content_type):
            raise RequestError("name and content_type are of a text")

    async def command(self, ask: Ask, settings: Settings) -> Command:
        import asyncio

        from palimpsest.ops.documents.adding import read_document, text_document, url_document

        if self.url is not None:
            return url_document(self.url, self.title, settings.documents)
        if self.is_read:
            return read_document(
                self.text, settings.documents, self.name, self.title, self.content_type
            )
        data = (self.text or "").encode(errors="replace")
        return await asyncio.to_thread(
            text_document,
            data,
            settings.documents,
            self.name,
            self.title,
            self.content_type,
            "utf-8",
        )


@dataclass(frozen=True, slots=True)
class Document:
    """A document with its progress. `chunks` is None until its text is known; `error` says why it
    failed."""

    id: str
    scope: str
    kind: str
    source: str | None
    title: str
    status: Status
    error: str | None
    content_type: str | None
    characters: int | None
    chunks: int | None
    added_by: str
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """Documents, newest first; `next_cursor` is None on the last page."""

    documents: tuple[Document, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Documents(Read[DocumentPage]):
    """List documents with their progress, newest first.

    Example: palimpsest documents list --scope support --status failed
    """

    scope: AnyScope = None
    status: Annotated[
        Status | None, Doc("only with this status; by default all but deleted documents")
    ] = None
    limit: Limit = 20
    cursor: Cursor = None

    surface: ClassVar = _SURFACE(("GET", "/api/documents"), command="documents list")

    def read(self, sources: Sources) -> Json:
        conditions = ["status = ?" if self.status else "status <> ?"]
        values: list[object] = [self.status or "deleted"]
        if self.scope is not None:
            conditions.append("scope = ?")
            values.append(self.scope)
        if self.cursor is not None:
            conditions.append("(created_at, document_id) < (?::TIMESTAMPTZ, ?)")
            values += cursor(self.cursor)
        found = all_rows(
            sources,
            f"{_DOCUMENT} WHERE {' AND '.join(conditions)}"
            f" ORDER BY created_at DESC, document_id DESC LIMIT {int(self.limit) + 1}",
            values,
        )
        return page(found, self.limit, "documents", _NEWEST)

    def merge(self, answers: Sequence[Json]) -> Json:
        return paged(answers, self.limit, "documents", _NEWEST)


_DOCUMENT = (
    "SELECT document_id AS id, scope, kind, source, title, status, error, content_type, characters,"
    " chunks, added_by, created_at, updated_at, deleted_at FROM documents"
)
_NEWEST = ("created_at", "id")
"""Sort key of a page of documents."""


def _found(sources: Sources, document_id: str) -> tuple[int, Row]:
    """The partition and row of the document with this id or 8-character prefix."""
    return by_id(sources, _DOCUMENT, "document_id", document_id, no_document(document_id))


@dataclass(frozen=True, slots=True)
class GetDocument(Read[Document]):
    """Show one document with its progress, even a deleted one.

    Example: palimpsest documents show 7f21c3d0
    """

    document_id: DocumentId
    scope: ScopeOfId = None

    surface: ClassVar = _SURFACE(
        ("GET", "/api/documents/{document_id}"), command="documents show", routing="id"
    )

    def read(self, sources: Sources) -> Json:
        return _found(sources, self.document_id)[1]


@dataclass(frozen=True, slots=True)
class DocumentChunk:
    """A chunk of a document; `id` is that of its memory."""

    position: int
    id: str
    content: str
    is_deleted: bool


@dataclass(frozen=True, slots=True)
class ChunkPage:
    """Chunks of a document, in order; `next_cursor` is None on the last page."""

    id: str
    chunks: tuple[DocumentChunk, ...]
    next_cursor: int | None


@dataclass(frozen=True, slots=True)
class DocumentChunks(Read[ChunkPage]):
    """List the chunks of a document in order with their memories' ids, including forgotten ones.

    Example: palimpsest documents chunks 7f21c3d0
    """

    document_id: DocumentId
    scope: ScopeOfId = None
    limit: Limit = 100
    cursor: Annotated[int | None, Doc("the `next_cursor` of the previous page", ge=0, le=2**31)] = (
        None
    )

    surface: ClassVar = _SURFACE(
        ("GET", "/api/documents/{document_id}/chunks"), command="documents chunks", routing="id"
    )

    def read(self, sources: Sources) -> Json:
        partition, document = _found(sources, self.document_id)
        after = -1 if self.cursor is None else self.cursor
        found = rows(
            sources.shard(partition),
            "SELECT l.position, l.memory_id AS id, m.content, m.is_deleted FROM document_memories l"
            " JOIN memory_rows m ON m.memory_id = l.memory_id AND m.scope = l.scope"
            " WHERE l.document_id = ? AND l.scope = ? AND l.position > ?"
            " ORDER BY l.position LIMIT ?",
            [document["id"], document["scope"], after, self.limit + 1],
        )
        shown = found[: self.limit]
        more = len(found) > len(shown)
        return {
            "id": document["id"],
            "chunks": shown,
            "next_cursor": shown[-1]["position"] if more else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedDocument(Applied):
    """How many chunks were forgotten, and how many kept because they are pinned or confirmed."""

    id: str
    status: str
    forgotten: int
    kept: int


@dataclass(frozen=True, slots=True)
class DeleteDocument(Write[DeletedDocument]):
    """Forget a document with its chunks, except those that are pinned or confirmed.

    Example: palimpsest documents delete 7f21c3d0 --reason "outdated"
    """

    document_id: DocumentId
    reason: RequiredReason = "deleted by hand"
    scope: ScopeOfId = None

    surface: ClassVar = _SURFACE(
        ("DELETE", "/api/documents/{document_id}"),
        command="documents delete",
        permission="forget",
        routing="id",
        rate="delete",
    )

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.schemas.commands import DeleteDocumentCommand

        return DeleteDocumentCommand(document_id=self.document_id, reason=self.reason)
