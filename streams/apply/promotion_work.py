"""What promotion and rollback share: the outcome of each memory, and reporting it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from palimpsest.schemas.commands import PromoteCommand
from palimpsest.schemas.messages import GraphWork, MemoryChange, Outcome
from palimpsest.schemas.promotion_rows import PromotionItemRow
from palimpsest.schemas.rows import MemoryRow
from palimpsest.schemas.topics import MEMORY_CHANGES
from palimpsest.streams.apply.command_work import Work
from palimpsest.streams.stage import Emit

TOLD_BYTES = 128 * 1024
"""Maximum bytes of changes in one record: a log takes records of 1 MiB, or less if configured."""


@dataclass(slots=True)
class Promoting:
    """A promotion while it executes. `facts` are those already in the store."""

    work: Work
    command: PromoteCommand
    facts: frozenset[str] = frozenset()
    items: list[PromotionItemRow] = field(default_factory=list)
    graph: list[GraphWork] = field(default_factory=list)

    @property
    def told(self) -> dict[str, JsonValue]:
        return {"promotion_id": self.command.promotion_id, "branch": self.command.branch}

    def item(
        self,
        change: str,
        memory_id: str,
        why: str = "",
        before: MemoryRow | None = None,
        after: MemoryRow | None = None,
        counterpart: str | None = None,
    ) -> None:
        row = PromotionItemRow(
            promotion_id=self.command.promotion_id,
            memory_id=memory_id,
            scope=self.work.message.scope,
            change=change,
            why=why,
            counterpart=counterpart,
            version_before=None if before is None else before.version,
            version_after=None if after is None else after.version,
        )
        self.items.append(row)


def split_outcomes(work: Work, graph: Sequence[GraphWork] = ()) -> None:
    """Splits the reported changes into records small enough for any log."""
    groups: list[list[Outcome]] = [[]]
    size = 0
    for outcome in work.outcomes:
        length = len(outcome.model_dump_json())
        if groups[-1] and size + length > TOLD_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(outcome)
        size += length
    work.outcomes = groups[0]
    batches = [MemoryChange(outcomes=tuple(group)) for group in groups[1:]]
    batches += [MemoryChange(outcomes=(), graph=each) for each in graph]
    work.emits += [
        Emit(MEMORY_CHANGES, change, f"change-{number}") for number, change in enumerate(batches, 1)
    ]
