"""Whether a sentence of a long text is found by a question in other words, by role and length.

    python -m tests.soak.long_texts [--roles user assistant …] [--words 100 1000 …]

For each role and length, a scope of short turns and of ten long texts, each of which has one aimed
sentence at its beginning, in its middle or near its end (`tests/data/long_texts.json`), the same
ones for each length. A sentence is found if its text is among the first three results; `preamble`
asks after 60 to 300 words about something else, and `block` tells whether the context's block has
the sentence. Bytes are those of the stored vectors of all texts, seconds those until all are
stored, milliseconds medians of a recall and of a block.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final, Literal, get_args

import duckdb

from palimpsest import AsyncMemory

Role = Literal["user", "assistant", "tool", "system", "remembered", "document"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
WORDS: Final = (100, 300, 1_000, 3_000, 10_000)
DEPTHS: Final = (0.05, 0.5, 0.92)
PREAMBLES: Final = (60, 120, 300)
TEXTS: Final = 10
FIRST: Final = 3
DATA: Final = Path(__file__).parent.parent / "data" / "long_texts.json"


@dataclass(frozen=True, slots=True)
class Aimed:
    """A long text, and the question that its `sentence` answers."""

    sentence: str
    question: str
    text: str


class Texts:
    """Makes texts of the same fillers, the same ones for the same seed."""

    def __init__(self, seed: int = 7) -> None:
        self.data = json.loads(DATA.read_text(encoding="utf-8"))
        self._random = random.Random(seed)

    def prose(self, words: int) -> list[str]:
        """Sentences of about this number of words in all."""
        found: list[str] = []
        while words > 0:
            pattern = self._random.choice(self.data["filler"])
            filled = pattern.format(a=self._pick("a"), b=self._pick("b"))
            found.append(filled)
            words -= len(filled.split())
        return found

    def aimed(self, words: int) -> list[Aimed]:
        found = []
        for number, (sentence, question) in enumerate(self.data["aimed"][:TEXTS]):
            prose = self.prose(words - len(sentence.split()))
            depth = DEPTHS[number % len(DEPTHS)]
            prose.insert(max(int(depth * len(prose)), 1), sentence)
            found.append(Aimed(sentence, question, _in_paragraphs(prose)))
        return found

    def _pick(self, slot: str) -> str:
        found: str = self._random.choice(self.data[slot])
        return found


def _in_paragraphs(sentences: Sequence[str]) -> str:
    parts = [" ".join(sentences[at : at + 6]) for at in range(0, len(sentences), 6)]
    return "\n\n".join(parts)


async def _told(memory: AsyncMemory, role: Role, texts: Sequence[Aimed]) -> None:
    for number, each in enumerate(texts):
        if role == "remembered":
            await memory.remember(each.text)
        elif role == "document":
            await memory.add_document(text=each.text, title=f"Page {number}")
        else:
            speaker = "Ana" if role == "user" else role
            turn = {"content": each.text, "role": role, "speaker": speaker}
            await memory.add(turn, session_id=f"s{number}")


async def measure(role: Role, words: int, folder: Path) -> dict[str, object]:
    texts = Texts()
    aimed = texts.aimed(words)
    async with AsyncMemory(folder, scope=role, wait_seconds=600) as memory:
        for number, line in enumerate(texts.data["short"]):
            await memory.add(line, speaker="Ana", session_id=f"day{number // 6}")
        began = time.perf_counter()
        await _told(memory, role, aimed)
        await memory.wait_until_processed(600)
        while await lacks_vectors(memory):  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        seconds = time.perf_counter() - began
        found = dict.fromkeys(("recall", "preamble", "block"), 0)
        ms, block_ms = [], []
        for number, each in enumerate(aimed):
            before = " ".join(texts.prose(PREAMBLES[number % len(PREAMBLES)]))
            for name, asked in (
                ("recall", each.question),
                ("preamble", f"{before} {each.question}"),
            ):
                began = time.perf_counter()
                results = (await memory.recall(asked, limit=FIRST)).results
                ms.append(1_000 * (time.perf_counter() - began))
                found[name] += any(each.sentence in hit.content for hit in results)
            began = time.perf_counter()
            block = (await memory.context(each.question)).text or ""
            block_ms.append(1_000 * (time.perf_counter() - began))
            found["block"] += each.sentence in block
    return {
        "role": role,
        "words": words,
        "of": TEXTS,
        **found,
        "seconds_for_all": round(seconds, 1),
        "vector_bytes": _vector_bytes(folder),
        "recall_ms": round(median(ms), 1),
        "block_ms": round(median(block_ms), 1),
    }


async def lacks_vectors(memory: AsyncMemory) -> bool:
    states = (await memory.embedding_status()).partitions
    return any(state.missing or state.outlined for state in states)


def _vector_bytes(folder: Path) -> int:
    """Of the packed vectors of all texts, in a store that is closed."""
    [store] = folder.glob("shards/*/memory.duckdb")
    with duckdb.connect(str(store), read_only=True) as connection:
        rows = connection.execute(
            "SELECT sum(octet_length(tokens) + 4 * len(vector)) FROM internal.embeddings UNION ALL"
            " SELECT coalesce(sum(octet_length(tokens) + octet_length(passages)), 0)"
            " FROM internal.turn_passages"
        ).fetchall()
    return sum(int(size) for (size,) in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--roles", nargs="+", choices=ROLES, default=ROLES)
    parser.add_argument("--words", nargs="+", type=int, default=WORDS)
    given = parser.parse_args()
    for role in given.roles:
        for words in given.words:
            with tempfile.TemporaryDirectory() as folder:
                print(json.dumps(asyncio.run(measure(role, words, Path(folder)))), flush=True)


if __name__ == "__main__":
    main()
