"""How much of what answers a question is found: recall@k over conversations in LoCoMo's layout.

The conversations go through the real pipeline into a folder of their own, one scope each. For each
question of categories 1 to 4 with evidence: which turns come back, by each method. The unit is
the turn; a returned fact counts for the turns that it was derived from.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from palimpsest.ops.bootstrap import publisher
from palimpsest.ops.embedded import Application, application
from palimpsest.ops.ingest.base import Bad
from palimpsest.ops.ingest.locomo import read_locomo
from palimpsest.ops.ingest.records import RecordOptions, in_batches
from palimpsest.ops.queries.recall import retrieved
from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.queries.sources import Sources
from palimpsest.ops.service.running import sources_of
from palimpsest.ops.settings.sections import Settings
from palimpsest.stores.index.vector_column import Vector
from palimpsest.stores.recall.answers import RetrievalConstants
from palimpsest.stores.recall.query import Query, RecallResult
from palimpsest.stores.recall.ranking import DEFAULTS, RankingParameters
from palimpsest.stores.settings import RecallSettings
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.models.base import EmbeddingModel
from palimpsest.streams.runtime.runner import StageRunner

KS: Final = (1, 5, 10, 50)
CATEGORIES: Final = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
_TURN = re.compile(r"D\d+:\d+")


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked in a scope, and the turns that hold the answer."""

    scope: str
    text: str
    category: int
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to recall, measured under its name; as it goes when nothing is set, but for what is
    given."""

    name: str
    settings: RecallSettings = RecallSettings()
    parameters: RankingParameters = DEFAULTS
    types: tuple[str, ...] = ()
    group: bool = True


_NO_NEIGHBOURS = replace(DEFAULTS, neighbour_weights=())
_NO_FACTS = replace(DEFAULTS, fact_to_turn=0.0, turn_to_fact=0.0)
_BARE = replace(_NO_FACTS, neighbour_weights=(), named_boost=0.0)
_TEXT = RecallSettings(time_words="off", graph_weight=0.0)
METHODS: Final = (
    Variant("keyword", RecallSettings(fusion="keyword")),
    Variant("vector", RecallSettings(fusion="vector")),
    Variant("hybrid"),
    Variant("rrf", RecallSettings(fusion="rrf")),
)
ABLATIONS: Final = (
    Variant("hybrid, no times of the words", RecallSettings(time_words="off")),
    Variant("hybrid, no graph", RecallSettings(graph_weight=0.0)),
    Variant("hybrid, neither times nor graph", _TEXT),
    Variant("hybrid, no propagation to neighbours", parameters=_NO_NEIGHBOURS),
    Variant("hybrid, no boost of the named", parameters=replace(DEFAULTS, named_boost=0.0)),
    Variant("hybrid, no centring", parameters=replace(DEFAULTS, centring=0.0)),
    Variant("hybrid, no propagation between turn and fact", parameters=_NO_FACTS),
    Variant("hybrid, turns only", types=("episodic",)),
    Variant("hybrid, not grouped", group=False),
    Variant("hybrid, b 0.75", parameters=replace(DEFAULTS, b=0.75)),
    Variant("hybrid, alpha 0.3", RecallSettings(alpha=0.3)),
    Variant("hybrid, alpha 0.7", RecallSettings(alpha=0.7)),
    Variant("hybrid, pool 50", RecallSettings(pool=50)),
    Variant("hybrid, pool 200", RecallSettings(pool=200)),
    Variant("both legs alone", _TEXT, _BARE),
    Variant("keyword alone", _TEXT.model_copy(update={"fusion": "keyword"}), _BARE),
    Variant("vector alone", _TEXT.model_copy(update={"fusion": "vector"}), _BARE),
    Variant("rrf alone", _TEXT.model_copy(update={"fusion": "rrf"}), _BARE),
)


@dataclass(frozen=True, slots=True)
class Found:
    """One question by one variant: the share of its evidence among the first k turns, by k; the
    rank of the first evidence (None: not among those returned), and the milliseconds it took."""

    category: int
    recall: tuple[float, ...]
    first: int | None
    ms: float


def questions(file: Path) -> list[Question]:
    """The questions of one conversation that have an answer in it, scope by the file's name."""
    raw = json.loads(file.read_text(encoding="utf-8"))
    found = []
    for item in raw.get("qa", []):
        evidence = _TURN.findall(" ".join(map(str, item.get("evidence") or ())))
        if item.get("category") in CATEGORIES and evidence:
            found.append(
                Question(
                    file.stem, item["question"], item["category"], tuple(dict.fromkeys(evidence))
                )
            )
    return found


def conversation_files(data: Path) -> list[Path]:
    """The conversations of a folder. Raises ValueError when there are none."""
    found = sorted(path for path in data.glob("*.json") if path.is_file())
    if not found:
        raise ValueError(f"there is no conversation (*.json) in {data}")
    return found


