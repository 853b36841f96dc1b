"""The benchmarks that need conversations, on made-up ones: the figures mean nothing, but are all
there. The peers' packages are not installed here (they come over a network): what runs them is
shown with a peer that needs none."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.ops.bench.data_sets import DataSet
from palimpsest.ops.bench.service_load import ANALYST_QUERIES
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.requests import SqlRequest
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.settings.sources import load_settings
from tests.conversations import write_conversations
from tests.flows.program import Program
from tests.harness import Pipeline
from tests.soak.peer_runs import ALL, Peer, installed, measure_all

WORDS = '''
class Words:
    """The turns that share the most words with a question."""

    def __init__(self, folder, embed):
        self._folder, self._embed, self._turns = folder, embed, {}

    def add(self, scope, turns):
        assert len(self._embed([text for _, text in turns])) == len(turns)
        self._turns[scope] = [(id_, set(text.split())) for id_, text in turns]
        open(f"{self._folder}/{scope}", "w").write(4 * "turn" * len(turns))

    def search(self, scope, text, limit):
        [vector] = self._embed([text], is_query=True)
        assert len(vector) == 256
        asked = set(text.strip("?").split())
        ranked = sorted(self._turns[scope], key=lambda turn: -len(asked & turn[1]))
        return [id_ for id_, _ in ranked[:limit]]


def make(folder, embed, dimensions):
    return Words(folder, embed)
'''


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_conversations(tmp_path / "talks", "1", "2")


def test_retrieval_tells_data_sets_and_halves_apart(program: Program, data: Path) -> None:
    other = write_conversations(program.folder / "other", "x")
    given = ("--data", str(data), "--data", str(other), "--ablation", "--folder", "kept")
    first, second = program.json("bench", "retrieval", *given)["sets"]
    assert [each["settings"]["data"] for each in (first, second)] == ["talks", "other"]
    assert (first["questions"], second["questions"]) == (4, 2)
    hybrid = first["methods"]["hybrid"]
    assert hybrid["recall@50"] == 1.0
    assert hybrid["by_half"]["choose"]["questions"] == 2
    assert hybrid["by_half"]["check"]["questions"] == 2
    assert hybrid["ms"]["p95"] >= hybrid["ms"]["p50"] > 0
    assert first["query_embedding_ms"]["p50"] > 0
    size = first["bytes_a_turn"]
    assert size["each"] == round((size["log"] + size["duckdb"] + size["lancedb"]) / 8)
    assert first["turns_per_processor_second"] > 0
    assert "no graph" in first["methods"]
    shown = program.ok("bench", "retrieval", "--data", str(data), "--half", "check")
    assert "methods hybrid by_half check" in shown
    assert "sets bytes_a_turn log:" in shown


def test_retrieval_refuses_what_it_cannot_tell_apart(program: Program, data: Path) -> None:
    same = write_conversations(program.folder / "elsewhere" / "talks", "x")
    said = program.fails("bench", "retrieval", "--data", str(data), "--data", str(same), code=2)
    assert "two folders have the same name" in said
    said = program.fails("bench", "retrieval", "--data", str(program.folder / "no"), code=2)
    assert "there is no conversation" in said


@pytest.mark.soak
def test_latency_of_real_texts_is_that_of_a_worker(program: Program, data: Path) -> None:
    given = ("--data", str(data), "--memories", "40", "--folder", "kept")
    [first] = program.json("bench", "latency", *given)["latency"]
    assert first["memories"] >= 40
    assert first["copies"] > 1
    assert first["recall_ms"]["p95"] >= first["recall_ms"]["p50"] > 0
    assert first["question_embedding_ms"]["p50"] > 0
    assert first["candidates_ms"]["facts"] == 20
    assert first["resident_mib"] > first["mapped_mib"]
    size = first["bytes_a_memory"]
    assert size["each"] == round((size["duckdb"] + size["lancedb"]) / first["memories"])
    listed = program.json("list", "--data-dir", "kept/40", "--limit", "100")["memories"]
    assert len(listed) == first["memories"]
    assert f"memories: {first['memories']}" in program.ok("bench", "latency", *given)


@pytest.mark.soak
def test_a_service_that_is_killed_loses_nothing_that_it_acknowledged(program: Program) -> None:
    given = ("--minutes", "0.1", "--clients", "4", "--scopes", "2", "--kills", "1")
    result = program.json("bench", "service", *given)
    assert result["acknowledged"] > 0
    assert (result["lost"], result["other_text"], result["not_acknowledged"]) == (0, 0, 0)
    assert (result["errors"], result["dead_letters"]) == ({}, 0)
    assert result["balance"]["holds"] is True
    assert len(result["start_seconds"]) == 2
    assert result["operations"]["recall"]["count"] > 0
    assert result["recall_over_http_ms"]["p50"] > 0
    assert result["recall_in_library_ms"]["p50"] > 0


@pytest.mark.soak
async def test_what_the_analyst_of_the_benchmark_asks_can_be_asked(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        pipeline.say("I live in Lisbon with my sister Nora.")
        await pipeline.drain()
        settings = pipeline.settings.model_copy(update={"data_dir": tmp_path})
        sources = Sources(settings, pipeline.log, {0: pipeline.shard}, 1, pipeline.embedding, print)
        for query in ANALYST_QUERIES:
            await DirectQueries(sources).table(SqlRequest(query))


@pytest.mark.soak
async def test_peers_are_measured_beside_us(tmp_path: Path, data: Path) -> None:
    # Scripts of one name have one environment.
    script, broken = tmp_path / "words.py", tmp_path / "broken" / "words.py"
    script.write_text(WORDS)
    broken.parent.mkdir()
    broken.write_text("raise RuntimeError('it cannot')")
    nowhere = str(tmp_path / "nowhere.whl")
    peers = (
        Peer("words", script, ()),
        Peer("broken", broken, ()),
        Peer("gone", tmp_path / "gone.py", (nowhere,)),
    )
    settings = load_settings(["embedding.provider=hashing"], tmp_path / "memory").settings
    result = await measure_all(settings, DataSet(data), tmp_path / "environments", peers)
    rows = result["rows"]
    assert isinstance(rows, dict)
    assert [*rows] == ["palimpsest", "words", "broken", "gone"]
    for name in ("palimpsest", "words"):
        row = rows[name]
        assert isinstance(row, dict)
        assert (row["questions"], row["recall@50"]) == (4, 1.0)
        assert isinstance(row["turns_per_second"], float)
    assert isinstance(rows["words"], dict)
    assert rows["words"]["bytes_a_turn"] == 16
    assert rows["broken"] == {"failed": "RuntimeError: it cannot"}
    assert isinstance(rows["gone"], dict)
    assert "nowhere.whl" in str(rows["gone"]["failed"])
    # An environment is made once.
    python = tmp_path / "environments" / "words" / "bin" / "python"
    made = python.lstat().st_mtime_ns
    assert installed(peers[0], tmp_path / "environments") == python
    assert python.lstat().st_mtime_ns == made


@pytest.mark.parametrize("peer", ALL, ids=lambda peer: peer.name)
def test_every_peer_has_its_script(peer: Peer) -> None:
    assert "def make(folder: str, embed: Any, dimensions: int)" in peer.script.read_text()
    assert peer.needs
