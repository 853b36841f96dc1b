"""A stage run over what is recorded: it changes the store and sends nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from palimpsest.streams.logs.base import Outgoing, Position, Record
from palimpsest.streams.runtime.batch_record import RecordRun
from palimpsest.streams.runtime.offload import P, T
from palimpsest.streams.runtime.runner import StageRunner


class SendsNothing:
    """Where the output goes of a stage that repeats what was done."""

    async def commit(self, outgoing: Sequence[Outgoing], positions: Sequence[Position]) -> None:
        """Nothing: what a stage sent when it did this first lies in the log."""


@dataclass(slots=True)
class FoldingRunner(StageRunner):
    """Processes batches as the live runner does, but for what it sends.

    What followed from records before `sent_before` (offsets by topic) is in the log, and is not
    made again. What follows from later ones stays in the outbox until `settle_outbox`. `noting` is
    told of all that a batch came to, before it is committed.
    """

    sent_before: Mapping[str, int] = field(default_factory=dict)
    noting: Callable[[Sequence[RecordRun]], None] | None = None

    def _output(self, runs: Sequence[RecordRun]) -> list[Outgoing]:
        if self.noting is not None:
            self.noting(runs)
        late = [
            run for run in runs if run.record.offset >= self.sent_before.get(run.record.topic, 0)
        ]
        # By name: a dataclass with slots is another class than the one that `super()` looks for.
        return StageRunner._output(self, late)

    async def _in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """At once: no one else waits for the event loop."""
        return call(*args, **kwargs)

    async def _computed(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return call(*args, **kwargs)

    async def _send(
        self, records: Sequence[Record], outgoing: Sequence[Outgoing], last: int | None, done: int
    ) -> None:
        """Count, and leave the outbox as it is."""
        self.counts.batches += 1
        self.counts.records += done
        self.counts.skipped += len(records) - done
