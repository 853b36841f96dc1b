"""In-flight facts of an erased memory: they are counted, but their texts are removed. Pure.

The embedded log is redacted; on Kafka the records stay unchanged, so the stages that write to a
store must remove the texts."""

from __future__ import annotations

from palimpsest.schemas.identity import fact_memory_id
from palimpsest.schemas.messages import Fact, ProposalsIntent
from palimpsest.schemas.quotations import ERASED
from palimpsest.schemas.redaction import mark_of
from palimpsest.schemas.rows import MemoryRow
from palimpsest.streams.memory_rows import is_erased


def still_said(facts: tuple[Fact, ...], source: MemoryRow | None) -> tuple[Fact, ...]:
    """Returns the facts, with marks in place of their texts if their source was erased."""
    if source is None or not is_erased(source):
        return facts
    return tuple(map(_unsaid, facts))


def still_proposed(intent: ProposalsIntent, source: MemoryRow | None) -> ProposalsIntent:
    """The same for an intent, whose facts are then skipped."""
    return intent if source is None or not is_erased(source) else unsaid(intent)


def unsaid(intent: ProposalsIntent) -> ProposalsIntent:
    """Returns the intent with marks in place of its facts' texts."""
    proposals = tuple(
        proposal.model_copy(
            update={"fact": _unsaid(proposal.fact), "reason": ERASED, "warnings": ()}
        )
        for proposal in intent.proposals
    )
    return intent.model_copy(update={"proposals": proposals, "triples": (), "warnings": ()})


def _unsaid(fact: Fact) -> Fact:
    mark = mark_of(fact_memory_id(fact.item_id))
    return fact.model_copy(update={"content": mark, "categories": ()})
