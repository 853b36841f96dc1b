"""What requests about documents may say, and what they are answered."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, model_validator

from palimpsest.ops.http.answers import Done
from palimpsest.ops.http.bodies import Cursor, Limit, OwnScope, Said
from palimpsest.ops.http.command_bodies import Reason
from palimpsest.schemas.document_commands import DocumentKind
from palimpsest.schemas.envelope import Scope

Status = Literal[
    "queued",
    "extracting",
    "chunking",
    "embedding",
    "indexing",
    "done",
    "failed",
    "deleted",
]
Wait = Annotated[
    float | None,
    Field(ge=0, le=60, description="seconds to wait for the result; else as set"),
]


class DocumentBody(Said):
    """A text, or the URL of one. A text with a name is a file."""

    text: str | None = Field(default=None, min_length=1, pattern=r"\S")
    url: str | None = Field(default=None, min_length=1, max_length=2_048)
    name: str | None = Field(default=None, min_length=1, max_length=256)
    title: str = Field(default="", max_length=512, description="else what the text calls itself")
    content_type: (
        Literal["text/plain", "text/markdown", "text/html", "application/json", "application/xml"]
        | None
    ) = Field(default=None, description="of the text; HTML is freed of its boilerplate")
    scope: OwnScope = None

    @model_validator(mode="after")
    def _one(self) -> DocumentBody:
        if (self.text is None) == (self.url is None):
            raise ValueError("give a text or a url")
        if self.url is not None and (self.name or self.content_type):
            raise ValueError("name and content_type are of a text")
        return self


class DocumentsParameters(Said):
    scope: Scope | None = Field(default=None, description="only of this memory space")
    status: Status | None = Field(default=None, description="only of this status")
    limit: Limit = 20
    cursor: Cursor = None


class ChunksParameters(Said):
    limit: Limit = 100
    cursor: int | None = Field(
        default=None, ge=0, le=2**31, description="the `next` of the page before"
    )


class DeleteParameters(Said):
    reason: Reason
    wait: Wait = None


class Document(BaseModel):
    """`chunks` is null while its text is not known; `error` tells why it failed."""

    id: str
    scope: str
    kind: DocumentKind
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


class Documents(BaseModel):
    """A page, newest first. `next` is the cursor of the page after, null on the last."""

    documents: list[Document]
    next: str | None


class DocumentChunk(BaseModel):
    """A piece of a document: a memory, whose id it has."""

    position: int
    id: str
    content: str
    is_deleted: bool


class DocumentChunks(BaseModel):
    """A page, in order. `next` is the cursor of the page after, null on the last."""

    id: str
    chunks: list[DocumentChunk]
    next: int | None


class Added(BaseModel):
    id: str
    deduped: bool


class AddedDocument(Done):
    """`deduped`: it was there already."""

    result: Added


class Deleted(BaseModel):
    id: str
    status: Literal["deleted"]
    forgotten: int
    kept: int


class DeletedDocument(Done):
    """How many chunks were forgotten now, and how many kept, as they are pinned or confirmed."""

    result: Deleted
