"""The compose file says what the settings, the topics and the command line understand."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from palimpsest.ops.cli.main import whole
from palimpsest.ops.ingest.lines import Watch, turn_of
from palimpsest.ops.ingest.parsers.base import ReadOptions
from palimpsest.ops.kafka.application import roles_of
from palimpsest.ops.kafka.broker import kafka_version
from palimpsest.ops.kafka.topics import configuration
from palimpsest.ops.parts import SetupError, utc_now
from palimpsest.ops.settings.sources import load_settings
from palimpsest.ops.worker.local import listen_address
from palimpsest.schemas.topics import ALL_TOPICS
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.topology import STAGE_NAMES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
HEAD = TEXT.split("services:")[0]
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, Any] = COMPOSE["services"]
OWN = sorted(name for name, service in SERVICES.items() if "build" in service)
WORKERS = sorted(name for name in OWN if SERVICES[name]["command"][0] == "run")


VARIABLE = re.compile(r"\$\{(\w+)(:[-+?])?([^${}]*)\}")


def interpolated(text: str, outside: Mapping[str, str]) -> str:
    """As compose fills in variables, the inner ones first."""

    def value(match: re.Match[str]) -> str:
        name, how, other = match.groups()
        known = outside.get(name, "")
        if how == ":?" and not known:
            raise KeyError(f"{name}: {other}")
        if how == ":+":
            return other if known else ""
        return known or (other if how == ":-" else "")

    while VARIABLE.search(text):
        text = VARIABLE.sub(value, text)
    return text


def environment(name: str, **outside: str) -> dict[str, str]:
    """As compose passes it on, with the secret given and else what is set outside."""
    given = {"PALIMPSEST_WORKER_TOKEN": "secret", **outside}
    said = SERVICES[name]["environment"]
    return {key: interpolated(str(value), given) for key, value in said.items()}


@pytest.mark.parametrize("name", OWN)
def test_every_setting_is_one_that_there_is(name: str) -> None:
    settings = load_settings(environment=environment(name)).settings
    assert settings.log.kind == "kafka"
    assert settings.kafka.bootstrap_servers == "kafka:9092"
    assert settings.cluster.partitions == 8
    assert str(settings.data_dir) == "/data"
    listen_address(settings)  # would refuse an open address without a secret


def test_the_secret_must_be_given() -> None:
    without = environment("worker-store") | {"PALIMPSEST_KAFKA__WORKER_TOKEN": ""}
    with pytest.raises(SetupError, match="worker_token"):
        listen_address(load_settings(environment=without).settings)
    assert ":?" in SERVICES["worker-store"]["environment"]["PALIMPSEST_KAFKA__WORKER_TOKEN"]


def test_all_agree_on_topics_and_partitions() -> None:
    per_service = [load_settings(environment=environment(n)).settings.cluster for n in OWN]
    assert len({cluster.partitions for cluster in per_service}) == 1
    assert len({(c.settings.topic_prefix, c.settings.group) for c in per_service}) == 1
    broker = SERVICES["kafka"]["environment"]
    assert broker["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert broker["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://kafka:9092"
    # One broker: as many copies as `topics create` asks for there.
    copies = {
        load_settings(environment=environment(n)).settings.kafka.replication_factor for n in OWN
    }
    assert copies == {1}
    assert all("message.timestamp.type" in configuration(topic) for topic in ALL_TOPICS)


def test_the_broker_is_the_one_that_the_tests_run_on() -> None:
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{kafka_version()}"


def test_no_setting_of_the_broker_is_left_to_an_image_that_drops_them() -> None:
    needed = {
        "NODE_ID",
        "PROCESS_ROLES",
        "LISTENERS",
        "CONTROLLER_LISTENER_NAMES",
        "CONTROLLER_QUORUM_VOTERS",
        "LISTENER_SECURITY_PROTOCOL_MAP",
        "LOG_DIRS",
        "OFFSETS_TOPIC_REPLICATION_FACTOR",
    }
    assert {f"KAFKA_{name}" for name in needed} <= SERVICES["kafka"]["environment"].keys()


def understood(*words: str) -> None:
    """Fails where the command line has no such command or option."""
    command, given = get_command(whole()), [*words]
    while isinstance(command, TyperGroup):
        assert given[0] in command.commands, f"palimpsest {' '.join(words)}"
        command = command.commands[given.pop(0)]
    command.make_context(command.name, given)


@pytest.mark.parametrize("name", OWN)
def test_every_command_and_its_options_are_understood(name: str) -> None:
    understood(*SERVICES[name]["command"])


def test_every_command_that_the_head_tells_is_understood() -> None:
    told = re.findall(r"docker compose run (?:--?\S+ )*serve ([^#<\n]+)", HEAD)
    assert len(told) == 2
    for each in told:
        understood(*shlex.split(each))


def test_every_stage_runs_and_roles_are_whole() -> None:
    named = []
    for name in WORKERS:
        stages = SERVICES[name]["command"][2].split(",")
        assert len(roles_of(stages)) == 1
        named += stages
    assert sorted(named) == sorted(STAGE_NAMES)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_nobody_is_root_and_everyone_is_watched(name: str) -> None:
    service = SERVICES[name]
    assert service["user"] not in ("root", "0", "0:0")
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert ":latest" not in service["image"] or "build" in service
    if service["restart"] != "no":
        assert "test" in service["healthcheck"]


def test_volumes_are_named_and_workers_wait_for_topics() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            assert volume.partition(":")[0] in COMPOSE["volumes"]
    for name in (*WORKERS, "gateway", "serve"):
        waits = SERVICES[name]["depends_on"]
        assert waits["topics"] == {"condition": "service_completed_successfully"}
        assert waits["kafka"] == {"condition": "service_healthy"}


def test_ports_are_published_on_this_machine_only() -> None:
    for service in SERVICES.values():
        for port in service.get("ports", []):
            assert str(port).startswith("127.0.0.1:")


def test_ollama_is_a_profile() -> None:
    assert SERVICES["ollama"]["profiles"] == SERVICES["model"]["profiles"] == ["ollama"]
    assert all("profiles" not in SERVICES[name] for name in OWN)


def test_a_profile_keeps_traces_in_a_file() -> None:
    collector, serve = SERVICES["collector"], SERVICES["serve"]
    assert collector["profiles"] == ["telemetry"]
    assert collector["command"] == ["--config=env:COLLECTOR"]
    config = yaml.safe_load(collector["environment"]["COLLECTOR"])
    pipeline = config["service"]["pipelines"]["traces"]
    assert ([*config["receivers"]], [*config["exporters"]]) == (["otlp"], ["file"])
    assert pipeline == {"receivers": ["otlp"], "exporters": ["file"]}
    port = config["receivers"]["otlp"]["protocols"]["http"]["endpoint"].rpartition(":")[2]
    file = config["exporters"]["file"]["path"]
    # The service mounts the folder first: so it belongs to the user of both.
    [volume] = collector["volumes"]
    assert volume in serve["volumes"]
    assert collector["depends_on"] == {"serve": {"condition": "service_started"}}
    assert collector["user"] == serve["user"]
    assert Path(file).parent == Path(volume.partition(":")[2])
    dockerfile = (ROOT / serve["build"]["dockerfile"]).read_text()
    assert f"--mode 0700 /data {Path(file).parent}\n" in dockerfile
    assert "telemetry" in dockerfile
    assert f"docker compose exec serve cat {file} " in HEAD
    for name in OWN:
        assert environment(name)["OTEL_EXPORTER_OTLP_ENDPOINT"] == f"http://collector:{port}"
        assert not load_settings(environment=environment(name)).settings.telemetry.traces
        both = {"COMPOSE_PROFILES": "ollama,telemetry", "PALIMPSEST_LLM__PROVIDER": "ollama"}
        traced = environment(name, PALIMPSEST_TELEMETRY__TRACES="true", **both)
        settings = load_settings(environment=traced).settings
        assert (settings.telemetry.traces, settings.llm.provider) == (True, "ollama")


def test_the_image_runs_without_rights() -> None:
    lines = (ROOT / SERVICES["worker-store"]["build"]["dockerfile"]).read_text().splitlines()
    assert "USER palimpsest" in lines
    assert 'ENTRYPOINT ["palimpsest"]' in lines
    assert any("--uid 10001" in line for line in lines)
    assert all(SERVICES[name]["user"] == "10001:10001" for name in OWN)
    copies = [line for line in lines if line.startswith("COPY ") and "--from" not in line]
    copied = {word for line in copies for word in line.split()[1:-1]}
    assert copied >= {"pyproject.toml", "README.md", "ops", "schemas", "stores", "streams"}


@pytest.mark.parametrize(
    ("profile", "provider", "url"),
    [({}, "rules", None), ({"COMPOSE_PROFILES": "ollama"}, "ollama", "http://ollama:11434")],
)
def test_the_profile_chooses_the_provider(
    profile: dict[str, str], provider: str, url: str | None
) -> None:
    for name in OWN:
        llm = load_settings(environment=environment(name, **profile)).settings.llm
        assert (llm.provider, llm.base_url or None) == (provider, url)


def test_the_model_that_is_pulled_is_the_one_that_is_asked() -> None:
    for outside in ({}, {"PALIMPSEST_LLM__MODEL": "gemma3:1b"}):
        profile = {"COMPOSE_PROFILES": "ollama", **outside}
        llm = load_settings(environment=environment("worker-stateless", **profile)).settings.llm
        pulled = environment("model", **profile)
        assert pulled["MODEL"] == llm.model_name
        assert pulled["PROVIDER"] == llm.provider
    waits = SERVICES["worker-stateless"]["depends_on"]["model"]
    assert waits == {"condition": "service_completed_successfully", "required": False}
    assert SERVICES["model"]["image"] == SERVICES["ollama"]["image"]
    assert SERVICES["model"]["restart"] == "no"


def test_the_host_reaches_the_service_and_needs_a_token() -> None:
    http = load_settings(environment=environment("serve")).settings.http
    assert http.host == "0.0.0.0"  # so it wants tokens
    assert SERVICES["serve"]["ports"] == [f"127.0.0.1:{http.port}:{http.port}"]
    assert "serve tokens create host --scope '*'" in HEAD
    assert f"curl 127.0.0.1:{http.port}/api/turns" in HEAD
    turn = json.loads(HEAD.split("-d '")[1].split("'")[0])
    options = ReadOptions(None, 1 << 20, utc_now())
    assert isinstance(turn_of(turn, "the example", options, Watch()), Outgoing)
