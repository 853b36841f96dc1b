"""Everything that can be set, typed, each value explained beside itself with its unit.

`ops.setting_sources.load_settings` fills these from file, environment and flags; the properties
at the end hand them on to the parts that know nothing of settings files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from ops.embedding_table import EmbeddingDefaults, defaults_for
from ops.recall_settings import GraphSettings, RecallSettings, SearchSettings, Section
from schemas.codec import DEFAULT_MAX_RECORD_BYTES
from streams.settings import ApplySettings, DecisionSettings, ExtractionSettings, Flags

DEFAULT_LLM_MODELS = {
    "rules": "rules-1",
    "ollama": "qwen3:4b",
    "openai": "gpt-4o-mini",
    "anthropic": "claude-haiku-4-5",
}
DEFAULT_EMBEDDING_MODELS = {
    "local": "multilingual-e5-small-q4",
    "ollama": "nomic-embed-text",
    "openai": "text-embedding-3-small",
    "hashing": "hashing-1",
}


class LogSettings(Section):
    kind: Literal["embedded", "kafka"] = Field(
        default="embedded", description="where the topics lie: a file in the data folder, or Kafka"
    )
    partitions: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="partitions of every topic, fixed when the log is made; when not set, 1"
        " embedded and 8 on Kafka",
    )
    max_record_bytes: int = Field(
        default=DEFAULT_MAX_RECORD_BYTES,
        ge=1024,
        description="largest record taken from a producer, in bytes",
    )
    expire_seconds: float = Field(
        default=600.0,
        ge=1.0,
        description="how often a worker removes from the embedded log what is older than its topic"
        " keeps it (cache-invalidations: 1 day), in seconds; on Kafka the broker does",
    )


class KafkaSettings(Section):
    bootstrap_servers: str = Field(
        default="localhost:9092", description="brokers as host:port, separated by commas"
    )
    topic_prefix: str = Field(
        default="",
        pattern="^[a-z0-9-]*$",
        description="put before the name of every topic, so that installations can share a cluster",
    )
    group: str = Field(
        default="palimpsest",
        min_length=1,
        description="first part of the names of the consumer groups; another one for every"
        " installation",
    )
    replication_factor: int = Field(
        default=1, ge=1, le=9, description="copies of every partition that `topics create` asks for"
    )
    session_seconds: float = Field(
        default=20.0,
        ge=1.0,
        le=600.0,
        description="how long the group waits for a worker that does not answer, in seconds; the"
        " broker's group.min.session.timeout.ms (6 s by default) is the least",
    )
    grace_seconds: float = Field(
        default=1.0,
        ge=0.0,
        le=60.0,
        description="how long a rebalance waits for batches that wait for a model, in seconds;"
        " they are begun again by the next owner",
    )
    quiesce_seconds: float = Field(
        default=30.0,
        ge=1.0,
        le=600.0,
        description="how long a rebalance waits for batches that are being committed, in seconds",
    )
    workers: tuple[str, ...] = Field(
        default=(),
        description="local interfaces of workers on other machines as http://host:port, separated"
        " by commas; those that share the data folder are found by themselves",
    )
    worker_token: SecretStr | None = Field(
        default=None,
        description="secret that workers on several machines share; needed to listen elsewhere"
        " than on loopback; never shown",
    )
    listen: str = Field(
        default="127.0.0.1",
        description="address that a worker's interface for reading listens on",
    )
    listen_port: int = Field(
        default=0, ge=0, le=65535, description="its port; 0 takes any that is free"
    )


class LlmSettings(Section):
    provider: Literal["rules", "ollama", "openai", "anthropic"] = Field(
        default="rules",
        description="who extracts facts: rules (no model), ollama, openai (any compatible"
        " server) or anthropic",
    )
    base_url: str | None = Field(
        default=None, description="the provider's address; when not set, the provider's usual one"
    )
    model: str | None = Field(
        default=None, description="the model's name; when not set, the provider's default"
    )
    api_key: SecretStr | None = Field(default=None, description="key for the provider; never shown")
    timeout_seconds: float = Field(
        default=45.0, gt=0, le=3600, description="time-out of one call as a whole, in seconds"
    )
    concurrency: int = Field(default=4, ge=1, le=256, description="model calls at the same time")

    @property
    def model_name(self) -> str:
        return self.model or DEFAULT_LLM_MODELS[self.provider]


class EmbeddingSettings(Section):
    provider: Literal["local", "ollama", "openai", "hashing"] = Field(
        default="local",
        description="who makes vectors: local (comes with the program), ollama, openai (any"
        " compatible server) or hashing (word counts; for tests and load tests)",
    )
    base_url: str | None = Field(
        default=None, description="the provider's address; when not set, the provider's usual one"
    )
    model: str | None = Field(
        default=None, description="the model's name; when not set, the provider's default"
    )
    api_key: SecretStr | None = Field(default=None, description="key for the provider; never shown")
    dimensions: int | None = Field(
        default=None,
        ge=8,
        le=65_536,
        description="numbers in a vector; needed for a model that is not known here",
    )
    timeout_seconds: float = Field(
        default=45.0, gt=0, le=3600, description="time-out of one call as a whole, in seconds"
    )
    batch: int = Field(default=256, ge=1, le=4096, description="texts in one call")
    query_prefix: str | None = Field(
        default=None, description="put before a query; when not set, what is known of the model"
    )
    passage_prefix: str | None = Field(
        default=None,
        description="put before a stored text; when not set, what is known of the model",
    )

    @property
    def model_name(self) -> str:
        return self.model or DEFAULT_EMBEDDING_MODELS[self.provider]

    @property
    def known(self) -> EmbeddingDefaults:
        return defaults_for(self.model_name)


class ExtractionSection(Section):
    roles: tuple[Literal["user", "assistant", "tool", "system"], ...] = Field(
        default=("user", "assistant"), description="whose turns facts are extracted from"
    )
    context_turns: int = Field(
        default=2,
        ge=0,
        le=50,
        description="earlier turns of the session shown to the model, in turns",
    )
    max_output_tokens: int = Field(
        default=2_048,
        ge=64,
        description="of a reply, in tokens; a longer one is cut, and what is whole of it is used",
    )
    max_input_characters: int = Field(
        default=12_000, ge=100, description="of a turn shown to the model, in characters"
    )


class DecisionSection(Section):
    decider: Literal["auto", "rules", "model"] = Field(
        default="auto",
        description="who decides between the bands: rules, the model, or auto (rules with the"
        " rules provider, else the model)",
    )
    exact: float | None = Field(
        default=None,
        ge=0.0,
        le=1.0,
        description="cosine from which two facts are one; when not set, by embedding model",
    )
    near: float | None = Field(
        default=None,
        ge=0.0,
        le=1.0,
        description="cosine below which two facts have nothing in common; when not set, by"
        " embedding model",
    )
    candidates: int = Field(
        default=5, ge=1, le=50, description="existing memories shown to a decision"
    )
    min_score: float = Field(
        default=0.1, ge=0.0, le=1.0, description="least blended score of a candidate, from 0 to 1"
    )
    semantic_contradiction: bool = Field(
        default=False,
        description="ask the model, too, whether an update contradicts what it replaces",
    )


class PipelineSection(Section):
    enabled: bool = Field(
        default=True, description="off: turns are stored raw, nothing is extracted"
    )
    shadow_mode: bool = Field(
        default=False, description="on: everything is decided and recorded, nothing written"
    )
    allow_update_delete: bool = Field(
        default=False, description="on: UPDATE and DELETE are carried out, not only proposed"
    )
    mutations_frozen: bool = Field(
        default=False, description="on: no memory is changed, also not by commands"
    )
    autonomous_frozen: bool = Field(
        default=False,
        description="on: no maintenance by timers (vectors that were missed, records too old)",
    )
    min_fact_confidence: float = Field(
        default=0.7,
        ge=0.0,
        le=1.0,
        description="least confidence of a fact that is added, from 0 to 1",
    )
    max_reconsiderations: int = Field(
        default=3,
        ge=0,
        le=20,
        description="how often a decision on what has changed since is sent back",
    )
    recovery_days: int = Field(
        default=30, ge=0, description="how long a forgotten memory can be recovered, in days"
    )


class WorkerSettings(Section):
    batch_records: int = Field(
        default=512, ge=1, le=10_000, description="records that a stage takes at once, at most"
    )
    batch_seconds: float = Field(
        default=1.0, gt=0, description="work that a stage does before it is kept, in seconds"
    )
    stop_seconds: float = Field(
        default=5.0, ge=0, description="time that a stop leaves to what is under way, in seconds"
    )
    model_batch_records: int = Field(
        default=8, ge=1, le=10_000, description="the same where a language model is asked"
    )
    batch_bytes: int = Field(
        default=4 * 1024 * 1024, ge=1024, description="size of what a stage takes at once, in bytes"
    )
    max_failures: int = Field(
        default=100,
        ge=0,
        description="records in a row that a stage may fail at (dead letters) before it stops",
    )
    max_attempts: int = Field(
        default=3, ge=1, le=20, description="tries, in all, for a reply that can be read"
    )


class StoreSettings(Section):
    memory_limit: int = Field(
        default=256, ge=64, description="memory of the database of one partition, in MiB"
    )
    threads: int = Field(default=1, ge=1, le=256, description="threads of the database")
    index_bytes: int = Field(
        default=512 * 1024 * 1024,
        ge=1024 * 1024,
        description="indexes of scopes in use kept in memory, in bytes",
    )


class Settings(BaseSettings):
    """All settings. Built by `load_settings`; built directly it reads nothing of the outside."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix="PALIMPSEST_",
        env_nested_delimiter="__",
    )

    data_dir: Path = Field(
        default=Path("palimpsest-data"), description="folder of the embedded log and the stores"
    )
    log: LogSettings = LogSettings()
    kafka: KafkaSettings = KafkaSettings()
    llm: LlmSettings = LlmSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    extraction: ExtractionSection = ExtractionSection()
    decision: DecisionSection = DecisionSection()
    pipeline: PipelineSection = PipelineSection()
    search: SearchSettings = SearchSettings()
    recall: RecallSettings = RecallSettings()
    graph: GraphSettings = GraphSettings()
    worker: WorkerSettings = WorkerSettings()
    store: StoreSettings = StoreSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # The sources are joined by load_settings, which remembers where each value came from.
        return (init_settings,)

    @property
    def decider(self) -> str:
        """`rules` or `model`."""
        if self.decision.decider != "auto":
            return self.decision.decider
        return "rules" if self.llm.provider == "rules" else "model"

    @property
    def near(self) -> float:
        near = self.decision.near
        return self.embedding.known.near if near is None else near

    @property
    def exact(self) -> float:
        exact = self.decision.exact
        return self.embedding.known.exact if exact is None else exact

    @property
    def flags(self) -> Flags:
        return Flags(
            enabled=self.pipeline.enabled,
            shadow_mode=self.pipeline.shadow_mode,
            allow_update_delete=self.pipeline.allow_update_delete,
            mutations_frozen=self.pipeline.mutations_frozen,
            autonomous_frozen=self.pipeline.autonomous_frozen,
        )

    @property
    def extracting(self) -> ExtractionSettings:
        return ExtractionSettings(
            roles=self.extraction.roles,
            context_turns=self.extraction.context_turns,
            max_input_characters=self.extraction.max_input_characters,
            max_output_tokens=self.extraction.max_output_tokens,
            max_attempts=self.worker.max_attempts,
        )

    @property
    def deciding(self) -> DecisionSettings:
        return DecisionSettings(
            decider=self.decider,
            exact=self.exact,
            near=self.near,
            candidates=self.decision.candidates,
            min_score=self.decision.min_score,
            max_attempts=self.worker.max_attempts,
            semantic_contradiction=self.decision.semantic_contradiction,
            min_fact_confidence=self.pipeline.min_fact_confidence,
            max_reconsiderations=self.pipeline.max_reconsiderations,
        )

    @property
    def applying(self) -> ApplySettings:
        return ApplySettings(
            flags=self.flags,
            near=self.near,
            min_fact_confidence=self.pipeline.min_fact_confidence,
            max_reconsiderations=self.pipeline.max_reconsiderations,
            recovery_days=self.pipeline.recovery_days,
        )
