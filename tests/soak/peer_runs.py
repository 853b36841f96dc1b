"""Compares with other search systems on the same turns and the same queries.

    python -m tests.soak.peer_runs FOLDER… [--half check] [--environments FOLDER] [--set KEY=VALUE]

Each peer is a file in `tests/soak/peers`, run there by `run.py` in its own virtual environment,
without the project and without the settings of this process (so no API key reaches it); none gets a
language model. Vectors come from the model in use here, over the loopback address (about 2 ms a
question); a peer's time includes them. Palimpsest's turns per second are those of its whole
pipeline, including facts and decisions, and its bytes those of its stores and its log; the peers
store turns alone. Prints JSON. To add a peer: `peers/<name>.py` with `make(folder, embed,
dimensions)`, which must not import the project, and a line in `ALL`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict, cast

from pydantic import JsonValue
from pydantic_core import from_json

from palimpsest.ops.bench import data_sets
from palimpsest.ops.bench.data_sets import DataSet
from palimpsest.ops.bench.instant_provider import started
from palimpsest.ops.bench.measures import KS, judged, size, summary
from palimpsest.ops.bench.retrieval import HYBRID, measure
from palimpsest.ops.parts import embedding_model
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.settings.sections import Settings
from palimpsest.streams.models.base import EmbeddingModel
from tests.soak.by_folder import run_by_folder

PEERS: Final = Path(__file__).parent / "peers"
INSTALL_SECONDS: Final = 900.0
RUN_SECONDS: Final = 7200.0
PASSED_ON: Final = ("PATH", "LANG", "LC_ALL", "TMPDIR")
"""Environment variables that are passed on to a peer."""


@dataclass(frozen=True, slots=True)
class Peer:
    """`needs` are the packages that pip installs; the first one is the peer itself."""

    name: str
    script: Path
    needs: tuple[str, ...]


ALL: Final = (
    Peer("BM25", PEERS / "bm25.py", ("bm25s>=0.3,<0.4", "PyStemmer>=3,<4")),
    Peer("LanceDB hybrid", PEERS / "lancedb_hybrid.py", ("lancedb>=0.40,<1",)),
    Peer(
        "mem0 search",
        PEERS / "mem0_search.py",
        ("mem0ai>=2.2,<3", "fastembed>=0.8,<1", "stop-words>=2025"),
    ),
)


class _Found(TypedDict):
    ids: list[str]
    ms: float


class _Answers(TypedDict):
    """The output of `run.py`."""

    seconds: float
    found: list[_Found]


class PeerError(Exception):
    """A peer that could not be installed or run; the text says why."""


async def measure_all(
    settings: Settings, chosen: DataSet, environments: Path, peers: Sequence[Peer] = ALL
) -> JsonObject:
    """Measures Palimpsest and the peers, one after another. A failed peer has the reason in
    `failed` instead of figures. Raises ValueError for a folder without conversations."""
    ours = await measure(settings, chosen, (HYBRID,))
    turns = turns_of(chosen, settings)
    rows: JsonObject = {
        "palimpsest": {
            **cast("JsonObject", cast("JsonObject", ours["methods"])[HYBRID.name]),
            "turns_per_second": ours["turns_per_second"],
            "bytes_a_turn": cast("JsonObject", ours["bytes_a_turn"])["each"],
        }
    }
    model = embedding_model(settings)
    try:
        for peer in peers:
            try:
                rows[peer.name] = await _measured(peer, chosen, turns, model, environments)
            except PeerError as error:
                rows[peer.name] = {"failed": str(error)}
    finally:
        await model.close()
    return {
        "data": chosen.data.name,
        "questions": ours["questions"],
        "turns": len(turns),
        "embedding": model.model,
        "rows": rows,
    }


def turns_of(chosen: DataSet, settings: Settings) -> list[JsonObject]:
    """Returns the input of every peer: speaker and text, as embedded here, too."""
    return [
        {"scope": scope, "id": turn.turn_id, "text": f"{turn.speaker}: {turn.content}"}
        for scope, _, turn in data_sets.turns(chosen.files(), settings, chosen.captions)
    ]


@contextlib.asynccontextmanager
async def serving_embeddings(model: EmbeddingModel) -> AsyncIterator[str]:
    """The base URL of a server that returns the vectors of this model."""

    async def reply(body: bytes) -> JsonValue:
        request = from_json(body)
        texts = request["input"] if isinstance(request["input"], list) else [request["input"]]
        if request["model"] == "query":
            vectors = [await model.embed_query(text) for text in texts]
        else:
            vectors = [*await model.embed_passages(texts)]
        data: list[JsonValue] = [
            {"object": "embedding", "index": number, "embedding": [*map(float, vector)]}
            for number, vector in enumerate(vectors)
        ]
        usage: JsonValue = {"prompt_tokens": 0, "total_tokens": 0}
        return {"object": "list", "model": model.model, "data": data, "usage": usage}

    server, url = await started(reply)
    async with server:
        yield url


async def _measured(
    peer: Peer,
    chosen: DataSet,
    turns: Sequence[JsonObject],
    model: EmbeddingModel,
    environments: Path,
) -> JsonObject:
    python = await asyncio.to_thread(installed, peer, environments)
    questions = chosen.questions()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        memory = folder / "memory"
        memory.mkdir()
        async with serving_embeddings(model) as url:
            task: JsonObject = {
                "folder": str(memory),
                "embeddings": url,
                "dimensions": model.dimensions,
                "limit": max(KS),
                "turns": [*turns],
                "questions": [{"scope": each.scope, "text": each.text} for each in questions],
            }
            answers = await asyncio.to_thread(_run, peer, python, task, folder)
        disk = size(memory)
    found = [
        judged(question, each["ids"], each["ms"])
        for question, each in zip(questions, answers["found"], strict=True)
    ]
    return {
        **summary(found),
        "turns_per_second": round(len(turns) / answers["seconds"], 1),
        "bytes_a_turn": round(disk / len(turns)),
    }


def installed(peer: Peer, environments: Path) -> Path:
    """Returns the interpreter of the peer's environment; creates the environment if it is missing
    or outdated. Raises PeerError."""
    folder = environments / peer.script.stem
    python = folder / "bin" / "python"
    note = folder / "installed.json"
    with contextlib.suppress(OSError, ValueError):
        if json.loads(note.read_text(encoding="utf-8")) == [*peer.needs]:
            return python
    note.unlink(missing_ok=True)
    environments.mkdir(parents=True, exist_ok=True)
    _ended([sys.executable, "-m", "venv", str(folder)], INSTALL_SECONDS)
    if peer.needs:
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # Only binary packages: no third-party build code runs here.
        _ended([*pip, "--only-binary=:all:", *peer.needs], INSTALL_SECONDS)
    note.write_text(json.dumps(peer.needs), encoding="utf-8")
    return python


def _run(peer: Peer, python: Path, task: JsonObject, folder: Path) -> _Answers:
    task_file, answers = folder / "task.json", folder / "answers.json"
    task_file.write_text(json.dumps(task), encoding="utf-8")
    command = [str(python), str(PEERS / "run.py"), str(peer.script), str(task_file), str(answers)]
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment |= {"HOME": str(folder), "MEM0_TELEMETRY": "False", "HF_HUB_OFFLINE": "1"}
    _ended(command, RUN_SECONDS, environment)
    return cast("_Answers", json.loads(answers.read_text(encoding="utf-8")))


def _ended(
    command: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None
) -> None:
    """Runs a command to its end. Raises PeerError with the last line of its output."""
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"{command[0]}: {error}") from error
    if done.returncode:
        output = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise PeerError(output[-1])


if __name__ == "__main__":
    run_by_folder(
        __doc__,
        lambda settings, chosen, given: measure_all(settings, chosen, given.environments.resolve()),
        lambda parser: parser.add_argument("--environments", type=Path, default=Path("peers")),
    )
