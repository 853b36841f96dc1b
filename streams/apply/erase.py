"""Executes erasures: of the memories that a `forget` names, and of a whole scope."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import JsonValue

from palimpsest.schemas.commands import EraseScopeCommand
from palimpsest.schemas.identity import erase_token
from palimpsest.schemas.messages import GraphWork
from palimpsest.schemas.rows import MemoryRow
from palimpsest.streams.apply.command_work import Refused, Work, command_id
from palimpsest.streams.memory_rows import changed, is_erased, without_text
from palimpsest.streams.store_port import Erase


def erase_texts(work: Work, before: Iterable[MemoryRow], whole_scope: bool = False) -> None:
    """Removes from the stores the texts of these memories, as they were `before` their rows became
    tombstones, and requests the same of the graph."""
    rows = list(before)
    if not rows and not whole_scope:
        return
    work.writes.append(
        Erase(
            erasure_id=command_id(work.message),
            scope=work.message.scope,
            texts={row.memory_id: row.content for row in rows},
            embedding_keys=tuple(row.embedding_key for row in rows),
            scope_at=work.at if whole_scope else None,
        )
    )
    work.graph = GraphWork(
        memory_ids=(),
        command_id=command_id(work.message),
        erased=None if whole_scope else tuple(sorted(row.memory_id for row in rows)),
        erased_scope=whole_scope or None,
    )


def erase_scope(work: Work, command: EraseScopeCommand) -> JsonValue:
    """Erases all memories of the scope. Returns their number."""
    if work.by_machine:
        raise Refused("forbidden: only a person may erase a whole scope")
    rows = [row for _, row in sorted(work.memories.items()) if not is_erased(row)]
    if command.confirm_token != erase_token(work.message.scope, len(rows)):
        raise Refused(
            f"confirm_mismatch: the scope holds {len(rows)} memories now, not as many as the"
            " preview counted; look at a new preview and confirm that"
        )
    for row in rows:
        work.put(without_text(changed(row, work.at, work.intent.actor.id, 0), work.at))
    work.tell("purged", None, command.reason, metadata={"memories": len(rows)})
    erase_texts(work, rows, whole_scope=True)
    return {"status": "erased", "memories": len(rows)}
