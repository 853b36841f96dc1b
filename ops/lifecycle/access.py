"""Records reads: which question returned which memories. They become commands in the log.

The process that answers a read notes it in memory and does nothing else for it: a periodic task
turns what was noted into one command a scope. After a kill the reads of the last seconds are lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from palimpsest.ops.lifecycle.accesses import AccessBuffer, Accessed, Noted
from palimpsest.ops.scheduling.periodic import PeriodicTask
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import (
    MemoryCommand,
    RecalledMemory,
    RecordAccessCommand,
    RecordedRecall,
)
from palimpsest.schemas.envelope import Actor, derived_id
from palimpsest.schemas.normal_forms import normalized_content, storage_content
from palimpsest.schemas.topics import MEMORY_COMMANDS
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.memory_rows import effective
from palimpsest.streams.privacy import is_withheld
from palimpsest.streams.runtime.output import published
from palimpsest.streams.sensitive.policy import REFUSED, Policy

MOST_RESULTS: Final = 50
"""Results of a read that are recorded and reinforced: the first ones."""
QUESTION_CHARACTERS: Final = 1_000
"""Maximum length of a question that is kept."""
READ_CHARACTERS: Final = 10_000
"""Of a longer question only the beginning is read, as for the search."""
ITEMS: Final = 500
"""Maximum size of one command: recalls, results, and hundreds of characters of questions."""
RECORDER: Final = Actor(id="access", type="system")


@dataclass(eq=False)
class AccessRecorder:
    """Appends what `accesses` holds. `shards` are those open here, which may change at any time.

    Scopes whose memories are frozen or that keep nothing are left out."""

    accesses: AccessBuffer
    shards: Callable[[], Mapping[int, Shard]]
    append: Callable[[Sequence[Outgoing]], object]
    settings: Settings
    clock: Callable[[], datetime]
    _unsent: list[Outgoing] = field(default_factory=list, init=False)

    def task(self) -> PeriodicTask:
        seconds = self.settings.access.every_seconds
        return PeriodicTask("accesses", seconds, self.round, first=seconds, last=True)

    async def round(self) -> None:
        await asyncio.to_thread(self.flush)

    def flush(self) -> None:
        """Appends what was noted. What could not be appended is first the next time, under the same
        ids. Blocks."""
        if not self._unsent:
            self._unsent = [*self._records(self.accesses.taken())]
        if self._unsent:
            self.append(self._unsent)
            self._unsent = []

    def _records(self, noted: Sequence[Noted]) -> Iterator[Outgoing]:
        by_scope: dict[str, list[Noted]] = {}
        for each in noted:
            by_scope.setdefault(each.accessed.scope, []).append(each)
        for scope, of_scope in by_scope.items():
            recalls = []
            for each in of_scope:
                if not self._may_record(scope, each):
                    continue
                read = each.accessed
                question, question_id = self._question(read)
                recalls.append(
                    RecordedRecall(
                        recall_id=each.recall_id,
                        kind=read.kind,
                        at=each.at,
                        session_id=read.session_id[:256],
                        asked_by=read.asked_by,
                        question_id=question_id,
                        question=question,
                        results=tuple(
                            RecalledMemory(memory_id=memory_id, rank=rank, score=score)
                            for rank, (memory_id, score) in enumerate(
                                read.results[:MOST_RESULTS], 1
                            )
                        ),
                    )
                )
            for some in _parts(recalls):
                ids = [each.recall_id for each in some]
                command_id = derived_id("record-access", scope, *ids)
                command = RecordAccessCommand(recalls=tuple(some))
                body = MemoryCommand(command=command, actor=RECORDER)
                yield published(MEMORY_COMMANDS, command_id, scope, self.clock(), body)

    def _may_record(self, scope: str, noted: Noted) -> bool:
        by = noted.accessed.asked_by or ""
        for shard in self.shards().values():
            if is_withheld(shard.privacy.get(scope, {}), by):
                return False
            flags = shard.flags.get(scope)
            if flags is not None and effective(self.settings.pipeline, flags).mutations_frozen:
                return False
        return not effective(self.settings.pipeline, None).mutations_frozen

    def _question(self, read: Accessed) -> tuple[str | None, str | None]:
        """The question as it may be kept, and its id; neither of one that the policy refuses."""
        policy = Policy.of(self.settings.pii)
        safe = policy.text(storage_content((read.question or "")[:READ_CHARACTERS]))
        if not safe or (policy.refuses and safe == REFUSED):
            return None, None
        question_id = derived_id("question", read.scope, normalized_content(safe) or safe)
        kept = self.settings.access.keep_questions
        return safe[:QUESTION_CHARACTERS] if kept else None, question_id


def _parts(recalls: Sequence[RecordedRecall]) -> Iterator[list[RecordedRecall]]:
    """Parts of up to ITEMS."""
    part: list[RecordedRecall] = []
    items = 0
    for recall in recalls:
        weight = 1 + len(recall.results) + len(recall.question or "") // 100
        if part and items + weight > ITEMS:
            yield part
            part, items = [], 0
        part.append(recall)
        items += weight
    if part:
        yield part
