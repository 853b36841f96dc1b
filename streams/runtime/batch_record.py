"""One record on its way through a batch: its message, its stage's generator and its step; and which
records cannot share a batch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from palimpsest.streams.logs.base import Record
from palimpsest.streams.runtime.failures import StageRaised
from palimpsest.streams.runtime.time_limit import bounded
from palimpsest.streams.runtime.tracing import Span
from palimpsest.streams.stage import (
    Answer,
    Ask,
    Failure,
    Generate,
    Message,
    ModelUnavailable,
    Process,
    Step,
)
from palimpsest.streams.store_port import (
    Anticipated,
    EraseGraph,
    NotAlone,
    Place,
    StoreAsk,
    UnitPort,
)


@dataclass(slots=True)
class RecordRun:
    """`seconds` is the time limit of each step of the stage. `ask` is what the stage waits for,
    `step` its result; exactly one of them is None, but both are before the first `resume`."""

    record: Record
    seconds: float
    message: Message | None = None
    key: str | None = None
    process: Process | None = None
    ask: Ask | Anticipated | None = None
    step: Step | None = None
    generated: list[Generate] = field(default_factory=list)
    """The requests to a language model that were answered."""
    span: Span | None = None

    def resume(self, answer: Answer | ModelUnavailable) -> None:
        """Sends an answer to the stage, or throws a model's final refusal into it, which decides
        what that means for the record; keeps its next ask or its step. Raises StageRaised."""
        assert self.process is not None
        try:
            with bounded(self.seconds):
                if isinstance(answer, ModelUnavailable):
                    self.ask = self.process.throw(answer)
                else:
                    self.ask = self.process.send(answer)
        except StopIteration as stop:
            self.ask, self.step = None, stop.value
        except Exception as error:
            if not (isinstance(answer, ModelUnavailable) and isinstance(error, ModelUnavailable)):
                raise StageRaised from error
            self.ask, self.step = None, Step(dead=Failure(str(error)))

    def answer_from(self, unit: UnitPort) -> None:
        """Passes what the stage anticipates to the store, or the store's answer to the stage.
        Raises StageRaised."""
        if isinstance(self.ask, Anticipated):
            unit.anticipate(self.ask)
            self.resume(None)
        elif isinstance(self.ask, StoreAsk):
            self.resume(unit.answer(self.ask))
        else:
            raise TypeError(f"neither an ask nor a step: {type(self.ask).__name__}")


def check_alone(runs: Sequence[RecordRun]) -> None:
    """Checks before any other work that a write which needs its own batch has one. Raises
    NotAlone."""
    places = {
        _place(run.record)
        for run in runs
        if run.step is not None and any(isinstance(each, EraseGraph) for each in run.step.writes)
    }
    if places and len(runs) > 1:
        raise NotAlone(frozenset(places))


def divided(records: Sequence[Record], places: Collection[Place]) -> Iterator[list[Record]]:
    """Splits the batch in order, isolating each record at one of the places; all records where
    there are none."""
    part: list[Record] = []
    for record in records:
        if places and _place(record) not in places:
            part.append(record)
            continue
        if part:
            yield part
        yield [record]
        part = []
    if part:
        yield part


def _place(record: Record) -> Place:
    return record.topic, record.offset
