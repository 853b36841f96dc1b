"""What all the Kafka parts share: names of topics and groups, and limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from palimpsest.schemas.topics import TOPICS
from palimpsest.streams.logs.base import LogError, Position
from palimpsest.streams.logs.settings import KafkaSettings

STATELESS: Final = "stateless"
STORE: Final = "store"
ROLES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        STATELESS: ("normalize", "extract"),
        STORE: ("decide", "apply-writes", "graph-persist", "audit"),
    }
)
"""Which stages share a worker. All members of a role read the same topics and so get the same
partition number of each: the stages of a scope that need its store run together."""

READ_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "stateless": ("conversation-turns", "memory-commands", "turns-normalized"),
    "store": (
        "facts-extracted",
        "memory-writes",
        "memory-changes",
        "conversation-turns",
        "graph-changes",
        "dead-letters",
    ),
}
"""The topics in which a role's group commits offsets; a test compares it with the topology."""

DEFAULT_PARTITIONS: Final = 8
REQUEST_SECONDS: Final = 30.0
"""The time limit of a broker's response."""

MAX_REQUEST_BYTES: Final = 8 * 1024 * 1024
"""Largest record that the pipeline itself sends: a dead letter around the largest turn."""


REFUSALS: Final = frozenset(
    {
        *("AuthenticationFailedError", "AuthenticationMethodNotSupported"),
        *("SaslAuthenticationFailed", "SaslAuthenticationFailedError"),
        *("UnsupportedSaslMechanismError", "IllegalSaslStateError", "SecurityDisabled"),
        *("TopicAuthorizationFailedError", "GroupAuthorizationFailedError"),
        *("ClusterAuthorizationFailedError", "UnsupportedVersionError"),
        *("IncompatibleBrokerVersion", "UnsupportedForMessageFormatError"),
        *("InconsistentGroupProtocolError", "InvalidGroupIdError", "InvalidSessionTimeoutError"),
        *("InvalidTopicError", "InvalidRequiredAcksError", "PolicyViolationError"),
        *("MessageSizeTooLargeError", "RecordListTooLargeError", "RecordTooLargeError"),
        *("KafkaConfigurationError", "UnsupportedCodecError"),
    }
)
"""The errors, by the names that both clients use, that a broker returns until its settings or those
of the worker change. All others may pass."""


def is_refusal(error: BaseException) -> bool:
    """Returns whether waiting does not resolve this error, or its cause."""
    return any(type(cause).__name__ in REFUSALS for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster as configured, with `partitions` of every topic; several installations may share it
    under different names."""

    settings: KafkaSettings = KafkaSettings()
    partitions: int = DEFAULT_PARTITIONS

    @property
    def servers(self) -> list[str]:
        found = self.settings.bootstrap_servers.split(",")
        return [server.strip() for server in found if server.strip()]

    def physical(self, topic: str) -> str:
        """Returns the topic's name on the cluster. Raises LogError for an unknown topic."""
        if topic not in TOPICS:
            raise LogError(f"there is no topic {topic!r}; topics are {', '.join(TOPICS)}")
        return self.settings.topic_prefix + topic

    def logical(self, name: str) -> str:
        """Returns the topic for a name on the cluster."""
        return name.removeprefix(self.settings.topic_prefix)

    def group_of(self, role: str) -> str:
        return f"{self.settings.group}-{role}"


def role_of(stage: str) -> str:
    """Returns the role of a stage. Raises LogError for a stage without one."""
    for role, names in ROLES.items():
        if stage in names:
            return role
    raise LogError(f"there is no stage {stage!r} on Kafka")


def check_position(position: Position, partitions: int) -> None:
    """Raises LogError for a position that no partition has."""
    check_partition(position.topic, position.partition, partitions)
    if position.next_offset < 0:
        raise LogError(f"an offset is not negative: {position}")


def check_partition(topic: str, partition: int, partitions: int) -> None:
    """Raises LogError for an unknown topic or partition."""
    if topic not in TOPICS:
        raise LogError(f"there is no topic {topic!r}; topics are {', '.join(TOPICS)}")
    if not 0 <= partition < partitions:
        raise LogError(f"topic {topic!r} has no partition {partition}; it has {partitions}")
