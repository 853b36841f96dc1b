"""A real Apache Kafka broker without Docker: one KRaft node, started as a plain Java process.

For tests and for machines without Docker. Everything it writes lies in one folder::

    server.properties  settings of this start  broker.log   what Kafka printed
    data/              the log itself          broker.pid   its process, while it runs
    broker.port        its port, kept between starts

As a program: ``python -m palimpsest.ops.kafka.broker start|stop|status --folder F``.
"""

import base64
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

import typer

HOST = "127.0.0.1"
START_SECONDS = 60.0
STOP_SECONDS = 20.0
POLL_SECONDS = 0.1
FORMAT_SECONDS = 60.0
HEAP_MEGABYTES = 512
# Below the range from which systems hand out ports for outgoing connections, so that
# none of those takes the broker's port between a kill and the restart.
PORTS = range(20000, 32000)
LOG_TAIL_LINES = 25

SETTINGS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    # After a kill the controller takes the new process for alive only when the old one's session
    # has ended (9 s by default).
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "400",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.cleaner.threads": "1",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "4",
}


class Broker:
    """One broker in one folder; the same folder and port again after a stop or a kill.

    ``port`` None takes the folder's port of before, or a free one the first time. ``settings`` are
    Kafka settings laid over the defaults. The context manager starts and stops it.
    A broker started by another process in the same folder is recognised and can be stopped.
    """

    def __init__(
        self, folder: Path, port: int | None = None, *, settings: Mapping[str, str] | None = None
    ) -> None:
        self.folder = Path(folder).resolve()
        self._port = port
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """The port clients connect to; BrokerError before the first start when none was given."""
        port = self._port or _read_number(self.folder / "broker.port")
        if port is None:
            raise BrokerError(f"no broker was started in {self.folder} yet")
        return port

    @property
    def bootstrap_servers(self) -> str:
        """What clients want as ``bootstrap_servers``: host and port."""
        return f"{HOST}:{self.port}"

    @property
    def log_file(self) -> Path:
        """What Kafka printed, all starts after one another."""
        return self.folder / "broker.log"

    @property
    def pid(self) -> int | None:
        """Process id of the running broker, None when it is down."""
        if self._process is not None:
            return self._process.pid if self._process.poll() is None else None
        pid = _read_number(self.folder / "broker.pid")
        # A pid file may outlive its process: it must be a Java process of this folder.
        is_ours = pid is not None and f"-Dpalimpsest.folder={self.folder}" in _command_line(pid)
        return pid if is_ours else None

    @property
    def running(self) -> bool:
        """Whether the process is there; ``ready`` says whether it answers."""
        return self.pid is not None

    def ready(self) -> bool:
        """Whether the broker answers a request for its metadata and names itself as a member."""
        # Here, not above: stopping a broker needs no client.
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError

        if not _accepts_connections(self.port):
            return False
        try:
            admin = KafkaAdminClient(
                bootstrap_servers=self.bootstrap_servers, request_timeout_ms=5000
            )
        except KafkaError:
            return False
        try:
            return len(admin.describe_cluster()["brokers"]) == 1
        except KafkaError:
            return False
        finally:
            admin.close()

    def start(self, timeout: float = START_SECONDS) -> None:
        """Start the broker and return when it answers; nothing to do when it already does.

        The first start fetches the jars and formats the folder. Raises MissingProgramError without
        Java (or, the first time, Maven) and BrokerError with the end of Kafka's log when the
        process ends or does not answer within ``timeout`` seconds (it is then killed).
        """
        deadline = time.monotonic() + timeout
        if not self.running:
            java = program("java")
            classpath = f"{fetch_jars()}/*"
            deadline = time.monotonic() + timeout
            self._write_settings()
            if not (self.folder / "data" / "meta.properties").exists():
                command = [java, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", classpath]
                command += ["kafka.tools.StorageTool", "format", "-t", _cluster_id()]
                command += ["-c", str(self.folder / "server.properties")]
                run_program(command, FORMAT_SECONDS)
            self._launch(java, classpath)
        while not self.ready():
            if not self.running:
                self._process = None
                raise BrokerError(
                    "the broker ended while starting; "
                    f"the end of {self.log_file}:\n{self._log_tail()}"
                )
            if time.monotonic() > deadline:
                tail = self._log_tail()
                self.kill()
                raise BrokerError(
                    f"the broker did not answer within {timeout:.0f} s; the end of its log:\n{tail}"
                )
            time.sleep(POLL_SECONDS)

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        """Ask the broker to shut down (SIGTERM); kill it after ``timeout`` seconds.

        Nothing to do when it is down.
        """
        self._end(signal.SIGTERM, timeout)
        self.kill()

    def kill(self) -> None:
        """End the broker at once (SIGKILL). Its data stays, as after a crash of the process."""
        self._end(signal.SIGKILL, STOP_SECONDS)
        if self.running:
            raise BrokerError(f"broker process {self.pid} survives SIGKILL")
        self._process = None
        (self.folder / "broker.pid").unlink(missing_ok=True)

    def __enter__(self) -> Self:
        """Start the broker."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops it, also after a failure."""
        self.stop()

    def _write_settings(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        given = self._port or _read_number(self.folder / "broker.port")
        if given is not None and _accepts_connections(given):
            raise BrokerError(
                f"port {given} on {HOST} is taken by another program: stop it or give another port"
            )
        port = given or _free_port()
        controller = _free_port(other_than=port)
        settings = {
            **SETTINGS,
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "log.dirs": str(self.folder / "data"),
            **self._settings,
        }
        (self.folder / "broker.port").write_text(f"{port}\n")
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (self.folder / "server.properties").write_text("".join(lines))

    def _launch(self, java: str, classpath: str) -> None:
        command = [java, "-Xms128m", f"-Xmx{HEAP_MEGABYTES}m", "-XX:+UseSerialGC"]
        command += [
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            f"-Dpalimpsest.folder={self.folder}",
        ]
        command += ["-cp", classpath, "kafka.Kafka", str(self.folder / "server.properties")]
        with self.log_file.open("ab") as log:
            # A session of its own: Ctrl-C reaches the tests, which then stop the broker.
            self._process = subprocess.Popen(  # noqa: S603 (no shell, own arguments)
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        (self.folder / "broker.pid").write_text(f"{self._process.pid}\n")

    def _end(self, number: signal.Signals, timeout: float) -> None:
        pid = self.pid
        if pid is None:
            return
        os.kill(pid, number)
        deadline = time.monotonic() + timeout
        while self.running and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS / 4)

    def _log_tail(self) -> str:
        try:
            lines = self.log_file.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        return "\n".join(lines[-LOG_TAIL_LINES:])


def _cluster_id() -> str:
    """A new cluster id as Kafka writes it: a UUID in URL-safe base64, unlike an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _command_line(pid: int) -> str:
    """The command line of a process; empty for none and for a zombie."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode("utf-8", "replace")
        )
    except OSError:
        if Path("/proc/self/cmdline").exists():
            return ""
    done = subprocess.run(  # noqa: S603 (no shell, own arguments)
        ["ps", "-ww", "-o", "command=", "-p", str(pid)],  # noqa: S607 (as on the PATH)
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def _read_number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (FileNotFoundError, ValueError):
        return None


def _accepts_connections(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1.0):
            return True
    except OSError:
        return False


def _free_port(other_than: int | None = None) -> int:
    for port in random.sample(PORTS, 100):
        if port == other_than:
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise BrokerError(f"no free port found between {PORTS.start} and {PORTS.stop}")


def main(
    action: Annotated[Literal["start", "stop", "status"], typer.Argument()],
    folder: Annotated[Path, typer.Option(help="where its data, log, pid and port lie")],
    port: Annotated[
        int | None, typer.Option(help="port to listen on (default: as before, or a free one)")
    ] = None,
    timeout: Annotated[float, typer.Option(help="seconds to wait")] = START_SECONDS,
) -> None:
    """A Kafka broker without Docker."""
    broker = Broker(folder, port)
    try:
        if action == "stop":
            broker.stop(timeout)
            return
        if action == "start":
            broker.start(timeout)
        elif not (broker.running and broker.ready()):
            typer.echo("starting" if broker.running else "down", err=True)
            raise typer.Exit(1)
        typer.echo(broker.bootstrap_servers)
    except BrokerError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error


# The programs and jars a broker needs: found, or fetched once into a cache of the user.

POM = Path(__file__).with_name("pom.xml")
INSTALL = {
    "java": "install a Java runtime, 17 or later (Debian/Ubuntu:"
    " apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17)",
    "mvn": "install Maven (Debian/Ubuntu: apt-get install maven; macOS: brew install maven)",
}
FETCH_SECONDS = 600.0


class BrokerError(RuntimeError):
    """The broker could not be fetched, started or reached; the message says what to do."""


class MissingProgramError(BrokerError):
    """``java`` or ``mvn`` is not on the PATH; the message says what to install."""


def program(name: str) -> str:
    """Full path of ``java`` or ``mvn``.

    Raises MissingProgramError, with what to install, when it is not on the PATH.
    """
    path = shutil.which(name)
    if path is None:
        raise MissingProgramError(f"{name} not found on the PATH: {INSTALL[name]}")
    return path


def require_programs() -> None:
    """Raise MissingProgramError unless a broker can be started here.

    Maven counts as needed only while the jars are not in the cache.
    """
    program("java")
    if not jars_folder().is_dir():
        program("mvn")


def kafka_version() -> str:
    """The Kafka version that the pom names, such as ``4.1.1``."""
    element = ET.parse(POM).find(  # noqa: S314 (our own file)
        "{*}properties/{*}kafka.version"
    )
    if element is None or not element.text:
        raise BrokerError(f"{POM}: no <kafka.version> among the properties")
    return element.text.strip()


def jars_folder() -> Path:
    """Where the jars lie once fetched: ``palimpsest/kafka/<version>`` in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "palimpsest" / "kafka" / kafka_version()


def fetch_jars(timeout: float = FETCH_SECONDS) -> Path:
    """Folder with Kafka's jars, fetched by Maven the first time (about 45 MB).

    Safe to call from several processes at once: each fetches into a folder of its own, which takes
    the final name in one step; the second one deletes its copy. Raises MissingProgramError
    without Maven, and BrokerError with Maven's output when the fetch fails or takes longer than
    ``timeout`` seconds.
    """
    folder = jars_folder()
    if folder.is_dir():
        return folder
    mvn = program("mvn")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}-partial-", dir=folder.parent))
    try:
        _copy_dependencies(mvn, partial, timeout)
        try:
            partial.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _copy_dependencies(mvn: str, into: Path, timeout: float) -> None:
    command = [mvn, "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={into}", "-DincludeScope=runtime"]
    try:
        run_program(command, timeout)
    except BrokerError as error:
        raise BrokerError(f"Kafka's jars were not fetched; check the network: {error}") from error


def run_program(command: Sequence[str], timeout: float) -> None:
    """Run a program to its end. Raises BrokerError with the end of its output when it fails, or
    takes longer than ``timeout`` seconds."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(  # noqa: S603 (no shell, own arguments)
            command, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BrokerError(f"{name} took longer than {timeout:.0f} s") from error
    if done.returncode != 0:
        output = (done.stdout + done.stderr).strip()[-2000:]
        raise BrokerError(f"{name} failed (exit {done.returncode}):\n{output}")


if __name__ == "__main__":
    typer.run(main)
