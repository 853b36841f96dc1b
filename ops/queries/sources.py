"""What queries read: the log and the stores of a folder, and the models in use."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pydantic import JsonValue

from palimpsest.ops.queries.errors import NotOpenError, RequestError
from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.queries.sql_processes import QueryProcesses
from palimpsest.ops.settings.sections import Settings
from palimpsest.stores.shard import Shard
from palimpsest.streams.kafka.waiting import Wait
from palimpsest.streams.logs.base import LogReader, Outgoing, Record, partition_for
from palimpsest.streams.models.base import EmbeddingModel, ModelError
from palimpsest.streams.models.cross_encoder import CrossEncoder
from palimpsest.streams.runtime.model_port import Outage
from palimpsest.streams.sensitive.policy import Policy

if TYPE_CHECKING:
    from palimpsest.stores.recall.intent import Exemplars


class EmbeddedExemplars:
    """The example questions of the intents by the model in use, embedded at their first use."""

    def __init__(self) -> None:
        self._found: Exemplars | None = None
        self._lock = asyncio.Lock()

    async def of(self, model: EmbeddingModel) -> Exemplars | None:
        """None while the model cannot embed them: the next question tries again."""
        from palimpsest.stores.recall.intent import Exemplars  # with numpy: only when it is used

        async with self._lock:
            if self._found is None:
                try:
                    self._found = await Exemplars.embed(model.embed_query)
                except ModelError:
                    return None
            return self._found


@dataclass(slots=True)
class Sources:
    """`shards` are those open here now, by partition, of `partitions` that there are. `append`
    adds records to the log. `running` are the stages that a worker of this process runs; `outages`
    and `unusable` tell what its models are waiting for, `waiting` what the worker is. `exemplars`
    and `cross_encoder` are shared by all questions. `sql` are the processes of queries in SQL, to
    be closed."""

    settings: Settings
    log: LogReader
    shards: Mapping[int, Shard]
    partitions: int
    embedding: EmbeddingModel
    append: Callable[[Sequence[Outgoing]], object]
    running: frozenset[str] = frozenset()
    outages: dict[str, Outage] = field(default_factory=dict)
    unusable: Callable[[], str | None] = lambda: None
    waiting: Callable[[], Wait | None] = lambda: None
    exemplars: EmbeddedExemplars = field(default_factory=EmbeddedExemplars)
    cross_encoder: CrossEncoder = field(default_factory=CrossEncoder)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sql: QueryProcesses = field(init=False)

    def __post_init__(self) -> None:
        self.sql = QueryProcesses(self.settings.store)

    def admit(self, record: Record) -> Record:
        """A producer's record as the stages take it."""
        return Policy.of(self.settings.pii).record(record)

    def partition_of(self, scope: str) -> int:
        return partition_for(scope, self.partitions)

    def shard_of(self, scope: str) -> Shard:
        return self.shard(self.partition_of(scope))

    def shard(self, partition: int) -> Shard:
        """Raises NotOpenError for one that is not open here."""
        found = self.shards.get(partition)
        if found is None:
            raise NotOpenError(f"partition {partition} is not open in this process; try again")
        return found


Parameters = Sequence[object] | Mapping[str, object]
"""For `?` in a query in order, or for `$name`."""


def rows(shard: Shard, query: str, parameters: Parameters = ()) -> list[JsonObject]:
    """The rows of a query as JSON objects; times as RFC 3339 in UTC."""
    with shard.reading() as reader:
        given = parameters if isinstance(parameters, Mapping) else list(parameters)
        result = reader.execute(query, given)
        names = [column[0] for column in result.description or ()]
        return [
            {name: plain(value) for name, value in zip(names, row, strict=True)}
            for row in result.fetchall()
        ]


def from_all(
    sources: Sources, query: str, parameters: Parameters = ()
) -> list[tuple[int, JsonObject]]:
    """The rows of a query on every partition, with the partition's number."""
    return [
        (number, row)
        for number, shard in sources.shards.items()
        for row in rows(shard, query, parameters)
    ]


SHORTEST_ID = 8
"""Characters of an id that are enough to name it."""


def by_id(
    sources: Sources, select: str, column: str, named: str, unknown: Exception
) -> tuple[int, JsonObject]:
    """The row whose id, in this column of what is selected, is or begins with what is named; with
    its partition. Raises `unknown`, and RequestError where several begin so."""
    matches = from_all(
        sources,
        f"{select} WHERE {column} = $id"
        f" OR (len($id) >= {SHORTEST_ID} AND starts_with({column}, $id)) ORDER BY {column} LIMIT 2",
        {"id": named},
    )
    if not matches:
        raise unknown
    if len(matches) > 1:
        raise RequestError(f"more than one id begins with {named}; write more of it")
    return matches[0]


def plain(value: object) -> JsonValue:
    """A value of the database as JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no name for it
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    return str(value)


def rfc3339(value: datetime) -> str:
    """UTC, with a Z, in as few digits as the time needs."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
