"""Answers what the stages of a batch ask of models: outside any transaction, many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from palimpsest.streams.runtime.batch_record import RecordRun
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.runtime.offload import computed
from palimpsest.streams.stage import Embed, Embedded, Generate, ModelUnavailable


async def ask_models(runs: Sequence[RecordRun], models: ModelPort, asks_in_order: bool) -> None:
    """Advance every record as far as models can bring it: embeddings of all records in one call,
    replies concurrently, unless the stage asks in order."""
    await computed(_begin, runs)  # a large record must not keep the event loop
    await _embed(runs, models)
    asking = [run for run in runs if isinstance(run.ask, Embed | Generate)]
    if asking and not asks_in_order:
        async with asyncio.TaskGroup() as group:
            for run in asking:
                group.create_task(converse(run, models))


def _begin(runs: Sequence[RecordRun]) -> None:
    for run in runs:
        if run.step is None:
            run.resume(None)


async def converse(run: RecordRun, models: ModelPort) -> None:
    """Answer one record's model asks until it asks the store or is done."""
    while isinstance(run.ask, Embed | Generate):
        if isinstance(run.ask, Embed):
            run.resume(await models.embed(run.ask.texts, run.ask.required))
            continue
        try:
            reply = await models.answer(run.ask, run.message.scope if run.message else "")
        except ModelUnavailable as refusal:
            run.refuse(refusal)
        else:
            run.resume(reply)


async def _embed(runs: Sequence[RecordRun], models: ModelPort) -> None:
    asked = [(run, run.ask) for run in runs if isinstance(run.ask, Embed)]
    if not asked:
        return
    texts = [text for _, ask in asked for text in ask.texts]
    answer = await models.embed(texts, any(ask.required for _, ask in asked))

    def resume() -> None:
        start = 0
        for run, ask in asked:
            end = start + len(ask.texts)
            run.resume(Embedded(answer.embeddings[start:end], answer.failures[start:end]))
            start = end

    await computed(resume)
