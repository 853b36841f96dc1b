"""The services of docker-compose.yml as processes on a real broker: their commands, environments
and health checks, each with a folder of its own and addresses of this machine in place of names."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from palimpsest.ops.kafka.broker import Broker
from tests.contract.test_compose import HEAD, OWN, SERVICES, environment
from tests.flows.program import until
from tests.setting_lab import free_port

STARTED = sorted(name for name in OWN if SERVICES[name]["restart"] != "no")
PALIMPSEST = (sys.executable, "-m", "palimpsest.ops.cli.main")
LONGEST_S = 120


class Composed:
    """The environments of the services here, and commands in them."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder = folder
        self.ports = {name: free_port() for name in ("worker-store", "gateway", "serve")}
        topics = f"p{uuid.uuid4().hex[:8]}"
        self.own = {
            "kafka:9092": broker.bootstrap_servers,
            "http://worker-store:8765": f"http://127.0.0.1:{self.ports['worker-store']}",
            "0.0.0.0": "127.0.0.1",
        }
        self.all = {
            "PALIMPSEST_KAFKA__TOPIC_PREFIX": f"{topics}-",
            "PALIMPSEST_KAFKA__GROUP": topics,
            "PALIMPSEST_KAFKA__SESSION_SECONDS": "6",
        }

    def environment(self, name: str) -> dict[str, str]:
        said = {key: self.own.get(value, value) for key, value in environment(name).items()}
        said["PALIMPSEST_DATA_DIR"] = str(self.folder / name)
        if said["PALIMPSEST_KAFKA__LISTEN_PORT"] == "8765" and name in self.ports:
            said["PALIMPSEST_KAFKA__LISTEN_PORT"] = str(self.ports[name])
        if name == "serve":
            said["PALIMPSEST_HTTP__PORT"] = str(self.ports["serve"])
        kept = {key: value for key, value in os.environ.items() if "PALIMPSEST" not in key}
        return kept | self.all | said

    def run(self, name: str, *command: str, stdin: str = "") -> str:
        """What a command prints that is run in a service, as by `docker compose run`."""
        done = subprocess.run(
            [*PALIMPSEST, *command],
            env=self.environment(name),
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def is_healthy(self, name: str) -> bool:
        test = SERVICES[name]["healthcheck"]["test"]
        assert test[:2] == ["CMD", "python"]
        asked = subprocess.run(
            [sys.executable, *test[2:]],
            env=self.environment(name),
            cwd=self.folder,
            capture_output=True,
            timeout=LONGEST_S,
            check=False,
        )
        return asked.returncode == 0

    @contextmanager
    def up(self) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
        running: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for name in STARTED:
                command = [*PALIMPSEST, *SERVICES[name]["command"]]
                with (self.folder / f"{name}.out").open("wb") as out:
                    running[name] = subprocess.Popen(
                        command, env=self.environment(name), cwd=self.folder, stdout=out, stderr=out
                    )
            yield running
        finally:
            for process in running.values():
                process.kill()
                process.wait()


@pytest.mark.timeout(500)
@pytest.mark.soak
def test_the_services_are_healthy_and_remember_a_turn(tmp_path: Path, broker: Broker) -> None:
    composed = Composed(tmp_path, broker)
    composed.run("topics", *SERVICES["topics"]["command"])
    shown = composed.run("serve", "tokens", "create", "host", "--scope", "*")
    token = next(word for word in re.findall(r"\S{20,}", shown))
    with composed.up() as running:
        for name in STARTED:
            until(lambda name=name: composed.is_healthy(name))
        turn = HEAD.split("-d '")[1].split("'")[0]
        line = {**json.loads(turn), "turn_id": "2", "content": "My dog is called Rex."}
        url = f"http://127.0.0.1:{composed.ports['serve']}"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=60.0) as client:
            assert client.post("/api/turns", content=turn).is_success
            composed.run("serve", "ingest", "-", stdin=json.dumps(line))

            def known() -> set[str]:
                page = client.get("/api/memories", params={"scope": "ana", "limit": 20})
                return {each["content"] for each in page.json().get("memories", ())}

            until(lambda: known() >= {"Ana lives in Lisbon.", "Ana's dog is called Rex."})
        assert (
            httpx.get(f"{url}/api/memories?scope=ana", trust_env=False, timeout=60).status_code
            == 401
        )
        for process in running.values():
            process.send_signal(signal.SIGTERM)
        codes = {name: process.wait(LONGEST_S) for name, process in running.items()}
        assert codes == dict.fromkeys(STARTED, 0)
