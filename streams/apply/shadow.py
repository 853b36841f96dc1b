"""What further deciders proposed, and what a scope has earned by what people said of it."""

from __future__ import annotations

from collections.abc import Generator

from palimpsest.schemas.messages import CommandIntent
from palimpsest.schemas.shadow_commands import RecordShadowProposalsCommand, ShadowProposal
from palimpsest.schemas.shadow_rows import ShadowProposalRow
from palimpsest.streams.apply.command_work import (
    Refused,
    Work,
    command_id,
    done,
    known_id,
    refusal,
    refuse_frozen,
)
from palimpsest.streams.memory_rows import effective
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.stage import Answer, Ask, Message, Step
from palimpsest.streams.store_port import Load, Loaded, Put


def shadow_step(
    message: Message, intent: CommandIntent, settings: StageSettings
) -> Generator[Ask, Answer, Step]:
    """Keep what further deciders proposed; the first that a decider made of a fact in a round
    stays. Nothing else changes, whatever is frozen."""
    command = intent.command
    assert isinstance(command, RecordShadowProposalsCommand)
    loaded = yield Load(message.scope, command_id=command_id(message))
    assert isinstance(loaded, Loaded)
    if loaded.command is not None and loaded.command.error is None:
        return known_id(loaded.command, intent.digest)
    work = Work.begun(message, intent, settings, loaded)
    try:
        _refuse_others(work, "what further deciders propose is recorded by the worker alone")
    except Refused as error:
        return refusal(message, intent, str(error))
    work.writes += [Put(_row(work, each)) for each in command.proposals]
    return done(work, command, {"status": "recorded", "proposals": len(command.proposals)})


def refuse_unearned(work: Work) -> None:
    """Raises Refused unless it is the worker who says what the scope has earned, and what works by
    itself may change something now."""
    _refuse_others(
        work,
        "what a scope has earned follows from what people said of its proposals; set"
        " allow_update_delete to allow or forbid it whatever that is",
    )
    refuse_frozen(work)
    if effective(work.settings.pipeline, work.loaded.flags).autonomous_frozen:
        raise Refused("frozen: nothing changes by itself now (flag autonomous_frozen)")


def _refuse_others(work: Work, why: str) -> None:
    if work.intent.actor.type != "system":
        raise Refused(f"forbidden: {why}")


def _row(work: Work, said: ShadowProposal) -> ShadowProposalRow:
    return ShadowProposalRow(
        item_id=said.item_id,
        round=said.round,
        decider=said.decider,
        scope=work.message.scope,
        turn_memory_id=said.turn_memory_id,
        action=said.action,
        target_id=said.target_id,
        confidence=said.confidence,
        reason=said.reason,
        error=said.error,
        input_tokens=said.input_tokens,
        output_tokens=said.output_tokens,
        latency_ms=said.latency_ms,
        cost=said.cost,
        recorded_at=work.at,
    )
