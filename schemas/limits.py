"""Limits that messages and settings share. Settings are read without loading all messages."""

from __future__ import annotations

from typing import Final

DEFAULT_MAX_RECORD_BYTES: Final = 1024 * 1024
CHUNK_CHARACTERS: Final = 2_000
CHUNK_OVERLAP: Final = 200
