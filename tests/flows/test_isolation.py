"""No scope sees another's memory, whatever is read and however: random scopes that share
sessions, ids, people, words and whole sentences, each with a word that only it may show."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palimpsest.ops.errors import NotFoundError
from palimpsest.ops.operations.graph import Entities, GetEntity
from palimpsest.ops.operations.lifecycle.fading import Weak
from palimpsest.ops.operations.memories import Context, Embeddings, Get, List, Recall, Search
from palimpsest.ops.operations.operation import Read
from palimpsest.ops.operations.privacy import Privacy
from palimpsest.ops.operations.provenance import Explain, History
from palimpsest.ops.operations.scopes import Stats
from palimpsest.ops.operations.selection import PreviewForget
from palimpsest.ops.operations.sessions import SessionMemory, Sessions, SessionTimeline
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.replay.operations import Agreement
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.messages import ConversationTurn
from tests.examples import examples
from tests.harness import Pipeline, pipeline_settings
from tests.messages import BEGIN, published
from tests.spoken_model import ScriptedModel, spoken

MARKS = {"ana": "quokka", "ana ": "narwhal", "ANA": "axolotl", "ben": "pangolin"}
"""A word of its own for every scope; three names differ in a space and in case only."""
SAYINGS = (
    "Ana lives in Oslo with her {mark} / Ana > lives_in > Oslo",
    "Now Ana lives in Bergen / Ana > lives_in > Bergen",
    "Ana works at Globex since the {mark} came / Ana > works_at > Globex",
    "The {mark} broke the furnace yesterday",
    "Ana sails",
)
QUESTIONS = ("where does Ana live?", "what happened yesterday", "who is Globex", "why {other}")

Said = tuple[str, int, int]


def conversations() -> st.SearchStrategy[list[Said]]:
    """Scope, number of the saying, number of the session."""
    scopes, sayings = st.sampled_from(sorted(MARKS)), st.integers(0, len(SAYINGS) - 1)
    return st.lists(st.tuples(scopes, sayings, st.integers(0, 1)), min_size=4, max_size=14)


@settings(max_examples=examples(2), suppress_health_check=list(HealthCheck))
@given(conversations())
def test_no_reading_shows_another_scope(said: list[Said]) -> None:
    with tempfile.TemporaryDirectory() as folder, told(Path(folder), said) as pipeline:
        read = DirectQueries(
            Sources(
                Settings(), pipeline.log, {0: pipeline.shard}, 1, pipeline.embedding, lambda _: None
            )
        )
        for scope in {each[0] for each in said}:
            foreign = [mark for other, mark in MARKS.items() if other != scope]
            shown = asyncio.run(everything(read, scope, foreign))
            text = json.dumps(shown).lower()
            assert not [mark for mark in foreign if mark in text]
            if any(scope == own and "{mark}" in SAYINGS[number] for own, number, _ in said):
                assert MARKS[scope] in text


def told(folder: Path, said: Sequence[Said]) -> Pipeline:
    pipeline = Pipeline(
        folder, settings=pipeline_settings(decider="model"), language=ScriptedModel(spoken)
    )
    turns: Counter[str] = Counter()
    for scope, saying, session in said:
        turns[scope] += 1
        body = ConversationTurn(
            turn_id=f"t{turns[scope]}",  # the same ids in every scope
            session_id=f"s{session}",
            speaker="Ana",
            content=SAYINGS[saying].format(mark=MARKS[scope]),
        )
        pipeline.publish(published(body, scope))
    return pipeline.run()


async def everything(read: DirectQueries, scope: str, foreign: Sequence[str]) -> list[Any]:
    """All that can be read of a scope: by question, as a list, and each memory of it."""
    questions = [question.format(other=foreign[0]) for question in QUESTIONS]
    asked: list[Read[Any]] = []
    for question in questions:
        asked += [
            Recall(question, scope, limit=50, neighbours=3, explain=True),
            Recall(question, scope, limit=50, group=False),
            Search(question, scope, limit=50),
            Context(question, scope, 2_000),
            PreviewForget(scope=scope, query=question, cascade=True),
        ]
    asked.append(Weak(scope, below=1.1, limit=100))
    shown = []
    for request in asked:
        answer = await read.answer(request)
        assert isinstance(answer, dict)
        shown.append({**answer, "query": ""})  # the question itself may name anything
    for name in ("Ana", "Oslo", "Globex"):
        with contextlib.suppress(NotFoundError):
            shown.append(await read.answer(GetEntity(name, scope)))
    for of_scope in (Entities(scope=scope), Embeddings(scope), Stats(scope)):
        shown.append(await read.answer(of_scope))
    # The clock of the log: what is kept of sessions is alive then.
    read.sources.now = lambda: BEGIN
    for session in ("s0", "s1"):
        with contextlib.suppress(NotFoundError):
            shown.append(await read.answer(SessionMemory(session, scope)))
        with contextlib.suppress(NotFoundError):
            shown.append(await read.answer(SessionTimeline(session, scope)))
        shown.append(await read.answer(Context("Ana", scope, 2_000, session)))
    shown.append(await read.answer(Sessions(scope)))
    shown.append(await read.answer(Privacy(scope)))
    shown.append(await read.answer(Agreement(scope)))
    listed = await read.answer(List(scope, limit=100))
    assert isinstance(listed, dict)
    memories: Any = listed["memories"]
    for memory in memories:
        assert memory["scope"] == scope
        for by_id in (Get, History, Explain):
            shown.append(await read.answer(by_id(memory["id"])))
    return [*shown, listed]
