"""The sections `log` and `kafka` of the settings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from palimpsest.schemas.limits import DEFAULT_MAX_RECORD_BYTES
from palimpsest.schemas.section import Section


class LogSettings(Section):
    kind: Literal["embedded", "kafka"] = Field(
        default="embedded", description="log backend: a file in the data folder, or Kafka"
    )
    partitions: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="partitions of every topic, fixed when the log is made; when not set, 1"
        " embedded and 8 on Kafka",
    )
    max_record_bytes: int = Field(
        default=DEFAULT_MAX_RECORD_BYTES,
        ge=1024,
        description="maximum size of a producer's record, in bytes",
    )
    expire_seconds: float = Field(
        default=600.0,
        ge=1.0,
        description="how often a worker removes from the embedded log what is older than its topic"
        " keeps it (cache-invalidations: 1 day), in seconds; on Kafka the broker does. As often for"
        " recorded replies",
    )


class KafkaSettings(Section):
    bootstrap_servers: str = Field(
        default="localhost:9092", description="brokers as host:port, separated by commas"
    )
    topic_prefix: str = Field(
        default="",
        pattern="^[a-z0-9-]*$",
        description="prefix of every topic name, so that installations can share a cluster",
    )
    group: str = Field(
        default="palimpsest",
        min_length=1,
        description="first part of the names of the consumer groups; another one for every"
        " installation",
    )
    replication_factor: int = Field(
        default=1, ge=1, le=9, description="replication factor that `topics create` uses"
    )
    session_seconds: float = Field(
        default=20.0,
        ge=1.0,
        le=600.0,
        description="how long the group waits for a worker that does not answer, in seconds; the"
        " broker's group.min.session.timeout.ms (6 s by default) is the least",
    )
    grace_seconds: float = Field(
        default=1.0,
        ge=0.0,
        le=60.0,
        description="how long a rebalance waits for batches that wait for a model, in seconds;"
        " they are begun again by the next owner",
    )
    quiesce_seconds: float = Field(
        default=30.0,
        ge=1.0,
        le=600.0,
        description="how long a rebalance waits for running commits, in seconds",
    )
    workers: tuple[str, ...] = Field(
        default=(),
        description="local interfaces of workers on other machines as http://host:port, separated"
        " by commas; those that share the data folder are found by themselves",
    )
    worker_token: SecretStr | None = Field(
        default=None,
        description="secret that workers on several machines share; needed to listen elsewhere"
        " than on loopback; never shown",
    )
    listen: str = Field(
        default="127.0.0.1", description="address that a worker's read interface listens on"
    )
    listen_port: int = Field(
        default=0, ge=0, le=65535, description="its port; 0 selects a free one"
    )
