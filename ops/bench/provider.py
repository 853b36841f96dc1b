"""An instant model provider for benchmarks: a process of its own, speaking OpenAI's API.

    python -m palimpsest.ops.bench.provider [PORT]

Prints its address and serves until it is stopped.

It answers at once and sensibly: the turn itself as the one fact, every decision an ADD. What a
benchmark with it measures is the pipeline and the cost of asking, without any model's time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic import JsonValue
from pydantic_core import from_json

from palimpsest.ops.bench.loopback import started

MODEL = "instant"
MAX_FACT_CHARACTERS = 500


async def reply(body: bytes) -> JsonValue:
    if not body:
        return {"data": [{"id": MODEL}]}
    request = from_json(body)
    asked = str(request["messages"][-1]["content"])
    text = json.dumps(_said(asked))
    return {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": len(asked) // 4, "completion_tokens": len(text) // 4},
    }


def _said(asked: str) -> dict[str, JsonValue]:
    if asked.startswith("New fact"):
        return {"action": "ADD", "targetId": None, "confidence": 0.9, "reason": "it is new"}
    if asked.startswith("A: "):
        return {"contradicts": False, "confidence": 0.9, "reason": "they agree"}
    parts = asked.split("\n----- turn ")
    said = parts[1].partition("\n")[2] if len(parts) > 1 else asked
    fact: dict[str, JsonValue] = {
        "content": said[:MAX_FACT_CHARACTERS],
        "type": "fact",
        "confidence": 0.9,
        "importance": 5,
    }
    return {"facts": [fact], "entities": []}


async def serve(port: int = 0) -> None:
    """Serve on a port of the loopback address (0: any that is free); print the base URL first."""
    server, url = await started(reply, port)
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    await server.serve_forever()


@contextlib.contextmanager
def running_provider(port: int = 0) -> Iterator[str]:
    """The base URL of a provider process that ends with the context."""
    process = subprocess.Popen(  # noqa: S603 (own arguments, no shell)
        [sys.executable, "-m", "palimpsest.ops.bench.provider", str(port)],
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
