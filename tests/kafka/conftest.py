"""One real broker for all processes of a run, and names for topics that no other test has."""

import contextlib
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from palimpsest.ops.kafka.broker import Broker, MissingProgramError, require_programs
from tests.soak.lab import Lab, MakeLab

REQUIRE = "PALIMPSEST_REQUIRE_KAFKA"

CreateTopic = Callable[..., str]


class RunningBroker(NamedTuple):
    """A broker that another process may have started."""

    folder: Path
    bootstrap_servers: str
    port: int
    pid: int


CLOSING = pytest.StashKey[contextlib.ExitStack]()
RUNNING = pytest.StashKey[RunningBroker]()
# A broker compiles itself for a minute of processor to become as fast as no test needs it.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """The process that starts those which run the tests has the broker."""
    with contextlib.suppress(MissingProgramError):  # the fixture tells it
        found = _started(node.config)
        node.workerinput["broker"] = (str(found.folder), *found[1:])


def pytest_unconfigure(config: pytest.Config) -> None:
    if CLOSING in config.stash:
        config.stash[CLOSING].close()


def _started(config: pytest.Config) -> RunningBroker:
    """The run's broker. Raises MissingProgramError."""
    if RUNNING not in config.stash:
        require_programs()
        closing = config.stash[CLOSING] = contextlib.ExitStack()
        folder = closing.enter_context(tempfile.TemporaryDirectory(prefix="kafka-"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JDK_JAVA_OPTIONS", JAVA_OPTIONS)
            started = closing.enter_context(Broker(Path(folder)))
        assert started.pid is not None
        config.stash[RUNNING] = RunningBroker(
            started.folder, started.bootstrap_servers, started.port, started.pid
        )
    return config.stash[RUNNING]


@pytest.fixture(scope="session")
def broker(pytestconfig: pytest.Config) -> RunningBroker:
    """A running broker; skipped where Java or Maven is missing.

    With PALIMPSEST_REQUIRE_KAFKA=1 the missing program fails the tests instead.
    """
    given = getattr(pytestconfig, "workerinput", {}).get("broker")
    if given is not None:
        return RunningBroker(Path(given[0]), *given[1:])
    try:
        return _started(pytestconfig)
    except MissingProgramError as missing:
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(f"{REQUIRE}=1, but {missing}", pytrace=False)
        pytest.skip(f"no Kafka broker here: {missing}")


@pytest.fixture
def make_lab(broker: Broker, tmp_path: Path) -> Iterator[MakeLab]:
    """Makes installations, each in a folder and with topics of its own."""
    made: list[Lab] = []

    def make(partitions: int, session_seconds: float = 2.0, overrides: Sequence[str] = ()) -> Lab:
        name = f"p{uuid.uuid4().hex[:8]}"
        lab = Lab(
            tmp_path / name, broker, name, partitions, session_seconds, (*overrides,), forks=True
        )
        made.append(lab)
        return lab

    yield make
    for lab in made:
        lab.close()


@pytest.fixture
def create_topic(broker: Broker) -> CreateTopic:
    """Creates a topic with a name of its own; settings with ``__`` for the dots."""

    def create(partitions: int = 1, **configs: str) -> str:
        name = f"test-{uuid.uuid4().hex[:12]}"
        settings: Mapping[str, str] = {
            key.replace("__", "."): value for key, value in configs.items()
        }
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        try:
            admin.create_topics([NewTopic(name, partitions, 1, topic_configs=dict(settings))])
            admin.wait_for_topics([name])
        finally:
            admin.close()
        return name

    return create
