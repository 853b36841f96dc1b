"""Answers shared by several subjects: a memory with all its fields, and the effect of a write."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

from palimpsest.ops.operations.operation import Answer
from palimpsest.stores.recall.query import Mark


class PastRecall(Answer):
    """A read that returned a memory at this rank: a recall, a context or a get. `question` is None
    of a get, and where it is not kept."""

    kind: str
    question: str | None
    session_id: str
    asked_by: str | None
    rank: int
    score: float | None
    asked_at: datetime


class StoredMemory(Answer):
    """A memory with all its fields. The type `episodic` is a turn, and `role` the role of its
    speaker (empty when unknown). `marks` list what no longer holds. `shown_importance` is the
    importance less what it lost since the last access; `fades_at` is when the memory will have
    faded without a further one, None if it does not fade. `recalls`, of a single memory: the newest
    reads that returned it, newest first."""

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
    shown_importance: float = 0.0
    fades_at: datetime | None = None
    recalls: tuple[PastRecall, ...] = ()


DONE: Final = frozenset(
    {"updated", "no_changes", "forgotten", "recovered", "confirmed", "set"}
    | {"deduped", "dismissed", "added", "merged", "already", "ended", "erased"}
    | {"separated", "still_joined", "kept_apart"}
)
"""Statuses of a change that was applied or not needed. `deleted` is one of them for a document and
a proposal; for a memory it means that the memory was already forgotten."""


class Applied(Answer, kw_only=True):
    """An executed command. If it erased texts, `erasure` says whether files may still hold them
    (`pending`) or not (`done`), and `left` lists where other copies remain."""

    command_id: str
    applied: bool = True
    erasure: Literal["pending", "done"] | None = None
    left: tuple[str, ...] = ()


class MemoryChange(Answer, kw_only=True):
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


class Change(MemoryChange, Applied, kw_only=True):
    """The effect of a command on its memory."""


class Changes(Applied, kw_only=True):
    """The effect of a command on each of several memories, in order."""

    changes: tuple[MemoryChange, ...]
