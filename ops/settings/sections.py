"""All the settings: the sections, each from alongside what it sets, and what follows from several.

`ops.settings.sources.load_settings` fills them from file, environment and flags.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from palimpsest.ops.documents.settings import DocumentSettings
from palimpsest.schemas.section import Section
from palimpsest.stores.settings import (
    ArchiveSettings,
    RecallSettings,
    SearchSettings,
    StoreSettings,
)
from palimpsest.streams.kafka.cluster import DEFAULT_PARTITIONS, Cluster
from palimpsest.streams.logs.settings import KafkaSettings, LogSettings
from palimpsest.streams.models.settings import (
    EmbeddingDefaults,
    EmbeddingSettings,
    LlmSettings,
    ReplySettings,
    defaults_for,
)
from palimpsest.streams.sensitive.settings import PiiSettings
from palimpsest.streams.settings import (
    DecisionSettings,
    ExtractionSettings,
    GraphSettings,
    IntentSettings,
    PipelineSettings,
    PrivacySettings,
    SessionSettings,
    ShortTermSettings,
    WorkerSettings,
)


class HttpSettings(Section):
    host: str = Field(
        default="127.0.0.1",
        description="address that `palimpsest serve` listens on; any but loopback needs tokens",
    )
    port: int = Field(default=7245, ge=0, le=65535, description="its port; 0 selects a free one")
    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        description="names that the Host header may have beside localhost on loopback; elsewhere,"
        " when set, the only ones; separated by commas",
    )
    max_connections: int = Field(
        default=512,
        ge=1,
        description="connections at once; fewer where the system grants too few file descriptors",
    )
    head_seconds: float = Field(
        default=10.0,
        gt=0.0,
        description="how long a connection may take to say what it asks for, in seconds",
    )
    keep_alive_seconds: float = Field(
        default=120.0,
        gt=0.0,
        description="how long a connection stays open for the next request, in seconds; longer than"
        " clients and proxies keep theirs, or they may send one just when it closes",
    )
    body_seconds: float = Field(
        default=30.0,
        gt=0.0,
        description="how long a body may take, in seconds; one more for every 16 KiB of it",
    )
    requests_per_token: int = Field(
        default=64, ge=1, description="maximum number of concurrent requests of a token"
    )
    streams_per_token: int = Field(
        default=10, ge=1, description="maximum number of open event streams and exports of a token"
    )
    unprocessed_bytes_per_token: int = Field(
        default=256 * 1024,
        ge=1024,
        description="bytes of turns and changes that a token sent and that are not processed yet;"
        " a token that has reached them is answered by 429 (embedded log)",
    )
    wait_seconds: float = Field(
        default=5.0,
        ge=0.0,
        le=60.0,
        description="how long a change waits for its result unless the request says, in seconds",
    )
    sql_seconds: float = Field(
        default=30.0, gt=0.0, description="maximum duration of a SQL query, in seconds"
    )
    max_body_bytes: int = Field(
        default=1024 * 1024, ge=1024, description="maximum size of a request body, in bytes"
    )
    max_import_bytes: int = Field(
        default=1024 * 1024 * 1024, ge=1024, description="maximum size of an import file, in bytes"
    )
    max_ingest_bytes: int = Field(
        default=64 * 1024 * 1024,
        ge=1024,
        description="maximum size of a file of a conversation, and of a file in its archive, in"
        " bytes",
    )
    modify_per_minute: int = Field(
        default=60, ge=1, description="changes of memories that a token may ask for in a minute"
    )
    delete_per_minute: int = Field(
        default=30, ge=1, description="single memories that a token may have forgotten in a minute"
    )
    batch_forget_per_minute: int = Field(
        default=5, ge=1, description="forgets of many memories that a token may ask for in a minute"
    )


class MaintenanceSettings(Section):
    mode: Literal["observe", "execute"] = Field(
        default="observe",
        description="observe: scheduled maintenance only says what it would repair; execute: it"
        " repairs",
    )
    cooldown_minutes: float = Field(
        default=60.0,
        ge=0.0,
        le=10_080.0,
        description="minimum minutes from one scheduled repair of a domain to the next",
    )
    hourly_budget: int = Field(
        default=2,
        ge=1,
        le=1_000,
        description="maximum number of scheduled repairs of a domain in an hour",
    )
    stale_days: int = Field(
        default=90,
        ge=1,
        le=36_500,
        description="days without a recall after which an extracted memory counts as stale",
    )


class AccessSettings(Section):
    record: bool = Field(
        default=True,
        description="whether recalls, contexts and gets are recorded and reinforce what they"
        " return",
    )
    every_seconds: float = Field(
        default=5.0,
        gt=0.0,
        le=3_600.0,
        description="seconds from one record of accesses to the next; a kill loses those since",
    )
    keep_questions: bool = Field(
        default=True,
        description="whether the texts of questions are kept, without secrets; off: only an id"
        " that is the same for equal questions",
    )


class DecaySettings(Section):
    importance_rate: float = Field(
        default=0.95,
        gt=0.0,
        le=1.0,
        description="factor of the shown importance a day since the last access; 1 for no decay",
    )
    floor: float = Field(
        default=0.05,
        ge=0.0,
        le=1.0,
        description="confidence below which a memory that has faded is forgotten",
    )


class RetentionSettings(Section):
    """In days; commands may set other windows for a scope. That of deleted memories is
    `pipeline.recovery_days`: what can be recovered is kept, and nothing else."""

    history_days: int = Field(
        default=180, ge=0, le=36_500, description="how long history events are kept, in days"
    )
    completed_days: int = Field(
        default=14,
        ge=0,
        le=36_500,
        description="how long it is kept what became of turns and commands, and what their"
        " extraction cost, in days; a command's key is known as long",
    )
    dead_letter_days: int = Field(
        default=30, ge=0, le=36_500, description="how long dead letters are kept, in days"
    )
    recall_days: int = Field(
        default=90, ge=0, le=36_500, description="how long recorded recalls are kept, in days"
    )


class TelemetrySettings(Section):
    traces: bool = Field(
        default=False,
        description="whether turns and commands are traced with OpenTelemetry, from their"
        " publication through all stages; needs the extra `telemetry`. Where traces go is set by"
        " OTEL_EXPORTER_OTLP_ENDPOINT and the other variables of OpenTelemetry",
    )
    traces_per_second: float = Field(
        default=5.0,
        gt=0.0,
        le=1e6,
        description="maximum number of turns and commands per second that this process begins to"
        " trace; OTEL_TRACES_SAMPLER decides instead where it is set",
    )
    log_format: Literal["text", "json"] = Field(
        default="text",
        description="format of the program's log on stderr: text, or a JSON object per line with"
        " correlation and trace ids, also for requests",
    )


# ---- when scheduled jobs run ----
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DAY: Final = timedelta(days=1)
LONGEST: Final = timedelta(days=366)
FORM: Final = "`every 6 h`, `every 30 min`, `03:00`, `03:00 Europe/Berlin` or `off`"
_EVERY: Final = re.compile(r"every (\d{1,5}) (min|h|d)")
_DAILY: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?: (\S{1,64}))?")


@dataclass(frozen=True, slots=True)
class Every:
    """At the multiples of `interval` since 1970 (UTC), so that every process has the same times."""

    interval: timedelta

    def latest(self, now: datetime) -> datetime:
        """The newest scheduled time that is not after `now`."""
        return EPOCH + (now - EPOCH) // self.interval * self.interval

    def following(self, now: datetime) -> datetime:
        """The first scheduled time after `now`."""
        return self.latest(now) + self.interval


@dataclass(frozen=True, slots=True)
class Daily:
    """Once a day at a time of day in a zone. Where the clock skips that time, it runs as much later
    as the clock was put forward; where the clock shows it twice, it runs the first time."""

    at: time
    zone: ZoneInfo

    def latest(self, now: datetime) -> datetime:
        """The newest scheduled time that is not after `now`, in UTC."""
        return max(each for each in self._around(now) if each <= now)

    def following(self, now: datetime) -> datetime:
        """The first scheduled time after `now`, in UTC."""
        return min(each for each in self._around(now) if each > now)

    def _around(self, now: datetime) -> list[datetime]:
        today = now.astimezone(self.zone).date()
        days = (today + timedelta(days=number) for number in range(-2, 3))
        return [datetime.combine(day, self.at, self.zone).astimezone(UTC) for day in days]


Schedule: TypeAlias = Every | Daily


def schedule_of(text: str) -> Schedule | None:
    """The schedule that a setting describes; None for `off`. Raises ValueError."""
    if text == "off":
        return None
    if every := _EVERY.fullmatch(text):
        unit = {"min": "minutes", "h": "hours", "d": "days"}[every[2]]
        interval = timedelta(**{unit: int(every[1])})
        if not timedelta(0) < interval <= LONGEST:
            raise ValueError(f"{text!r} is not from 1 minute to {LONGEST.days} days")
        return Every(interval)
    if daily := _DAILY.fullmatch(text):
        return Daily(time(int(daily[1]), int(daily[2])), _zone(daily[3] or "UTC"))
    raise ValueError(f"{text!r} is not a schedule; write {FORM}")


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(
            f"{name!r} is not a time zone; use a name such as Europe/Berlin, or UTC"
        ) from error


def _checked(text: str) -> str:
    schedule_of(text)
    return text


Scheduled = Annotated[str, AfterValidator(_checked)]


def _job(default: str, what: str) -> Any:
    return Field(default=default, description=f"when {what}: {FORM}")


class JobsSettings(Section):
    decay: Scheduled = _job("03:00", "the confidence of memories fades")
    retention: Scheduled = _job("every 6 h", "data past its retention window is removed")
    archive: Scheduled = _job("every 24 h", "old archived states move to Parquet files")
    profiles: Scheduled = _job("off", "a language model sums up what is known of entities")
    causes: Scheduled = _job("off", "a language model infers which turns led to others")
    consolidation: Scheduled = _job("off", "a language model draws facts from sessions as a whole")
    classification: Scheduled = _job(
        "off", "a language model sorts facts by the aspects of entities"
    )
    aspects: Scheduled = _job(
        "every 1 h", "recalls of ended sessions, and time, weigh aspects of entities"
    )
    maintenance: Scheduled = _job("every 30 min", "diagnostics and repairs run")
    health: Scheduled = _job("every 24 h", "the scores of `diagnose` are recorded for its trend")


class Settings(BaseSettings):
    """All settings. Built by `load_settings`; built directly it reads nothing of the outside."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix="PALIMPSEST_", env_nested_delimiter="__"
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
    archive: ArchiveSettings = ArchiveSettings()
    http: HttpSettings = HttpSettings()
    documents: DocumentSettings = DocumentSettings()
    access: AccessSettings = AccessSettings()
    decay: DecaySettings = DecaySettings()
    jobs: JobsSettings = JobsSettings()
    retention: RetentionSettings = RetentionSettings()
    maintenance: MaintenanceSettings = MaintenanceSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

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
