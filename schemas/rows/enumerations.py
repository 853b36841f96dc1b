"""The values of enumerated fields that several messages have."""

from __future__ import annotations

from typing import Literal, get_args

FactType = Literal["fact", "preference", "decision", "procedural", "semantic", "opinion"]
TemporalKind = Literal["persistent", "temporal"]
Action = Literal["ADD", "UPDATE", "DELETE", "NONE"]
Privacy = Literal["none", "partial", "full"]
EntityType = Literal[
    "person", "organization", "place", "product", "project", "system", "tool", "concept", "skill",
    "task",
]  # fmt: skip

FACT_TYPES: tuple[FactType, ...] = get_args(FactType)

OutcomeEvent = Literal[
    "created",
    "modified",
    "deleted",
    "recovered",
    "none",
    "deduped",
    "skipped",
    "blocked",
    "shadowed",
    "dropped",
    "reconsidered",
    "archived",
    "purged",
    "rejected",
    "flags",
    "privacy",
    "retention",
    "graph",
    "imported",
    "session-ended",
    "repaired",
    "diagnosed",
]

FactOutcome = Literal[
    "created", "modified", "deleted", "none", "deduped", "skipped", "blocked", "shadowed", "dropped"
]
"""How a fact ends; the balance knows no other end."""
