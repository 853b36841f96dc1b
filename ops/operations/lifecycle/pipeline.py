"""The state of the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from palimpsest.ops.errors import UnavailableError
from palimpsest.ops.health.domains import composite, lowest
from palimpsest.ops.health.trends import recorded_scores
from palimpsest.ops.operations.lifecycle.embeddings import EmbeddingState, state_of
from palimpsest.ops.operations.lifecycle.jobs import JobState, job_states
from palimpsest.ops.operations.operation import OPERATING, Answer, Json, Read
from palimpsest.ops.reading.rows import Row, all_rows
from palimpsest.ops.reading.stage_lags import stage_lags
from palimpsest.ops.sql.values import plain
from palimpsest.stores.recall.query import IS_PENDING

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources


class StageState(Answer):
    """A stage on a partition: its next offset and the end of its input. `lag` counts the records
    between them, and the results that it has stored and not yet sent: with a lag of 0 everywhere,
    everything that was published is processed. `waiting_since` is when the oldest record that it
    has not processed was appended."""

    stage: str
    partition: int
    cursor: int
    end: int
    lag: int
    state: str
    waiting_since: datetime | None


class PipelineStatus(Answer):
    """Stages, the balance of turns and facts, the number of dead letters, models (`unusable` until
    somebody acts on the reason, `waiting` during an outage), scheduled jobs, and in `pending` the
    number of changes awaiting review, by scope. `embeddings` counts missing vectors and shows
    migrations, by partition; `waiting` says what workers on Kafka wait for. `health` has the
    composite score of each of the last 14 days, as `diagnose` has it."""

    stages: tuple[StageState, ...]
    balance: dict[str, Any]
    dead_letters: int
    pending: dict[str, int]
    providers: dict[str, Any]
    jobs: tuple[JobState, ...] = ()
    embeddings: tuple[EmbeddingState, ...] = ()
    waiting: tuple[str, ...] = ()
    health: dict[str, float] = field(default_factory=dict)


class Status(Read[PipelineStatus]):
    """Show stages and lag, the balance, dead letters, models, and changes awaiting review.

    Example: palimpsest status
    """

    surface: ClassVar = OPERATING(("GET", "/api/pipeline/status"), command="status")

    async def read(self, sources: Sources) -> Json:
        """Raises UnavailableError while the broker is unreachable, whose log has the offsets."""
        from palimpsest.ops.threads import in_thread_of

        waiting = sources.waiting()
        if waiting is not None and waiting.awaited == "broker":
            raise UnavailableError(waiting.as_json()["text"])
        return await in_thread_of("overview", _status, sources)

    def merge(self, answers: Sequence[Json]) -> Json:
        trend = lowest(answer["health"] for answer in answers)
        return {**super().merge(answers), "health": trend}


_PENDING = f"""
SELECT h.scope, count(*) AS n FROM held_proposals h
JOIN outcomes o ON o.item_kind = 'fact' AND o.item_id = h.item_id
WHERE {IS_PENDING} GROUP BY h.scope
"""


def _status(sources: Sources) -> Json:
    pending = {row["scope"]: row["n"] for row in all_rows(sources, _PENDING)}
    dead = all_rows(sources, "SELECT count(*) AS n FROM dead_letter_rows WHERE status = 'dead'")
    llm = sources.settings.llm
    live = [sources.embeddings.live(shard) for shard in sources.shards.values()]
    embedding = live[0] if live else sources.embeddings.own_choice()
    found = {
        "llm": (llm.provider, llm.model_name, sources.unusable(), f"llm:{llm.provider}"),
        "embedding": (
            embedding.provider,
            embedding.space,
            _unusable_embedding(sources, embedding.space),
            "embedding",
        ),
    }
    return {
        "stages": [
            {
                "stage": each.stage,
                "partition": each.partition,
                "cursor": each.cursor,
                "end": each.end,
                "lag": each.lag,
                "state": _state(sources, each.stage, each.lag),
                "waiting_since": plain(each.waiting_since(sources.log)),
            }
            for each in stage_lags(sources.settings, sources.shards, sources.log)
        ],
        "balance": balance(sources),
        "dead_letters": sum(row["n"] for row in dead),
        "pending": dict(sorted(pending.items())),
        "providers": {
            name: {"provider": provider, "model": model, **_answering(sources, unusable, outage)}
            for name, (provider, model, unusable, outage) in found.items()
        },
        "jobs": job_states(sources),
        "embeddings": [state_of(sources, *each) for each in sources.shards.items()],
        "waiting": [],
        "health": lowest({day: composite(scores)} for day, scores in recorded_scores(sources)),
    }


def balance(sources: Sources) -> Json:
    """Counts turns and facts by state, over all scopes and partitions."""
    from palimpsest.stores.database.balance import add_balances, read_balance
    from palimpsest.streams.in_flight import items_in_flight

    parts = [
        read_balance(shard, partial(items_in_flight, sources.log, number, sources.admit))
        for number, shard in sources.shards.items()
    ]
    total = add_balances(parts)
    return {"turns": {**total.turns}, "facts": {**total.facts}, "holds": total.holds}


_FAILED = """
SELECT scope, try(json_extract_string(decode(from_base64(value_base64)), '$.body.turn_id')) AS turn
FROM internal.dead_letter_rows WHERE stage = 'extract' AND status = 'dead'"""
_WITHOUT_FACTS = """
SELECT count(*) FILTER (role = 'user') AS turns,
    count(*) FILTER (role = 'user' AND is_without AND NOT has_failed) AS without,
    count(*) FILTER (is_without AND has_failed) AS failed
