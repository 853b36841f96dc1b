"""The only place where parts are chosen and joined."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

from ops.settings import EmbeddingSettings, LlmSettings, Settings
from ops.usable import until_usable
from stores.lock import FolderInUse
from stores.shard import Shard, StoreError
from stores.state import ShardOptions
from streams.asking import ModelPort
from streams.logs.base import LogInUse, Outgoing
from streams.logs.embedded import LOCK_NAME, EmbeddedLog, Mode
from streams.models.base import EmbeddingModel, LanguageModel, PermanentModelError
from streams.runner import StageRunner
from streams.topology import STAGE_NAMES, PipelineSettings, stages
from streams.worker import BatchLimits, Worker

if TYPE_CHECKING:
    from ops.kafka.application import KafkaApplication

AnyApplication: TypeAlias = Union["Application", "KafkaApplication"]
MODEL_STAGES = ("extract", "decide")
LOCK_PATIENCE_SECONDS = 1.0
"""A reader may hold a shard for a moment; who wants it for long waits that long for it."""
EMBEDDING_STATE = "embedding_model"


class SetupError(Exception):
    """Parts that cannot be joined as set; the text says what to do."""


def utc_now() -> datetime:
    return datetime.now(UTC)


# --- models ---------------------------------------------------------------------------------


def language_model(settings: LlmSettings) -> LanguageModel:
    """The language model as set. Raises SetupError for settings that no model can be made of."""
    try:
        return _language_model(settings)
    except (PermanentModelError, ValueError) as error:
        raise SetupError(f"llm: {error}") from error


def _language_model(settings: LlmSettings) -> LanguageModel:
    name, url, timeout = settings.model_name, settings.base_url, settings.timeout_seconds
    if settings.provider == "ollama":
        from streams.models import ollama

        return ollama.OllamaLanguageModel(name, url or ollama.DEFAULT_BASE_URL, timeout_s=timeout)
    if settings.provider == "openai":
        from streams.models import openai

        return openai.OpenAILanguageModel(
            name, url or openai.DEFAULT_BASE_URL, settings.api_key, timeout_s=timeout
        )
    if settings.provider == "anthropic":
        from streams.models import anthropic

        return anthropic.AnthropicLanguageModel(
            name, settings.api_key, url or anthropic.DEFAULT_BASE_URL, timeout_s=timeout
        )
    from streams.models.rules import RulesLanguageModel

    return RulesLanguageModel()


def embedding_model(settings: EmbeddingSettings) -> EmbeddingModel:
    """The embedding model as set; a heavy one is loaded by its first use. Raises SetupError."""
    try:
        return _embedding_model(settings)
    except (PermanentModelError, ValueError) as error:
        raise SetupError(f"embedding: {error}") from error


def _embedding_model(settings: EmbeddingSettings) -> EmbeddingModel:
    if settings.provider == "local":
        from streams.models.local import LocalEmbeddingModel

        return LocalEmbeddingModel()
    if settings.provider == "hashing":
        from streams.models.hashing import HashingEmbeddingModel

        return HashingEmbeddingModel(settings.dimensions or settings.known.dimensions)
    name, known, url = settings.model_name, settings.known, settings.base_url
    dimensions = settings.dimensions or known.dimensions
    if not dimensions:
        raise ValueError(
            f"how many numbers {name} gives is not known here; set embedding.dimensions"
        )
    query = known.query_prefix if settings.query_prefix is None else settings.query_prefix
    passage = known.passage_prefix if settings.passage_prefix is None else settings.passage_prefix
    if settings.provider == "ollama":
        from streams.models import ollama

        return ollama.OllamaEmbeddingModel(
            name,
            dimensions,
            url or ollama.DEFAULT_BASE_URL,
            query_prefix=query,
            passage_prefix=passage,
            timeout_s=settings.timeout_seconds,
        )
    from streams.models import openai

    return openai.OpenAIEmbeddingModel(
        name,
        dimensions,
        url or openai.DEFAULT_BASE_URL,
        settings.api_key,
        ask_dimensions=settings.dimensions is not None,
        query_prefix=query,
        passage_prefix=passage,
        timeout_s=settings.timeout_seconds,
    )


# --- log and stores -------------------------------------------------------------------------


def log_folder(settings: Settings) -> Path:
    return settings.data_dir / "log"


def shard_folder(settings: Settings, partition: int) -> Path:
    return settings.data_dir / "shards" / str(partition)


def open_log(
    settings: Settings, mode: Mode, clock: Callable[[], datetime] = utc_now
) -> EmbeddedLog:
    """The embedded log. Raises LogError, and SetupError for a log that is not embedded."""
    if settings.log.kind != "embedded":
        raise SetupError(
            "log.kind is kafka: this command needs the embedded log; unset it, or use the Kafka"
            " worker"
        )
    folder = log_folder(settings)
    partitions = settings.log.partitions
    if partitions is None and mode != "read" and not (folder / "log.sqlite").exists():
        partitions = 1
    return EmbeddedLog.open(folder, partitions, clock, mode)


def has_log(settings: Settings) -> bool:
    return (log_folder(settings) / "log.sqlite").exists()


def log_lock(settings: Settings) -> Path:
    """The file that a worker of the folder has locked."""
    return log_folder(settings) / LOCK_NAME


def shard_options(settings: Settings, embedding: EmbeddingModel) -> ShardOptions:
    return ShardOptions(
        embedding_model=embedding.model,
        dimensions=embedding.dimensions,
        language=settings.search.language,
        memory_limit=settings.store.memory_limit,
        threads=settings.store.threads,
        index_bytes=settings.store.index_bytes,
        candidate_alpha=settings.search.candidate_alpha,
        min_score=settings.decision.min_score,
    )


def open_shard(settings: Settings, partition: int, options: ShardOptions) -> Shard:
    """The stores of one partition. Raises StoreError, also for a folder that cannot be written,
    and FolderInUse when another process keeps it."""
    deadline = time.monotonic() + LOCK_PATIENCE_SECONDS
    folder = shard_folder(settings, partition)
    while True:
        try:
            return Shard(folder, options)
        except FolderInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        except OSError as error:
            raise StoreError(
                f"cannot use the store's folder {folder}: {error.strerror};"
                " make it writable or choose another data folder"
            ) from error
        except ValueError as error:
            raise StoreError(f"the store {folder}: {error}") from error


def pipeline_settings(settings: Settings) -> PipelineSettings:
    return PipelineSettings(
        extraction=settings.extracting,
        decision=settings.deciding,
        applying=settings.applying,
        graph_writes=settings.graph.enabled and settings.graph.extraction_writes_enabled,
    )


# --- the ways to take part ------------------------------------------------------------------


@dataclass(slots=True)
class Application:
    """One process that runs stages: log, models, a shard and runners a partition, the worker.

    `unusable` tells what is wrong with the language model, and is None again once it answers;
    until then extraction waits and everything else goes on.
    """

    settings: Settings
    log: EmbeddedLog
    language: LanguageModel
    embedding: EmbeddingModel
    models: ModelPort
    shards: list[Shard]
    runners: list[StageRunner]
    worker: Worker
    clock: Callable[[], datetime] = utc_now
    warnings: list[str] = field(default_factory=list)
    unusable: str | None = None
    stopping: bool = False
    on_drained: Callable[[], Awaitable[None]] | None = None
    """Awaited at the end of `run`, while the stores are open."""
    finished: bool = False
    """Whether `run` until all is processed came to that."""
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, until_drained: bool) -> None:
        """Process until `stop`, or until all is processed."""
        # LanceDB and all that a worker needs, and a reader does not.
        from ops.upkeep import Expiry, Upkeep

        flags = self.settings.flags
        upkeep = Upkeep(lambda: dict(enumerate(self.shards)), self.embedding, flags)
        expiry = Expiry(self.log, self.clock, self.settings.log.expire_seconds)
        async with expiry.going_on(unless=flags.autonomous_frozen), upkeep.going_on():
            await self.worker.run(until_drained)
        if self.worker.drained:
            self.finished = await upkeep.finish(self._stopped)
        if self.on_drained is not None:
            await self.on_drained()

    def under_way(self) -> dict[str, int]:
        """Records that the stages work on now, by stage."""
        return self.worker.under_way()

    def left(self) -> dict[str, int]:
        """Records that wait for each stage."""
        return self.worker.left()

    def stop(self) -> None:
        """Finish the batches under way, then end `run`; told again, let go of them."""
        self.stopping = True
        self._stopped.set()
        self.worker.stop()

    async def until_usable(self) -> None:
        """Wait for the language model. Raises Interrupted when the worker stops meanwhile."""
        await until_usable(self)


@contextlib.asynccontextmanager
async def running(
    settings: Settings,
    only: Sequence[str] = (),
    clock: Callable[[], datetime] = utc_now,
    patient: bool = False,
) -> AsyncIterator[AnyApplication]:
    """`application` on whichever log is set; who is `patient` waits for a broker that is away."""
    if settings.log.kind == "kafka":
        from ops.kafka.application import kafka_application

        async with kafka_application(settings, only, clock, patient) as joined:
            yield joined
    else:
        async with application(settings, only, clock=clock) as embedded:
            yield embedded


@contextlib.asynccontextmanager
async def application(
    settings: Settings,
    only: Sequence[str] = (),
    on_batch: Callable[[StageRunner], Awaitable[None]] | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> AsyncIterator[Application]:
    """Join all parts for running the stages named in `only` (all when it is empty).

    Raises SetupError, LogError, StoreError or FolderInUse, each saying what to do.
    """
    check_stages(only)
    async with contextlib.AsyncExitStack() as undo:
        language = language_model(settings.llm)
        undo.push_async_callback(language.close)
        embedding = embedding_model(settings.embedding)
        undo.push_async_callback(embedding.close)
        log = undo.enter_context(_processing_log(settings, clock))
        options = shard_options(settings, embedding)
        shards = []
        for partition in range(log.partitions("conversation-turns")):
            shard = open_shard(settings, partition, options)
            undo.callback(shard.close)
            shards.append(shard)
        models = ModelPort(language, embedding, settings.llm.concurrency, settings.embedding.batch)
        runners = _runners(settings, only, log, models, shards, clock)
        worker = Worker(log, runners, batch_limits(settings), model_stages(settings), on_batch)
        joined = Application(
            settings, log, language, embedding, models, shards, runners, worker, clock
        )
        await _check(joined)
        yield joined


def check_stages(names: Sequence[str]) -> None:
    """Raises SetupError for a name that no stage has."""
    unknown = [name for name in names if name not in STAGE_NAMES]
    if unknown:
        raise SetupError(
            f"there is no stage {', '.join(unknown)}; the stages are {', '.join(STAGE_NAMES)}"
        )


def _processing_log(settings: Settings, clock: Callable[[], datetime]) -> EmbeddedLog:
    """The log for processing; a glance of a reader at the lock is waited out."""
    deadline = time.monotonic() + LOCK_PATIENCE_SECONDS / 4
    while True:
        try:
            return open_log(settings, "process", clock)
        except LogInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _runners(
    settings: Settings,
    only: Sequence[str],
    log: EmbeddedLog,
    models: ModelPort,
    shards: Sequence[Shard],
    clock: Callable[[], datetime],
) -> list[StageRunner]:
    return [
        StageRunner(
            stage=stage,
            partition=partition,
            models=models,
            sender=log,
            store=shard if stage.stateful else None,
            now=clock,
            monotonic=time.perf_counter,
            max_record_bytes=settings.log.max_record_bytes,
            max_failures=settings.worker.max_failures,
        )
        for partition, shard in enumerate(shards)
        for stage in stages(pipeline_settings(settings))
        if not only or stage.name in only
    ]


def batch_limits(settings: Settings) -> BatchLimits:
    worker = settings.worker
    return BatchLimits(
        records=worker.batch_records,
        model_records=worker.model_batch_records,
        bytes=worker.batch_bytes,
        seconds=worker.batch_seconds,
        concurrency=settings.llm.concurrency,
        stop_seconds=worker.stop_seconds,
    )


def model_stages(settings: Settings) -> frozenset[str]:
    """The stages that ask a model which takes its time."""
    if settings.llm.provider == "rules":
        return frozenset()
    return frozenset(MODEL_STAGES if settings.decider == "model" else MODEL_STAGES[:1])


async def _check(joined: Application) -> None:
    wrong = await joined.embedding.check()
    if wrong is not None:
        raise SetupError(f"the embedding model {joined.embedding.model} cannot be used: {wrong}")
    for shard in joined.shards:
        before = shard.state(EMBEDDING_STATE)
        if before != joined.embedding.model:
            if before is not None:
                joined.warnings.append(
                    f"the vectors in {shard.folder} are of {before}; what was stored before is"
                    f" found by keywords only, now that embedding is {joined.embedding.model}"
                )
            shard.set_state(EMBEDDING_STATE, joined.embedding.model)
    extracting = [runner for runner in joined.runners if runner.stage.name == "extract"]
    if extracting:
        joined.unusable = await joined.language.check()
        for runner in extracting:
            runner.ready = joined.until_usable


@contextlib.contextmanager
def publisher(
    settings: Settings, clock: Callable[[], datetime] = utc_now
) -> Iterator[Callable[[Sequence[Outgoing]], list[tuple[int, int]]]]:
    """A function that appends records durably, in a folder where a worker may run or not."""
    if settings.log.kind == "kafka":
        from ops.kafka.application import kafka_publisher

        with kafka_publisher(settings) as append:
            yield append
        return
    with open_log(settings, "publish", clock) as log:
        yield log.append


@dataclass(slots=True)
class Readers:
    """What reading needs where no worker runs: the log, and the shard of every partition."""

    settings: Settings
    log: EmbeddedLog
    shards: list[Shard]
    embedding: EmbeddingModel


@contextlib.asynccontextmanager
async def readers(settings: Settings) -> AsyncIterator[Readers]:
    """Open log and stores for reading. Raises LogError, StoreError or FolderInUse."""
    async with contextlib.AsyncExitStack() as undo:
        log = undo.enter_context(open_log(settings, "read"))
        embedding = embedding_model(settings.embedding)
        undo.push_async_callback(embedding.close)
        options = shard_options(settings, embedding)
        shards = []
        for partition in range(log.partitions("conversation-turns")):
            shard = open_shard(settings, partition, options)
            undo.callback(shard.close)
            shards.append(shard)
        yield Readers(settings, log, shards, embedding)
