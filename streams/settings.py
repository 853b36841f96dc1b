"""What stages can be told: plain frozen values, filled from the settings file by the program."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flags:
    """The five flags that decide how much the pipeline may do on its own."""

    enabled: bool = True
    shadow_mode: bool = False
    allow_update_delete: bool = False
    mutations_frozen: bool = False
    autonomous_frozen: bool = False


@dataclass(frozen=True, slots=True)
class ExtractionSettings:
    """Turns of these `roles` are extracted from, each shown with up to `context_turns` of those
    before it in its session. `max_input_characters` of a turn are shown to the model, which may
    answer with `max_output_tokens`; `max_attempts` counts the first."""

    roles: tuple[str, ...] = ("user", "assistant")
    context_turns: int = 2
    max_input_characters: int = 12_000
    max_output_tokens: int = 2_048
    max_attempts: int = 3


@dataclass(frozen=True, slots=True)
class DecisionSettings:
    """Bands are cosines and belong to the embedding model. `decider` is `rules` or `model`. The
    last two are those of `ApplySettings`: what is anticipated must be what is applied."""

    decider: str = "rules"
    exact: float = 0.98
    near: float = 0.70
    candidates: int = 5
    min_score: float = 0.1
    max_attempts: int = 3
    semantic_contradiction: bool = False
    min_fact_confidence: float = 0.7
    max_reconsiderations: int = 3


@dataclass(frozen=True, slots=True)
class ApplySettings:
    """`max_reconsiderations` bounds how often a stale decision is sent back."""

    flags: Flags = Flags()
    near: float = 0.70
    min_fact_confidence: float = 0.7
    max_reconsiderations: int = 3
    recovery_days: int = 30
