"""Every metric and every alert, defined once.

The exposition (`ops.telemetry.metrics`), the reference `ops/docs/metrics.md`, the Grafana dashboard
and the alert rules in `ops/dashboards` are made from these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

PREFIX: Final = "palimpsest_"
Kind = Literal["counter", "gauge", "histogram"]
Unit = Literal["seconds", "records", "calls", "tokens", "requests", "batches", "items", "1 or 0"]
PLACE: Final = ("stage", "partition")
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets of every histogram."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric without the prefix `palimpsest_`; a counter's samples end in `_total`. `when_bad`
    says what to do about a bad value; `by` are the labels that the dashboard separates."""

    name: str
    kind: Kind
    unit: Unit
    labels: tuple[str, ...]
    meaning: str
    when_bad: str
    by: tuple[str, ...] = ()

    @property
    def sample(self) -> str:
        """The name of its samples; of a histogram, that of the count is `_count`."""
        return f"{PREFIX}{self.name}{'_total' if self.kind == 'counter' else ''}"


@dataclass(frozen=True, slots=True)
class Group:
    """Metrics about one subject: a row of the dashboard."""

    title: str
    metrics: tuple[Metric, ...]


Severity = Literal["critical", "warning"]


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert rule. `expr` is PromQL, `minutes` how long it must hold; the runbook is
    `ops/docs/runbooks/<slug>.md`."""

    name: str
    severity: Severity
    minutes: int
    expr: str
    summary: str

    @property
    def slug(self) -> str:
        words = "".join(f"-{each.lower()}" if each.isupper() else each for each in self.name)
        return words.removeprefix("-palimpsest-")


def _stage_counter(name: str, unit: Unit, meaning: str, when_bad: str) -> Metric:
    return Metric(name, "counter", unit, PLACE, meaning, when_bad, ("stage",))


def _model_counter(name: str, unit: Unit, meaning: str, when_bad: str) -> Metric:
    return Metric(name, "counter", unit, ("provider",), meaning, when_bad, ("provider",))


HTTP_REQUESTS: Final = Metric(
    "http_requests",
    "counter",
    "requests",
    ("method", "route", "status"),
    "answered requests; an event stream counts when it ends. Routes as in routes.md, or `other`",
    "5xx: the service's log has the error; 429: a token sends more than http.* permits",
    ("status",),
)
HTTP_REQUEST_SECONDS: Final = Metric(
    "http_request_seconds",
    "histogram",
    "seconds",
    ("method", "route"),
    "time until a request was answered",
    "compare `query_seconds` (the search) and `command_wait_seconds` (the stages)",
)
QUERY_SECONDS: Final = Metric(
    "query_seconds",
    "histogram",
    "seconds",
    ("query",),
    "time of a read of the memory by kind, such as `recall`, `context`, `search`",
    "see the runbook recall-slow",
    ("query",),
)
COMMAND_WAIT_SECONDS: Final = Metric(
    "command_wait_seconds",
    "histogram",
    "seconds",
    ("end",),
    "how long a change waited for its result, by outcome: `applied`, `pending` (202), `refused`",
    "see the runbook changes-pending",
    ("end",),
)
PIPELINE_KNOWN: Final = Metric(
    "pipeline_known",
    "gauge",
    "1 or 0",
    (),
    "0 while lag, balance and dead letters are unknown: on Kafka while a worker or the broker is"
    " unavailable",
    "see the runbook pipeline-unknown",
)
STAGE_LAG: Final = Metric(
    "stage_lag_records",
    "gauge",
    "records",
    PLACE,
    "records that wait for a stage",
    "see the runbooks stage-stalled and lag-growing",
    ("stage",),
)
BALANCE_ITEMS: Final = Metric(
    "balance_items",
    "gauge",
    "items",
    ("kind", "state"),
    "turns and facts by where they are",
    "`dead` grows: `palimpsest dead-letters list`",
    ("kind", "state"),
)
BALANCE_HOLDS: Final = Metric(
    "balance_holds",
    "gauge",
    "1 or 0",
    (),
    "1 while accepted = stored + rejected + dead + in flight",
    "see the runbook balance-broken",
)
DEAD_LETTERS: Final = Metric(
    "dead_letters", "gauge", "records", (), "pending dead letters", "see the runbook dead-letters"
)
WAITING: Final = Metric(
    "waiting",
    "gauge",
    "1 or 0",
    ("for",),
    "1 while a worker on Kafka waits for its `broker` or `partitions`; reported by each worker",
    "see the runbook worker-waiting",
    ("for",),
)
STAGE_BATCH_SECONDS: Final = Metric(
    "stage_batch_seconds",
    "counter",
    "seconds",
    (*PLACE, "step"),
    "time of batches by step: `ask` is the time of models, `deduplicate` and `commit` the store's",
    "the largest step says what limits the stage",
    ("stage", "step"),
)
STAGE_COUNTERS: Final = (
    _stage_counter(
        "stage_records",
        "records",
        "records that were processed",
        "0 while `stage_lag_records` is not: see the runbook stage-stalled",
    ),
    _stage_counter(
        "stage_emitted_records", "records", "records that were sent on", "compare the stages"
    ),
    _stage_counter(
        "stage_skipped_records",
        "records",
        "records that were already processed",
        "many for long: a producer sends everything again",
    ),
    _stage_counter(
        "stage_dead_letters",
        "records",
        "records that became dead letters",
        "see the runbook dead-letters",
    ),
    _stage_counter(
        "stage_failures",
        "records",
        "records on which the stage failed unexpectedly",
        "see the runbook stage-failing",
    ),
    _stage_counter("stage_batches", "batches", "batches that were finished", "as `stage_records`"),
    _stage_counter(
        "stage_waiting_seconds",
        "seconds",
        "time of batches in which others had the store",
        "more than the batches' own: the store is the limit, use more partitions",
    ),
    _stage_counter(
        "store_seconds",
        "seconds",
        "time in which a stage read or wrote its store",
        "near 1 per second: the store is the limit, use more partitions or a faster disk",
    ),
)
MODEL_COUNTERS: Final = (
    _model_counter(
        "model_calls",
        "calls",
        "calls to a model's provider by the stages; a shadow decider is `shadow:` and its name",
        "0 while extract has a lag: see the runbook stage-stalled",
    ),
    _model_counter(
        "model_recorded_replies",
        "calls",
        "replies that were taken from the record without a call",
        "none after a crash: replies.* may be off",
    ),
    _model_counter("model_failures", "calls", "calls that failed", "see the runbook model-failing"),
    _model_counter(
        "model_retries", "calls", "calls repeated after a failure", "see the runbook model-failing"
    ),
    _model_counter("model_seconds", "seconds", "time of calls", "see the runbook model-slow"),
    _model_counter(
        "model_input_tokens",
        "tokens",
        "input tokens, as the provider reports them",
        "`palimpsest sql` on `model_calls` shows which stage and prompt",
    ),
    _model_counter(
        "model_output_tokens",
        "tokens",
        "output tokens, as the provider reports them",
        "as `model_input_tokens`",
    ),
)

GROUPS: Final = (
    Group("Pipeline", (PIPELINE_KNOWN, BALANCE_HOLDS, DEAD_LETTERS, STAGE_LAG, BALANCE_ITEMS)),
    Group("Stages", (*STAGE_COUNTERS, STAGE_BATCH_SECONDS, WAITING)),
    Group("Models", MODEL_COUNTERS),
    Group("Reads and writes", (QUERY_SECONDS, COMMAND_WAIT_SECONDS)),
    Group("HTTP", (HTTP_REQUESTS, HTTP_REQUEST_SECONDS)),
)
METRICS: Final = {metric.name: metric for group in GROUPS for metric in group.metrics}


def _rate(metric: str, by: Sequence[str] = (), window: str = "5m", where: str = "") -> str:
    grouped = f" by ({', '.join(by)})" if by else ""
    return f"sum{grouped} (rate({PREFIX}{metric}{where}[{window}]))"


_LAG: Final = f"{PREFIX}stage_lag_records"
_BATCHES: Final = f"{PREFIX}stage_batches_total"
_PENDING: Final = _rate("command_wait_seconds_count", where='{end="pending"}')
_SERVER_ERRORS: Final = _rate("http_requests_total", where='{status=~"5.."}')
_RECALL: Final = _rate("query_seconds_bucket", ("le",), where='{query="recall"}')

ALERTS: Final = (
    Alert(
        "PalimpsestAbsent",
        "critical",
        5,
        f"absent({PREFIX}pipeline_known)",
        "Prometheus reads no service",
    ),
    Alert(
        "PalimpsestPipelineUnknown",
        "warning",
        5,
        f"min({PREFIX}pipeline_known) == 0",
        "The service cannot ask the workers for the state of the pipeline",
    ),
    Alert(
        "PalimpsestBalanceBroken",
        "critical",
        5,
        f"min({PREFIX}balance_holds) == 0",
        "A turn or a fact is neither stored nor rejected, dead or in flight",
    ),
    Alert(
        "PalimpsestStageStalled",
        "critical",
        10,
        f"(max by (stage, partition) ({_LAG}) > 0) and on (stage, partition)"
        f" (sum by (stage, partition) (increase({_BATCHES}[10m])) == 0)",
        "{{ $labels.stage }} has records to process and finishes no batch",
    ),
    Alert(
        "PalimpsestLagGrowing",
        "warning",
        15,
        f"(sum by (stage) ({_LAG}) > 1000) and (sum by (stage) (deriv({_LAG}[15m])) > 0)",
        "{{ $labels.stage }} is slower than what arrives",
    ),
    Alert(
        "PalimpsestStageFailing",
        "critical",
        0,
        f"sum by (stage) (increase({PREFIX}stage_failures_total[10m])) > 0",
        "{{ $labels.stage }} failed unexpectedly on a record",
    ),
    Alert(
        "PalimpsestDeadLetters",
        "warning",
        15,
        f"max({PREFIX}dead_letters) > 0",
        "{{ $value }} records could not be processed and wait for a decision",
    ),
    Alert(
        "PalimpsestModelFailing",
        "warning",
        10,
        f"{_rate('model_failures_total', ('provider',))}"
        f" / {_rate('model_calls_total', ('provider',))} > 0.2",
        "One in five calls to {{ $labels.provider }} fails",
    ),
    Alert(
        "PalimpsestModelSlow",
        "warning",
        15,
        f"{_rate('model_seconds_total', ('provider',))}"
        f" / {_rate('model_calls_total', ('provider',))} > 30",
        "A call to {{ $labels.provider }} takes {{ $value | humanizeDuration }}",
    ),
    Alert(
        "PalimpsestWorkerWaiting",
        "warning",
        5,
        f"max by (for) ({PREFIX}waiting) == 1",
        "A worker waits for its {{ $labels.for }}",
    ),
    Alert(
        "PalimpsestRequestsFailing",
        "critical",
        5,
        f"{_SERVER_ERRORS} / {_rate('http_requests_total')} > 0.05",
        "One in twenty requests ends with a server error",
    ),
    Alert(
        "PalimpsestRecallSlow",
        "warning",
        10,
        f"histogram_quantile(0.95, {_RECALL}) > 1",
        "One in twenty recalls takes longer than a second",
    ),
    Alert(
        "PalimpsestChangesPending",
        "warning",
        10,
        f"{_PENDING} / {_rate('command_wait_seconds_count')} > 0.2",
        "One in five changes has no result within its wait",
    ),
)
