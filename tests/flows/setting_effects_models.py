"""What the settings of the models change."""

from __future__ import annotations

import asyncio
from typing import Any

from palimpsest.ops import parts
from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.maintenance.process import expiring
from palimpsest.streams.models.base import ModelError, Prompt
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.stage import Generate
from tests.servers import Late, ScriptedProvider, Text
from tests.setting_lab import REMOTE_LLM, REMOTE_VECTORS, Case, Lab

PROMPT = Prompt("extract", "system", "user", {}, 100, {"content": "tea"})


async def calls_for_a_turn(lab: Lab) -> object:
    async with lab.ran("I like tea", scripted=False):
        return len(lab.server.posts), len(lab.other.posts)


async def told_to_the_llm(lab: Lab) -> object:
    """Model and key of a call."""
    async with lab.ran("I like tea", scripted=False):
        call = lab.server.posts[0]
        return call.body["model"], call.headers["authorization"]


async def reply_in_time(lab: Lab) -> object:
    lab.server._latency_s = 0.3
    model = parts.language_model(lab.settings.llm)
    try:
        await model.generate(PROMPT)
    except ModelError:
        return False
    finally:
        await model.close()
    return True


async def cost_of_calls(lab: Lab) -> object:
    """Of the calls of a turn as analysts see them: each reads 11 tokens and writes 7."""
    async with lab.ran("I like tea", scripted=False) as seen:
        with seen.app.shards[0].reading() as reader:
            found = reader.execute("SELECT DISTINCT cost FROM main.model_calls").fetchall()
    return [round(cost, 6) for (cost,) in found]


async def asked_again(lab: Lab) -> object:
    """Calls for a prompt, and for the same after two days."""
    async with application(lab.settings, clock=lab.clock) as app:
        await app.models.answer(Generate(PROMPT), "ana")
        lab.clock.advance(days=2)
        await expiring([app.replies, app.log], lab.clock, 60).once()
        await app.models.answer(Generate(PROMPT), "ana")
    return len(lab.server.posts)


async def calls_at_once(lab: Lab) -> object:
    released = asyncio.Event()
    lab.server.script = [Late(released, Text("{}"))]
    async with application(lab.settings, clock=lab.clock) as app:
        asking = [asyncio.create_task(app.models.generate(PROMPT, False)) for _ in range(4)]
        checks = len(lab.server.calls)
        await lab.server.called(checks + 1)
        await lab.happens(lab.server.called(checks + 4), 0.5, lab.expected == 4)
        count = len(lab.server.posts)
        released.set()
        await asyncio.gather(*asking)
        return count


async def embedded(lab: Lab) -> tuple[ScriptedProvider, list[int]]:
    """Lengths of the vectors of five texts and a question, with the provider that was asked."""
    settings = lab.settings
    model = parts.embedding_model(settings)
    nothing: Any = None
    port = ModelPort(nothing, model, 1, settings.embedding.batch)
    made = await port.embed([f"text {number}" for number in range(5)])
    lengths = {0 if vector is None else len(vector) for vector in made.vectors}
    if 0 not in lengths:
        await model.embed_query("which text?")
    await model.close()
    return lab.server, sorted(lengths)


async def calls_for_vectors(lab: Lab) -> object:
    server, _ = await embedded(lab)
    return len(server.posts), len(lab.other.posts)


async def lengths_of_vectors(lab: Lab) -> object:
    return (await embedded(lab))[1]


async def told_to_the_embedder(lab: Lab) -> object:
    server, _ = await embedded(lab)
    return server.posts[0].body["model"], server.posts[0].headers["authorization"]


async def vectors_in_time(lab: Lab) -> object:
    lab.server._latency_s = 0.3
    return (await embedded(lab))[1] != [0]


async def written_at_once(lab: Lab) -> object:
    """Whether a text gets no vector rather than waiting for it."""
    released = asyncio.Event()
    lab.server.refusing = lambda call: None if released.is_set() else Late(released, Text("ok"))
    async with application(lab.settings, clock=lab.clock) as app:
        checks = len(lab.server.calls)
        asking = asyncio.create_task(app.models.embed(["I keep bees."]))
        await lab.server.called(checks + 1)
        goes_on = await lab.happens(asyncio.shield(asking), 0.5)
        released.set()
        assert ((await asking).embeddings == (None,)) is goes_on
        return goes_on


