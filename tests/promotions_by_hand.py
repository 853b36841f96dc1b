"""Promotions given by hand to a small pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from palimpsest.schemas.commands import (
    PromoteCommand,
)
from palimpsest.schemas.envelope import Triple
from palimpsest.schemas.promotions import (
    GainChange,
    LoseChange,
    PromotedFact,
    PromotedMemory,
    PromotionChange,
    ReplaceChange,
)
from tests.flows.scripted import scripted
from tests.harness import BEGIN, Pipeline

SAID = ("Ana likes tea / Ana lives in Oslo", "Ana has a dog / Ana > owns > Rex", "Rex is loud")


def told(folder: Path, batch: int = 256) -> Pipeline:
    """A pipeline in which some turns were said."""
    pipeline = scripted(folder, batch=batch)
    pipeline.say(*SAID)
    return pipeline


def memory_id(pipeline: Pipeline, content: str, scope: str = "ana") -> str:
    [found] = pipeline.values(
        "SELECT memory_id FROM memory_rows WHERE scope = ? AND content = ? AND type <> 'episodic'",
        scope,
        content,
    )
    return str(found)


def turn_ids(pipeline: Pipeline) -> list[str]:
    return pipeline.values(
        "SELECT memory_id FROM memory_rows WHERE type = 'episodic' ORDER BY occurred_at"
    )


def promoted(pipeline: Pipeline, name: str, content: str, turn: int = 0, **fields: Any) -> Any:
    """A memory of a branch that was drawn from the turn with this number."""
    source = turn_ids(pipeline)[turn]
    fact = PromotedFact(
        item_id=f"item-{name}",
        turn_memory_id=source,
        content=content,
        type="fact",
        confidence=0.9,
        model="second",
        prompt_version="extract-2",
        occurred_at=BEGIN,
        event="created",
        decision_reason="new",
        decider="second",
    )
    given = {
        "memory_id": f"memory-{name}",
        "content": content,
        "type": "fact",
        "confidence": 0.9,
        "importance": 0.8,
        "occurred_at": BEGIN,
        "source_id": fact.item_id,
        "sources": (source,),
        "facts": (fact,),
        "extraction_model": "second",
    }
    return PromotedMemory.model_validate(given | fields)


def changes(pipeline: Pipeline) -> tuple[PromotionChange, ...]:
    """One of each: `Ana likes tea` says something else, `Rex is loud` goes, two facts come."""
    triple = Triple(source="Ana", relationship="fears", target="Rex")
    return (
        ReplaceChange(
            memory_id=memory_id(pipeline, "Ana likes tea"),
            if_version=1,
            memory=promoted(pipeline, "tea", "Ana likes green tea"),
        ),
        LoseChange(memory_id=memory_id(pipeline, "Rex is loud"), if_version=1),
        GainChange(memory=promoted(pipeline, "cat", "Ana has a cat", 1, triples=(triple,))),
        GainChange(memory=promoted(pipeline, "vet", "Rex goes to a vet", 2)),
    )


def parts(
    given: tuple[PromotionChange, ...], number: int = 1, **fields: Any
) -> Iterator[PromoteCommand]:
    """The commands of a promotion in so many parts."""
    size = -(-len(given) // number)
    for part in range(number):
        yield PromoteCommand(
            **{
                "promotion_id": "p1",
                "branch": "better",
                "plan_id": "plan-1",
                "part": part,
                "parts": number,
                "changes": given[part * size : (part + 1) * size],
            }
            | fields
        )


def items(pipeline: Pipeline, promotion_id: str = "p1") -> dict[str, tuple[str, str, str | None]]:
    """What became of each memory: what was done, why it was kept, what the rollback did."""
    rows = pipeline.rows(
        "SELECT * FROM promotion_item_rows WHERE promotion_id = ? ORDER BY memory_id", promotion_id
    )
    return {row["memory_id"]: (row["change"], row["why"], row["rollback"]) for row in rows}
