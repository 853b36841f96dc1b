"""Metrics for Prometheus, each defined once.

HTTP requests are counted as they happen. The stages' metrics are read from their own counters on
each scrape, and the state of the pipeline from the stores, as in `status`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from palimpsest.ops.errors import RequestError
from palimpsest.ops.requests import JsonObject
from palimpsest.streams.kafka.waiting import Awaited, Wait
from palimpsest.streams.runtime.model_usage import Usage
from palimpsest.streams.runtime.runner import StageRunner

NAME: Final = "palimpsest_"
STATUS_SECONDS: Final = 10.0
"""Maximum age of the pipeline's state: the balance is counted over all turns."""
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

OF_STAGES: Final[Mapping[str, tuple[str, Callable[[StageRunner], float]]]] = {
    "stage_records": ("Records that were processed", lambda one: one.counts.records),
    "stage_skipped_records": (
        "Records that were already processed",
        lambda one: one.counts.skipped,
    ),
    "stage_emitted_records": ("Records that were sent on", lambda one: one.counts.emitted),
    "stage_dead_letters": ("Records that became dead letters", lambda one: one.counts.dead),
    "stage_failures": (
        "Records on which the stage failed unexpectedly",
        lambda one: one.counts.unexpected,
    ),
    "stage_batches": ("Batches that were finished", lambda one: one.counts.batches),
    "stage_waiting_seconds": (
        "Seconds of batches in which others had the store",
        lambda one: one.counts.waited,
    ),
    "store_seconds": (
        "Seconds in which a stage read or wrote its store",
        lambda o: o.counts.stored,
    ),
}
"""Counters by stage and partition, since the process started."""
OF_MODELS: Final = {
    "model_calls": ("Calls to a model's provider", "calls"),
    "model_recorded_replies": ("Replies that were taken from the record", "recorded"),
    "model_failures": ("Calls that failed", "failures"),
    "model_retries": ("Calls repeated after a failure", "retries"),
    "model_seconds": ("Seconds that calls took", "seconds"),
    "model_input_tokens": ("Input tokens reported by the provider", "input_tokens"),
    "model_output_tokens": ("Output tokens reported by the provider", "output_tokens"),
}
"""Counters by provider, since the process started."""


class Metrics:
    """The metrics of one service. `status` returns the state of the pipeline; `runners` and `usage`
    are those of this process, None if it runs no stages; `wait` is what it waits for."""

    def __init__(
        self,
        status: Callable[[], Awaitable[JsonObject]],
        runners: Callable[[], Sequence[StageRunner]] | None = None,
        usage: Usage | None = None,
        wait: Callable[[], Wait | None] = lambda: None,
    ) -> None:
        self._status = _Recent(status)
        self._registry = CollectorRegistry()
        self._registry.register(_Pipeline(self._status))
        if runners is not None and usage is not None:
            self._registry.register(_Stages(runners, usage, wait))
        labels = ("method", "route", "status")
        self._requests = self._counter("http_requests", "Requests that were answered", labels)
        self._request_seconds = self._histogram(
            "http_request_seconds", "Seconds until a request was answered", ("method", "route")
        )
        self._query_seconds = self._histogram(
            "query_seconds", "Seconds that a question to the memory took", ("query",)
        )
        self._command_seconds = self._histogram(
            "command_wait_seconds", "Seconds that a change waited for its result", ("end",)
        )

    def _counter(self, name: str, about: str, labels: Sequence[str]) -> Counter:
        return Counter(NAME + name, about, labels, registry=self._registry)

    def _histogram(self, name: str, about: str, labels: Sequence[str]) -> Histogram:
        return Histogram(NAME + name, about, labels, registry=self._registry, buckets=SECONDS)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(method, route, str(status)).inc()
        self._request_seconds.labels(method, route).observe(seconds)

    @contextmanager
    def query(self, name: str) -> Iterator[None]:
        """Measures the query answered in the context."""
        with self._query_seconds.labels(name).time():
            yield

    @contextmanager
    def command(self) -> Iterator[Callable[[str], None]]:
        """Measures the wait for a command; call the yielded function with its outcome."""
        began = time.perf_counter()
        ends = ["refused"]
        try:
            yield ends.append
        finally:
            self._command_seconds.labels(ends[-1]).observe(time.perf_counter() - began)

    async def shown(self, accept: str) -> tuple[bytes, str]:
        """Returns all metrics in the format of the Accept header, and its media type."""
        await self._status.renew()
        encode, form = choose_encoder(accept)
        return encode(self._registry), form