async def texts_sent(lab: Lab) -> object:
    """The first text and the question as the provider got them."""
    server, _ = await embedded(lab)
    return server.posts[0].body["input"][0], server.posts[-1].body["input"][0]  # type: ignore[index]


async def local_model(lab: Lab) -> object:
    """The model that is made, and from where on decide takes two facts to be near."""
    model = parts.embedding_model(lab.settings)
    await model.close()
    return model.model, lab.settings.near


CASES: dict[str, Case] = {
    "llm.provider": Case(
        calls_for_a_turn, ("rules", "openai"), ((0, 0), (1, 0)),
        ("llm.base_url={server}", "llm.model=scripted"),
    ),
    "llm.base_url": Case(
        calls_for_a_turn, ("{server}", "{other}"), ((1, 0), (0, 1)),
        ("llm.provider=openai", "llm.model=scripted"),
    ),
    "llm.model": Case(
        told_to_the_llm, ("scripted", "second"), (("scripted", "Bearer k"), ("second", "Bearer k")),
        (*REMOTE_LLM[:2], "llm.api_key=k"),
    ),
    "llm.api_key": Case(
        told_to_the_llm, ("k", "l"), (("scripted", "Bearer k"), ("scripted", "Bearer l")),
        REMOTE_LLM,
    ),
    "llm.timeout_seconds": Case(reply_in_time, (0.05, 30), (False, True), REMOTE_LLM),
    "llm.concurrency": Case(calls_at_once, (1, 4), (1, 4), REMOTE_LLM),
    "replies.retention_days": Case(asked_again, (1, 3), (2, 1), REMOTE_LLM),
    "replies.max_megabytes": Case(asked_again, (0.00001, 1), (2, 1), REMOTE_LLM),
    "llm.input_price": Case(cost_of_calls, (1000, 2000), ([0.011], [0.022]), REMOTE_LLM),
    "llm.output_price": Case(cost_of_calls, (1000, 2000), ([0.007], [0.014]), REMOTE_LLM),
    "embedding.provider": Case(
        calls_for_vectors, ("hashing", "openai"), ((0, 0), (2, 0)), REMOTE_VECTORS[1:]
    ),
    "embedding.base_url": Case(
        calls_for_vectors, ("{server}", "{other}"), ((2, 0), (0, 2)),
        (REMOTE_VECTORS[0], REMOTE_VECTORS[2]),
    ),
    "embedding.model": Case(
        told_to_the_embedder, ("one", "two"), (("one", "Bearer k"), ("two", "Bearer k")),
        (*REMOTE_VECTORS[:2], "embedding.api_key=k"),
    ),
    "embedding.api_key": Case(
        told_to_the_embedder, ("k", "l"), (("scripted", "Bearer k"), ("scripted", "Bearer l")),
        REMOTE_VECTORS,
    ),
    "embedding.dimensions": Case(lengths_of_vectors, (32, 128), ([32], [128])),
    "embedding.timeout_seconds": Case(vectors_in_time, (0.05, 30), (False, True), REMOTE_VECTORS),
    "embedding.wait_seconds": Case(written_at_once, (0.05, 30), (True, False), REMOTE_VECTORS),
    "embedding.batch": Case(calls_for_vectors, (2, 5), ((4, 0), (2, 0)), REMOTE_VECTORS),
    "embedding.query_prefix": Case(
        texts_sent, ("", "q: "), (("text 0", "which text?"), ("text 0", "q: which text?")),
        REMOTE_VECTORS,
    ),
    "embedding.passage_prefix": Case(
        texts_sent, ("", "p: "), (("text 0", "which text?"), ("p: text 0", "which text?")),
        REMOTE_VECTORS,
    ),
}  # fmt: skip
MORE_CASES: list[tuple[str, Case]] = [
    (
        "embedding.model",
        Case(
            local_model,
            ("multilingual-e5-small-q4", "answerai-colbert-small-int8"),
            (("multilingual-e5-small-q4", 0.88), ("answerai-colbert-small-int8", 0.85)),
            ("embedding.provider=local",),
        ),
    ),
    (
        "search.language",
        Case(
            local_model, ("en", "german"),
            (("answerai-colbert-small-int8", 0.85), ("multilingual-e5-small-q4", 0.88)),
            ("embedding.provider=local",),
        ),
    ),
]  # fmt: skip
"""Of settings that mean something else with another provider."""
