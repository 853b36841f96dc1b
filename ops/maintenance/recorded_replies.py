"""The recorded replies of a data folder, and the models that use them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from palimpsest.ops.embedding.models import EmbeddingModels
from palimpsest.ops.settings.sections import Settings
from palimpsest.streams.models.base import LanguageModel
from palimpsest.streams.models.recorded import FILE_NAME, RecordedReplies
from palimpsest.streams.runtime.model_port import ModelPort

BYTES_OF_A_MEGABYTE: Final = 1_000_000


def recorded_replies(settings: Settings, clock: Callable[[], datetime]) -> RecordedReplies | None:
    """Opens the file, also if recording is off and existing replies only have to expire; returns
    None if there is no file and none is needed. Raises LogError."""
    path = settings.data_dir / FILE_NAME
    if not _records(settings) and not path.exists():
        return None
    kept = settings.replies
    most = int(kept.max_megabytes * BYTES_OF_A_MEGABYTE)
    return RecordedReplies(path, clock, kept.retention_days, most)


def _records(settings: Settings) -> bool:
    """Whether a remote model is used and its replies are kept."""
    deciders = {*settings.pipeline.shadow_deciders, settings.llm.provider}
    return deciders != {"rules"} and settings.replies.retention_days > 0


def model_port(
    settings: Settings,
    language: LanguageModel,
    embeddings: EmbeddingModels,
    replies: RecordedReplies | None,
) -> ModelPort:
    """The models of one worker, with the replies that were recorded."""
    return ModelPort(
        language,
        embeddings.own,
        settings.llm.concurrency,
        settings.embedding.batch,
        replies=replies if _records(settings) and language.provider != "rules" else None,
        address=settings.llm.base_url or "",
        of_space=embeddings.of_space,
        breaker_of=embeddings.breaker_of,
    )
