"""Results of commands and of published turns, the state of the pipeline, and its health."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from palimpsest.ops.errors import NotFoundError, UnavailableError
from palimpsest.ops.operations.operation import (
    Doc,
    Json,
    Read,
    Scope,
    ScopeOfId,
    Surface,
    Texts,
)
from palimpsest.ops.operations.rows import all_rows, rows

if TYPE_CHECKING:
    from palimpsest.ops.operations.rows import Row
    from palimpsest.ops.sources import Sources


@dataclass(frozen=True, slots=True)
class CommandState:
    """The state of a command. `applied` is false while it is pending and if it was refused; then
    `error` begins with the kind of error and a colon. If it erased texts, `erasure` says whether
    files may still hold them."""

    command_id: str
    scope: str
    applied: bool
    command: str | None = None
    error: str | None = None
    result: Any = None
    recorded_at: datetime | None = None
    erasure: Literal["pending", "done"] | None = None
    left: tuple[str, ...] = ()
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class CommandResult(Read[CommandState | None]):
    """Show the result of a command, from here or another program; null while it is pending.

    Example: palimpsest result 0b9e7c1a-6a53-4c0e-9f3e-5d1f6b0c7a11
    """

    command_id: Annotated[
        str, Doc("the command's id", min_length=1, max_length=256, argument=True, metavar="ID")
    ]
    scope: ScopeOfId = None

    surface: ClassVar = Surface(
        ("GET", "/api/commands/{command_id}"),
        tag="commands",
        command="result",
        panel="Explain and review",
        routing="any",
    )

    def read(self, sources: Sources) -> Json:
        return command_results(sources, [self.command_id]).get(self.command_id)

    def merge(self, answers: Sequence[Json]) -> Json:
        return next((answer for answer in answers if answer is not None), None)


_RESULTS = """
SELECT command_id, scope, command, error, result, recorded_at, digest FROM command_results
WHERE command_id IN (SELECT unnest($ids)) AND (error IS NOT NULL OR result <> 'null')"""
# Commands that failed at apply-writes leave only their dead letters.
_FAILED = """
SELECT id AS command_id, scope, '' AS command, 'failed: ' || reason AS error, '{}' AS result,
    last_failed_at AS recorded_at, NULL AS digest
FROM (
    SELECT unnest(item_ids) AS id, * FROM dead_letter_rows
    WHERE item_kind = 'command' AND status <> 'redriven' AND list_has_any(item_ids, $ids)
)
WHERE list_contains($ids, id) AND id NOT IN (
    SELECT command_id FROM command_results WHERE command_id IN (SELECT unnest($ids))
)"""

_ERASURES = "SELECT erasure_id, phase FROM erasures WHERE erasure_id IN (SELECT unnest($ids))"


def command_results(sources: Sources, command_ids: Sequence[str]) -> dict[str, Row]:
    """Returns the results of the executed commands, by id."""
    found: dict[str, Row] = {}
    for row in all_rows(sources, f"{_RESULTS} UNION ALL {_FAILED}", {"ids": [*command_ids]}):
        row["result"] = json.loads(row["result"])
        found[row["command_id"]] = row
    if found:
        for shard in sources.shards.values():
            shard.wait_until_shown()
    for erasure in all_rows(sources, _ERASURES, {"ids": [*found]}) if found else ():
        row = found[erasure["erasure_id"]]
        row["erasure"] = "done" if erasure["phase"] == "done" else "pending"
        row["left"] = [*_not_reached(sources.settings.log.kind == "kafka")]
    return found


def _not_reached(is_kafka: bool) -> Iterator[str]:
    """Where an erased text may remain, and what to do about it."""
    if is_kafka:
        yield (
            "records of the kept topics that were sent before the command still hold the texts,"
            " until their retention ends or `palimpsest topics delete-records` removes them"
        )
    yield "snapshots, exports and backups that were made before: delete them where they lie"


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The outcome of a published turn: stored as the memory `memory_id`, rejected, or a dead
    letter, with the `reason`."""

    item_id: str
    status: Literal["stored", "rejected", "dead_letter"]
    memory_id: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class SettledTurns:
    """The settled turns."""

    turns: tuple[TurnResult, ...]


