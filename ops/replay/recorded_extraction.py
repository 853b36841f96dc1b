"""extract, for a branch: of turns that are not extracted from again, what the live memory has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from palimpsest.schemas.messages import FactsExtracted
from palimpsest.schemas.topics import FACTS_EXTRACTED
from palimpsest.streams.stage import Context, Emit, Message, Process, Stage, Step


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was extracted of a turn: None where nothing was."""

    body: FactsExtracted | None


def recorded_extraction(stage: Stage, recorded: Callable[[Message], Recorded | None]) -> Stage:
    """The stage extract, which asks a model only for turns of which nothing is `recorded`."""

    def process(message: Message, context: Context) -> Process:
        known = recorded(message)
        if known is None:
            return (yield from stage.process(message, context))
        if known.body is None:
            return Step()
        return Step(emits=(Emit(FACTS_EXTRACTED, known.body, "facts"),))

    return replace(stage, process=process)
