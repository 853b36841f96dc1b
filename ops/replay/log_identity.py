"""What a store remembers of the log that it is made from."""

from __future__ import annotations

from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import LogReader
from palimpsest.streams.logs.view import LogView


def note_log(shard: Shard, log: LogReader) -> None:
    """As a worker on Kafka does at the first assignment; an embedded log lies beside its stores."""
    if isinstance(log, LogView):
        return
    from palimpsest.streams.kafka.cluster import READ_BY, STORE
    from palimpsest.streams.kafka.log import KafkaLog
    from palimpsest.streams.kafka.role import LOG_STATE, state_of

    if isinstance(log, KafkaLog) and shard.state(LOG_STATE) is None:
        shard.set_state(LOG_STATE, state_of(log.identity(), READ_BY[STORE]))
