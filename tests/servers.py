"""A scripted model provider on 127.0.0.1: real HTTP, and every way in which providers fail.

It speaks as Ollama, as OpenAI and as Anthropic, counts the calls, and behaves by script: one
behaviour a call, the last repeated. Without a script it answers at once and sensibly, so it is
also the instant provider of a benchmark:

    python -m tests.servers --port 0        prints its address and serves until it is stopped
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from pydantic import JsonValue
from pydantic_core import from_json

from palimpsest.streams.models.hashing import hashed

MODEL = "scripted"
TRICKLE_INTERVAL_S = 0.01


@dataclass(frozen=True)
class Text:
    """The model says this, in the envelope of the API that was called."""

    text: str


@dataclass(frozen=True)
class Raw:
    """This status and body, whatever was asked."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Late:
    """Answer `then` once `released` is set."""

    released: asyncio.Event
    then: Text | Raw


@dataclass(frozen=True)
class Never:
    """Take the request and say nothing."""


@dataclass(frozen=True)
class Trickle:
    """Headers at once, then a byte every 10 ms without end."""


@dataclass(frozen=True)
class Reset:
    """Take the request and reset the connection."""


@dataclass(frozen=True)
class HalfBody:
    """Promise a whole body and close after half of it."""


Behaviour = Text | Raw | Late | Never | Trickle | Reset | HalfBody


