"""Tests the HTTP service under a mixed load with kills, while an analyst runs SQL queries."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TypeAlias

import httpx
import pyarrow as pa
from pydantic import JsonValue

from palimpsest.ops.bench.made_up import Vocabulary
from palimpsest.ops.bench.measures import ms_since, resident_mib, times
from palimpsest.ops.bench.service_clients import (
    MIX,
    Observed,
    Operation,
    ServerProcess,
    ServiceClient,
    client_of,
)
from palimpsest.ops.http.tokens import PERMISSIONS, Tokens
from palimpsest.ops.library.memory import AsyncMemory
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.settings.sources import load_settings
from palimpsest.ops.sql.output import ARROW_TYPE
from palimpsest.ops.sql.saved_queries import SAVED_QUERIES

LIMITS_OFF = tuple(
    f"http.{name}_per_minute=1000000" for name in ("modify", "delete", "batch_forget")
)
"""Lifts the rate limits of a token, which are not measured."""
WINDOW_SECONDS = 15.0
"""The analyst works in every other window of this length."""
SAMPLE_SECONDS = 1.0
DRAIN_SECONDS = 900.0
WARM_RECALLS = 20

ANALYST_QUERIES = (
    *(query.sql for query in SAVED_QUERIES.values()),
    "SELECT scope, type, count(*) FROM memories GROUP BY ALL ORDER BY ALL",
    "SELECT who, count(*), avg(importance) FROM memories GROUP BY who",
    "SELECT count(*) FROM memories_all WHERE is_deleted",
    "SELECT date_trunc('minute', created_at) AS minute, count(*) FROM memories GROUP BY 1",
    "SELECT event, count(*) FROM memory_history GROUP BY event",
    "SELECT memory_id, count(*) AS changes FROM memory_history GROUP BY 1 ORDER BY 2 DESC LIMIT 20",
    "SELECT action, count(*) FROM proposals GROUP BY action",
    "SELECT type, outcome, count(*) FROM facts GROUP BY ALL",
    "SELECT stage, count(*), median(latency_ms) FROM model_calls GROUP BY stage",
    "SELECT relation_type, count(*) FROM relations GROUP BY 1 ORDER BY 2 DESC",
    "SELECT relation_type, count(*) FROM edges GROUP BY 1",
    "SELECT length(content) // 20 AS tens, count(*) FROM memories GROUP BY 1 ORDER BY 1",
    "SELECT content FROM memories WHERE content LIKE '%kalo%' LIMIT 20",
    "SELECT scope, max(version) FROM memories GROUP BY scope",
)


@dataclass(frozen=True, slots=True)
class ServiceLoad:
    """`clients` over `scopes` for `seconds`, while the service is killed `kills` times."""

    seconds: float
    clients: int
    scopes: int
    kills: int
    recalls: int = 300


@dataclass
class Watched:
    """Observations other than those of the clients: `memory` in MiB and `queries` in milliseconds,
    each with its time; milliseconds of health checks."""

    memory: list[tuple[float, float]] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    queries: list[tuple[float, float, str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unanswered: list[tuple[float, str]] = field(default_factory=list)
    """Unanswered queries, with the time when they were sent; `refused` holds the refused ones."""
    spans: list[tuple[float, float]] = field(default_factory=list)
    """When the service was down."""

    def is_up(self, began: float, ended: float) -> bool:
        """Whether the service was up for all of this time."""
        return not any(down < ended and up > began for down, up in self.spans)

    def failures(self) -> list[str]:
        """Returns the queries that failed although the service was up and not about to be
        killed."""
        lost = [f"not answered: {sql}" for at, sql in self.unanswered if self.is_up(at, at + 1)]
        return [*self.refused, *lost]


Beside: TypeAlias = Callable[[str, str, float], Awaitable[JsonObject]]
"""What else happens to a service: from its address, a token and seconds to what came of it."""


async def nothing(url: str, token: str, seconds: float) -> JsonObject:
    return {}


async def measure(
    load: ServiceLoad, overrides: Sequence[str], folder: Path, beside: Beside = nothing
) -> JsonObject:
    """Runs the load on the memory in `folder`, and `beside` at the same time; checks the outcome,
    and returns a report."""
    data = folder / "data"
    token, others = (_token(data, name) for name in ("clients", "others"))
    server = ServerProcess(data, [*LIMITS_OFF, *overrides], folder / "output")
    observed, watched = Observed(), Watched()
    await server.start()
    try:
        began = time.monotonic()
        until = began + load.seconds
        *_, answers = await asyncio.gather(
            *(
                ServiceClient(
                    server.url, token, f"bench-{number % load.scopes}", number, observed
                ).run(until)
                for number in range(load.clients)
            ),
            _kill(server, load, began, watched),
            _sample(server, until, watched),
            _analyse(server.url, token, began, until, watched),
            beside(server.url, others, load.seconds),
        )
        drain_seconds = await _drained(server.url, token)
        found = await _checked(server.url, token, observed)
        over_http = await _recalls_over_http(server.url, token, load)
        after = resident_mib(server.pid)[0]
    finally:
        await server.stop()
    in_library = await _recalls_in_library(data, overrides, load)
    return {
        "seconds": load.seconds,
        "clients": load.clients,
        "operations": {
            name: times([ms for at, ms in observed.ms[name] if watched.is_up(at, at + ms / 1000)])
            for name in MIX
        },
        "health": times(watched.health),
        "errors": {**observed.errors},
        "beside": answers,
        "kills": load.kills,
        "start_seconds": [round(each, 2) for each in server.starts_seconds],
        "drain_seconds": round(drain_seconds, 1),
        **found,
        "memory_mib": {**_memory(watched), "after": after},
        "analyst": _analyst(watched, observed, began, load.seconds),
        "recall_over_http_ms": times(over_http),
        "recall_in_library_ms": times(in_library),
    }


def _token(data: Path, name: str) -> str:
    now = datetime.now(UTC)
    name = f"{name} {now:%Y-%m-%d %H:%M:%S}"  # a kept folder has those of earlier runs
    return Tokens(data).create(name, ["*"], PERMISSIONS, "human", now)[1]


async def _kill(server: ServerProcess, load: ServiceLoad, began: float, watched: Watched) -> None:
    """Kills the service at intervals spread evenly over the load."""
    for number in range(load.kills):
        at = began + load.seconds * (number + 1) / (load.kills + 1)
        await asyncio.sleep(max(0.0, at - time.monotonic()))
        down = time.monotonic()
        await server.kill()
        await server.start()
        watched.spans.append((down, time.monotonic()))


async def _sample(server: ServerProcess, until: float, watched: Watched) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:
        while time.monotonic() < until:
            began = time.perf_counter()
            with contextlib.suppress(httpx.TransportError):
                await client.get(f"{server.url}/health")
                watched.health.append(ms_since(began))
            watched.memory.append((time.monotonic(), resident_mib(server.pid)[0]))
            await asyncio.sleep(SAMPLE_SECONDS)


async def _analyse(url: str, token: str, began: float, until: float, watched: Watched) -> None:
    """Runs all ANALYST_QUERIES, one after another, in every other window."""
    pause = WINDOW_SECONDS / len(ANALYST_QUERIES)
    queries = itertools.cycle(ANALYST_QUERIES)
    async with client_of(url, token) as client:
        while time.monotonic() < until:
            if _with_analyst(time.monotonic() - began):
                at, sql = time.monotonic(), next(queries)
                try:
                    answer = await client.post("/api/sql", json={"query": sql})
                except httpx.TransportError:
                    watched.unanswered.append((at, sql))
                else:
                    if not answer.is_success:
                        watched.refused.append(f"{answer.status_code} {answer.text[:200]}: {sql}")
                    watched.queries.append((at, 1000 * (time.monotonic() - at), sql))
            await asyncio.sleep(pause)


def _with_analyst(seconds: float) -> bool:
    return int(seconds / WINDOW_SECONDS) % 2 == 1


async def _drained(url: str, token: str) -> float:
    """Returns the seconds until everything sent is processed. Raises TimeoutError."""
    began = time.monotonic()
    async with client_of(url, token) as client:
        while time.monotonic() - began < DRAIN_SECONDS:
            status = (await client.get("/api/pipeline/status")).raise_for_status().json()
            if not any(stage["lag"] for stage in status["stages"]):
                return time.monotonic() - began
            await asyncio.sleep(0.2)
    raise TimeoutError(f"not processed within {DRAIN_SECONDS} s")


async def _checked(url: str, token: str, observed: Observed) -> JsonObject:
    """Checks that every acknowledged write is stored exactly once, and that the balance holds."""
    async with client_of(url, token) as client:
        # Neither the pipeline's facts nor what was sent beside the load.
        query = (
            "SELECT memory_id, content FROM memories"
            " WHERE who <> 'pipeline' AND scope LIKE 'bench-%'"
        )
        answer = await client.post(
            "/api/sql", json={"query": query}, headers={"Accept": ARROW_TYPE}
        )
        table = pa.ipc.open_stream(answer.raise_for_status().content).read_all()
        status = (await client.get("/api/pipeline/status")).raise_for_status().json()
    stored = dict(zip(*(column.to_pylist() for column in table.columns), strict=True))
    expected = observed.acknowledged
    return {
        "acknowledged": len(expected),
        "lost": sum(memory_id not in stored for memory_id in expected),
        "other_text": sum(stored.get(key, text) != text for key, text in expected.items()),
        "not_acknowledged": len(stored.keys() - expected.keys()),
        "balance": status["balance"],
        "dead_letters": status["dead_letters"],
    }


def _questions(load: ServiceLoad) -> list[tuple[str, str]]:
    vocabulary = Vocabulary(load.clients)
    return [
        (f"bench-{number % load.scopes}", vocabulary.sentence())
        for number in range(load.recalls + WARM_RECALLS)
    ]


async def _recalls_over_http(url: str, token: str, load: ServiceLoad) -> list[float]:
    """Milliseconds of recalls by one client on an otherwise idle service."""
    took: list[float] = []
    async with client_of(url, token) as client:
        for scope, text in _questions(load):
            began = time.perf_counter()
            answer = await client.post("/api/memory/recall", json={"query": text, "scope": scope})
            took.append(ms_since(began))
            answer.raise_for_status()
    return took[WARM_RECALLS:]


async def _recalls_in_library(
    data_dir: Path, overrides: Sequence[str], load: ServiceLoad
) -> list[float]:
    """Milliseconds of the same recalls through the library, on the same memory."""
    took: list[float] = []
    loaded = load_settings([*overrides], data_dir).settings
    async with AsyncMemory(loaded=loaded) as memory:
        for scope, text in _questions(load):
            began = time.perf_counter()
            await memory.recall(text, scope=scope)
            took.append(ms_since(began))
    return took[WARM_RECALLS:]


def _memory(watched: Watched) -> JsonObject:
    """Returns medians of the first and the last third of the samples since the last start."""
    since = watched.spans[-1][1] if watched.spans else 0.0
    found = [mib for at, mib in watched.memory if at >= since] or [0.0]
    third = max(1, len(found) // 3)
    return {
        "first_third": round(median(found[:third]), 1),
        "last_third": round(median(found[-third:]), 1),
        "maximum": round(max(found), 1),
    }


def _analyst(watched: Watched, observed: Observed, began: float, seconds: float) -> JsonObject:
    """Returns the latency of queries, and the acknowledged writes per second with and without them:
    medians over windows in which the service was up."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    names: tuple[Operation, ...] = ("remember", "modify")
    writes = [at for name in names for at, _ in observed.ms[name]]
    for number in range(int(seconds / WINDOW_SECONDS)):
        start = began + number * WINDOW_SECONDS
        end = start + WINDOW_SECONDS
        if not watched.is_up(start, end):
            continue
        count = sum(start <= at < end for at in writes)
        rates[_with_analyst(start - began)].append(count / WINDOW_SECONDS)
    medians = {known: median(found) if found else 0.0 for known, found in rates.items()}
    took = [ms for _, ms, _ in watched.queries]
    slowest = max(watched.queries, key=lambda each: each[1], default=(0.0, 0.0, ""))
    failures: list[JsonValue] = [*watched.failures()]
    return {
        **times(took),
        "slowest": slowest[2],
        "failures": failures,
        "writes_per_second_without": round(medians[False], 1),
        "writes_per_second_with": round(medians[True], 1),
    }