@dataclass(frozen=True, slots=True)
class TurnResults(Read[SettledTurns]):
    """Return the outcomes of published turns, without those that are pending."""

    item_ids: Annotated[
        Texts, Doc("their ids in the balance (view `pipeline_items`)", max_length=1_000)
    ]
    scope: Scope = ""

    surface: ClassVar = Surface()

    def read(self, sources: Sources) -> Json:
        # Dead letters come first, so that the stored outcome of a turn replaces its dead letter.
        parameters = {"scope": self.scope, "ids": [*self.item_ids]}
        shard = sources.shard_of(self.scope)
        found = rows(shard, _TURNS, parameters)
        shard.wait_until_shown()
        return {"turns": [*{row["item_id"]: row for row in found}.values()]}


_TURNS = """
SELECT * EXCLUDE rank FROM (
    SELECT unnest(item_ids) AS item_id, 'dead_letter' AS status, NULL AS memory_id, reason,
        0 AS rank
    FROM dead_letter_rows WHERE item_kind = 'turn' AND scope = $scope AND status <> 'redriven'
        AND list_has_any(item_ids, $ids)
    UNION ALL
    SELECT item_id, if(event = 'created', 'stored', 'rejected'), memory_id, reason, 1
    FROM outcomes WHERE item_kind = 'turn' AND scope = $scope
) WHERE list_contains($ids, item_id) ORDER BY rank"""


_SURFACE = partial(
    Surface,
    tag="operation",
    panel="Run and operate",
    permission="admin",
    sees_all=True,
    routing="all",
)


@dataclass(frozen=True, slots=True)
class StageState:
    """A stage on a partition: its next offset, the end of its input, and the lag between them."""

    stage: str
    partition: int
    cursor: int
    end: int
    lag: int
    state: str


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """Stages, the balance of turns and facts, the number of dead letters, models, and in `pending`
    the number of changes awaiting review, by scope. `waiting` says what workers on Kafka wait
    for."""

    stages: tuple[StageState, ...]
    balance: dict[str, Any]
    dead_letters: int
    pending: dict[str, int]
    providers: dict[str, Any]
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Status(Read[PipelineStatus]):
    """Show stages and lag, the balance, dead letters, models, and changes awaiting review.

    Example: palimpsest status
    """

    surface: ClassVar = _SURFACE(("GET", "/api/pipeline/status"), command="status")

    async def read(self, sources: Sources) -> Json:
        """Raises UnavailableError while the broker is unreachable, whose log has the offsets."""
        from palimpsest.ops.threads import in_thread_of

        waiting = sources.waiting()
        if waiting is not None and waiting.awaited == "broker":
            raise UnavailableError(waiting.as_json()["text"])
        return await in_thread_of("overview", _status, sources)

    def merge(self, answers: Sequence[Json]) -> Json:
        stages = [stage for each in answers for stage in each["stages"]]
        balances = [each["balance"] for each in answers]
        return {
            "stages": sorted(stages, key=lambda stage: stage["partition"]),
            "balance": {
                "turns": _summed(balance["turns"] for balance in balances),
                "facts": _summed(balance["facts"] for balance in balances),
                "holds": all(balance["holds"] for balance in balances),
            },
            "dead_letters": sum(each["dead_letters"] for each in answers),
            "pending": _summed(each["pending"] for each in answers),
            "providers": answers[0]["providers"] if answers else {},
            "waiting": [],
        }


