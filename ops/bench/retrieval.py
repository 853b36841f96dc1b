"""How much of what answers a question is found: recall@k over conversations in LoCoMo's layout.

The conversations go through the real pipeline into a folder of their own, one scope each. For each
question of categories 1 to 4 with evidence: which turns come back, by each variant. The unit is
the turn; a returned fact counts for the turns that it was derived from.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar, cast

from palimpsest.ops.bench.conversations import Question, of_half, questions, records
from palimpsest.ops.bench.disk import settled
from palimpsest.ops.bench.found import KS, Found, judged, quantiles, summary
from palimpsest.ops.bench.halves import Half
from palimpsest.ops.bench.variants import Variant
from palimpsest.ops.embedded import Application, application
from palimpsest.ops.ingest.records import in_batches
from palimpsest.ops.log_folder import log_folder
from palimpsest.ops.opening import publisher
from palimpsest.ops.operations.recalling import retrieved
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.service.running import sources_of
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.sources import Sources
from palimpsest.stores.recall.answers import RetrievalConstants
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.ranking import DEFAULTS
from palimpsest.stores.settings import RecallSettings
from palimpsest.streams.models.base import EmbeddingModel
from palimpsest.streams.runtime.runner import StageRunner

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class DataSet:
    """Conversations that are measured together: those of a folder, or a half of them."""

    data: Path
    half: Half | None = None
    captions: bool = True

    def files(self) -> Mapping[Path, Half]:
        """Raises ValueError where there are none."""
        return of_half(self.data, self.half)

    def questions(self) -> list[Question]:
        return [each for file, half in self.files().items() for each in questions(file, half)]


async def measure(
    settings: Settings,
    chosen: DataSet,
    variants: Sequence[Variant],
    on_batch: Callable[[StageRunner], Awaitable[None]] | None = None,
) -> JsonObject:
    """Ingest the conversations into the settings' folder (what is there already is nothing new)
    and ask them, each question as `palimpsest recall` would. Raises ValueError for a folder without
    conversations."""
    asked = chosen.questions()
    with publisher(settings) as append:
        for batch in in_batches(records(chosen.files(), settings, chosen.captions)):
            append(batch)
    async with application(settings, on_batch=on_batch) as app:
        began, processor = time.perf_counter(), time.process_time()
        await app.run(until_drained=True)
        seconds, busy = time.perf_counter() - began, time.process_time() - processor
        embedding_ms: dict[str, float] = {}
        sources = replace(sources_of(app), embedding=remembering(app.embedding, embedding_ms))
        for scope in {question.scope for question in asked}:
            await retrieved(sources, Query(scope, "ready"))
        results = {
            variant.name: summary(
                [await _recalled(sources, embedding_ms, variant, q) for q in asked]
            )
            for variant in variants
        }
        memories = _memories(app)
        told = _told(app, chosen)
        folders = [shard.folder for shard in app.shards]
    turns = memories.get("episodic", 0)
    return {
        "settings": told,
        "memories": {**memories},
        "questions": len(asked),
        "ingest_seconds": round(seconds, 1),
        "turns_per_second": round(turns / seconds, 1),
        "turns_per_processor_second": round(turns / busy, 1),
        "query_embedding_ms": quantiles([*embedding_ms.values()]),
        "bytes_a_turn": settled(folders, turns, log_folder(settings)),
        "methods": {**results},
    }


def remembering(inner: EmbeddingModel, ms: dict[str, float]) -> EmbeddingModel:
    """The model with all that it can do, but a question asked before it answers at once, so
    variants differ by their own time alone. `ms` is told what each took the first time."""
    found = {name: getattr(inner, name) for name in dir(inner) if not name.startswith("_")}
    for name, able in found.items():
        if name.startswith("embed_query"):
            found[name] = _remembered(able, ms)
    return cast("EmbeddingModel", SimpleNamespace(**found))


def _remembered(
    embed: Callable[[str], Awaitable[Answer]], ms: dict[str, float]
) -> Callable[[str], Awaitable[Answer]]:
    known: dict[str, Answer] = {}

    async def embedded(text: str) -> Answer:
        if text not in known:
            began = time.perf_counter()
            known[text] = await embed(text)
            ms[text] = 1000 * (time.perf_counter() - began)
        return known[text]

    return embedded


async def _recalled(
    sources: Sources, embedding_ms: Mapping[str, float], variant: Variant, question: Question
) -> Found:
    """As `palimpsest recall` does it; the time is that of the embedding, too."""
    query = Query(
        *(question.scope, question.text, max(KS)),
        types=variant.types,
        group=variant.group,
        asked_at=question.asked_at,
    )
    settings = sources.settings.model_copy(update={"recall": variant.settings})
    sources = replace(sources, settings=settings)
    constants = RetrievalConstants(ranking=variant.parameters)
    known_ms = embedding_ms.get(question.text, 0.0)
    began = time.perf_counter()
    found = await retrieved(sources, query, constants)
    ms = 1000 * (time.perf_counter() - began) + known_ms
    turns = [turn for result in found.results for turn in result.source_ids]
    return judged(question, turns, ms)


def _told(app: Application, chosen: DataSet) -> JsonObject:
    parameters = RecallSettings().model_dump(mode="json") | asdict(DEFAULTS)
    return {
        "data": chosen.data.name,
        "conversations": [file.stem for file in chosen.files()],
        "captions": chosen.captions,
        "extraction": app.language.model,
        "embedding": app.embedding.model,
        "dimensions": app.embedding.dimensions,
        "language": app.settings.search.language,
        "ranking": json.loads(json.dumps(parameters)),
    }


def _memories(app: Application) -> dict[str, int]:
    counts: dict[str, int] = {}
    for shard in app.shards:
        with shard.reading() as reader:
            rows = reader.execute(
                "SELECT type, count(*) FROM memory_rows WHERE NOT is_deleted GROUP BY type"
            ).fetchall()
        for kind, count in rows:
            counts[kind] = counts.get(kind, 0) + int(count)
    return {kind: counts[kind] for kind in sorted(counts)}
