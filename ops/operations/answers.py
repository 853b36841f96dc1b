"""Answers that several subjects share: a memory with all its fields, and what a write did."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from palimpsest.stores.recall.query import Mark


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A memory with all its fields. One of the type `episodic` is a turn itself, and `role` its
    speaker's (empty where that is not known). `marks` say what of it no longer holds."""

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
"""The statuses of a change that was made, or that was not needed. `deleted` is one of them for a
document and a proposal; of a memory it says that it had been forgotten before."""


@dataclass(frozen=True, kw_only=True)
class Applied:
    """A command that was executed. Where it erased texts, `erasure` says whether files may still
    hold them (`pending`) or not (`done`), and `left` where else there are copies."""

    command_id: str
    applied: bool = True
    erasure: Literal["pending", "done"] | None = None
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChange:
    """What a command did to one memory. `status` is what became of it, empty for a new one;
    `deduped`: it was there already; `protected`: no machine may change it any more; `why`: why it
    was left as it is; `lowered`: what a machine asked for and did not get; `hidden_in`: the texts
    in which what was forgotten is hidden, or what was recovered is shown again."""

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
    """What a command did to the memory that it is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes(Applied):
    """What a command did to each of several memories, in order."""

    changes: tuple[MemoryChange, ...]
