"""Answers a stage's model asks: in bulk, concurrently, and through outages."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from palimpsest.streams.models.base import (
    Embedding,
    EmbeddingModel,
    LanguageModel,
    PermanentModelError,
    Prompt,
    Reply,
    TransientModelError,
    UnusableModel,
    embeddings,
)
from palimpsest.streams.models.recorded import Kept, Question, RecordedReplies, question
from palimpsest.streams.runtime.offload import Together
from palimpsest.streams.runtime.tracing import model_call
from palimpsest.streams.stage import Embedded, Generate, ModelUnavailable

NEWEST_CALLS: Final = 100


@dataclass(slots=True)
class ModelUsage:
    """Usage of one provider: `calls`, `failures` among them, `retries` after transient failures,
    the `seconds` that the calls took, and the reported tokens; and the replies served from
    `recorded` ones without a call."""

    calls: int = 0
    failures: int = 0
    retries: int = 0
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    recorded: int = 0
    newest: deque[bool] = field(default_factory=lambda: deque(maxlen=NEWEST_CALLS))
    """Whether each of the newest calls was answered, in the order of their ends."""


@dataclass(slots=True)
class Usage:
    """By provider, with the names that outages use."""

    by_provider: dict[str, ModelUsage] = field(default_factory=dict)
    monotonic: Callable[[], float] = time.perf_counter

    def of(self, name: str) -> ModelUsage:
        return self.by_provider.setdefault(name, ModelUsage())

    @contextmanager
    def call(self, name: str) -> Iterator[ModelUsage]:
        """Counts the enclosed block as one call."""
        usage = self.of(name)
        began = self.monotonic()
        usage.calls += 1
        try:
            yield usage
        except BaseException:
            usage.failures += 1
            usage.newest.append(False)
            raise
        else:
            usage.newest.append(True)
        finally:
            usage.seconds += self.monotonic() - began


logger = logging.getLogger(__name__)

T = TypeVar("T")
Asked = TypeVar("Asked")

FIRST_DELAY_SECONDS = 1.0
MAX_DELAY_SECONDS = 30.0
JITTER_SECONDS = 0.5
KEPT_EMBEDDINGS = 4096
LONG_CHARACTERS = 5_000
"""Longer texts get their vectors later: otherwise the changes of all scopes would wait for the
model to read thousands of words. Some four windows of the local model, half a second."""
HARMLESS = "ready"
"""Sent after another text was refused, to learn whether the text or the provider is the cause."""


def backoff(attempt: int, jitter: float, retry_after: float | None = None) -> float:
    """Returns the seconds before the next attempt: min(1 s x 2^attempt, 30 s) plus up to 500 ms of
    jitter (`jitter` from 0 to 1), and at least Retry-After. `attempt` counts from 0."""
    delay = min(FIRST_DELAY_SECONDS * 2.0 ** min(attempt, 10), MAX_DELAY_SECONDS)
    return max(delay, retry_after or 0.0) + jitter * JITTER_SECONDS


@dataclass(slots=True)
class Outage:
    """A provider that currently does not answer: the reason, the number of attempts, and whether it
    answered before this attempt."""

    reason: str
    tries: int
    is_new: bool = False


@dataclass(slots=True)
class CircuitBreaker:
    """Gives up calls to a provider that does not answer in `seconds` (None: never), and makes none
    for a while after that: 1 s, twice as long after each further try without an answer, up to
    30 s."""

    seconds: float | None = None
    monotonic: Callable[[], float] = time.monotonic
    _late: int = 0
    _open_until: float = 0.0

    async def call(self, call: Callable[[], Awaitable[T]]) -> T:
        """Raises TransientModelError when it gave up, or makes no call; and what the call
        raises."""
        if self.seconds is None:
            return await call()
        late = TransientModelError(
            f"no vectors within {self.seconds:g} s (embedding.wait_seconds); until they come, texts"
            " are found by their words"
        )
        if self.monotonic() < self._open_until:
            raise late
        try:
            async with asyncio.timeout(self.seconds):
                answer = await call()
        except TimeoutError as error:
            # Of calls made at the same time the first that is given up counts for all.
            if self.monotonic() >= self._open_until:
                self._open_until = self.monotonic() + backoff(self._late, random.random())
                self._late += 1
            raise late from error
        self._late = 0
        return answer


@dataclass(slots=True)
class ModelPort:
    """The models of one worker with their limits.

    Transient failures are retried in place for as long as they last, and so are those of a provider
    that refuses everything; `outages` holds the providers that are being waited for. `wait` is the
    sleep between attempts, replaceable in tests. With `replies`, each paid reply is recorded before
    it is returned, and read from there when the same request goes to the same `address` again."""

    language: LanguageModel
    embedding: EmbeddingModel
    concurrency: int = 4
    embed_batch: int = 256
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep
    outages: dict[str, Outage] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    replies: RecordedReplies | None = None
    address: str = ""
    defers_long: bool = True
    """Whether texts over LONG_CHARACTERS go without a vector at first: only where upkeep makes it
    later."""
    breaker_of: Callable[[str], CircuitBreaker] = lambda space: CircuitBreaker()
    """Of calls to the model of a vector space for texts that can go without a vector at first."""
    called: str | None = None
    """The name under which its calls are counted; None: `llm:` and the provider."""
    of_space: Callable[[str], EmbeddingModel | None] = lambda space: None
    """The model of a vector space that a command has changed a partition to."""
    on_outage: Callable[[str, Outage], None] | None = None
    """Called after each failed attempt; None: a new outage is logged."""
    _slots: asyncio.Semaphore | None = None
    _finding: Together[Question, Reply | None] | None = None
    _keeping: Together[Kept, None] | None = None
    _kept: dict[tuple[str, str], Embedding] = field(default_factory=dict)

    async def answer(self, ask: Generate, scope: str) -> Reply | None:
        """Returns the recorded reply, or that of `generate`. Raises ModelUnavailable, and LogError
        where recorded replies cannot be read or written."""
        replies = self.replies
        if replies is None:
            return await self.generate(ask.prompt, ask.advisory)
        request = question(self.language, self.address, ask.prompt, ask.attempt)
        if self._finding is None or self._keeping is None:
            self._finding, self._keeping = Together(replies.find), Together(replies.keep)
        found = None if ask.fresh else await self._finding.ask(request)
        if found is not None:
            self.usage.of(self._language).recorded += 1
            return found
        erasures = replies.erasures
        reply = await self.generate(ask.prompt, ask.advisory)
        if reply is not None:
            await self._keeping.ask(Kept(request, scope, reply, erasures))
        return reply

    async def forget(self, asks: Sequence[Generate]) -> None:
        """Removes the recorded replies to these requests. Raises LogError."""
        if self.replies is not None and asks:
            requests = [
                question(self.language, self.address, ask.prompt, ask.attempt) for ask in asks
            ]
            await asyncio.to_thread(self.replies.forget, requests)

    async def generate(self, prompt: Prompt, advisory: bool) -> Reply | None:
        """Returns a reply; None if the first attempt at an advisory request failed.

        Raises ModelUnavailable when the provider refuses this prompt permanently. Waits for a
        provider that refuses every request (an expired key, a missing model)."""
        if self._slots is None:
            self._slots = asyncio.Semaphore(self.concurrency)
        async with self._slots:
            if advisory:
                try:
                    return await self._reply(prompt)
                except (TransientModelError, PermanentModelError):
                    return None
            try:
                return await self._persist(
                    self._language,
                    lambda: _unless_all_refused(
                        self._reply, prompt, replace(prompt, user=HARMLESS)
                    ),
                )
            except PermanentModelError as error:
                raise ModelUnavailable(str(error)) from error

    @property
    def _language(self) -> str:
        return self.called or f"llm:{self.language.provider}"

    async def _reply(self, prompt: Prompt) -> Reply:
        name, model = self._language, self.language.model
        with self.usage.call(name) as usage, model_call(name, model) as span:
            reply = await self.language.generate(prompt)
            if span is not None:
                span.note("gen_ai.usage.input_tokens", reply.input_tokens or 0)
                span.note("gen_ai.usage.output_tokens", reply.output_tokens or 0)
        usage.input_tokens += reply.input_tokens or 0
        usage.output_tokens += reply.output_tokens or 0
        return reply

    def _model(self, space: str) -> EmbeddingModel:
        """The model of a space, "" for the one that is set."""
        if space == "":
            return self.embedding
        unknown = f"no embedding model makes vectors for {space}"
        return self.of_space(space) or UnusableModel(space, 0, unknown)

    async def embed(
        self, texts: Sequence[str], required: bool = False, space: str = ""
    ) -> Embedded:
        """Returns embeddings in order, by the model of this vector space; None, with the reason,
        for a text that the provider refuses when it is sent alone while accepting others, so no
        text's vector depends on the other texts of its call.

        If the provider does not answer, or refuses every request, `required` waits for as long as
        that lasts; otherwise these texts get no embedding, like long ones: a turn is not held up,
        and its vector is added later. Nor is it by a provider that takes longer than
        the circuit breaker waits."""
        # A local reference: while one call waits, another may evict cached embeddings.
        if space == self.embedding.model:
            space = ""
        model = self._model(space)
        made = {text: self._kept.get((space, text)) for text in texts}
        missing = [
            text
            for text, found in made.items()
            if found is None and (required or not self.defers_long or len(text) <= LONG_CHARACTERS)
        ]
        failures: dict[str, str] = {}
        down: TransientModelError | None = None
        for start in range(0, len(missing), self.embed_batch):
            part = missing[start : start + self.embed_batch]
            try:
                if down is not None:
                    raise down
                ask = partial(self._embed_part, model, part, required)
                breaker = self.breaker_of(space or self.embedding.model)
                answers = await (ask() if required else breaker.call(ask))
                for text, answer in zip(part, answers, strict=True):
                    if isinstance(answer, str):
                        failures[text] = answer
                    else:
                        made[text] = answer
            except TransientModelError as error:
                down = error
                failures.update((text, str(error)) for text in part)
        if down is not None:
            self.outages["embedding"] = Outage(str(down), 1)
        elif missing:
            self.outages.pop("embedding", None)
        # decide and apply-writes request the embedding of the same fact shortly after one another.
        self._kept.update(
            ((space, text), found) for text, found in made.items() if found is not None
        )
        while len(self._kept) > KEPT_EMBEDDINGS:
            del self._kept[next(iter(self._kept))]
        found = tuple(made[text] for text in texts)
        return Embedded(found, tuple(failures.get(text) for text in texts), space)

    async def _embed_part(
        self, model: EmbeddingModel, part: Sequence[str], required: bool
    ) -> list[Embedding | str]:
        """Returns for each text an embedding, or why the provider refuses it. Splits a refused call
        in halves until each refused text stands alone. Raises TransientModelError, unless
        `required`."""
        try:

            async def embedded(texts: Sequence[str]) -> list[Embedding]:
                with self.usage.call("embedding"), model_call("embedding", model.model):
                    return await embeddings(model, texts)

            def ask() -> Awaitable[list[Embedding]]:
                return _unless_all_refused(embedded, part, (HARMLESS,))

            return list(await (self._persist("embedding", ask) if required else ask()))
        except PermanentModelError as error:
            if len(part) == 1:
                return [str(error)]
        middle = len(part) // 2
        return [
            *await self._embed_part(model, part[:middle], required),
            *await self._embed_part(model, part[middle:], required),
        ]

    async def _persist(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        attempt = 0
        while True:
            try:
                result = await call()
            except TransientModelError as error:
                outage = Outage(str(error), attempt + 1, name not in self.outages)
                self.outages[name] = outage
                if self.on_outage is not None:
                    self.on_outage(name, outage)
                elif outage.is_new:
                    logger.warning("waiting for %s, which is tried again: %s", name, error)
                self.usage.of(name).retries += 1
                await self.wait(backoff(attempt, random.random(), error.retry_after))
                attempt += 1
            except PermanentModelError:
                self.outages.pop(name, None)
                raise
            else:
                self.outages.pop(name, None)
                return result


async def _unless_all_refused(
    ask: Callable[[Asked], Awaitable[T]], request: Asked, harmless: Asked
) -> T:
    """Sends `request` and returns the answer. Raises PermanentModelError if `request` is refused
    while `harmless`, a request with an unobjectionable text, is accepted: the refusal is about the
    content. If both are refused, an operator can fix the cause: raises TransientModelError."""
    try:
        return await ask(request)
    except PermanentModelError:
        try:
            await ask(harmless)
        except PermanentModelError as error:
            raise TransientModelError(str(error)) from error
        raise
