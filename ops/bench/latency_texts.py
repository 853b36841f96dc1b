"""Measures latency and cost of recall in one scope of real texts.

Conversations go through the pipeline in copies, each under other names of people and places and
four weeks earlier than the one before, until there are enough memories. The benchmark measures a
worker that has opened them, from the text of a query, its embedding included, to the results.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final, TypedDict, cast

from palimpsest.ops.bench.data_sets import Turn, conversation_files, publish, questions, turns
from palimpsest.ops.bench.latency import FACTS, candidates_ms
from palimpsest.ops.bench.made_up import SEED, SYLLABLES
from palimpsest.ops.bench.measures import MIB, disk_bytes, memory, ms_since, times
from palimpsest.ops.ingest.records import turn_id_of_message
from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.operations.recalling import retrieved
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.worker.local import sources_of
from palimpsest.schemas.memory_texts import MONTHS
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.stores.recall.query import Query
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.runtime.output import published

SCOPE: Final = "bench"
QUESTIONS: Final = 200
MESSAGES: Final = 10
"""Number of messages, of `FACTS` facts each, to find candidates for."""
FILLED: Final = "filled.json"
APART: Final = timedelta(weeks=4)
_CAPITAL = re.compile(r"\b[A-Z][a-z]{2,}\b")
_INSIDE = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{2,}\b")
"""A capitalized word inside a sentence."""
_SMALL = re.compile(r"\b[a-z]{3,}\b")
_OF_TIME: Final = frozenset(
    (*MONTHS, *"Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split())
)


class Filled(TypedDict):
    """What was stored, and queries and new facts for it. `copies` counts the passes over the
    conversations."""

    memories: int
    copies: int
    seconds: float
    questions: list[str]
    facts: list[str]


@dataclass(frozen=True, slots=True)
class Original:
    """The turns of a conversation, its questions and its names."""

    turns: tuple[Turn, ...]
    questions: tuple[str, ...]
    names: tuple[str, ...]


async def measure(settings: Settings, data: Sequence[Path], memories: int) -> JsonObject:
    """Fills the settings' folder with at least `memories`, unless it is filled, and searches it.
    Raises ValueError for a folder without conversations."""
    filled = await _filled(settings, data, memories)
    async with application(settings) as app:
        await app.run(until_drained=True)  # LanceDB catches up, as in any worker
        sources = sources_of(app)
        shard = sources.shard_of(SCOPE)

        async def recall(text: str) -> None:
            await retrieved(sources, Query(SCOPE, text))

        first = await _timed(recall, filled["questions"][:1])
        processor = time.process_time()
        recalls = await _timed(recall, filled["questions"])
        processor = time.process_time() - processor
        # Embeds new facts: decide has their vectors when it searches.
        facts = filled["facts"]
        vectors = await sources.embedding.embed_passages(facts)
        pairs = [*zip(facts, vectors, strict=True)]
        result: JsonObject = {
            "memories": filled["memories"],
            "copies": filled["copies"],
            "fill_seconds": filled["seconds"],
            "embedding": app.embedding.model,
            "first_recall_ms": first,
            "recall_ms": recalls,
            "recall_processor_ms": round(1000 * processor / len(filled["questions"]), 1),
            "question_embedding_ms": await _timed(app.embedding.embed_query, filled["questions"]),
            "candidates_ms": candidates_ms(
                shard,
                [(SCOPE, pairs[first : first + FACTS]) for first in range(0, len(pairs), FACTS)],
            ),
            "index_mib": round(shard.indexes.bytes_used() / MIB, 1),
            **memory(),
        }
    result["bytes_a_memory"] = disk_bytes([shard.folder], filled["memories"])
    return result


async def _timed(call: Callable[[str], Awaitable[object]], texts: Sequence[str]) -> JsonObject:
    took = []
    for text in texts:
        began = time.perf_counter()
        await call(text)
        took.append(ms_since(began))
    return times(took)


async def _filled(settings: Settings, data: Sequence[Path], memories: int) -> Filled:
    """Fills the folder in a separate process: its resources must not count as the worker's."""
    note = settings.data_dir / FILLED
    if not note.exists():
        originals = []
        for file in (file for each in data for file in conversation_files(each)):
            found = tuple(turns([file], settings, captions=True))
            asked = tuple(question.text for question in questions(file))
            texts = [f"{turn.speaker}, {turn.speaker}: {turn.content}" for _, _, turn in found]
            originals.append(Original(found, asked, names_of([*texts, *asked])))
        spawning = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawning) as process:
            loop = asyncio.get_running_loop()
            filled = await loop.run_in_executor(process, fill, settings, originals, memories)
        note.write_text(json.dumps(filled), encoding="utf-8")
    return cast("Filled", json.loads(note.read_text(encoding="utf-8")))


