"""What queries read: the log and the stores of a folder, and the models in use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from palimpsest.ops.embedding.models import EmbeddingModels
from palimpsest.ops.errors import NotOpenError
from palimpsest.ops.lifecycle.accesses import AccessBuffer
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.sql.processes import QueryProcesses
from palimpsest.stores.shard import Shard
from palimpsest.streams.kafka.cluster import Wait
from palimpsest.streams.logs.base import LogReader, Outgoing, Record, partition_for
from palimpsest.streams.models.base import EmbeddingModel, ModelError
from palimpsest.streams.models.cross_encoder import CrossEncoder
from palimpsest.streams.runtime.model_port import Outage, Usage

if TYPE_CHECKING:
    from palimpsest.stores.recall.intent import Exemplars


RunJob: TypeAlias = Callable[[str, float, str | None], Awaitable[Sequence[Any]]]
"""Runs a scheduled job by name, and waits up to that many seconds for its end; for one scope if one
is named. Returns its runs (`JobRun`)."""


class EmbeddedExemplars:
    """The example questions of the intents by the models in use, embedded at their first use."""

    def __init__(self) -> None:
        self._found: dict[str, Exemplars] = {}
        self._lock = asyncio.Lock()

    async def of(self, model: EmbeddingModel) -> Exemplars | None:
        """None while the model cannot embed them: the next question tries again."""
        from palimpsest.stores.recall.intent import Exemplars  # with numpy: only when it is used

        async with self._lock:
            if model.model not in self._found:
                try:
                    self._found[model.model] = await Exemplars.embed(model.embed_query)
                except ModelError:
                    return None
            return self._found[model.model]


@dataclass(slots=True)
class Sources:
    """`shards` are those open here now, by partition, of `partitions` that there are. `append`
    adds records to the log. `running` are the stages that a worker of this process runs; `outages`
    and `unusable` tell what its models are waiting for, `usage` how they answered, `waiting` what
    the worker is; `run_job` is its scheduler's. `exemplars` and `cross_encoder` are shared by all
    questions; `accesses` notes what they returned. `sql` are the processes of queries in SQL, to be
    closed."""

    settings: Settings
    log: LogReader
    shards: Mapping[int, Shard]
    partitions: int
    embedding: EmbeddingModel
    append: Callable[[Sequence[Outgoing]], object]
    running: frozenset[str] = frozenset()
    outages: dict[str, Outage] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    unusable: Callable[[], str | None] = lambda: None
    run_job: RunJob | None = None
    waiting: Callable[[], Wait | None] = lambda: None
    exemplars: EmbeddedExemplars = field(default_factory=EmbeddedExemplars)
    cross_encoder: CrossEncoder = field(default_factory=CrossEncoder)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    accesses: AccessBuffer = field(default_factory=AccessBuffer)
    loaded: EmbeddingModels | None = None
    """The embedding models that a worker of this process uses."""
    sql: QueryProcesses = field(init=False)
    embeddings: EmbeddingModels = field(init=False)
    """The model that is set, and those that shards search with."""

    def __post_init__(self) -> None:
        own = EmbeddingModels(self.settings, self.embedding, lambda: self.shards)
        self.embeddings = self.loaded or own
        self.sql = QueryProcesses(self.settings.store)

    def admit(self, record: Record) -> Record:
        """A producer's record as the stages take it."""
        from palimpsest.streams.sensitive.policy import Policy

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
