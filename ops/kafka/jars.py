"""The programs and jars a broker needs: found, or fetched once into a cache of the user."""

import os
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

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


def kafka_version(pom: Path = POM) -> str:
    """The Kafka version that the pom names, such as ``4.1.1``."""
    element = ET.parse(pom).find(  # noqa: S314 (our own file)
        "{*}properties/{*}kafka.version"
    )
    if element is None or not element.text:
        raise BrokerError(f"{pom}: no <kafka.version> among the properties")
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
