"""Clients of the HTTP service that remember, recall and modify, and know what was acknowledged."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import httpx

from palimpsest.ops.bench.throughput import vocabulary

Operation = Literal["remember", "recall", "modify"]
MIX: Final[Mapping[Operation, float]] = {"remember": 0.3, "recall": 0.5, "modify": 0.2}
WORDS = 10
AGAIN_SECONDS = 0.05
"""Between two attempts to reach a service that is down."""
TIMEOUT_SECONDS = 60.0
SHOWN_ERRORS = 5
NOBODY: Final[Mapping[str, str]] = {}
"""The headers of a client without a token."""


def client_of(url: str, headers: Mapping[str, str]) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=url, headers=dict(headers), trust_env=False, timeout=TIMEOUT_SECONDS
    )


def sentences(seed: int) -> Iterator[str]:
    """Statements that nobody made before, the same for the same seed: words by Zipf's law."""
    chance = random.Random(seed)
    words = vocabulary()
    weights = [1.0 / rank for rank in range(1, len(words) + 1)]
    while True:
        yield f"I keep {' '.join(chance.choices(words, weights, k=WORDS))}."


@dataclass
class Seen:
    """What clients saw. `acknowledged` is what each memory must say, by its id; `interrupted`
    counts requests that the service did not answer because it was down: they were sent again, with
    the same idempotency key. `later` counts writes that were answered by 202. Milliseconds are
    those of requests that were answered at the first attempt, with when they began."""

    ms: dict[Operation, list[tuple[float, float]]] = field(
        default_factory=lambda: {name: [] for name in MIX}
    )
    acknowledged: dict[str, str] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    interrupted: int = 0
    later: int = 0

    def note(self, what: str) -> None:
        if what in self.errors or len(self.errors) < SHOWN_ERRORS:
            self.errors[what] += 1
        else:
            self.errors["others"] += 1


class ServiceClient:
    """One client, which does one thing after another in a scope and changes only what it made."""

    def __init__(
        self, url: str, scope: str, seed: int, seen: Seen, headers: Mapping[str, str] = NOBODY
    ) -> None:
        self._http = client_of(url, headers)
        self._scope = scope
        self._chance = random.Random(seed)
        self._sentences = sentences(seed)
        self._seen = seen
        self._own: list[str] = []

    async def run(self, until: float) -> None:
        """Until the monotonic time `until`, and what is under way then."""
        async with self._http:
            while time.monotonic() < until:
                [operation] = self._chance.choices([*MIX], [*MIX.values()])
                if operation == "modify" and not self._own:
                    operation = "remember"
                await getattr(self, operation)()

    async def remember(self) -> None:
        text = next(self._sentences)
        body = {"content": text, "scope": self._scope}
        answer = await self._write("remember", "POST", "/api/memory/remember", body)
        if answer is not None:
            memory_id = answer["id"]
            self._own.append(memory_id)
            self._seen.acknowledged[memory_id] = text

    async def modify(self) -> None:
        memory_id = self._chance.choice(self._own)
        text = next(self._sentences)
        body = {"content": text, "reason": "said otherwise"}
        answer = await self._write("modify", "PATCH", f"/api/memory/{memory_id}", body)
        if answer is not None:
            self._seen.acknowledged[memory_id] = text

    async def recall(self) -> None:
        body = {"query": next(self._sentences), "scope": self._scope, "limit": 10}
        await self._sent("recall", "POST", "/api/memory/recall", body, {})

    async def _write(
        self, operation: Operation, method: str, path: str, body: Mapping[str, Any]
    ) -> Any:
        """What it did, once it is applied; None where it was refused."""
        key = {"Idempotency-Key": str(uuid.uuid4())}
        answer = await self._sent(operation, method, path, body, key)
        if answer is None or answer["applied"]:
            return answer
        self._seen.later += 1
        return await self._applied(answer["command_id"])

    async def _applied(self, command_id: str) -> Any:
        began = time.monotonic()
        state = None
        while time.monotonic() - began < TIMEOUT_SECONDS:
            state = await self._attempt("GET", f"/api/commands/{command_id}", None, {})
            found = {} if state is None or not state.is_success else state.json()
            if found.get("error") is not None:
                self._seen.note(f"refused after it was accepted: {found['error']}")
                return None
            if found.get("applied"):
                return found["result"]
            await asyncio.sleep(AGAIN_SECONDS)
        told = "no answer" if state is None else f"{state.status_code} {state.text[:200]}"
        self._seen.note(f"a command that was accepted was not applied: {told}")
        return None

    async def _sent(
        self,
        operation: Operation,
        method: str,
        path: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str],
    ) -> dict[str, Any] | None:
        first = True
        while True:
            began = time.monotonic()
            response = await self._attempt(method, path, body, headers)
            if response is not None:
                break
            first = False
            await asyncio.sleep(AGAIN_SECONDS)
        if first:
            self._seen.ms[operation].append((began, 1000 * (time.monotonic() - began)))
        if not response.is_success:
            self._seen.note(f"{operation}: {response.status_code} {response.text[:200]}")
            return None
        answer: dict[str, Any] = response.json()
        return answer

    async def _attempt(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> httpx.Response | None:
        """None when the service was not there, or went away before it answered."""
        try:
            response = await self._http.request(method, path, json=body, headers=dict(headers))
        except httpx.TransportError:
            self._seen.interrupted += 1
            return None
        if response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            self._seen.interrupted += 1
            return None
        return response
