"""Sessions of a small pipeline, asked as users ask."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from palimpsest.ops.errors import NotFoundError
from palimpsest.ops.operations.operation import Read
from palimpsest.ops.operations.sessions import SessionMemory, Sessions
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.schemas.messages import HistoryEvent
from palimpsest.schemas.topics import MEMORY_HISTORY
from tests.harness import Pipeline


def ask(pipeline: Pipeline, request: Read[Any]) -> Any:
    """The answer of the program, at the time of the pipeline's clock."""
    sources = Sources(
        pipeline.settings,
        pipeline.log,
        {0: pipeline.shard},
        1,
        pipeline.embedding,
        lambda _: None,
        now=pipeline.clock,
    )
    return asyncio.run(DirectQueries(sources).answer(request))


def kept(pipeline: Pipeline, session_id: str = "s1", scope: str = "ana") -> Any:
    """The short-term memory of a session, None where nothing is kept."""
    try:
        return ask(pipeline, SessionMemory(session_id, scope))["short_term"]
    except NotFoundError:
        return None


def said(pipeline: Pipeline, session_id: str = "s1", scope: str = "ana") -> list[str]:
    """The turns that are kept of a session."""
    found = kept(pipeline, session_id, scope)
    return [] if found is None else [turn["content"] for turn in found["turns"]]


def listed(pipeline: Pipeline, scope: str = "ana", **fields: Any) -> dict[str, Any]:
    """How each session ended, None for an open one, by its id."""
    answer = ask(pipeline, Sessions(scope, **fields))
    return {session["session_id"]: session["ended_by"] for session in answer["sessions"]}


def ends_told(pipeline: Pipeline) -> Sequence[tuple[str, str, int, int]]:
    """(session, how it ended, turns, ends) of every event of an end, in order."""
    events = [m.body for m in pipeline.messages(MEMORY_HISTORY)]
    told: list[dict[str, Any]] = [
        {**event.metadata, "of": event.session_id}
        for event in events
        if isinstance(event, HistoryEvent) and event.event == "session-ended"
    ]
    assert all(each["session_id"] == each["of"] for each in told)
    return [(each["of"], each["ended_by"], each["turns"], each["ends"]) for each in told]
