"""How the settings say that a cluster is used."""

from __future__ import annotations

from ops.settings import Settings
from streams.logs.kafka_base import KafkaOptions

DEFAULT_PARTITIONS = 8


def kafka_options(settings: Settings) -> KafkaOptions:
    kafka = settings.kafka
    return KafkaOptions(
        bootstrap_servers=kafka.bootstrap_servers,
        partitions=settings.log.partitions or DEFAULT_PARTITIONS,
        topic_prefix=kafka.topic_prefix,
        group=kafka.group,
        session_seconds=kafka.session_seconds,
        grace_seconds=kafka.grace_seconds,
        quiesce_seconds=kafka.quiesce_seconds,
    )
