"""The program's own parts, joined as the settings say, to look at what a setting changes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.maintenance import process
from palimpsest.ops.maintenance.embedded import Application, application
from palimpsest.ops.operations.memories import Recall
from palimpsest.ops.parts import open_shard, shard_options
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import load_settings
from palimpsest.ops.worker.local import sources_of
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.models.base import Prompt
from palimpsest.streams.runtime.output import outgoing
from palimpsest.streams.stage import Message
from tests.harness import Clock
from tests.memory_rows import write
from tests.messages import published, turn
from tests.servers import ScriptedProvider
from tests.spoken_model import ScriptedModel, spoken

REMOTE_LLM = ("llm.provider=openai", "llm.base_url={server}", "llm.model=scripted")
REMOTE_VECTORS = (
    "embedding.provider=openai",
    "embedding.base_url={server}",
    "embedding.model=scripted",
)
PATIENCE_S = 120.0
BASE = ("embedding.provider=hashing", "embedding.dimensions=64", "store.memory_limit=128")
# A busy machine must not cut short what the graph and a second look say.
BASE += ("recall.graph_timeout_ms=60000", "recall.rerank_timeout_ms=60000")


@dataclass
class Seen:
    """What a run left behind: rows by query, counts of stages, questions to the model."""

    app: Application
    prompts: list[Prompt]

    def column(self, query: str) -> list[Any]:
        with self.app.shards[0].reading() as reader:
            return [row[0] for row in reader.execute(query).fetchall()]

    def batches(self, stage: str) -> int:
        return sum(r.counts.batches for r in self.app.runners if r.stage.name == stage)

    def purposes(self) -> Counter[str]:
        return Counter(prompt.purpose for prompt in self.prompts)


@dataclass
class Lab:
    """A folder, a clock and two providers for one value of one setting, and what that value is
    `expected` to show."""

    folder: Path
    patch: pytest.MonkeyPatch
    server: ScriptedProvider
    other: ScriptedProvider
    port: int
    flags: tuple[str, ...] = ()
    expected: object = None
    clock: Clock = field(default_factory=Clock)

    @property
    def settings(self) -> Settings:
        return self.loaded(*self.flags)

    def loaded(self, *flags: str) -> Settings:
        places = {"server": self.server.url, "other": self.other.url, "port": self.port}
        given = [flag.format(folder=self.folder, **places) for flag in (*BASE, *flags)]
        named = any(flag.startswith("data_dir=") for flag in given)
        return load_settings(given, None if named else self.folder, None, {}).settings

    async def happens(self, event: Any, seconds: float, expected: bool | None = None) -> bool:
        """Whether it comes true: in so many seconds where that is not expected (by the lab, if it
        is not given), else however long a busy machine takes."""
        wanted = self.expected if expected is None else expected
        try:
            await asyncio.wait_for(event, PATIENCE_S if wanted else seconds)
        except TimeoutError:
            return False
        return True

    @contextlib.asynccontextmanager
    async def ran(self, *messages: Message | str, scripted: bool = True) -> AsyncIterator[Seen]:
        """The program after it has processed these (a text is a turn of Ana's). `scripted`: the
        language model does what is said (`tests.spoken_model.spoken`)."""
        model = ScriptedModel(_answer)
        if scripted:
            self.patch.setattr(process, "language_model", lambda settings: model)
        async with application(self.settings, clock=self.clock) as app:
            for number, given in enumerate(messages):
                message = published(said(given, number)) if isinstance(given, str) else given
                is_turn = isinstance(message.body, ConversationTurn)
                topic = CONVERSATION_TURNS if is_turn else MEMORY_COMMANDS
                app.log.append([outgoing(topic, message)])
            await app.run(until_drained=True)
            yield Seen(app, model.prompts)

    @contextlib.contextmanager
    def shard(self, *rows: Row) -> Any:
        """A shard opened as set, with these rows."""
        settings = self.settings
        embedding = process.embedding_model(settings)
        shard: Shard = open_shard(settings, 0, shard_options(settings, embedding))
        try:
            write(shard, rows, vectors=False)
            yield shard
        finally:
            shard.close()

    async def recalled(self, text: str, rows: Sequence[Row], **fields: Any) -> dict[str, Any]:
        """The answer of the program to a question about these rows."""
        settings = self.settings
        with self.shard(*rows) as shard, EmbeddedLog(self.folder / "l", 1, self.clock) as log:
            model = process.embedding_model(settings)
            sources = Sources(settings, log, {0: shard}, 1, model, log.append)
            request = Recall(text, "ana", explain=True, **fields)
            answer = await DirectQueries(sources).answer(request)
            await model.close()
        assert isinstance(answer, dict)
        return answer


@dataclass(frozen=True)
class Case:
    """`told` is what is seen with each of the two values, beside the settings of `given`."""

    see: Callable[[Lab], Awaitable[object]]
    values: tuple[object, object]
    told: tuple[object, object]
    given: tuple[str, ...] = ()


def _answer(prompt: Prompt) -> str:
    if prompt.purpose == "contradict":
        return '{"contradicts": false, "confidence": 0.9, "reason": "they agree"}'
    return spoken(prompt)


def said(text: str, number: int) -> ConversationTurn:
    return turn(text, number)


async def recall_of(app: Application, text: str, **fields: Any) -> dict[str, Any]:
    """What a running worker answers."""
    answer = await DirectQueries(sources_of(app)).answer(Recall(text, "ana", **fields))
    assert isinstance(answer, dict)
    return answer


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """A port on which this process may listen, and which the system gives to no other one."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])
