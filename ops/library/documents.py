"""The library's methods for documents, and what they answer."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from palimpsest.ops.documents.adding import file_document, text_document, url_document
from palimpsest.ops.library.arguments import checked
from palimpsest.ops.library.opened import Opened
from palimpsest.ops.library.results import NotYetAppliedError, typed
from palimpsest.ops.queries.document_errors import no_document
from palimpsest.ops.queries.errors import RequestError
from palimpsest.ops.queries.requests import DocumentRequest, DocumentsRequest
from palimpsest.schemas.document_commands import AddDocumentCommand, DeleteDocumentCommand

ENDS = ("done", "failed", "deleted")
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Document:
    """A document with how far it has come; `error` tells why it failed."""

    id: str
    scope: str
    kind: str
    source: str | None
    title: str
    status: str
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
    """Documents, the newest first; `next` is the `before` of the page after, None at the end."""

    documents: tuple[Document, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class DeletedDocument:
    """How many chunks were forgotten, and how many kept, as they are pinned or confirmed."""

    id: str
    status: str
    forgotten: int
    kept: int


@dataclass(frozen=True, slots=True)
class _Added:
    id: str
    deduped: bool


class Documents(Opened):
    """Adding, showing and deleting documents."""

    async def add_document(
        self,
        text: str | None = None,
        *,
        url: str | None = None,
        path: str | Path | None = None,
        title: str = "",
        scope: str | None = None,
        wait: bool = True,
    ) -> Document:
        """Add a text, a URL, or a file of this machine; with `wait` it is `done` or `failed` when
        this returns. The same URL or text again is the same document. Raises RequestError for what
        is no text, and NotYetAppliedError where it takes longer than `wait_seconds`.

        >>> manual = await memory.add_document("The kettle holds two litres.", title="Kettle")
        >>> manual.status, manual.chunks
        ('done', 1)
        """
        order = await asyncio.to_thread(self._given, text, url, path, title)
        deadline = time.monotonic() + self.wait_seconds
        added = typed(_Added, await self._carry_out(order, scope, None))
        while True:
            found = await self.document(added.id, scope=scope)
            if not wait or found.status in ENDS:
                return found
            if time.monotonic() > deadline:
                raise NotYetAppliedError(
                    f"document {found.id} is {found.status} after {self.wait_seconds:g} s, and goes"
                    " on"
                )
            await asyncio.sleep(POLL_SECONDS)

    def _given(
        self, text: str | None, url: str | None, path: str | Path | None, title: str
    ) -> AddDocumentCommand:
        settings = self.background.documents
        if sum(each is not None for each in (text, url, path)) != 1:
            raise RequestError("give one of text, url and path")
        if url is not None:
            return url_document(url, title, settings)
        if path is not None:
            return file_document(Path(path), title, settings)
        data = (text or "").encode(errors="replace")
        return text_document(data, settings, title=title, charset="utf-8")

    async def documents(
        self,
        *,
        status: str | None = None,
        limit: int = 20,
        before: str | None = None,
        scope: str | None = None,
    ) -> DocumentPage:
        """Documents, newest first, page by page.

        >>> [each.title for each in (await memory.documents()).documents]
        ['Kettle']
        """
        where = {"scope": self._in(scope), "status": status, "limit": limit, "before": before}
        return typed(DocumentPage, await self._ask(checked(DocumentsRequest, **where)))

    async def document(self, document_id: str, *, scope: str | None = None) -> Document:
        """One document by its id or the first 8 characters of it, also a deleted one. Raises
        NotFoundError.

        >>> (await memory.document((await memory.documents()).documents[0].id)).kind
        'text'
        """
        found = typed(Document, await self._ask(DocumentRequest(document_id)))
        if found.scope != self._in(scope):
            raise no_document(document_id)
        return found

    async def delete_document(
        self, document_id: str, *, reason: str, scope: str | None = None
    ) -> DeletedDocument:
        """Forget a document with its chunks, but those that are pinned or confirmed.

        >>> kettle = (await memory.documents()).documents[0]
        >>> (await memory.delete_document(kettle.id, reason="sold")).forgotten
        1
        """
        full = (await self.document(document_id, scope=scope)).id
        order = checked(DeleteDocumentCommand, document_id=full, reason=reason)
        return typed(DeletedDocument, await self._carry_out(order, scope, None))
