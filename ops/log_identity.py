"""What stores and branches remember of the log that they are made from."""

from __future__ import annotations

from typing import Final

from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import LogReader
from palimpsest.streams.logs.view import LogView

NUMBER_STATE: Final = "log_number"


def number_of(log: LogReader) -> int:
    """The number of an embedded log, which another one has once it is dealt out again. What was
    noted of offsets is true of one number only. 0 on Kafka, where partitions stay."""
    return log.number() if isinstance(log, LogView) else 0


def note_log(shard: Shard, log: LogReader) -> None:
    """As a worker on Kafka does at the first assignment; of an embedded log its number."""
    if isinstance(log, LogView):
        if log.number():
            shard.set_state(NUMBER_STATE, str(log.number()))
        return
    from palimpsest.streams.kafka.cluster import READ_BY, STORE
    from palimpsest.streams.kafka.log import KafkaLog
    from palimpsest.streams.kafka.role import LOG_STATE, state_of

    if isinstance(log, KafkaLog) and shard.state(LOG_STATE) is None:
        shard.set_state(LOG_STATE, state_of(log.identity(), READ_BY[STORE]))


def is_of_another(shard: Shard, log: LogView) -> bool:
    """Whether the store was made from another embedded log than the one alongside it."""
    return int(shard.state(NUMBER_STATE) or 0) != log.number()
