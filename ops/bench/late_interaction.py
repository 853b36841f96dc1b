"""What token vectors cost: python -m palimpsest.ops.bench.late_interaction --data FOLDER [--local]

Texts a second, milliseconds a question, milliseconds of MaxSim over a pool, bytes a memory and the
error of packing; with --local also texts and milliseconds of the multilingual model.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from palimpsest.ops.bench.conversations import conversation_files, questions
from palimpsest.stores.index.token_vectors import TokenCodec, token_codec
from palimpsest.streams.models.base import EmbeddingModel, PermanentModelError
from palimpsest.streams.models.cross_encoder import CrossEncoder
from palimpsest.streams.models.late_interaction import LateInteractionModel
from palimpsest.streams.models.local import LocalEmbeddingModel

TEXTS = 200
QUESTIONS = 40
POOL = 250
RERANKED = 10
RERANKED_QUESTIONS = 10
Json = dict[str, object]


def turns(file: Path) -> list[str]:
    """Returns the utterances of a conversation in LoCoMo's format, each with its speaker."""
    sessions = json.loads(file.read_text(encoding="utf-8")).values()
    lines = [line for session in sessions if isinstance(session, list) for line in session]
    return [f"{line['speaker']}: {line['text']}" for line in lines if "dia_id" in line]


async def speed(model: EmbeddingModel, texts: Sequence[str], asked: Sequence[str]) -> Json:
    """Measures a loaded model. Processor time covers all threads."""
    await model.embed_query(asked[0])
    began, used = time.perf_counter(), time.process_time()
    await model.embed_passages(texts)
    seconds, processor = time.perf_counter() - began, time.process_time() - used
    took = []
    for text in asked:
        began = time.perf_counter()
        await model.embed_query(text)
        took.append(1000 * (time.perf_counter() - began))
    return {
        "model": model.model,
        "texts_per_second": round(len(texts) / seconds, 1),
        "texts_per_processor_second": round(len(texts) / processor, 1),
        "query_ms": _quantiles(took),
    }


async def packing(
    model: LateInteractionModel, codec: TokenCodec, texts: Sequence[str], asked: Sequence[str]
) -> Json:
    found = [each.tokens for each in await model.embed_passage_tokens(texts)]
    packed = [codec.pack(tokens) for tokens in found]
    errors = [
        (tokens * codec.unpack(one)).sum(axis=1) for tokens, one in zip(found, packed, strict=True)
    ]
    pool = (packed * (POOL // len(packed) + 1))[:POOL]
    queries = [codec.query((await model.embed_query_tokens(text)).tokens) for text in asked]

    def score(number: int) -> None:
        codec.similarities(queries[number], pool)

    return {
        "bytes_a_memory": round(float(np.mean([len(one) for one in packed])), 1),
        "tokens_a_memory": round(float(np.mean([len(tokens) for tokens in found])), 1),
        "cosine_of_packed_tokens": round(float(np.concatenate(errors).mean()), 4),
        f"maxsim_of_{POOL}_ms": _quantiles([_ms(score, place) for place in range(len(queries))]),
    }


async def reranking(texts: Sequence[str], asked: Sequence[str]) -> Json:
    """Measures milliseconds per query of a cross-encoder over `RERANKED` passages."""
    model = CrossEncoder()
    took = []
    try:
        for number in range(-1, RERANKED_QUESTIONS):
            began = time.perf_counter()
            await model.scores(asked[number], texts[:RERANKED], 60.0)
            took.append(1000 * (time.perf_counter() - began))
    finally:
        await model.close()
    return {"model": model.model, f"of_{RERANKED}_ms": _quantiles(took[1:])}


def _ms(work: Callable[[int], None], number: int) -> float:
    began = time.perf_counter()
    work(number)
    return 1000 * (time.perf_counter() - began)


def _quantiles(values: Sequence[float]) -> Json:
    return {
        "p50": round(float(np.quantile(values, 0.5)), 2),
        "p95": round(float(np.quantile(values, 0.95)), 2),
    }


async def measure(data: Path, with_local: bool) -> Json:
    file = conversation_files(data)[0]
    texts = turns(file)[:TEXTS]
    asked = [question.text for question in questions(file)][:QUESTIONS]
    late = LateInteractionModel()
    codec = token_codec(late.model)
    if codec is None:
        raise ValueError(f"there is no basis for the tokens of {late.model}")
    models: list[EmbeddingModel] = [late]
    if with_local:
        models.append(LocalEmbeddingModel())
    try:
        speeds: list[object] = [await speed(model, texts, asked) for model in models]
        return {
            "models": speeds,
            "packing": await packing(late, codec, texts, asked),
            "rerank": await reranking(texts, asked),
        }
    finally:
        for model in models:
            await model.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--local", action="store_true")
    given = parser.parse_args()
    try:
        result = asyncio.run(measure(given.data, given.local))
    except (PermanentModelError, ValueError) as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