@dataclass(slots=True)
class _Recent:
    """Caches the state of the pipeline; None if it could not be read."""

    ask: Callable[[], Awaitable[JsonObject]]
    found: JsonObject | None = None
    _at: float = -STATUS_SECONDS
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def renew(self) -> None:
        async with self._lock:
            if time.monotonic() - self._at < STATUS_SECONDS:
                return
            try:
                self.found = await self.ask()
            except RequestError:
                self.found = None
                return
            self._at = time.monotonic()


class _Pipeline(Collector):
    """Lag, balance and dead letters, also of workers elsewhere."""

    def __init__(self, status: _Recent) -> None:
        self._recent = status

    def collect(self) -> Iterable[Metric]:
        status = self._recent.found
        known = GaugeMetricFamily(NAME + "pipeline_known", "Whether the pipeline's state is known")
        known.add_metric((), 0.0 if status is None else 1.0)
        yield known
        if status is None:
            return
        found = cast("dict[str, Any]", status)
        lag = GaugeMetricFamily(
            NAME + "stage_lag_records", "Records that wait for a stage", labels=PLACE
        )
        for stage in found["stages"]:
            lag.add_metric((stage["stage"], str(stage["partition"])), stage["lag"])
        yield lag
        balance = GaugeMetricFamily(
            NAME + "balance_items", "Turns and facts by where they are", labels=("kind", "state")
        )
        for kind in ("turns", "facts"):
            for state, number in found["balance"][kind].items():
                balance.add_metric((kind, state), number)
        yield balance
        holds = GaugeMetricFamily(NAME + "balance_holds", "Whether nothing is lost")
        holds.add_metric((), float(found["balance"]["holds"]))
        yield holds
        dead = GaugeMetricFamily(NAME + "dead_letters", "Pending dead letters")
        dead.add_metric((), found["dead_letters"])
        yield dead


PLACE: Final = ("stage", "partition")


class _Stages(Collector):
    """Counters of the stages and models of this process."""

    def __init__(
        self,
        runners: Callable[[], Sequence[StageRunner]],
        usage: Usage,
        wait: Callable[[], Wait | None],
    ) -> None:
        self._runners = runners
        self._usage = usage
        self._wait = wait

    def collect(self) -> Iterable[Metric]:
        runners = self._runners()
        for name, (about, value) in OF_STAGES.items():
            family = CounterMetricFamily(NAME + name, about, labels=PLACE)
            for runner in runners:
                family.add_metric(_place(runner), value(runner))
            yield family
        steps = CounterMetricFamily(
            NAME + "stage_batch_seconds", "Seconds of batches by step", labels=(*PLACE, "step")
        )
        for runner in runners:
            for step, seconds in runner.counts.seconds.items():
                steps.add_metric((*_place(runner), step), seconds)
        yield steps
        for name, (about, attribute) in OF_MODELS.items():
            family = CounterMetricFamily(NAME + name, about, labels=("provider",))
            for provider, used in self._usage.by_provider.items():
                family.add_metric((provider,), getattr(used, attribute))
            yield family
        waiting = GaugeMetricFamily(
            NAME + "waiting", "Whether the worker cannot go on without this now", labels=("for",)
        )
        wait = self._wait()
        for awaited in get_args(Awaited):
            waiting.add_metric((awaited,), float(wait is not None and wait.awaited == awaited))
        yield waiting


def _place(runner: StageRunner) -> tuple[str, str]:
    return runner.stage.name, str(runner.partition)
