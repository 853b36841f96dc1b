"""The values of the metrics that `ops.telemetry.catalogue` defines, for Prometheus.

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
from palimpsest.ops.telemetry import catalogue
from palimpsest.ops.telemetry.catalogue import Metric as Described
from palimpsest.streams.kafka.cluster import Awaited, Wait
from palimpsest.streams.runtime.model_port import ModelUsage, Usage
from palimpsest.streams.runtime.runner import Counts, StageRunner

STATUS_SECONDS: Final = 10.0
"""Maximum age of the pipeline's state: the balance is counted over all turns."""

OF_MODELS: Final = {"model_recorded_replies": "recorded"}
"""The field of `ModelUsage`, where it is not named like the metric."""
OF_STAGES: Final[Mapping[str, Callable[[Counts], float]]] = {
    "stage_records": lambda counts: counts.records,
    "stage_skipped_records": lambda counts: counts.skipped,
    "stage_emitted_records": lambda counts: counts.emitted,
    "stage_dead_letters": lambda counts: counts.dead,
    "stage_failures": lambda counts: counts.unexpected,
    "stage_batches": lambda counts: counts.batches,
    "stage_waiting_seconds": lambda counts: counts.waited,
    "store_seconds": lambda counts: counts.stored,
}


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
        self._runners = runners or tuple
        self._usage = usage
        if runners is not None and usage is not None:
            self._registry.register(_Stages(runners, usage, wait))
        self._requests = Counter(*_described(catalogue.HTTP_REQUESTS), registry=self._registry)
        self._request_seconds = self._histogram(catalogue.HTTP_REQUEST_SECONDS)
        self._query_seconds = self._histogram(catalogue.QUERY_SECONDS)
        self._command_seconds = self._histogram(catalogue.COMMAND_WAIT_SECONDS)

    def _histogram(self, metric: Described) -> Histogram:
        buckets = catalogue.SECONDS
        return Histogram(*_described(metric), registry=self._registry, buckets=buckets)

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

    def of_stages(self) -> dict[str, dict[str, float]]:
        """Batches and the mean seconds of one, by stage, since the process started."""
        found: dict[str, dict[str, float]] = {}
        for runner in self._runners():
            of = found.setdefault(runner.stage.name, {"batches": 0, "seconds": 0.0})
            of["batches"] += runner.counts.batches
            of["seconds"] += runner.counts.spent
        return {
            name: {**of, "mean": of["seconds"] / of["batches"] if of["batches"] else 0.0}
            for name, of in found.items()
        }

    def of_models(self) -> Mapping[str, ModelUsage]:
        """Usage by the provider's name, since the process started."""
        return {} if self._usage is None else self._usage.by_provider

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
        yield _family(catalogue.PIPELINE_KNOWN, [((), float(status is not None))])
        if status is None:
            return
        found = cast("dict[str, Any]", status)
        lags = [((e["stage"], str(e["partition"])), e["lag"]) for e in found["stages"]]
        yield _family(catalogue.STAGE_LAG, lags)
        items = [
            ((kind, state), number)
            for kind in ("turns", "facts")
            for state, number in found["balance"][kind].items()
        ]
        yield _family(catalogue.BALANCE_ITEMS, items)
        yield _family(catalogue.BALANCE_HOLDS, [((), float(found["balance"]["holds"]))])
        yield _family(catalogue.DEAD_LETTERS, [((), found["dead_letters"])])


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
        for metric in catalogue.STAGE_COUNTERS:
            count = OF_STAGES[metric.name]
            yield _family(metric, [(_place(runner), count(runner.counts)) for runner in runners])
        steps = [
            ((*_place(runner), step), seconds)
            for runner in runners
            for step, seconds in runner.counts.seconds.items()
        ]
        yield _family(catalogue.STAGE_BATCH_SECONDS, steps)
        for metric in catalogue.MODEL_COUNTERS:
            name = OF_MODELS.get(metric.name, metric.name.removeprefix("model_"))
            used = self._usage.by_provider.items()
            yield _family(metric, [((provider,), getattr(of, name)) for provider, of in used])
        wait = self._wait()
        waits = [
            ((each,), float(wait is not None and wait.awaited == each))
            for each in get_args(Awaited)
        ]
        yield _family(catalogue.WAITING, waits)


def _described(metric: Described) -> tuple[str, str, tuple[str, ...]]:
    return catalogue.PREFIX + metric.name, metric.meaning, metric.labels


def _family(
    metric: Described, samples: Iterable[tuple[tuple[str, ...], float]]
) -> CounterMetricFamily | GaugeMetricFamily:
    """The metric with its samples, as labels and values."""
    name, meaning, labels = _described(metric)
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(name, meaning, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def _place(runner: StageRunner) -> tuple[str, str]:
    return runner.stage.name, str(runner.partition)
