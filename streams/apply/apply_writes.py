"""apply-writes: intents become memory. Deterministic over the intent and the store."""

from __future__ import annotations

from palimpsest.schemas.messages import (
    CommandIntent,
    DecayIntent,
    DocumentTextIntent,
    ForgetChunksIntent,
    MemoryWrite,
    ProposalsIntent,
    RawTurnIntent,
    RejectedTurnIntent,
)
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.streams.apply.commands import command_step
from palimpsest.streams.apply.documents import forget_chunks_step, text_step
from palimpsest.streams.apply.proposals import proposals_step
from palimpsest.streams.apply.turns import rejected_turn_step, turn_step
from palimpsest.streams.apply.upkeep import decay_step
from palimpsest.streams.recorded_settings import settings_by_record
from palimpsest.streams.sensitive.policy import KnownPrivate, nobody
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.stage import (
    Context,
    Message,
    Process,
    Stage,
)


def apply_writes_stage(own: StageSettings, is_known_private: KnownPrivate = nobody) -> Stage:
    """The stage that owns the memory tables. `is_known_private` avoids embedding texts that will
    not be kept; whether a turn is kept is decided by the store, in the order of the log. The
    program's `own` settings apply to records that carry none."""
    settings_of = settings_by_record(own)

    def process(message: Message, context: Context) -> Process:
        body = message.body
        assert isinstance(body, MemoryWrite)
        settings = settings_of(body)
        match body.write:
            case RawTurnIntent():
                return (yield from turn_step(message, body.write.turn, settings, is_known_private))
            case RejectedTurnIntent():
                return (yield from rejected_turn_step(message, body.write))
            case ProposalsIntent():
                return (yield from proposals_step(message, body.write, settings))
            case DocumentTextIntent(text=text):
                return (yield from text_step(message, text, settings))
            case ForgetChunksIntent():
                return (yield from forget_chunks_step(message, body.write, settings))
            case DecayIntent():
                return (yield from decay_step(message, body.write, settings))
            case CommandIntent():
                return (yield from command_step(message, body.write, settings))

    return Stage(name="apply-writes", reads=(MEMORY_WRITES,), process=process, stateful=True)
