"""A server on the loopback address that implements OpenAI's API, for benchmarks.

`python -m palimpsest.ops.bench.instant_provider [PORT]` prints its address and serves until it is
stopped. It replies immediately: the turn itself as the only fact, every decision an ADD, the same
summary of every session. With it, a benchmark measures the pipeline and the cost of requests,
without model time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from pydantic import JsonValue
from pydantic_core import from_json

Reply: TypeAlias = Callable[[bytes], Awaitable[JsonValue]]
"""From the body of a request (empty for a GET) to the answer."""
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


async def reply(body: bytes) -> JsonValue:
    """The answer of the instant model."""
    if not body:
        return {"data": [{"id": MODEL}]}
    request = from_json(body)
    prompt = str(request["messages"][-1]["content"])
    text = json.dumps(_answer(request["response_format"]["json_schema"]["name"], prompt))
    return {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": len(prompt) // 4, "completion_tokens": len(text) // 4},
    }


_CONSTANT: Mapping[str, JsonValue] = {
    "decide": {"action": "ADD", "targetId": None, "confidence": 0.9, "reason": "it is new"},
    "contradict": {"contradicts": False, "confidence": 0.9, "reason": "they agree"},
    "summarize": {"summary": "They talk about words."},
    "infer-causes": {"causal": []},
}


def _answer(purpose: str, prompt: str) -> JsonValue:
    if purpose in _CONSTANT:
        return _CONSTANT[purpose]
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
