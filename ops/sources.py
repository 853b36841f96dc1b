"""What queries read: the log and the stores of a folder, and the models in use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from palimpsest.ops.errors import NotOpenError
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.sql.processes import QueryProcesses
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
