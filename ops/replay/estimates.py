"""Estimates the cost of a re-extraction without calling a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from palimpsest.ops.replay.branches import Branch, Selection, branch_settings
from palimpsest.ops.replay.budget import size_of
from palimpsest.ops.replay.live_log import blocks, decoded
from palimpsest.ops.replay.recorded import reading_log
from palimpsest.ops.replay.reextraction import Reextraction, chosen_turns, is_among
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.messages import (
    Fact,
    FactsExtracted,
    MemoryWrite,
    ModelCall,
    NormalizedTurn,
    ProposalsIntent,
)
from palimpsest.schemas.topics import FACTS_EXTRACTED, MEMORY_WRITES, TURNS_NORMALIZED, Topic
from palimpsest.streams.logs.base import LogReader
from palimpsest.streams.models.priced import Prices
from palimpsest.streams.prompting.prompts import decision_prompt, extraction_prompt
from palimpsest.streams.stage import Message

BYTES_PER_TOKEN: Final = 4.0
"""Bytes of a prompt per token where no recorded call shows it: about the ratio for English."""
EXTRACTED_TOKENS: Final = 150
DECIDED_TOKENS: Final = 60
"""Tokens of a reply where no recorded call shows them."""
FACTS_OF_A_TURN: Final = 2.0
CANDIDATE_TOKENS: Final = 40


@dataclass(frozen=True, slots=True)
class Estimate:
    """`turns` would go to the model, out of `all_turns` that were extracted from live. `recorded`
    is whether the tokens come from live calls; otherwise they are estimated from the prompts'
    bytes. `seconds` assumes the speed of the live model and is None if it is unknown; `cost` is in
    the currency of the prices, None without prices."""

    turns: int
    all_turns: int
    input_tokens: int
    output_tokens: int
    recorded: bool
    seconds: float | None
    cost: float | None


@dataclass(slots=True)
class _Calls:
    """Sums over recorded calls of one purpose."""

    count: int = 0
    told: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    milliseconds: float = 0.0

    def add(self, call: ModelCall) -> None:
        self.count += 1
        self.milliseconds += call.latency_ms
        if call.input_tokens is not None and call.output_tokens is not None:
            self.told += 1
            self.input_tokens += call.input_tokens
            self.output_tokens += call.output_tokens

    def each(self, sum_of_told: float) -> float:
        return sum_of_told / self.told if self.told else 0.0


@dataclass(slots=True)
class _Recorded:
    """The usage of the live memory's calls for the chosen turns."""

    extractions: _Calls = field(default_factory=_Calls)
    decisions: _Calls = field(default_factory=_Calls)
    facts: int = 0


def estimate(settings: Settings, asked: Reextraction) -> Estimate:
    """Estimates from the live log and changes nothing. Raises RequestError, SettingsError,
    LogError."""
    branch = Branch(
        name=asked.branch,
        kind="reextraction",
        created_at=datetime.now(UTC),
        partitions=1,
        settings=asked.overrides,
    )
    own = branch_settings(settings, branch)
    with reading_log(settings) as reader:
        everything = sum(
            reader.end_offset(TURNS_NORMALIZED.name, number)
            for number in range(reader.partitions(TURNS_NORMALIZED.name))
        )
        recorded = _recorded(reader, asked.selection)
        chosen, size = _counted(reader, asked.selection, own)
    turns = min(chosen, asked.selection.sample or chosen)
    read, written = _tokens(recorded, own, size / chosen if chosen else 0.0)
    tokens = (round(read * turns), round(written * turns))
    return Estimate(
        turns=turns,
        all_turns=everything,
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        recorded=recorded.extractions.told > 0,
        seconds=_seconds(recorded, own, turns, everything, asked.rate),
        cost=_cost(own, *tokens),
    )


def _counted(reader: LogReader, selection: Selection, own: Settings) -> tuple[int, int]:
    """Returns the number of chosen turns and the total bytes of their prompts."""
    count = size = 0
    for message in chosen_turns(reader, selection):
        turn = message.body
        assert isinstance(turn, NormalizedTurn)
        prompt = extraction_prompt(
            turn,
            message.occurred_at,
            turn.context or (),
            own.extraction.max_input_characters,
            own.extraction.max_output_tokens,
        )
        count += 1
        size += size_of(prompt)
    return count, size


def _recorded(reader: LogReader, selection: Selection) -> _Recorded:
    found = _Recorded()
    for message in _messages(reader, FACTS_EXTRACTED, selection):
        if isinstance(message.body, FactsExtracted) and not message.body.round:
            found.extractions.add(message.body.call)
            found.facts += len(message.body.facts)
    for message in _messages(reader, MEMORY_WRITES, selection):
        write = message.body.write if isinstance(message.body, MemoryWrite) else None
        for proposal in write.proposals if isinstance(write, ProposalsIntent) else ():
            if proposal.decider is not None:
                found.decisions.add(proposal.decider)
    return found


def _messages(reader: LogReader, topic: Topic, selection: Selection) -> Iterator[Message]:
    for partition in range(reader.partitions(topic.name)):
        end = reader.end_offset(topic.name, partition)
        for records in blocks(reader, topic, partition, 0, end):
            for record in records:
                message = decoded(record)
                if message is not None and is_among(message, selection):
                    yield message


def _tokens(recorded: _Recorded, own: Settings, bytes_of_a_prompt: float) -> tuple[float, float]:
    """Returns the tokens read and written for one turn, decisions included."""
    if own.llm.provider == "rules":
        return 0.0, 0.0
    calls = recorded.extractions
    read, written = bytes_of_a_prompt / BYTES_PER_TOKEN, float(EXTRACTED_TOKENS)
    if calls.told:
        read, written = calls.each(calls.input_tokens), calls.each(calls.output_tokens)
    if own.decider == "rules":
        return read, written
    made = recorded.decisions
    if made.told:
        a_turn = made.count / max(calls.count, 1)
        return (
            read + a_turn * made.each(made.input_tokens),
            written + a_turn * made.each(made.output_tokens),
        )
    facts = recorded.facts / calls.count if calls.count else FACTS_OF_A_TURN
    fact = Fact(item_id="", content="", confidence=1.0)
    frame = size_of(decision_prompt(fact, datetime.now(UTC), ())) / BYTES_PER_TOKEN
    shown = CANDIDATE_TOKENS * (1 + own.decision.candidates)
    return read + facts * (frame + shown), written + facts * DECIDED_TOKENS


def _seconds(
    recorded: _Recorded, own: Settings, turns: int, everything: int, rate: float | None
) -> float | None:
    calls = recorded.extractions
    of_models: float | None = None
    if calls.told and own.llm.provider != "rules":
        spent = calls.milliseconds + recorded.decisions.milliseconds
        of_models = turns * spent / calls.count / 1000 / own.llm.concurrency
    if rate is None:
        return of_models
    return max(of_models or 0.0, everything / rate)


def _cost(own: Settings, input_tokens: int, output_tokens: int) -> float | None:
    llm = own.llm
    if llm.input_price is None and llm.output_price is None:
        return None
    return Prices(llm.input_price or 0.0, llm.output_price or 0.0).of(input_tokens, output_tokens)
