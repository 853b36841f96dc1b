"""What all the Kafka parts share: names of topics and groups, and limits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from palimpsest.streams.logs.base import LogError, topic_named
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
    cause: BaseException | None = error
    while cause is not None:
        if type(cause).__name__ in REFUSALS:
            return True
        cause = cause.__cause__
    return False


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
        return self.settings.topic_prefix + topic_named(topic).name

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


# --- what a worker waits for ----------------------------------------------------------------------


Awaited: TypeAlias = Literal["broker", "partitions"]

LOG_AFTER: Final = timedelta(seconds=3)
"""A starting worker, or one whose broker moves, waits for moments that are not worth a log line."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wait:
    awaited: Awaited
    since: datetime
    text: str

    def as_json(self) -> dict[str, str]:
        since = f"{self.since:%Y-%m-%dT%H:%M:%SZ}"
        return {"for": self.awaited, "since": since, "text": f"{self.text} since {since}"}


class Waiting:
    """`now` is None while the worker works."""

    def __init__(self, servers: str, clock: Callable[[], datetime]) -> None:
        self.now: Wait | None = None
        self._texts: Mapping[Awaited, str] = {
            "broker": f"waiting for the broker at {servers}",
            "partitions": "waiting for its partitions",
        }
        self._clock = clock
        self._is_logged = False

    def note(self, awaited: Awaited | None) -> None:
        """Records what is waited for now; logs when a broker stays unreachable, and when it
        returns."""
        now = self._clock()
        if self.now is None or self.now.awaited != awaited:
            if self._is_logged:
                logger.warning("the broker answers again")
            self._is_logged = False
            self.now = None if awaited is None else Wait(awaited, now, self._texts[awaited])
        elif awaited == "broker" and not self._is_logged and now - self.now.since > LOG_AFTER:
            self._is_logged = True
            logger.warning("%s", self.now.as_json()["text"])
