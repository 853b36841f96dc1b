"""Documents: adding, listing, showing and deleting them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from palimpsest.ops.errors import RequestError, no_document
from palimpsest.ops.operations import shared
from palimpsest.ops.operations.answers import Applied
from palimpsest.ops.operations.operation import Answer, Ask, Doc, Json, Read, Surface, Write
from palimpsest.ops.reading.rows import Row, all_rows, by_id, cursor, page, paged, rows, where

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.schemas.commands import Command

_SURFACE = partial(Surface, tag="documents", panel="Data in and out")

DocumentId = Annotated[
    str, shared.id_doc("a document's id, or its first 8 characters (whole over HTTP)")
]
Status = Literal[
    "queued", "extracting", "chunking", "embedding", "indexing", "done", "failed", "deleted"
]
ContentType = Literal[
    "text/plain", "text/markdown", "text/html", "application/json", "application/xml"
]


class AddedDocument(Applied, kw_only=True):
    """The document; `deduped`: it already existed."""

    id: str
    deduped: bool


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
    scope: shared.Scope = ""

    surface: ClassVar = Surface(("POST", "/api/documents"), tag="documents", permission="remember")

    def validate(self) -> None:
        if (self.text is None) == (self.url is None):
            raise RequestError("give a text or a url")
        if self.url is not None and (self.name or self.content_type):
            raise RequestError("name and content_type are of a text")

    async def command(self, ask: Ask, settings: Settings) -> Command:
        import asyncio

        from palimpsest.ops.documents.adding import text_document, text_fields, url_document

        known = settings.documents
        if self.url is not None:
            return url_document(self.url, self.title, known)
        about = (self.name, self.title, self.content_type)
        if self.is_read:
            return text_document(known, self.text, *about)
        data = (self.text or "").encode(errors="replace")
        fields = await asyncio.to_thread(text_fields, data, known, *about, "utf-8")
        return text_document(known, **fields)


class Document(Answer):
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


class DocumentPage(Answer):
    """Documents, newest first; `next_cursor` is None on the last page."""

    documents: tuple[Document, ...]
    next_cursor: str | None


class Documents(Read[DocumentPage]):
    """List documents with their progress, newest first.

    Example: palimpsest documents list --scope support --status failed
    """

    scope: shared.AnyScope = None
    status: Annotated[
        Status | None, Doc("only with this status; by default all but deleted documents")
    ] = None
    limit: shared.Limit = 20
    cursor: shared.Cursor = None

    surface: ClassVar = _SURFACE(("GET", "/api/documents"), command="documents list")

    def read(self, sources: Sources) -> Json:
        status = "status = ?" if self.status else "status <> ?"
        condition, values = where([(status, self.status or "deleted"), ("scope = ?", self.scope)])
        if self.cursor is not None:
            condition += " AND (created_at, document_id) < (?::TIMESTAMPTZ, ?)"
            values += cursor(self.cursor)
        found = all_rows(
            sources,
            f"{_DOCUMENT} WHERE {condition}"
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


class GetDocument(Read[Document]):
    """Show one document with its progress, even a deleted one.

    Example: palimpsest documents show 7f21c3d0
    """

    document_id: DocumentId
    scope: shared.ScopeOfId = None

    surface: ClassVar = _SURFACE(
        ("GET", "/api/documents/{document_id}"), command="documents show", routing="id"
    )

    def read(self, sources: Sources) -> Json:
        return _found(sources, self.document_id)[1]


class DocumentChunk(Answer):
    """A chunk of a document; `id` is that of its memory."""

    position: int
    id: str
    content: str
    is_deleted: bool


class ChunkPage(Answer):
    """Chunks of a document, in order; `next_cursor` is None on the last page."""

    id: str
    chunks: tuple[DocumentChunk, ...]
    next_cursor: int | None


class DocumentChunks(Read[ChunkPage]):
    """List the chunks of a document in order with their memories' ids, including forgotten ones.

    Example: palimpsest documents chunks 7f21c3d0
    """

    document_id: DocumentId
    scope: shared.ScopeOfId = None
    limit: shared.Limit = 100
    cursor: shared.NumberCursor = None

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


class DeletedDocument(Applied, kw_only=True):
    """How many chunks were forgotten, and how many kept because they are pinned or confirmed."""

    id: str
    status: str
    forgotten: int
    kept: int


class DeleteDocument(Write[DeletedDocument]):
    """Forget a document with its chunks, except those that are pinned or confirmed.

    Example: palimpsest documents delete 7f21c3d0 --reason "outdated"
    """

    document_id: DocumentId
    reason: shared.RequiredReason = "deleted by hand"
    scope: shared.ScopeOfId = None

    body: ClassVar = "DeleteDocumentCommand"
    surface: ClassVar = _SURFACE(
        ("DELETE", "/api/documents/{document_id}"),
        command="documents delete",
        permission="forget",
        routing="id",
        rate="delete",
    )
