"""Commands about documents, and what becomes of a document's text on its way."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from palimpsest.schemas.envelope import Frozen

DocumentKind = Literal["text", "url", "file"]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

CHUNK_CHARACTERS = 2_000
CHUNK_OVERLAP = 200


class AddDocumentCommand(Frozen):
    """Take a document in. `source` is the address of a URL or the name of a file.

    Without `text`, that of a URL is fetched; of others it follows as `document-text` commands,
    `chunks` chunks in all, and `digest` tells which text it is. The size and the overlap of chunks
    are in characters: they stand here so that the same log always gives the same chunks.
    """

    command: Literal["add-document"] = "add-document"
    kind: DocumentKind
    source: str | None = Field(default=None, max_length=2_048)
    title: str = Field(default="", max_length=512)
    text: str | None = None
    digest: Digest | None = None
    chunks: int | None = Field(default=None, ge=1)
    characters: int | None = Field(default=None, ge=1)
    content_type: str | None = Field(default=None, max_length=256)
    chunk_characters: int = Field(default=CHUNK_CHARACTERS, ge=200, le=8_000)
    chunk_overlap: int = Field(default=CHUNK_OVERLAP, ge=0, le=2_000)


class DocumentTextCommand(Frozen):
    """Some chunks of a document's text, from chunk number `first` on of `total`; or, with `error`,
    why there is no text."""

    command: Literal["document-text"] = "document-text"
    document_id: str = Field(min_length=1, max_length=64)
    digest: Digest | None = None
    first: int = Field(default=0, ge=0)
    total: int | None = Field(default=None, ge=1)
    characters: int | None = Field(default=None, ge=1)
    chunks: tuple[str, ...] = ()
    title: str = Field(default="", max_length=512)
    content_type: str | None = Field(default=None, max_length=256)
    error: str | None = Field(default=None, max_length=2_000)


class DeleteDocumentCommand(Frozen):
    """Forget a document with all its chunks, but those that are pinned or confirmed."""

    command: Literal["delete-document"] = "delete-document"
    document_id: str = Field(min_length=1, max_length=64)
    reason: str = Field(pattern=r"\S", max_length=2_000)