def fill(settings: Settings, originals: Sequence[Original], memories: int) -> Filled:
    """Stores copies; deterministic."""
    return asyncio.run(_fill(settings, originals, memories))


async def _fill(settings: Settings, originals: Sequence[Original], memories: int) -> Filled:
    began = time.perf_counter()
    stored: list[tuple[str, str]] = []
    copies = 0
    async with application(settings) as app:
        shard = sources_of(app).shard_of(SCOPE)
        while len(stored) < memories:
            for number, original in enumerate(originals):
                publish(settings, copied(original, copies, number))
            app.worker = replace(app.worker)  # one works until it is drained, once
            await app.run(until_drained=True)
            with shard.reading() as reader:
                stored = reader.execute(
                    "SELECT type, content FROM memory_rows WHERE NOT is_deleted ORDER BY memory_id"
                ).fetchall()
            copies += 1
    chance = random.Random(SEED)
    queries = [
        renamed(text, other_names(each.names, chance.randrange(copies)))
        for each in originals
        for text in each.questions
    ]
    new_names = other_names([name for each in originals for name in each.names], copies)
    facts = [renamed(content, new_names) for kind, content in stored if kind != "episodic"]
    return {
        "memories": len(stored),
        "copies": copies,
        "seconds": round(time.perf_counter() - began, 1),
        "questions": chance.sample(queries, min(QUESTIONS, len(queries))),
        "facts": chance.sample(facts, min(MESSAGES * FACTS, len(facts))),
    }


def names_of(texts: Sequence[str]) -> tuple[str, ...]:
    """Returns the words that are capitalized inside a sentence and never appear in lower case."""
    found = {name for text in texts for name in _INSIDE.findall(text)}
    small = {word for text in texts for word in _SMALL.findall(text)}
    return tuple(sorted(name for name in found - _OF_TIME if name.lower() not in small))


def other_names(names: Sequence[str], copy: int) -> dict[str, str]:
    """Returns the replacement of every name in a copy; the first copy keeps the names."""
    if not copy:
        return {name: name for name in names}
    others = {}
    for name in names:
        chance = random.Random(f"{copy} {name}")
        syllables = chance.choices(SYLLABLES, k=chance.choice((2, 2, 3)))
        others[name] = "".join(syllables).capitalize()
    return others


def renamed(text: str, names: Mapping[str, str]) -> str:
    return _CAPITAL.sub(lambda match: names.get(match[0], match[0]), text)


def copied(original: Original, copy: int, conversation: int) -> Iterator[Outgoing]:
    """Yields the turns of a copy as records."""
    names = other_names(original.names, copy)
    for _, occurred_at, turn in original.turns:
        new = turn.model_copy(
            update={
                "turn_id": f"{conversation}-{copy}-{turn.turn_id}",
                "session_id": f"{conversation}-{copy}-{turn.session_id}",
                "speaker": renamed(turn.speaker, names),
                "content": renamed(turn.content, names),
            }
        )
        at = occurred_at - copy * APART
        yield published(CONVERSATION_TURNS, turn_id_of_message(SCOPE, new), SCOPE, at, new)
