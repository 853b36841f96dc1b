"""How much of the evidence recall finds: recall@k on conversations in LoCoMo's layout.

The conversations go through the real pipeline into a folder of their own, one scope each. For each
question of categories 1 to 4 with evidence, each variant returns turns. The unit is the turn; a
returned fact counts for the turns that it was derived from.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import Final, TypeVar, cast

from palimpsest.ops.bench.data_sets import DataSet, Question
from palimpsest.ops.bench.measures import KS, Found, disk_bytes, judged, ms_since, summary, times
from palimpsest.ops.embedding.turn_passages import embed_turns
from palimpsest.ops.log_folder import log_folder
from palimpsest.ops.maintenance.embedded import Application, application
from palimpsest.ops.operations.recalling import retrieved
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.worker.local import sources_of
from palimpsest.stores.index.token_vectors import keeps_tokens
from palimpsest.stores.ranking import DEFAULTS, RankingParameters
from palimpsest.stores.recall.answers import RetrievalConstants
from palimpsest.stores.recall.query import Query
from palimpsest.stores.settings import RecallSettings
from palimpsest.streams.models.base import EmbeddingModel

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to recall: the defaults, except for what is given."""

    name: str
    settings: RecallSettings = RecallSettings()
    parameters: RankingParameters = DEFAULTS
    types: tuple[str, ...] = ()
    group: bool = True


_NO_FACTS = replace(DEFAULTS, fact_to_turn=0.0, turn_to_fact=0.0)
_NO_ROLES = replace(DEFAULTS, assistant_prior=1.0, people_prior=1.0)
_NO_QUESTION_PRIOR = replace(DEFAULTS, question_prior=1.0)
_BARE = replace(
    replace(_NO_ROLES, question_prior=1.0),
    fact_to_turn=0.0,
    turn_to_fact=0.0,
    neighbour_weights=(),
    named_boost=0.0,
)
_TEXT = RecallSettings(time_words="off", graph_weight=0.0, when_weight=0.0)

HYBRID: Final = Variant("hybrid")
METHODS: Final = (
    Variant("keyword", RecallSettings(fusion="keyword")),
    Variant("vector", RecallSettings(fusion="vector")),
    HYBRID,
    Variant("rrf", RecallSettings(fusion="rrf")),
)
ABLATIONS: Final = (
    Variant("no times of the words", RecallSettings(time_words="off")),
    Variant("no graph", RecallSettings(graph_weight=0.0)),
    Variant("when like what", RecallSettings(when_weight=0.0)),
    Variant("no times, no graph, when like what", _TEXT),
    Variant("no propagation to neighbours", parameters=replace(DEFAULTS, neighbour_weights=())),
    Variant("no boost of the named", parameters=replace(DEFAULTS, named_boost=0.0)),
    Variant("no priors by role", parameters=_NO_ROLES),
    Variant("outlines of assistants", parameters=replace(DEFAULTS, passage_rank=0)),
    Variant("questions like answers", parameters=_NO_QUESTION_PRIOR),
    Variant("no centring", parameters=replace(DEFAULTS, centring=0.0)),
    Variant("no propagation between turn and fact", parameters=_NO_FACTS),
    Variant("turns only", types=("episodic",)),
    Variant("not grouped", group=False),
    Variant("b 0.75", parameters=replace(DEFAULTS, b=0.75)),
    Variant("turns before alike", parameters=replace(DEFAULTS, asking_weight=0.25)),
    Variant("alpha 0.5", RecallSettings(alpha=0.5)),
    Variant("alpha 0.8", RecallSettings(alpha=0.8)),
    Variant("pool 100", RecallSettings(pool=100)),
    Variant("pool 200", RecallSettings(pool=200)),
    Variant("both legs alone", _TEXT, _BARE),
    Variant("keyword alone", _TEXT.model_copy(update={"fusion": "keyword"}), _BARE),
    Variant("vector alone", _TEXT.model_copy(update={"fusion": "vector"}), _BARE),
    Variant("rrf alone", _TEXT.model_copy(update={"fusion": "rrf"}), _BARE),
)
"""Those that end in "alone" search without propagation and boosts; each of the others differs from
hybrid in the part that its name says."""


async def measure(settings: Settings, chosen: DataSet, variants: Sequence[Variant]) -> JsonObject:
    """Ingests the conversations into the settings' folder and asks each question as
    `palimpsest recall` would. Raises ValueError for a folder without conversations."""
    questions = chosen.questions()
    chosen.publish(settings)
    async with application(settings) as app:
        began, processor = time.perf_counter(), time.process_time()
        await app.run(until_drained=True)
        if app.settings.search.assistant_passages and keeps_tokens(app.embedding.model):
            for shard in app.shards.values():
                await embed_turns(shard, app.embedding)
        seconds, busy = time.perf_counter() - began, time.process_time() - processor
        embedding_ms: dict[str, float] = {}
        model = remembering(app.embedding, embedding_ms)
        sources = replace(sources_of(app), embedding=model, loaded=None)
        for scope in {question.scope for question in questions}:
            await retrieved(sources, Query(scope, "ready"))
        results = {
            variant.name: summary(
                [await _recalled(sources, embedding_ms, variant, q) for q in questions]
            )
            for variant in variants
        }
        by_type: Counter[str] = Counter()
        query = "SELECT type, count(*) FROM memory_rows WHERE NOT is_deleted GROUP BY type"
        for shard in app.shards.values():
            with shard.reading() as reader:
                by_type.update(dict(reader.execute(query).fetchall()))
        effective = _settings(app, chosen)
        folders = [shard.folder for shard in app.shards.values()]
    turns = by_type["episodic"]
    return {
        "settings": effective,
        "memories": dict(sorted(by_type.items())),
        "questions": len(questions),
        "ingest_seconds": round(seconds, 1),
        "turns_per_second": round(turns / seconds, 1),
        "turns_per_processor_second": round(turns / busy, 1),
        "query_embedding_ms": times([*embedding_ms.values()]),
        "bytes_a_turn": disk_bytes(folders, turns, log_folder(settings)),
        "methods": {**results},
    }


def remembering(inner: EmbeddingModel, ms: dict[str, float]) -> EmbeddingModel:
    """The model with a cache of questions, so that variants differ by their own time alone. `ms`
    gets the milliseconds of each question's first embedding."""
    found = {name: getattr(inner, name) for name in dir(inner) if not name.startswith("_")}
    for name, method in found.items():
        if name.startswith("embed_query"):
            found[name] = _remembered(method, ms)
    return cast("EmbeddingModel", SimpleNamespace(**found))


def _remembered(
    embed: Callable[[str], Awaitable[Answer]], ms: dict[str, float]
) -> Callable[[str], Awaitable[Answer]]:
    known: dict[str, Answer] = {}

    async def embedded(text: str) -> Answer:
        if text not in known:
            began = time.perf_counter()
            known[text] = await embed(text)
            ms[text] = ms_since(began)
        return known[text]

    return embedded


async def _recalled(
    sources: Sources, embedding_ms: Mapping[str, float], variant: Variant, question: Question
) -> Found:
    """Recalls as `palimpsest recall` does; the time includes the embedding."""
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
    ms = ms_since(began) + known_ms
    turns = [turn for result in found.results for turn in result.source_ids]
    return judged(question, turns, ms)


def _settings(app: Application, chosen: DataSet) -> JsonObject:
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
