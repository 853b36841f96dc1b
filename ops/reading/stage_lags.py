"""How far each stage is behind its input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.stores.shard import Shard
    from palimpsest.streams.logs.base import LogReader


@dataclass(frozen=True, slots=True)
class StageLag:
    """A stage on a partition: its next offsets by topic, their sum, that of the topics' ends, and
    the number of results that it has committed and that are not known to be in the log."""

    stage: str
    partition: int
    offsets: dict[str, int]
    cursor: int
    end: int
    unsent: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.cursor) + self.unsent

    def waiting_since(self, log: LogReader) -> datetime | None:
        """When the oldest record that waits for the stage was appended."""
        if not self.lag:
            return None
        heads = (log.read(topic, self.partition, at, 1) for topic, at in self.offsets.items())
        return min((head[0].timestamp for head in heads if head), default=None)


def stage_lags(settings: Settings, shards: Mapping[int, Shard], log: LogReader) -> list[StageLag]:
    """How far each stage is behind its input, by partition.

    All positions are read before all ends, and of a stage its position before what it has not sent:
    if nothing has a lag then, nothing had one at the moment between the two."""
    from palimpsest.streams.topology import stages

    read = []
    processed = stages(settings)
    for partition, shard in shards.items():
        for stage in processed:
            offsets = {
                topic.name: shard.cursor_of(stage.name, topic.name)
                if stage.stateful
                else log.position(stage.name, topic.name, partition)
                for topic in stage.reads
            }
            read.append((stage.name, partition, offsets, shard.unsent_count(stage.name)))
    return [
        StageLag(
            stage=name,
            partition=partition,
            offsets=offsets,
            cursor=sum(offsets.values()),
            end=sum(log.end_offset(topic, partition) for topic in offsets),
            unsent=unsent,
        )
        for name, partition, offsets, unsent in read
    ]
