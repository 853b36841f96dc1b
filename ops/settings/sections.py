"""All the settings: the sections, each from alongside what it sets, and what follows from several.

`ops.settings.sources.load_settings` fills them from file, environment and flags.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from palimpsest.ops.documents.settings import DocumentSettings
from palimpsest.ops.http.settings import HttpSettings
from palimpsest.stores.settings import RecallSettings, SearchSettings, StoreSettings
from palimpsest.streams.kafka.cluster import DEFAULT_PARTITIONS, Cluster
from palimpsest.streams.logs.settings import KafkaSettings, LogSettings
from palimpsest.streams.models.embedding_table import EmbeddingDefaults, defaults_for
from palimpsest.streams.models.settings import EmbeddingSettings, LlmSettings, ReplySettings
from palimpsest.streams.settings import (
    DecisionSettings,
    ExtractionSettings,
    GraphSettings,
    IntentSettings,
    PiiSettings,
    PipelineSettings,
    PrivacySettings,
    SessionSettings,
    ShortTermSettings,
    WorkerSettings,
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
    replies: ReplySettings = ReplySettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    intent: IntentSettings = IntentSettings()
    sessions: SessionSettings = SessionSettings()
    short_term: ShortTermSettings = ShortTermSettings()
    extraction: ExtractionSettings = ExtractionSettings()
    decision: DecisionSettings = DecisionSettings()
    pipeline: PipelineSettings = PipelineSettings()
    pii: PiiSettings = PiiSettings()
    privacy: PrivacySettings = PrivacySettings()
    search: SearchSettings = SearchSettings()
    recall: RecallSettings = RecallSettings()
    graph: GraphSettings = GraphSettings()
    worker: WorkerSettings = WorkerSettings()
    store: StoreSettings = StoreSettings()
    http: HttpSettings = HttpSettings()
    documents: DocumentSettings = DocumentSettings()

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
    def decider(self) -> Literal["rules", "model"]:
        if self.decision.decider != "auto":
            return self.decision.decider
        return "rules" if self.llm.provider == "rules" else "model"

    @property
    def summarizes(self) -> bool:
        """Whether a language model sums up sessions."""
        return self.short_term.summarize and self.llm.provider != "rules"

    @property
    def embedding_model(self) -> str:
        """The name of the embedding model; no one needs to set it."""
        return self.embedding.model_for(self.search.language)

    @property
    def embedding_defaults(self) -> EmbeddingDefaults:
        return defaults_for(self.embedding_model)

    @property
    def near(self) -> float:
        """Cosine below which two facts have nothing in common."""
        near = self.decision.near
        return self.embedding_defaults.near if near is None else near

    @property
    def exact(self) -> float:
        """Cosine from which two facts are one."""
        exact = self.decision.exact
        return self.embedding_defaults.exact if exact is None else exact

    @property
    def cluster(self) -> Cluster:
        return Cluster(self.kafka, self.log.partitions or DEFAULT_PARTITIONS)
