"""Servers on the loopback address that implement OpenAI's API, for benchmarks.

`python -m palimpsest.ops.bench.instant_provider [PORT]` prints its address and serves until it is
stopped. It replies immediately: the turn itself as the only fact, every decision an ADD. With it, a
benchmark measures the pipeline and the cost of requests, without model time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pydantic import JsonValue
from pydantic_core import from_json

if TYPE_CHECKING:
    from palimpsest.streams.models.base import EmbeddingModel

Reply: TypeAlias = Callable[[bytes], Awaitable[JsonValue]]
"""From the body of a request (empty for a GET) to the answer."""
QUERY = "query"
"""The model to name in a request for vectors of questions; any other name is for passages."""
MODEL = "instant"
MAX_FACT_CHARACTERS = 500


async def started(reply: Reply, port: int = 0) -> tuple[asyncio.Server, str]:
    """A server on a port (0: any free port), and its base URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                payload = json.dumps(await reply(await _body(reader, head))).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n%s" % (len(payload), payload)
                )
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return await reader.readexactly(int(value))
    return b""


@contextlib.asynccontextmanager
async def serving_embeddings(model: EmbeddingModel) -> AsyncIterator[str]:
    """The base URL of a server that returns the vectors of this model."""

    async def reply(body: bytes) -> JsonValue:
        request = from_json(body)
        texts = request["input"] if isinstance(request["input"], list) else [request["input"]]
        if request["model"] == QUERY:
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


async def reply(body: bytes) -> JsonValue:
    """The answer of the instant model."""
    if not body:
        return {"data": [{"id": MODEL}]}
    prompt = str(from_json(body)["messages"][-1]["content"])
    text = json.dumps(_answer(prompt))
    return {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": len(prompt) // 4, "completion_tokens": len(text) // 4},
    }


def _answer(prompt: str) -> JsonValue:
    if prompt.startswith("New fact"):
        return {"action": "ADD", "targetId": None, "confidence": 0.9, "reason": "it is new"}
    if prompt.startswith("A: "):
        return {"contradicts": False, "confidence": 0.9, "reason": "they agree"}
    parts = prompt.split("\n----- turn ")
    content = parts[1].partition("\n")[2] if len(parts) > 1 else prompt
    fact: JsonValue = {
        "content": content[:MAX_FACT_CHARACTERS],
        "type": "fact",
        "confidence": 0.9,
        "importance": 5,
    }
    return {"facts": [fact], "entities": []}


async def serve(port: int = 0) -> None:
    server, url = await started(reply, port)
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    await server.serve_forever()


@contextlib.contextmanager
def running_provider(port: int = 0) -> Iterator[str]:
    """Yields the base URL of a provider process that ends with the context."""
    process = subprocess.Popen(  # noqa: S603 (own arguments, no shell)
        [sys.executable, "-m", "palimpsest.ops.bench.instant_provider", str(port)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(*map(int, sys.argv[1:])))