def fails(status: int, message: str, **headers: str) -> Raw:
    """An error in OpenAI's shape; header names with underscores for hyphens."""
    body = json.dumps({"error": {"message": message, "type": "scripted"}}).encode()
    return Raw(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


@dataclass(frozen=True)
class Call:
    """One request as it arrived; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: dict[str, JsonValue]


class ScriptedProvider:
    """Serve with `async with`; `url` is then its address. Checks (GET) take no script entry, nor
    does what `refusing` answers by what a call says."""

    def __init__(
        self,
        script: Sequence[Behaviour] = (),
        *,
        models: Sequence[str] = (MODEL,),
        dimensions: int = 256,
        latency_s: float = 0.0,
        text_latency_s: float = 0.0,
        keep_calls: bool = True,
        refusing: Callable[[Call], Behaviour | None] = lambda call: None,
    ) -> None:
        self.script = list(script)
        self.models = list(models)
        self.dimensions = dimensions
        self.calls: list[Call] = []
        self.url = ""
        self._latency_s = latency_s
        self._text_latency_s = text_latency_s
        self._keep_calls = keep_calls
        self.refusing = refusing
        self._arrived = asyncio.Condition()
        self._answered = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", port)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def posts(self) -> list[Call]:
        """The calls that asked a model for something."""
        return [call for call in self.calls if call.method == "POST"]

    async def called(self, count: int) -> None:
        """Return once `count` requests have arrived in all."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.calls) >= count)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while (call := await _read(reader)) is not None:
                if self._keep_calls:
                    async with self._arrived:
                        self.calls.append(call)
                        self._arrived.notify_all()
                if not await self._answer(call, reader, writer):
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(
        self, call: Call, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Behave; False when the connection is over."""
        behaviour: Behaviour | None = None
        if call.method == "POST":
            behaviour = self.refusing(call) or self._next()
        if isinstance(behaviour, Late):
            await behaviour.released.wait()
            behaviour = behaviour.then
        texts = call.body.get("input")
        latency_s = self._latency_s
        if isinstance(texts, list):  # embeddings, which cost by the text
            latency_s += self._text_latency_s * len(texts)
        if latency_s:
            await asyncio.sleep(latency_s)
        if behaviour is None or isinstance(behaviour, Text):
            status, value = self._reply(call, behaviour.text if behaviour else None)
            behaviour = Raw(status, json.dumps(value).encode())
        if isinstance(behaviour, Raw):
            writer.write(_head(behaviour.status, len(behaviour.body), behaviour.headers))
            writer.write(behaviour.body)
            await writer.drain()
            return True
        if isinstance(behaviour, Never):
            await reader.read()  # until the other side gives up
        elif isinstance(behaviour, Trickle):
            writer.write(_head(200, 1_000_000, {}))
            while not reader.at_eof():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(TRICKLE_INTERVAL_S)
        elif isinstance(behaviour, HalfBody):
            writer.write(_head(200, 1_000, {}) + b'{"response": "half')
            await writer.drain()
        else:
            writer.transport.abort()
        return False

    def _next(self) -> Behaviour | None:
        if not self.script:
            return None
        behaviour = self.script[min(self._answered, len(self.script) - 1)]
        self._answered += 1
        return behaviour

    def _reply(self, call: Call, text: str | None) -> tuple[int, JsonValue]:
        path = call.path.removeprefix("/v1")
        if call.method == "GET":
            return self._listing(path)
        if path in ("/api/embed", "/embeddings"):
            return 200, self._embeddings(path, call.body.get("input"))
        said = instant_reply(call.body) if text is None else text
        if path == "/api/generate":
            counts: dict[str, JsonValue] = {"prompt_eval_count": 11, "eval_count": 7}
            return 200, {"model": MODEL, "response": said, "done": True, **counts}
        if path == "/chat/completions":
            return 200, {
                "choices": [{"index": 0, "message": {"role": "assistant", "content": said}}],
                "usage": {"prompt_tokens": 11, "completion_tokens": 7},
            }
        if path == "/messages":
            return 200, {
                "content": [{"type": "text", "text": said}],
                "usage": {"input_tokens": 11, "output_tokens": 7},
            }
        return 404, {"error": f"nothing at {call.path}"}

    def _listing(self, path: str) -> tuple[int, JsonValue]:
        if path == "/api/tags":
            return 200, {"models": [{"name": name} for name in self.models]}
        if path == "/models":
            return 200, {"data": [{"id": name} for name in self.models]}
        if path.removeprefix("/models/") in self.models:
            return 200, {"id": path.removeprefix("/models/")}
        return 404, {"error": {"message": f"nothing at {path}"}}

    def _embeddings(self, path: str, texts: JsonValue) -> JsonValue:
        wanted = (
            [text for text in texts if isinstance(text, str)] if isinstance(texts, list) else []
        )
        rows: list[JsonValue] = [hashed(text, self.dimensions).tolist() for text in wanted]
        if path == "/api/embed":
            return {"model": MODEL, "embeddings": rows}
        # In reverse: the order is not promised, the index is.
        return {"data": [{"index": i, "embedding": rows[i]} for i in reversed(range(len(rows)))]}


def instant_reply(body: Mapping[str, JsonValue]) -> str:
    """A sensible answer to the pipeline's prompts: one fact a turn, ADD, no contradiction."""
    asked = body.get("prompt")
    if not isinstance(asked, str):
        messages = body.get("messages")
        last = messages[-1] if isinstance(messages, list) and messages else None
        asked = last.get("content") if isinstance(last, dict) else ""
    asked = asked if isinstance(asked, str) else ""
    if asked.startswith("New fact"):
        return '{"action": "ADD", "targetId": null, "confidence": 0.9, "reason": "it is new"}'
    if asked.startswith("A: "):
        return '{"contradicts": false, "confidence": 0.9, "reason": "they agree"}'
    parts = asked.split("\n----- turn ")
    said = parts[1].partition("\n")[2] if len(parts) > 1 else asked
    fact = {"content": said[:500], "type": "fact", "confidence": 0.9, "importance": 5}
    return json.dumps({"facts": [fact], "entities": []})


async def _read(reader: asyncio.StreamReader) -> Call | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.rstrip().split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    length = int(headers.get("content-length", "0"))
    body = from_json(await reader.readexactly(length)) if length else {}
    return Call(method, path, headers, body)


def _head(status: int, length: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", f"Content-Length: {length}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if "Content-Type" not in headers:
        lines.append("Content-Type: application/json")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _serve(port: int, dimensions: int, latency_s: float, text_latency_s: float) -> None:
    provider = ScriptedProvider(
        dimensions=dimensions,
        latency_s=latency_s,
        text_latency_s=text_latency_s,
        keep_calls=False,
    )
    await provider.start(port)
    print(provider.url, flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="an instant model provider for benchmarks")
    parser.add_argument("--port", type=int, default=0, help="0 for a free one")
    parser.add_argument("--dimensions", type=int, default=256, help="of its embeddings")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="before each answer")
    parser.add_argument("--text-ms", type=float, default=0.0, help="a text to embed")
    chosen = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(
            _serve(chosen.port, chosen.dimensions, chosen.latency_ms / 1000, chosen.text_ms / 1000)
        )


if __name__ == "__main__":
    main()
