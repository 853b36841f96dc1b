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

from ops.bootstrap import publisher
from ops.embedded import Application, application
from ops.ingest.base import Bad
from ops.ingest.locomo import read_locomo
from ops.ingest.records import RecordOptions, in_batches
from ops.requests import JsonObject
from ops.settings import Settings
from stores.ranking import DEFAULTS, RankingParameters
from stores.recall import Recall
from stores.recall_types import Fusion, Query, RecallResult
from stores.vector_column import Vector
from streams.logs.base import Outgoing
from streams.runner import StageRunner

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
    """A way to search, measured under its name."""

    name: str
    fusion: Fusion = "hybrid"
    parameters: RankingParameters = DEFAULTS
    types: tuple[str, ...] = ()
    group: bool = True


METHODS: Final = (
    Variant("keyword", "keyword"),
    Variant("vector", "vector"),
    Variant("hybrid"),
    Variant("rrf", "rrf"),
)
_BARE = replace(DEFAULTS, neighbour_weights=(), named_boost=0.0, fact_to_turn=0.0, turn_to_fact=0.0)
ABLATIONS: Final = (
    Variant("hybrid, no lending to neighbours", parameters=replace(DEFAULTS, neighbour_weights=())),
    Variant("hybrid, no favour for the named", parameters=replace(DEFAULTS, named_boost=0.0)),
    Variant("hybrid, no centring", parameters=replace(DEFAULTS, centring=0.0)),
    Variant(
        "hybrid, nothing lent between turn and fact",
        parameters=replace(DEFAULTS, fact_to_turn=0.0, turn_to_fact=0.0),
    ),
    Variant("hybrid, turns only", types=("episodic",)),
    Variant("hybrid, not grouped", group=False),
    Variant("hybrid, b 0.75", parameters=replace(DEFAULTS, b=0.75)),
    Variant("hybrid, alpha 0.3", parameters=replace(DEFAULTS, alpha=0.3)),
    Variant("hybrid, alpha 0.7", parameters=replace(DEFAULTS, alpha=0.7)),
    Variant("hybrid, pool 50", parameters=replace(DEFAULTS, pool=50)),
    Variant("hybrid, pool 200", parameters=replace(DEFAULTS, pool=200)),
    Variant("blend alone", parameters=_BARE),
    Variant("keyword alone, nothing lent", "keyword", _BARE),
    Variant("vector alone, nothing lent", "vector", _BARE),
    Variant("rrf alone", "rrf", _BARE),
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
    nothing new) and search them. Raises ValueError for a folder without conversations."""
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
        vectors = [await app.embedding.embed_query(question.text) for question in asked]
        embedding_ms = 1000 * (time.perf_counter() - began) / max(len(asked), 1)
        results = {
            variant.name: summary(_searched(app, variant, asked, vectors)) for variant in variants
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


def _searched(
    app: Application,
    variant: Variant,
    asked: Sequence[Question],
    vectors: Sequence[Vector],
) -> list[Found]:
    partition = dict.fromkeys({question.scope for question in asked}, app.shards[0])
    if len(app.shards) > 1:
        from streams.logs.base import partition_for

        partition = {s: app.shards[partition_for(s, len(app.shards))] for s in partition}
    found = []
    for question, vector in zip(asked, vectors, strict=True):
        recall = Recall(partition[question.scope], variant.parameters, variant.fusion)
        query = Query(
            question.scope, question.text, max(KS), types=variant.types, group=variant.group
        )
        began = time.perf_counter()
        answer = recall.search(query, None if variant.fusion == "keyword" else vector)
        ms = 1000 * (time.perf_counter() - began)
        found.append(judged(question, answer.results, ms))
    return found


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
    parameters: Mapping[str, object] = asdict(DEFAULTS)
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
