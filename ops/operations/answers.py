"""Answers shared by several subjects: a memory with all its fields, and the effect of a write."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from palimpsest.stores.recall.query import Mark


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A memory with all its fields. The type `episodic` is a turn, and `role` the role of its
    speaker (empty when unknown). `marks` list what no longer holds."""

    id: str
    scope: str
    type: str
    content: str
    who: str
    role: str
    session_id: str
    source_id: str | None
    occurred_at: datetime
    created_at: datetime
    updated_at: datetime
    updated_by: str
    importance: float
    confidence: float
    decay_rate: float
    pinned: bool
    tags: tuple[str, ...]
    categories: tuple[str, ...]
    why: str | None
    project: str | None
    source_type: str
    extraction_model: str | None
    temporal_kind: str
    valid_from: datetime | None
    valid_until: datetime | None
    version: int
    is_deleted: bool
    deleted_at: datetime | None
    last_accessed: datetime | None
    access_count: int
    content_hash: str
    metadata: dict[str, Any]
    marks: tuple[Mark, ...] = ()


DONE: Final = frozenset(
    {"updated", "no_changes", "forgotten", "recovered", "confirmed", "set"}
    | {"deduped", "dismissed", "added", "merged", "already", "ended", "erased"}
)
"""Statuses of a change that was applied or not needed. `deleted` is one of them for a document and
a proposal; for a memory it means that the memory was already forgotten."""


@dataclass(frozen=True, kw_only=True)
class Applied:
    """An executed command. If it erased texts, `erasure` says whether files may still hold them
    (`pending`) or not (`done`), and `left` lists where other copies remain."""

    command_id: str
    applied: bool = True
    erasure: Literal["pending", "done"] | None = None
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChange:
    """The effect of a command on one memory. `status` is the outcome, empty for a new memory;
    `deduped`: it already existed; `protected`: machines may no longer change it; `why`: why it was
    left unchanged; `lowered`: what a machine requested and was not granted; `hidden_in`: the texts
    in which the forgotten statement is hidden, or the recovered one is shown again."""

    id: str
    version: int | None = None
    status: str = ""
    deduped: bool = False
    protected: bool = False
    why: str = ""
    duplicate_of: str | None = None
    lowered: str = ""
    hidden_in: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(MemoryChange, Applied):
    """The effect of a command on its memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes(Applied):
    """The effect of a command on each of several memories, in order."""

    changes: tuple[MemoryChange, ...]