async def measure(
    settings: Settings,
    data: Path,
    captions: bool,
    variants: Sequence[Variant],
    on_batch: Callable[[StageRunner], Awaitable[None]] | None = None,
) -> JsonObject:
    """Ingest the conversations of `data` into the settings' folder (what is there already is
    nothing new) and ask them, each question as `palimpsest recall` would. Raises ValueError for a
    folder without conversations."""
    files = conversation_files(data)
    with publisher(settings) as append:
        for batch in in_batches(_records(files, settings, captions)):
            append(batch)
    async with application(settings, on_batch=on_batch) as app:
        began = time.perf_counter()
        await app.run(until_drained=True)
        seconds = time.perf_counter() - began
        asked = [question for file in files for question in questions(file)]
        began = time.perf_counter()
        vectors = {
            question.text: await app.embedding.embed_query(question.text) for question in asked
        }
        embedding_ms = 1000 * (time.perf_counter() - began) / max(len(asked), 1)
        sources = replace(sources_of(app), embedding=_Embedded(app.embedding, vectors))
        results = {
            variant.name: summary([await _recalled(sources, variant, each) for each in asked])
            for variant in variants
        }
        return {
            "settings": _told(app, data, files, captions),
            "memories": _memories(app),
            "questions": len(asked),
            "ingest_seconds": round(seconds, 1),
            "query_embedding_ms": round(embedding_ms, 1),
            "methods": {**results},
        }


def _records(files: Iterable[Path], settings: Settings, captions: bool) -> Iterable[Outgoing]:
    now = datetime.now(UTC)
    for path in files:
        options = RecordOptions(path.stem, settings.log.max_record_bytes, now, captions)
        with path.open("rb") as file:
            for record in read_locomo(file, path.name, path.stem, options):
                if isinstance(record, Bad):
                    raise ValueError(f"{record.place}: {record.reason}")
                yield record


class _Embedded:
    """An embedding model that has embedded the questions already: their time is told apart."""

    def __init__(self, inner: EmbeddingModel, vectors: Mapping[str, Vector]) -> None:
        self.model, self.dimensions = inner.model, inner.dimensions
        self.embed_passages, self.check, self.close = (
            inner.embed_passages,
            inner.check,
            inner.close,
        )
        self._vectors = vectors

    async def embed_query(self, text: str) -> Vector:
        return self._vectors[text]


async def _recalled(sources: Sources, variant: Variant, question: Question) -> Found:
    """As `palimpsest recall` does it."""
    query = Query(question.scope, question.text, max(KS), types=variant.types, group=variant.group)
    settings = sources.settings.model_copy(update={"recall": variant.settings})
    sources = replace(sources, settings=settings)
    constants = RetrievalConstants(ranking=variant.parameters)
    began = time.perf_counter()
    found = await retrieved(sources, query, constants)
    ms = 1000 * (time.perf_counter() - began)
    return judged(question, found.results, ms)


def judged(question: Question, results: Sequence[RecallResult], ms: float) -> Found:
    """How much of the evidence was found: every result counts for its turns, in order."""
    turns = list(dict.fromkeys(turn for result in results for turn in result.source_ids))
    shares = tuple(
        sum(turn in turns[:k] for turn in question.evidence) / len(question.evidence) for k in KS
    )
    ranks = [turns.index(turn) + 1 for turn in question.evidence if turn in turns]
    return Found(question.category, shares, min(ranks, default=None), ms)


def summary(found: Sequence[Found]) -> JsonObject:
    """Means over the questions, in all and by category; milliseconds by quantile."""
    times = np.array([each.ms for each in found]) if found else np.zeros(1)
    return {
        **_means(found),
        "by_category": {
            name: _means([each for each in found if each.category == number])
            for number, name in CATEGORIES.items()
        },
        "ms": {
            "p50": round(float(np.quantile(times, 0.5)), 2),
            "p95": round(float(np.quantile(times, 0.95)), 2),
        },
    }


def _means(found: Sequence[Found]) -> JsonObject:
    count = len(found)
    if not count:
        return {"questions": 0}
    means: JsonObject = {"questions": count}
    for number, k in enumerate(KS):
        means[f"recall@{k}"] = round(sum(each.recall[number] for each in found) / count, 4)
    for number, k in enumerate(KS):
        means[f"hit@{k}"] = round(sum(each.recall[number] > 0 for each in found) / count, 4)
    means["mrr"] = round(sum(1 / each.first for each in found if each.first) / count, 4)
    return means


def _told(app: Application, data: Path, files: Sequence[Path], captions: bool) -> JsonObject:
    parameters = RecallSettings().model_dump(mode="json") | asdict(DEFAULTS)
    return {
        "data": data.name,
        "conversations": [file.stem for file in files],
        "captions": captions,
        "extraction": app.language.model,
        "embedding": app.embedding.model,
        "dimensions": app.embedding.dimensions,
        "language": app.settings.search.language,
        "ranking": json.loads(json.dumps(parameters)),
    }


def _memories(app: Application) -> JsonObject:
    counts: dict[str, int] = {}
    for shard in app.shards:
        with shard.reading() as reader:
            rows = reader.execute(
                "SELECT type, count(*) FROM memory_rows WHERE NOT is_deleted GROUP BY type"
            ).fetchall()
        for kind, count in rows:
            counts[kind] = counts.get(kind, 0) + int(count)
    return {kind: counts[kind] for kind in sorted(counts)}