def _summed(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, number in part.items():
            total[name] = total.get(name, 0) + number
    return total


_PENDING = """
SELECT h.scope, count(*) AS n FROM held_proposals h
JOIN outcomes o ON o.item_kind = 'fact' AND o.item_id = h.item_id AND o.event = 'blocked'
GROUP BY h.scope
"""


def _status(sources: Sources) -> Json:
    pending = {row["scope"]: row["n"] for row in all_rows(sources, _PENDING)}
    dead = all_rows(sources, "SELECT count(*) AS n FROM dead_letter_rows WHERE status = 'dead'")
    return {
        "stages": _stages(sources),
        "balance": balance(sources),
        "dead_letters": sum(row["n"] for row in dead),
        "pending": dict(sorted(pending.items())),
        "providers": _providers(sources),
        "waiting": [],
    }


def balance(sources: Sources) -> Json:
    """Counts turns and facts by state, over all scopes and partitions."""
    from palimpsest.stores.database.balance import add_balances, read_balance
    from palimpsest.streams.in_flight import items_in_flight

    parts = [
        read_balance(shard, partial(items_in_flight, sources.log, number, sources.admit))[:1]
        for number, shard in sources.shards.items()
    ]
    total = add_balances([part[0] for part in parts if part])
    return {"turns": {**total.turns}, "facts": {**total.facts}, "holds": total.holds}


_WITHOUT_FACTS = """
SELECT count(*) AS turns, count(*) FILTER (memory_id NOT IN (
    SELECT turn_memory_id FROM fact_rows)) AS without
FROM memory_rows WHERE type = 'episodic' AND role = 'user' AND NOT is_deleted"""


_OVER_LIMIT = """
SELECT coalesce(sum(CAST(regexp_extract(warning, '^\\d+') AS BIGINT)), 0) AS facts
FROM (SELECT unnest(warnings) AS warning FROM extractions)
WHERE warning LIKE '% facts over the limit of %'"""


def not_drawn(sources: Sources) -> Row:
    """Counts the turns of people without a fact, all turns of people, and the facts left out
    because their turn had too many; zeros where no partition is open here."""
    turns = all_rows(sources, _WITHOUT_FACTS)
    return {
        "without_facts": [sum(row[name] for row in turns) for name in ("without", "turns")],
        "facts_over_limit": sum(row["facts"] for row in all_rows(sources, _OVER_LIMIT)),
    }


def _stages(sources: Sources) -> list[Row]:
    from palimpsest.streams.topology import stages

    found = []
    for partition, shard in sources.shards.items():
        for stage in stages(sources.settings):
            cursor = end = 0
            for topic in stage.reads:
                cursor += (
                    shard.cursor_of(stage.name, topic.name)
                    if stage.stateful
                    else sources.log.position(stage.name, topic.name, partition)
                )
                end += sources.log.end_offset(topic.name, partition)
            found.append(
                {
                    "stage": stage.name,
                    "partition": partition,
                    "cursor": cursor,
                    "end": end,
                    "lag": max(0, end - cursor),
                    "state": _state(sources, stage.name, end - cursor),
                }
            )
    return found


def _state(sources: Sources, stage: str, lag: int) -> str:
    """`stopped` without a worker, `waiting` for a model, else `running` or `idle`."""
    if stage not in sources.running:
        return "stopped"
    if stage == "extract" and (sources.unusable() is not None or sources.outages):
        return "waiting"
    return "running" if lag > 0 else "idle"


def _providers(sources: Sources) -> Json:
    llm, embedding = sources.settings.llm, sources.settings.embedding
    reason = sources.unusable() or _outage(sources, f"llm:{llm.provider}")
    reason_of_embedding = _outage(sources, "embedding")
    in_use = "ok" if sources.running else "not in use"
    return {
        name: {
            "provider": provider,
            "model": model,
            "state": in_use if why is None else "waiting",
            "reason": why,
        }
        for name, provider, model, why in (
            ("llm", llm.provider, llm.model_name, reason),
            ("embedding", embedding.provider, sources.embedding.model, reason_of_embedding),
        )
    }


def _outage(sources: Sources, name: str) -> str | None:
    found = sources.outages.get(name)
    return None if found is None else found.reason


@dataclass(frozen=True, slots=True)
class Domain:
    """The health of one domain: a score from 0 to 1, and its counts."""

    score: float
    status: Literal["healthy", "degraded", "unhealthy"]
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Health:
    """`score` is the mean of the domains', `status` that of the worst."""

    score: float
    status: Literal["healthy", "degraded", "unhealthy"]
    domains: dict[str, Domain]


@dataclass(frozen=True, slots=True)
class Diagnostics(Read[Health]):
    """Show the health of the memory by domain, each with a score from 0 to 1.

    Example: palimpsest diagnostics
    """

    domain: Annotated[
        str | None, Doc("only this domain, for example `queue`", max_length=64, argument=True)
    ] = None

    surface: ClassVar = _SURFACE(("GET", "/api/diagnostics"), command="diagnostics", overview=True)

    def read(self, sources: Sources) -> Json:
        domains = DOMAINS if self.domain is None else (self.domain,)
        if not {*domains} <= {*DOMAINS}:
            known = ", ".join(DOMAINS)
            raise NotFoundError(f"there is no domain {self.domain}; there are {known}")
        return _judged({name: _counts(sources, name) for name in domains})

    def merge(self, answers: Sequence[Json]) -> Json:
        domains = [answer["domains"] for answer in answers]
        return _judged(
            {name: _summed(each[name]["counts"] for each in domains) for name in domains[0]}
        )


_HEALTHY: Final = 0.8
_DEGRADED: Final = 0.5
"""Minimum scores of a healthy and of a degraded domain; below, it is unhealthy."""
_LONGEST_CHARACTERS: Final = 2_000
"""Maximum length of an extracted memory: a longer one is not a single fact."""

_COUNTS: Final[Mapping[str, str]] = {
    "queue": "SELECT (SELECT count(*) FROM accepted_turns) AS accepted,"
    " (SELECT count(*) FROM dead_letter_rows WHERE status = 'dead') AS dead",
    "index": "SELECT (SELECT count(*) FROM memory_rows WHERE NOT is_deleted) AS active,"
    " (SELECT count(*) FROM memory_rows m ANTI JOIN fts_docs USING (memory_id)"
    "  WHERE NOT m.is_deleted) AS missing",
    "embeddings": "SELECT count(*) AS active, count(*) FILTER (embedding_key NOT IN"
    " (SELECT embedding_key FROM embeddings WHERE model = $model)) AS missing"
    " FROM memory_rows WHERE NOT is_deleted",
    "storage": "SELECT count(*) AS stored, count(*) FILTER (is_deleted) AS tombstones"
    " FROM memory_rows",
    "graph": "SELECT count(*) AS relations, count(*) FILTER (source_name_id NOT IN"
    " (SELECT name_id FROM name_rows) OR target_name_id NOT IN (SELECT name_id FROM name_rows))"
    " AS dangling FROM relation_rows",
    "duplicates": "SELECT count(*) AS memories,"
    " count(*) - count(DISTINCT (scope, content_hash)) AS repeated"
    " FROM memory_rows WHERE NOT is_deleted AND type NOT IN ('episodic', 'document_chunk')",
    # Memories of a scope with the same set of words: possible duplicates, for a person to judge.
    "near_duplicates": "SELECT count(*) AS memories, count(*) - count(DISTINCT (scope, words))"
    " - (count(*) - count(DISTINCT (scope, content_hash))) AS same_words FROM"
    " (SELECT scope, content_hash, list_sort(list_distinct("
    "regexp_extract_all(lower(normalized_content), '[\\p{L}\\p{N}]+'))) AS words"
    " FROM memory_rows WHERE NOT is_deleted AND type NOT IN ('episodic', 'document_chunk'))",
    "overlong": "SELECT count(*) AS memories,"
    f" count(*) FILTER (length(content) > {_LONGEST_CHARACTERS}) AS overlong"
    " FROM memory_rows WHERE NOT is_deleted AND type NOT IN ('episodic', 'document_chunk')",
}


def _without(part: str, whole: str, weight: float = 1.0) -> Callable[[dict[str, int]], float]:
    """A score that falls by `weight` times the share of `part` in `whole`."""
    return lambda counts: max(0.0, 1.0 - weight * counts[part] / max(1, counts[whole]))


_SCORES: Final[Mapping[str, Callable[[dict[str, int]], float]]] = {
    "queue": _without("dead", "accepted", 20.0),  # healthy up to 1 %
    "index": _without("missing", "active"),
    "embeddings": _without("missing", "active"),
    "storage": _without("tombstones", "stored", 2 / 3),  # healthy up to 30 %
    "graph": _without("dangling", "relations"),
    "providers": _without("waiting", "providers"),
    "duplicates": _without("repeated", "memories"),
    "near_duplicates": _without("same_words", "memories"),
    "overlong": _without("overlong", "memories"),
}
DOMAINS: Final = tuple(_SCORES)


def _counts(sources: Sources, domain: str) -> dict[str, int]:
    if domain == "providers":
        embedding = "embedding" in sources.outages
        language = sources.unusable() is not None or len(sources.outages) > embedding
        return {"providers": 2, "waiting": embedding + language}
    parameters = {"model": sources.embedding.model} if "$model" in _COUNTS[domain] else {}
    total = _summed(all_rows(sources, _COUNTS[domain], parameters))
    if domain == "queue":
        total["lag"] = sum(stage["lag"] for stage in _stages(sources))
    return total


def _judged(counted: Mapping[str, dict[str, int]]) -> Json:
    """Builds the answer from the counts of the domains."""
    scores = {name: round(_SCORES[name](counts), 4) for name, counts in counted.items()}
    return {
        "score": round(sum(scores.values()) / len(scores), 4),
        "status": _health(min(scores.values())),
        "domains": {
            name: {"score": scores[name], "status": _health(scores[name]), "counts": counts}
            for name, counts in counted.items()
        },
    }


def _health(score: float) -> str:
    return "healthy" if score >= _HEALTHY else "degraded" if score >= _DEGRADED else "unhealthy"
