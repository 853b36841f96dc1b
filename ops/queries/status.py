"""The state of the pipeline: stages and lag, the balance, dead letters, providers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

from pydantic import JsonValue

from palimpsest.ops.queries.errors import UnavailableError
from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.queries.sources import Sources, from_all
from palimpsest.ops.threads import in_thread_of
from palimpsest.stores.database.balance import Balance, add_balances, read_balance
from palimpsest.streams.in_flight import items_in_flight


async def status(sources: Sources) -> JsonObject:
    """The answer in the shape of `status --json`. Raises UnavailableError while the broker is
    away, in whose log all is counted."""
    waiting = sources.waiting()
    if waiting is not None and waiting.awaited == "broker":
        raise UnavailableError(waiting.as_json()["text"])
    return await in_thread_of("overview", _status, sources)


_HELD = """
SELECT h.scope, count(*) AS n FROM held_proposals h
JOIN outcomes o ON o.item_kind = 'fact' AND o.item_id = h.item_id AND o.event = 'blocked'
GROUP BY h.scope
"""


def _status(sources: Sources) -> JsonObject:
    held = {str(row["scope"]): row["n"] for _, row in from_all(sources, _HELD)}
    counted = from_all(sources, "SELECT count(*) AS n FROM dead_letter_rows WHERE status = 'dead'")
    return {
        "stages": _stages(sources),
        "balance": balance(sources),
        "dead_letters": sum(int(str(row["n"])) for _, row in counted),
        "pending": dict(sorted(held.items())),
        "providers": _providers(sources),
        "waiting": [],
    }


def merged(answers: Sequence[JsonObject]) -> JsonObject:
    """The status of all workers together."""
    stages = [stage for each in answers for stage in cast("list[JsonObject]", each["stages"])]
    stages.sort(key=lambda stage: int(str(stage["partition"])))
    balances = [cast("dict[str, dict[str, int]]", each["balance"]) for each in answers]
    return {
        "stages": [*stages],
        "balance": {
            "turns": _added([balance["turns"] for balance in balances]),
            "facts": _added([balance["facts"] for balance in balances]),
            "holds": all(bool(balance["holds"]) for balance in balances),
        },
        "dead_letters": sum(int(str(each["dead_letters"])) for each in answers),
        "pending": _added([cast("dict[str, int]", each["pending"]) for each in answers]),
        "providers": answers[0]["providers"] if answers else {},
        "waiting": [],
    }


def _added(parts: Sequence[dict[str, int]]) -> JsonObject:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0) for part in parts) for name in names}


def balance(sources: Sources) -> JsonObject:
    """Where every turn and fact is, all scopes and partitions together."""
    parts = [
        read_balance(shard, partial(items_in_flight, sources.log, number, sources.admit))[:1]
        for number, shard in sources.shards.items()
    ]
    return balance_json(add_balances([part[0] for part in parts if part]))


_WITHOUT_FACTS = """
SELECT count(*) AS turns, count(*) FILTER (memory_id NOT IN (
    SELECT turn_memory_id FROM fact_rows)) AS without
FROM memory_rows WHERE type = 'episodic' AND role = 'user' AND NOT is_deleted"""


_OVER_LIMIT = """
SELECT coalesce(sum(CAST(regexp_extract(warning, '^\\d+') AS BIGINT)), 0) AS facts
FROM (SELECT unnest(warnings) AS warning FROM extractions)
WHERE warning LIKE '% facts over the limit of %'"""


def not_drawn(sources: Sources) -> JsonObject:
    """How many turns of people no fact was drawn from, of how many, and how many facts were left
    out as too many for one turn."""

    def total(query: str, name: str) -> int:
        return sum(int(str(row[name])) for _, row in from_all(sources, query, {}))

    without = [total(_WITHOUT_FACTS, name) for name in ("without", "turns")]
    return {"without_facts": [*without], "facts_over_limit": total(_OVER_LIMIT, "facts")}


def balance_json(total: Balance) -> JsonObject:
    return {"turns": {**total.turns}, "facts": {**total.facts}, "holds": total.holds}


def _stages(sources: Sources) -> list[JsonValue]:
    from palimpsest.streams.topology import stages  # with all stages: only when they are asked for

    found: list[JsonValue] = []
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


def lag(sources: Sources) -> int:
    """Records that wait for all stages together."""
    return sum(cast("int", cast("JsonObject", stage)["lag"]) for stage in _stages(sources))


def _state(sources: Sources, stage: str, lag: int) -> str:
    """`stopped` without a worker, `waiting` for a model, else `running` or `idle`."""
    if stage not in sources.running:
        return "stopped"
    if stage == "extract" and (sources.unusable() is not None or sources.outages):
        return "waiting"
    return "running" if lag > 0 else "idle"


def _providers(sources: Sources) -> JsonObject:
    settings = sources.settings
    llm = sources.outages.get(f"llm:{settings.llm.provider}")
    embedding = sources.outages.get("embedding")
    return {
        "llm": _provider(
            settings.llm.provider,
            settings.llm.model_name,
            sources.unusable() or (None if llm is None else llm.reason),
            bool(sources.running),
        ),
        "embedding": _provider(
            settings.embedding.provider,
            sources.embedding.model,
            None if embedding is None else embedding.reason,
            bool(sources.running),
        ),
    }


def _provider(provider: str, model: str, trouble: str | None, running: bool) -> JsonObject:
    state = "ok" if running else "not in use"
    return {
        "provider": provider,
        "model": model,
        "state": state if trouble is None else "waiting",
        "reason": trouble,
    }
