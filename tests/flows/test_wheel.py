"""What is installed: one name, `palimpsest`, whatever packages a project of its user has."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from palimpsest.streams.topology import STAGE_NAMES

ROOT = Path(__file__).parents[2]
FOLDERS = ("ops", "schemas", "stores", "streams")
LEFT_OUT = ("palimpsest/ops/bench", "palimpsest/ops/scripts")
"""Packages that only a checkout has: benchmarks, and what writes the references."""
WHEEL_PARTS = ("pyproject.toml", "README.md", "LICENSE", *FOLDERS)

# A project that has packages of the four names that the folders have here.
USER_PROGRAM = """
import ops, schemas, stores, streams
from palimpsest import Memory
from palimpsest.ops.worker.bootstrap import running
from palimpsest.schemas.envelope import Envelope
from palimpsest.streams.topology import STAGE_NAMES
print(ops.OWNER, schemas.OWNER, stores.OWNER, streams.OWNER, len(STAGE_NAMES))
"""
USER_AGENT = """
from palimpsest import Memory
with Memory("own", scope="ana") as memory:
    added = memory.add("I moved to Lisbon.", speaker="Ana")
    print(memory.get(added.memory_ids[0]).content)
"""
TURN = '{"turn_id": "t1", "session_id": "s1", "role": "user", "content": "Ana moved to Lisbon."}\n'


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of what a checkout has: a build leaves files beside its sources."""
    source = tmp_path_factory.mktemp("source")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *WHEEL_PARTS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    out = tmp_path_factory.mktemp("wheel")
    pip(sys.executable, "wheel", "--no-deps", "--no-build-isolation", "-w", str(out), str(source))
    [made] = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with the wheel. What the wheel needs comes from the
    environment of the tests, which has it; the project itself does not come from there."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    made = folder / "bin" / "python"
    pip(sys.executable, "--python", str(made), "install", "--no-deps", "--no-index", str(wheel))
    [packages] = folder.glob("lib/python*/site-packages")
    # A plain line in a .pth adds the folder; .pth files in there, an editable one's, do not count.
    (packages / "needs.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return made


def pip(interpreter: str, *arguments: str) -> None:
    command = [interpreter, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout


def test_a_wheel_has_one_name_and_all_that_is_needed(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"palimpsest"}
    tracked = {
        str(Path("palimpsest") / path.relative_to(ROOT))
        for folder in FOLDERS
        for pattern in ("*.py", "json/*.json", "*.jsonl", "*.xml", "*.toml")
        for path in (ROOT / folder).rglob(pattern)
    }
    package = "palimpsest/ops/package/__init__.py"
    scripts = {name for name in tracked if name.startswith(tuple(f"{each}/" for each in LEFT_OUT))}
    assert tracked - {*names} == {package, *scripts}
    assert {"palimpsest/__init__.py", "palimpsest/py.typed"} <= {*names}


def test_every_package_is_listed() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {
        "palimpsest." + ".".join(path.parent.relative_to(ROOT).parts)
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("__init__.py")
    }
    # What `palimpsest` itself offers lies in a folder of its own, and is nothing else.
    there = {"palimpsest" if name == "palimpsest.ops.package" else name for name in there}
    assert sorted(there - {each.replace("/", ".") for each in LEFT_OUT}) == listed


def test_it_is_used_from_a_project_with_packages_of_the_same_names(
    python: Path, tmp_path: Path
) -> None:
    for name in FOLDERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("OWNER = 'user'\n")
    (tmp_path / "program.py").write_text(USER_PROGRAM)
    (tmp_path / "turns.jsonl").write_text(TURN)
    (tmp_path / "agent.py").write_text(USER_AGENT)
    assert ran(python, tmp_path, "agent.py") == "I moved to Lisbon.\n"
    data = str(tmp_path / "data")
    assert ran(python, tmp_path, "program.py") == f"user user user user {len(STAGE_NAMES)}\n"
    command = str(python.parent / "palimpsest")
    ran(python, tmp_path, command, "ingest", "turns.jsonl", "--scope", "ana", "--data-dir", data)
    ran(python, tmp_path, command, "run", "--once", "--data-dir", data)
    told = ran(python, tmp_path, command, "recall", "Lisbon", "--scope", "ana", "--data-dir", data)
    assert "Ana moved to Lisbon" in told
    assert "bench" not in ran(python, tmp_path, command, "--help")


def ran(python: Path, folder: Path, *arguments: str) -> str:
    """What a program of the fresh environment prints, run in the folder of the user's project."""
    done = subprocess.run(
        [str(python), *arguments],
        cwd=folder,
        # The folder comes first on the path, as it does where a project is run from its root.
        env={"PYTHONPATH": str(folder), "PALIMPSEST_EMBEDDING__PROVIDER": "hashing"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout
