"""The sections of the settings about stages: `intent`, `sessions`, `short_term`, `extraction`,
`decision`, `pipeline`, `pii`, `graph` and `worker`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, Self

from pydantic import Field, field_validator

from palimpsest.schemas.section import Section
from palimpsest.streams.models.settings import decider_name
from palimpsest.streams.rules.explicit_intent import PHRASES
from palimpsest.streams.sensitive.settings import PiiSettings


class IntentSettings(Section):
    phrases: tuple[str, ...] = Field(
        default=PHRASES, description="phrases with which a user asks to have something remembered"
    )
    more_phrases: tuple[str, ...] = Field(
        default=(), description="additional phrases, for example in other languages"
    )


class SessionSettings(Section):
    silence_minutes: float = Field(
        default=30.0, gt=0, description="silence after which a session has ended, in minutes"
    )


class ShortTermSettings(Section):
    conversation_hours: float = Field(
        default=12.0,
        gt=0,
        le=8_760,
        description="how long a session's conversation is kept after its newest turn, in hours",
    )
    summary_hours: float = Field(
        default=24.0,
        gt=0,
        le=8_760,
        description="how long the summary of a session is kept, in hours",
    )
    turns: int = Field(
        default=40,
        ge=0,
        le=500,
        description="maximum number of turns kept of a session; 0 keeps none",
    )
    characters: int = Field(
        default=16_000,
        ge=100,
        le=1_000_000,
        description="maximum length of the conversation, and of a summary, in characters",
    )
    summarize: bool = Field(
        default=True,
        description="on: a language model, where one is set (not the rules), sums up a session"
        " that is idle or has ended, unless an application does",
    )
    idle_minutes: float = Field(
        default=10.0, gt=0, description="silence after which a session is summed up, in minutes"
    )
    context_share: float = Field(
        default=0.4,
        ge=0.0,
        le=1.0,
        description="share of a context's budget that the session may take, from 0 to 1",
    )
    nudge: str = Field(
        default="Keep the summary of this conversation current: update_short_term_memory.",
        max_length=1_000,
        description="line that asks a model for a summary; empty for none",
    )


class ExtractionSettings(Section):
    roles: tuple[Literal["user", "assistant", "tool", "system"], ...] = Field(
        default=("user",),
        description="whose turns facts are extracted from; of an assistant's before a user's the"
        " user's agreement makes facts in any case",
    )
    context_turns: int = Field(
        default=2, ge=0, le=50, description="number of earlier turns of the session in the prompt"
    )
    max_output_tokens: int = Field(
        default=2_048,
        ge=64,
        description="maximum reply length, in tokens; complete items of a truncated reply are used",
    )
    max_input_characters: int = Field(
        default=12_000, ge=100, description="maximum length of a turn in the prompt, in characters"
    )


class DecisionSettings(Section):
    decider: Literal["auto", "rules", "model"] = Field(
        default="auto",
        description="who decides between the bands: rules, the model, or auto (rules with the"
        " rules provider, else the model)",
    )
    exact: float | None = Field(
        default=None,
        ge=0.0,
        le=1.0,
        description="minimum cosine of two equal facts; when not set, by embedding model",
    )
    near: float | None = Field(
        default=None,
        ge=0.0,
        le=1.0,
        description="cosine below which two facts have nothing in common; when not set, by"
        " embedding model",
    )
    candidates: int = Field(
        default=5, ge=1, le=50, description="number of existing memories that a decision considers"
    )
    min_score: float = Field(
        default=0.1,
        ge=0.0,
        le=1.0,
        description="minimum combined score of a candidate, from 0 to 1",
    )
    semantic_contradiction: bool = Field(
        default=False, description="also ask the model whether an update contradicts the old memory"
    )


class Flags(Section):
    """How much the pipeline may do on its own; a scope may have flags of its own."""

    enabled: bool = Field(
        default=True, description="off: turns are stored raw, nothing is extracted"
    )
    shadow_mode: bool = Field(
        default=False, description="on: decisions are recorded and not applied"
    )
    allow_update_delete: bool = Field(
        default=False, description="on: UPDATE and DELETE are applied, not only proposed"
    )
    mutations_frozen: bool = Field(
        default=False, description="on: no memory is changed, not even by commands"
    )
    autonomous_frozen: bool = Field(
        default=False,
        description="on: no maintenance by timers (vectors that were missed, records too old)",
    )
    self_teaching_enabled: bool = Field(
        default=False, description="on: agents' tools may write long-term memories on their own"
    )


class PipelineSettings(Flags):
    min_fact_confidence: float = Field(
        default=0.7,
        ge=0.0,
        le=1.0,
        description="minimum confidence of a fact to be added, from 0 to 1",
    )
    max_reconsiderations: int = Field(
        default=3,
        ge=0,
        le=20,
        description="maximum number of times a decision is repeated because its target has changed",
    )
    recovery_days: int = Field(
        default=30, ge=0, description="how long a forgotten memory can be recovered, in days"
    )
    shadow_deciders: tuple[str, ...] = Field(
        default=(),
        max_length=8,
        description="further deciders of new facts, which propose only: rules, provider/model or"
        " provider/model@address, separated by commas",
    )
    shadow_seconds: float = Field(
        default=45.0,
        gt=0,
        le=3600,
        description="timeout of a shadow decider per proposal, in seconds",
    )
    earn_update_delete: bool = Field(
        default=False,
        description="on: a scope may update and delete once people agreed with its proposals, and"
        " no longer when they do not; what a person set for it stays",
    )
    earn_proposals: int = Field(
        default=20,
        ge=1,
        le=10_000,
        description="newest proposals with a person's verdict that count, and are needed",
    )
    earn_agreement: float = Field(
        default=0.9,
        gt=0.0,
        le=1.0,
        description="share of them that a scope must have right to earn it, from 0 to 1",
    )
    earn_margin: float = Field(
        default=0.1,
        ge=0.0,
        le=1.0,
        description="how far below that share it must fall to lose it again, from 0 to 1",
    )

    @field_validator("shadow_deciders")
    @classmethod
    def _are_named(cls, deciders: tuple[str, ...]) -> tuple[str, ...]:
        for each in deciders:
            decider_name(each)
        if len(set(deciders)) < len(deciders):
            raise ValueError("a decider is named twice")
        return deciders


class PrivacySettings(Section):
    purge: bool = Field(
        default=True,
        description="on: what the embedded log holds of turns that are not kept for privacy loses"
        " all that was said, about a second after they were counted",
    )


class GraphSettings(Section):
    enabled: bool = Field(
        default=True, description="off: the graph is neither searched nor written from turns"
    )
    extraction_writes_enabled: bool = Field(
        default=True,
        description="off: the graph is written from texts of people and agents, not from turns",
    )

    @property
    def takes_from_turns(self) -> bool:
        return self.enabled and self.extraction_writes_enabled

    @property
    def is_only_read(self) -> bool:
        return self.enabled and not self.extraction_writes_enabled


class WorkerSettings(Section):
    batch_records: int = Field(
        default=512, ge=1, le=10_000, description="maximum number of records per batch"
    )
    batch_seconds: float = Field(
        default=1.0,
        gt=0,
        description="target duration of a batch before it is committed, in seconds",
    )
    stop_seconds: float = Field(
        default=5.0, ge=0, description="time to finish running work on a stop, in seconds"
    )
    model_batch_records: int = Field(
        default=8, ge=1, le=10_000, description="the same for stages that call a language model"
    )
    batch_bytes: int = Field(
        default=4 * 1024 * 1024, ge=1024, description="maximum size of a batch, in bytes"
    )
    max_failures: int = Field(
        default=100,
        ge=0,
        description="records in a row that a stage may fail at (dead letters) before it stops",
    )
    record_seconds: float = Field(
        default=60.0,
        gt=0,
        description="what one record may take of a stage beside models and store, in seconds; one"
        " that takes longer becomes a dead letter",
    )
    max_attempts: int = Field(
        default=3, ge=1, le=20, description="maximum number of attempts to get a valid reply"
    )


class StageSettings(Protocol):
    """The sections that stages are told, and what follows for them from the models that are set.
    `exact` and `near` are cosines."""

    intent: IntentSettings
    sessions: SessionSettings
    short_term: ShortTermSettings
    extraction: ExtractionSettings
    decision: DecisionSettings
    pipeline: PipelineSettings
    pii: PiiSettings
    graph: GraphSettings
    worker: WorkerSettings

    @property
    def decider(self) -> Literal["rules", "model"]: ...
    @property
    def exact(self) -> float: ...
    @property
    def near(self) -> float: ...
    def model_copy(self, *, update: Mapping[str, object]) -> Self: ...