FROM (
    SELECT role, memory_id NOT IN (SELECT turn_memory_id FROM fact_rows) AS is_without,
        memory_id IN (SELECT unnest($failed)) AS has_failed
    FROM memory_rows WHERE type = 'episodic' AND NOT is_deleted
)"""


_OVER_LIMIT = """
SELECT coalesce(sum(CAST(regexp_extract(warning, '^\\d+') AS BIGINT)), 0) AS facts
FROM (SELECT unnest(warnings) AS warning FROM extractions)
WHERE warning LIKE '% facts over the limit of %'"""


def not_drawn(sources: Sources) -> Row:
    """Counts the turns of people without a fact, all turns of people, the turns whose extraction
    left a dead letter (not counted among those without a fact), and the facts left out because
    their turn had too many; zeros where no partition is open here."""
    from palimpsest.schemas.identity import turn_memory_id

    failed = [
        turn_memory_id(row["scope"], row["turn"])
        for row in all_rows(sources, _FAILED)
        if row["turn"] is not None
    ]
    turns = all_rows(sources, _WITHOUT_FACTS, {"failed": failed})
    return {
        "without_facts": [sum(row[name] for row in turns) for name in ("without", "turns")],
        "failed_turns": sum(row["failed"] for row in turns),
        "facts_over_limit": sum(row["facts"] for row in all_rows(sources, _OVER_LIMIT)),
    }


def _state(sources: Sources, stage: str, lag: int) -> str:
    """`stopped` without a worker, `waiting` for a model, else `running` or `idle`."""
    if stage not in sources.running:
        return "stopped"
    if stage == "extract" and (sources.unusable() is not None or sources.outages):
        return "waiting"
    return "running" if lag > 0 else "idle"


def _answering(sources: Sources, unusable: str | None, name: str) -> Row:
    """The state of a model, and the reason if it does not answer."""
    outage = sources.outages.get(name)
    if unusable is not None:
        return {"state": "unusable", "reason": unusable}
    if outage is not None:
        return {"state": "waiting", "reason": outage.reason}
    return {"state": "ok" if sources.running else "not in use", "reason": None}


def _unusable_embedding(sources: Sources, space: str) -> str | None:
    """What is wrong with an embedding model that cannot be made here, and what to do."""
    from palimpsest.streams.models.base import UnusableModel

    model = sources.embeddings.searching(space)
    if not isinstance(model, UnusableModel):
        return None
    return (
        f"{model.reason}. Meanwhile texts are stored without vectors and found by their words only."
        " Change the setting and start again, or choose another model with `palimpsest embedding"
        " migrate --to PROVIDER/MODEL`"
    )
