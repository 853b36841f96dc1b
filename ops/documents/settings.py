"""The section `documents` of the settings."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from palimpsest.schemas.limits import CHUNK_CHARACTERS, CHUNK_OVERLAP
from palimpsest.schemas.section import Section


class DocumentSettings(Section):
    max_bytes: int = Field(
        default=10 * 1024 * 1024, ge=1024, description="maximum size of a document, in bytes"
    )
    chunk_characters: int = Field(
        default=CHUNK_CHARACTERS,
        ge=200,
        le=8_000,
        description="longest chunk of a document that is added from now on, in characters",
    )
    chunk_overlap: int = Field(
        default=CHUNK_OVERLAP,
        ge=0,
        le=2_000,
        description="overlap with the previous chunk, in characters; maximum half a chunk",
    )
    fetch_seconds: float = Field(
        default=30.0, gt=0.0, le=600.0, description="timeout for fetching a URL, in seconds"
    )
    max_redirects: int = Field(default=5, ge=0, le=20, description="maximum number of redirects")
    allow_private: bool = Field(
        default=False,
        description="on: URLs may lead to addresses of this machine and of private networks",
    )

    @model_validator(mode="after")
    def _halves(self) -> Self:
        if self.chunk_overlap * 2 > self.chunk_characters:
            raise ValueError("chunk_overlap is more than half of chunk_characters")
        return self
