"""The rows of documents. As `schemas.rows`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from palimpsest.schemas.rows import Row

DOCUMENT_CHUNK: Final = "document_chunk"
"""The type of a memory that is a piece of a document."""
SOURCE_TYPES: Final = frozenset({"episodic", DOCUMENT_CHUNK})
"""Types of memories that keep what was said or written as it was. Two may be equal, and no decision
about a fact changes or deletes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRow(Row):
    """A document. `chunks` is how many its text has, None while nobody knows the text; `taken` of
    them are stored. `same_key` is what the same document is known by again; None of one that
    failed or was deleted."""

    TABLE: ClassVar[str] = "document_rows"
    KEY: ClassVar[tuple[str, ...]] = ("document_id",)

    document_id: str
    scope: str
    kind: str
    source: str | None = None
    title: str = ""
    same_key: str | None
    digest: str | None = None
    content_type: str | None = None
    characters: int | None = None
    chunk_characters: int
    chunk_overlap: int
    chunks: int | None = None
    taken: int = 0
    error: str | None = None
    added_by: str
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentMemoryRow(Row):
    """The memory that holds the chunk at a position of a document, from 0. A text that a document
    has twice is one memory at two positions."""

    TABLE: ClassVar[str] = "document_memory_rows"
    KEY: ClassVar[tuple[str, ...]] = ("document_id", "position")

    document_id: str
    position: int
    memory_id: str
    scope: str


def same_key(kind: str, source: str | None, digest: str | None) -> str:
    """What a document is known by within its scope: a URL by its address, all others by their
    text."""
    return f"url|{source}" if kind == "url" else f"text|{digest}"
