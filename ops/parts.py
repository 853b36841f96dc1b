"""The parts that a process is joined from, whichever log it runs on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palimpsest.ops.folder_swap import unexchanged
from palimpsest.ops.settings.sections import Settings
from palimpsest.stores.lock import FolderInUse
from palimpsest.stores.settings import ShardOptions
from palimpsest.streams.models.settings import LOCAL_ENGLISH, LlmSettings
from palimpsest.streams.runtime.tracing import installed
from palimpsest.streams.text.counts import counted

if TYPE_CHECKING:
    # Who only appends to the log needs neither DuckDB nor numpy: stores, stages and models are
    # imported by the functions that make them.
    from palimpsest.stores.shard import Shard
    from palimpsest.streams.logs.base import LogSender
    from palimpsest.streams.models.base import EmbeddingModel, LanguageModel
    from palimpsest.streams.runtime.model_port import ModelPort
    from palimpsest.streams.runtime.partition_task import PartitionTask
    from palimpsest.streams.runtime.runner import Counts, StageRunner
    from palimpsest.streams.store_port import StorePort

MODEL_STAGES = ("extract", "decide")
CHECK_AGAIN_SECONDS = 5.0
EMBEDDING_STAGES = ("decide", "apply-writes")
LOCK_PATIENCE_SECONDS = 1.0
"""A reader may hold a shard for a moment; who wants it for long waits that long for it."""
EMBEDDING_STATE = "embedding_model"
GRAPH_IS_ONLY_READ = (
    "the graph is searched, but turns add nothing to it: graph.extraction_writes_enabled is off"
)


class SetupError(Exception):
    """Parts that cannot be joined as set; the text says what to do."""


def utc_now() -> datetime:
    return datetime.now(UTC)


# --- models ---------------------------------------------------------------------------------


def language_model(settings: LlmSettings) -> LanguageModel:
    """The language model as set. Raises SetupError for settings that no model can be made of."""
    from palimpsest.streams.models.base import PermanentModelError

    try:
        model = _language_model(settings)
    except (PermanentModelError, ValueError) as error:
        raise SetupError(f"llm: {error}") from error
    if settings.input_price is None and settings.output_price is None:
        return model
    from palimpsest.streams.models.base import PricedLanguageModel, Prices

    return PricedLanguageModel(
        model, Prices(settings.input_price or 0.0, settings.output_price or 0.0)
    )


def _language_model(settings: LlmSettings) -> LanguageModel:
    name, url, timeout = settings.model_name, settings.base_url, settings.timeout_seconds
    key = settings.api_key
    if settings.provider == "ollama":
        from palimpsest.streams.models import ollama

        return ollama.OllamaLanguageModel(name, url or ollama.DEFAULT_BASE_URL, timeout_s=timeout)
    if settings.provider == "openai":
        from palimpsest.streams.models import openai

        base_url = url or openai.DEFAULT_BASE_URL
        return openai.OpenAILanguageModel(name, base_url, key, timeout_s=timeout)
    if settings.provider == "anthropic":
        from palimpsest.streams.models import anthropic

        base_url = url or anthropic.DEFAULT_BASE_URL
        return anthropic.AnthropicLanguageModel(name, key, base_url, timeout_s=timeout)
    from palimpsest.streams.rules.model import RulesLanguageModel

    return RulesLanguageModel()


def embedding_model(settings: Settings) -> EmbeddingModel:
    """The embedding model as set; a heavy one is loaded by its first use. Raises SetupError."""
    from palimpsest.streams.models.base import PermanentModelError

    try:
        return _embedding_model(settings)
    except (PermanentModelError, ValueError) as error:
        raise SetupError(f"embedding: {error}") from error


def _embedding_model(whole: Settings) -> EmbeddingModel:
    settings, name, known = whole.embedding, whole.embedding_model, whole.embedding_defaults
    if settings.provider == "local":
        return _local_embedding_model(name)
    dimensions, url = settings.dimensions or known.dimensions, settings.base_url
    if settings.provider == "hashing":
        from palimpsest.streams.models.hashing import HashingEmbeddingModel

        return HashingEmbeddingModel(dimensions)
    if not dimensions:
        raise ValueError(
            f"how many numbers {name} gives is not known here; set embedding.dimensions"
        )
    query, passage = settings.query_prefix, settings.passage_prefix
    common: dict[str, Any] = {
        "query_prefix": known.query_prefix if query is None else query,
        "passage_prefix": known.passage_prefix if passage is None else passage,
        "timeout_s": settings.timeout_seconds,
    }
    if settings.provider == "ollama":
        from palimpsest.streams.models import ollama

        base_url = url or ollama.DEFAULT_BASE_URL
        return ollama.OllamaEmbeddingModel(name, dimensions, base_url, **common)
    from palimpsest.streams.models import openai

    base_url, named = url or openai.DEFAULT_BASE_URL, settings.dimensions is not None
    key = settings.api_key
    return openai.OpenAIEmbeddingModel(
        name, dimensions, base_url, key, ask_dimensions=named, **common
    )


def _local_embedding_model(name: str) -> EmbeddingModel:
    from palimpsest.stores.index.token_vectors import token_codec
    from palimpsest.streams.models import late_interaction, local

    if name == local.MODEL:
        return local.LocalEmbeddingModel()
    if name == late_interaction.MODEL:
        codec = token_codec(name)
        assert codec is not None, name
        return late_interaction.LateInteractionModel(pack=codec.pack)
    raise ValueError(
        f"there is no local model {name}; set embedding.model to {local.MODEL}, or for English to"
        f" {late_interaction.MODEL}"
    )


def embedding_choice(settings: Settings) -> str | None:
    """Why the embedding model is the one it is, where no one named it."""
    if not settings.embedding.by_language:
        return None
    why = f"chosen by search.language = {settings.search.language}"
    if settings.embedding_model == LOCAL_ENGLISH:
        why += "; for texts in other languages set it to theirs, or to none"
    return why


async def check_embedding(model: EmbeddingModel) -> None:
    """Raises SetupError for a model that cannot be used."""
    wrong = await model.check()
    if wrong is not None:
        raise SetupError(f"the embedding model {model.model} cannot be used: {wrong}")


async def embedding_warnings(model: EmbeddingModel) -> list[str]:
    """What a process that starts without its embedding model says. Its texts get their vectors once
    the model answers; until then they are found by keywords."""
    wrong = await model.check()
    if wrong is None:
        return []
    return [
        "vectors wait, all else runs, and keywords find what has none: the embedding model"
        f" {model.model} cannot be used: {wrong}"
    ]


def graph_warnings(settings: Settings) -> list[str]:
    """What a process says that searches the graph but does not fill it from turns."""
    return [GRAPH_IS_ONLY_READ] if settings.graph.is_only_read else []


@dataclass(slots=True)
class ModelGate:
    """`unusable` tells what is wrong with the language model, and is None again once it answers;
    until then extraction waits and everything else goes on. With `stopping` no one waits.
    `on_waiting` is called every second that someone does."""

    language: LanguageModel
    unusable: str | None = None
    stopping: bool = False
    on_waiting: Callable[[], None] = lambda: None

    async def opened(self) -> None:
        """Wait for the language model. Raises Interrupted when the worker stops meanwhile."""
        from palimpsest.streams.runtime.partition_task import Interrupted

        while self.unusable is not None:
            waited = 0.0
            while waited < CHECK_AGAIN_SECONDS:
                if self.stopping:
                    raise Interrupted
                if round(waited, 1).is_integer():
                    self.on_waiting()
                await asyncio.sleep(0.1)
                waited += 0.1
            self.unusable = await self.language.check()


# --- stores ---------------------------------------------------------------------------------


def shard_folder(settings: Settings, partition: int) -> Path:
    return settings.data_dir / "shards" / str(partition)


def shard_options(settings: Settings, embedding: EmbeddingModel) -> ShardOptions:
    return ShardOptions(embedding.model, embedding.dimensions, settings.store, settings.search)


def open_shard(settings: Settings, partition: int, options: ShardOptions) -> Shard:
    """The stores of one partition. Raises StoreError, also for a folder that cannot be written,
    and FolderInUse when another process keeps it."""
    from palimpsest.stores.shard import Shard, StoreError

    deadline = time.monotonic() + LOCK_PATIENCE_SECONDS
    folder = shard_folder(settings, partition)
    while True:
        try:
            with unexchanged(settings.data_dir):
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


def follow_language(shard: Shard, language: str) -> list[str]:
    """Index a store in the language of the settings where it was in another one; what to tell of
    it. Before anything else uses the store. Blocks. Raises StoreError."""
    if not shard.is_analysed_otherwise:
        return []
    count = shard.index_in(language)
    return [f"search.language is {language} now: {counted(count, 'memories are indexed again')}"]


def note_embedding(shard: Shard, model: str) -> list[str]:
    """Keep in the shard which model makes its vectors from now on; warnings about those that
    another one made."""
    if shard.embedding is not None:
        live = shard.embedding_space
        shard.set_state(EMBEDDING_STATE, live)
        if live == model:
            return []
        return [
            f"the store {shard.folder} searches with {live}, as `palimpsest embedding` was told;"
            f" {model}, which is set, is not used: set embedding.provider and embedding.model to"
            " those of the store, or migrate with `palimpsest embedding migrate --to"
            " PROVIDER/MODEL`"
        ]
    before = shard.state(EMBEDDING_STATE)
    if before == model:
        return []
    shard.set_state(EMBEDDING_STATE, model)
    if before is None:
        return []
    return [
        f"the vectors in {shard.folder} are of {before}, embedding is {model} now: older"
        " memories are found by keywords only until a running worker has embedded them again in the"
        " background; to keep the old vectors, stop this and set embedding back to the old model"
    ]


# --- stages and runners ---------------------------------------------------------------------


def check_stages(names: Sequence[str]) -> None:
    """Raises SetupError for a name that no stage has."""
    from palimpsest.streams.topology import STAGE_NAMES  # with all stages: only when they are named

    unknown = [name for name in names if name not in STAGE_NAMES]
    if unknown:
        raise SetupError(
            f"there is no stage {', '.join(unknown)}; the stages are {', '.join(STAGE_NAMES)}"
        )


def known_private(shards: Mapping[int, Shard]) -> Callable[[str, str], bool]:
    """Whether a shard that is open knows a speaker of a scope as one of whom nothing is kept."""
    from palimpsest.streams.privacy import is_withheld

    def is_known(scope: str, speaker: str) -> bool:
        levels = (shard.privacy.get(scope, {}) for shard in shards.values())
        return any(is_withheld(known, speaker) for known in levels)

    return is_known


def stage_runner(
    settings: Settings,
    task: PartitionTask,
    models: ModelPort,
    sender: LogSender,
    store: StorePort | None,
    clock: Callable[[], datetime],
    gate: ModelGate,
    partitions: int = 1,
    counts: Counts | None = None,
) -> StageRunner:
    """The runner of a partition task; extraction waits at the `gate` for the language model.
    `partitions` is how many every topic has where a producer may choose among them; `counts` goes
    on with those of a runner before."""
    from palimpsest.streams.runtime.runner import Counts, StageRunner

    stage = task.stage
    return StageRunner(
        stage=stage,
        partition=task.partition,
        models=models,
        sender=sender,
        store=store if stage.reads_store else None,
        now=clock,
        monotonic=time.perf_counter,
        max_record_bytes=settings.log.max_record_bytes,
        ready=gate.opened if stage.name == "extract" else task.ready,
        before_commit=task.before_commit,
        max_failures=settings.worker.max_failures,
        record_seconds=settings.worker.record_seconds,
        tracer=installed() if settings.telemetry.traces else None,
        partitions=partitions,
        counts=counts or Counts(),
    )


def model_stages(settings: Settings) -> dict[str, int]:
    """The stages that ask a model which takes its time, with how many questions a language model
    answers at the same time; 0 for one that asks for embeddings only."""
    asking: dict[str, int] = {}
    if settings.embedding.provider != "hashing":
        asking = dict.fromkeys(EMBEDDING_STAGES, 0)
    if settings.llm.provider != "rules":
        deciding = MODEL_STAGES if settings.decider == "model" else MODEL_STAGES[:1]
        asking.update(dict.fromkeys(deciding, settings.llm.concurrency))
    return asking
