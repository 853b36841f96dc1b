"""What a refused text costs: itself. And what is no text's fault is waited out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from palimpsest.ops.embedding.models import EmbeddingModels
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import EmbeddingChoice
from palimpsest.streams.models.base import (
    PermanentModelError,
    Prompt,
    Reply,
    TransientModelError,
    Vector,
)
from palimpsest.streams.models.hashing import hashed
from palimpsest.streams.models.settings import EmbeddingSettings
from palimpsest.streams.rules.model import RulesLanguageModel
from palimpsest.streams.runtime.model_port import (
    HARMLESS,
    LONG_CHARACTERS,
    CircuitBreaker,
    ModelPort,
)
from palimpsest.streams.stage import ModelUnavailable

REFUSED = "a text that is refused"
PROMPT = Prompt("extract", "Take note.", "I like tea", {"type": "object"}, 100, {})


class Embedding:
    """Refuses, as a real one does, the whole call for what `refuses` says of any of its texts."""

    model = "e"
    dimensions = 8

    def __init__(self, refuses: Callable[[str], Exception | None]) -> None:
        self.refuses = refuses
        self.calls: list[list[str]] = []

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        self.calls.append(list(texts))
        for text in texts:
            if (error := self.refuses(text)) is not None:
                raise error
        return [hashed(text, 8) for text in texts]

    async def embed_query(self, text: str) -> Vector:
        return hashed(text, 8)

    async def check(self) -> str | None:
        return None

    async def close(self) -> None:
        return None


class Language:
    provider = "scripted"
    model = "m"

    def __init__(self, refuses: Callable[[str], Exception | None]) -> None:
        self.refuses = refuses
        self.asked: list[Prompt] = []

    async def generate(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        if (error := self.refuses(prompt.user)) is not None:
            raise error
        return Reply("{}", self.model, self.provider)

    async def check(self) -> str | None:
        return None

    async def close(self) -> None:
        return None


def for_what_it_says(text: str) -> Exception | None:
    return PermanentModelError("400: not this text") if REFUSED in text else None


class KeyIsBad:
    """Refuses everything until it is waited for the `n`-th time."""

    def __init__(self, n: int) -> None:
        self.waits: list[float] = []
        self.n = n
        self.told: list[str] = []

    def __call__(self, text: str) -> Exception | None:
        return PermanentModelError("401: set a valid API key") if len(self.waits) < self.n else None

    def port(self, embedding: Embedding, language: Language | None = None) -> ModelPort:
        async def wait(seconds: float) -> None:
            self.told += [outage.reason for outage in port.outages.values()]
            self.waits.append(seconds)

        port = ModelPort(language or RulesLanguageModel(), embedding, wait=wait)
        return port


@pytest.mark.parametrize("embed_batch", [1, 3, 256])
@pytest.mark.parametrize("required", [False, True])
async def test_a_refused_text_alone_goes_without_a_vector(required: bool, embed_batch: int) -> None:
    texts = [f"text {number}" for number in range(9)]
    texts[3] = REFUSED
    texts[7] = f"{REFUSED}, too"
    model = Embedding(for_what_it_says)
    port = ModelPort(RulesLanguageModel(), model, embed_batch=embed_batch)
    answer = await port.embed(texts, required)
    for number, (vector, failure) in enumerate(zip(answer.vectors, answer.failures, strict=True)):
        if number in (3, 7):
            assert (vector, failure) == (None, "400: not this text")
        else:
            assert vector is not None
            assert np.array_equal(vector, hashed(texts[number], 8))
            assert failure is None
    assert port.outages == {}


async def test_finding_a_refused_text_takes_few_calls() -> None:
    model = Embedding(for_what_it_says)
    port = ModelPort(RulesLanguageModel(), model)
    await port.embed([*(f"text {number}" for number in range(255)), REFUSED])
    # Two halves a level, and at each refusal one to see that others are taken.
    assert len([call for call in model.calls if call != [HARMLESS]]) == 17
    assert len(model.calls) == 26


async def test_a_key_that_is_refused_is_waited_for_as_an_outage() -> None:
    refusing = KeyIsBad(3)
    port = refusing.port(Embedding(refusing))
    answer = await port.embed(["a", "b"], required=True)
    assert [vector is not None for vector in answer.vectors] == [True, True]
    assert [int(seconds) for seconds in refusing.waits] == [1, 2, 4]
    assert refusing.told[0] == "401: set a valid API key"
    assert port.outages == {}


async def test_a_text_that_can_wait_does_not_wait_for_a_key() -> None:
    refusing = KeyIsBad(1)
    port = refusing.port(Embedding(refusing))
    answer = await port.embed(["a", "b"])
    assert answer.vectors == (None, None)
    assert answer.failures == ("401: set a valid API key",) * 2
    assert refusing.waits == []
    assert port.outages["embedding"].reason == "401: set a valid API key"


async def test_an_outage_takes_no_vector_that_was_there_before_it() -> None:
    down: list[Exception] = []
    model = Embedding(lambda text: down[0] if down else None)
    port = ModelPort(RulesLanguageModel(), model, embed_batch=1)
    await port.embed(["a"])
    down.append(TransientModelError("down"))
    answer = await port.embed(["a", "b", "c"])
    assert [vector is not None for vector in answer.vectors] == [True, False, False]
    assert answer.failures == (None, "down", "down")
    # Once is enough to know: each further call might take its whole time-out.
    assert model.calls == [["a"], ["b"]]
    assert "embedding" in port.outages


async def test_a_slow_provider_holds_up_one_write_and_is_asked_again_later() -> None:
    now, answers = 0.0, asyncio.Event()

    class Slow(Embedding):
        async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
            made = await super().embed_passages(texts)
            await answers.wait()
            return made

    model = Slow(lambda text: None)
    breaker = CircuitBreaker(0.01, lambda: now)
    port = ModelPort(RulesLanguageModel(), model, breaker_of=lambda space: breaker)
    for number in range(5):
        answer = await port.embed([f"text {number}"])
        assert answer.embeddings == (None,)
        assert "no vectors within 0.01 s" in (answer.failures[0] or "")
    assert model.calls == [["text 0"]]
    assert "no vectors within 0.01 s" in port.outages["embedding"].reason
    assert port.usage.of("embedding").failures == 1
    now += 1.6
    assert (await port.embed(["text 5"])).embeddings == (None,)
    now += 1.6  # it waits longer after a second time
    assert (await port.embed(["text 6"])).embeddings == (None,)
    assert model.calls == [["text 0"], ["text 5"]]
    now += 1.0
    answers.set()
    breaker.seconds = None
    assert None not in (await port.embed(["text 7"])).embeddings
    assert port.outages == {}


async def test_who_needs_a_vector_waits_for_a_slow_provider() -> None:
    answers = asyncio.Event()

    class Slow(Embedding):
        async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
            await answers.wait()
            return await super().embed_passages(texts)

    breaker = CircuitBreaker(0.001)
    port = ModelPort(
        RulesLanguageModel(), Slow(lambda text: None), breaker_of=lambda space: breaker
    )
    needed = asyncio.create_task(port.embed(["a"], required=True))
    assert (await port.embed(["a"])).embeddings == (None,)
    answers.set()
    assert None not in (await needed).embeddings


async def test_calls_that_are_given_up_together_count_once() -> None:
    now = 0.0
    breaker = CircuitBreaker(0.001, lambda: now)
    given_up = [breaker.call(asyncio.Event().wait) for _ in range(8)]
    found = await asyncio.gather(*given_up, return_exceptions=True)
    assert {type(each) for each in found} == {TransientModelError}
    now += 1.6  # the first pause, not the eighth
    with pytest.raises(TransientModelError):
        await breaker.call(asyncio.Event().wait)
    now += 2.6
    breaker.seconds = None

    async def answer() -> int:
        return 1

    assert await breaker.call(answer) == 1


async def test_a_prompt_is_dead_only_where_another_is_answered() -> None:
    model = Language(for_what_it_says)
    port = ModelPort(model, Embedding(lambda text: None))
    with pytest.raises(ModelUnavailable, match="400: not this text"):
        await port.generate(Prompt("extract", "Take note.", REFUSED, {}, 100, {}), advisory=False)
    first, harmless = model.asked
    assert (harmless.user, harmless.system, harmless.schema) == (
        HARMLESS,
        first.system,
        first.schema,
    )
    assert port.outages == {}


async def test_an_expired_key_buries_no_backlog() -> None:
    refusing = KeyIsBad(2)
    language = Language(refusing)
    port = refusing.port(Embedding(lambda text: None), language)
    reply = await port.generate(PROMPT, advisory=False)
    assert reply is not None
    assert [int(seconds) for seconds in refusing.waits] == [1, 2]
    assert refusing.told == ["401: set a valid API key"] * 2
    assert port.outages == {}


async def test_a_long_text_has_no_vector_yet_unless_it_must_have_one() -> None:
    model = Embedding(lambda text: None)
    port = ModelPort(Language(lambda prompt: None), model)
    long = "word " * LONG_CHARACTERS
    found = await port.embed(["short", long])
    assert [each is None for each in found.embeddings] == [False, True]
    assert model.calls == [["short"]]
    assert port.outages == {}
    [needed] = (await port.embed([long], required=True)).embeddings
    assert needed is not None


async def test_a_space_that_no_model_makes_gets_no_vector_of_another() -> None:
    port = ModelPort(RulesLanguageModel(), Embedding(lambda text: None))
    answer = await port.embed(["I like tea"], space="unknown")
    assert answer.embeddings == (None,)
    assert answer.failures == ("no embedding model makes vectors for unknown",)
    assert "embedding" in port.outages


@pytest.mark.parametrize(("own", "other"), [("openai", "hashing"), ("hashing", "openai")])
def test_only_a_remote_model_is_given_up_whatever_the_settings_name(own: str, other: str) -> None:
    """A command may have changed a store to another model than that of the settings."""
    named = EmbeddingChoice.model_validate(
        {"provider": other, "model": "m", "space": "m", "dimensions": 8, "base_url": None}
    )
    row = SimpleNamespace(live=named.model_dump_json(), switched_seq=1, former=None, upcoming=None)
    shards: Any = {0: SimpleNamespace(embedding=row)}
    settings = Settings(embedding=EmbeddingSettings.model_validate({"provider": own}))
    models = EmbeddingModels(settings, Embedding(lambda text: None), lambda: shards)
    seconds = {space: models.breaker_of(space).seconds for space in ("e", "m")}
    assert seconds == {"e": 2.0 if own == "openai" else None, "m": 2.0 if own != "openai" else None}
    assert models.breaker_of("m") is models.breaker_of("m")
