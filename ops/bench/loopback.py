"""A small HTTP server on the loopback address that answers what is posted to it with JSON."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from pydantic import JsonValue
from pydantic_core import from_json

if TYPE_CHECKING:
    from palimpsest.streams.models.base import EmbeddingModel

Reply: TypeAlias = Callable[[bytes], Awaitable[JsonValue]]
"""From the body of a request (empty for a GET) to the answer."""
QUERY = "query"
"""The model to name in a request for vectors of questions; any other name is for passages."""


async def started(reply: Reply, port: int = 0) -> tuple[asyncio.Server, str]:
    """A server on a port (0: any that is free), and its base URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it is closed."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _content_length(head)
                body = await reader.readexactly(length) if length else b""
                payload = json.dumps(await reply(body)).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
                    + str(len(payload)).encode()
                    + b"\r\n\r\n"
                    + payload
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


@contextlib.asynccontextmanager
async def serving_embeddings(model: EmbeddingModel) -> AsyncIterator[str]:
    """The base URL of a server that speaks OpenAI's API of embeddings for this model."""

    async def reply(body: bytes) -> JsonValue:
        request = from_json(body)
        texts = request["input"] if isinstance(request["input"], list) else [request["input"]]
        vectors = await _vectors(model, texts, is_query=request["model"] == QUERY)
        return {
            "object": "list",
            "model": model.model,
            "data": [
                {"object": "embedding", "index": number, "embedding": vector}
                for number, vector in enumerate(vectors)
            ],
            "usage": {"prompt_tokens": 0, "total_tokens": 0},
        }

    server, url = await started(reply)
    async with server:
        yield url


async def _vectors(
    model: EmbeddingModel, texts: Sequence[str], is_query: bool
) -> list[list[JsonValue]]:
    if is_query:
        found = [await model.embed_query(text) for text in texts]
    else:
        found = await model.embed_passages(texts)
    return [[*map(float, vector)] for vector in found]
