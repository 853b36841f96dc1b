"""One real broker for the whole test session, and names for topics that no other test has."""

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from palimpsest.ops.kafka.broker import Broker, MissingProgramError, require_programs
from tests.soak.lab import Lab, MakeLab

REQUIRE = "PALIMPSEST_REQUIRE_KAFKA"

CreateTopic = Callable[..., str]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker, the same for all tests; skipped where Java or Maven is missing.

    With PALIMPSEST_REQUIRE_KAFKA=1 the missing program fails the tests instead.
    """
    try:
        require_programs()
    except MissingProgramError as missing:
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(f"{REQUIRE}=1, but {missing}", pytrace=False)
        pytest.skip(f"no Kafka broker here: {missing}")
    with Broker(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture
def make_lab(broker: Broker, tmp_path: Path) -> Iterator[MakeLab]:
    """Makes installations, each in a folder and with topics of its own."""
    made: list[Lab] = []

    def make(partitions: int, session_seconds: float = 2.0, overrides: Sequence[str] = ()) -> Lab:
        name = f"p{uuid.uuid4().hex[:8]}"
        lab = Lab(tmp_path / name, broker, name, partitions, session_seconds, (*overrides,))
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
