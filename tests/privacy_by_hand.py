"""Privacy levels by hand: setting one, and what became of the turns."""

from __future__ import annotations

from collections import Counter
from typing import Any

from palimpsest.ops.maintenance.withholding import PrivacyRedactor
from palimpsest.schemas.commands import SetPrivacyCommand
from palimpsest.schemas.envelope import Actor
from tests.harness import Pipeline

SECRET = "The spare key lies under the third flowerpot"
KEPT = "Ben works at a bakery in Ghent"
AGENT = Actor(id="bot", type="agent")
REJECTED = ("rejected", "privacy_full")
STORED = ("created", "turn stored")


def level(person: str | None, wanted: Any, reason: str = "asked for") -> SetPrivacyCommand:
    return SetPrivacyCommand(person=person, level=wanted, reason=reason)


def tidy(pipeline: Pipeline) -> int:
    """What goes on beside the stages of a worker."""
    return PrivacyRedactor(pipeline.log, {0: pipeline.shard}).once()


def turns(pipeline: Pipeline) -> Counter[tuple[str, str]]:
    rows = pipeline.rows("SELECT event, reason FROM outcomes WHERE item_kind = 'turn'")
    return Counter((row["event"], row["reason"]) for row in rows)


def words(pipeline: Pipeline) -> list[str]:
    """Memories that are no turns."""
    return pipeline.memories()
