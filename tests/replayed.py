"""A live memory in a folder and models that say the same in other words, for replays."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.opening import open_log
from palimpsest.ops.parts import open_shard, shard_options
from palimpsest.ops.replay.branches import branch_settings, read_branch
from palimpsest.ops.replay.reextraction import Reextracted, differing, reextract
from palimpsest.ops.replay.requests import Reextract, Report, unreported
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import Command
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.stores.database.state_hash import table_hashes
from palimpsest.streams.models.hashing import HashingEmbeddingModel
from palimpsest.streams.runtime.output import outgoing
from tests.messages import HUMAN, commanded, published, topic_of
from tests.servers import Call, Raw, ScriptedProvider

Said = Mapping[str, Mapping[str, Sequence[str]]]
"""By model and turn, the facts that the model draws."""


def said_of(call: Call) -> str | None:
    """The turn that a model is asked to extract from; None where something else is asked."""
    messages = call.body["messages"]
    assert isinstance(messages, list)
    last = messages[-1]
    assert isinstance(last, dict)
    parts = str(last["content"]).split("\n----- turn ")
    if len(parts) < 2:
        return None
    return parts[1].partition("\n")[2].partition("\n-----")[0].strip()


def speaking(said: Said) -> Callable[[Call], Raw | None]:
    """What a provider answers: to an extraction the model's own words, else the usual."""

    def answer(call: Call) -> Raw | None:
        turn = said_of(call)
        if turn is None:
            return None
        facts = said[str(call.body["model"])].get(turn, ())
        listed = [{"content": f, "type": "fact", "confidence": 0.9} for f in facts]
        content = json.dumps({"facts": listed, "entities": []})
        reply = {
            "choices": [{"index": 0, "message": {"role": "assistant", "content": content}}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 20},
        }
        return Raw(200, json.dumps(reply).encode())

    return answer


def provider(said: Said) -> ScriptedProvider:
    return ScriptedProvider(models=list(said), refusing=speaking(said))


def live_settings(folder: Path, url: str = "", model: str = "old", **sections: Any) -> Settings:
    """Settings of a memory whose facts an OpenAI-like model draws, and rules decide."""
    llm = {"provider": "openai", "base_url": f"{url}/v1", "model": model} if url else {}
    return Settings.model_validate(
        {
            "data_dir": folder,
            "llm": llm,
            "embedding": {"provider": "hashing"},
            "decision": {"decider": "rules"},
            "log": {"partitions": 1},
            # Models that are scripted say other things to the same question.
            "replies": {"retention_days": 0},
            **sections,
        }
    )


@dataclass
class Live:
    """The live memory of a folder, opened anew for everything."""

    settings: Settings
    commands: int = 0
    said: dict[str, str] = field(default_factory=dict)

    def say(self, *contents: str, scope: str = "ana", first: int = 1) -> None:
        """Turns with these contents, numbered from `first`."""
        turns = [
            ConversationTurn(turn_id=f"t{number}", session_id="s1", speaker="Ana", content=text)
            for number, text in enumerate(contents, first)
        ]
        with open_log(self.settings, "publish") as log:
            messages = [published(each, scope) for each in turns]
            log.append([outgoing(topic_of(message), message) for message in messages])

    def command(self, *commands: Command, scope: str = "ana", actor: Actor = HUMAN) -> None:
        with open_log(self.settings, "publish") as log:
            for each in commands:
                self.commands += 1
                message = commanded(each, self.commands, scope, actor)
                log.append([outgoing(topic_of(message), message)])

    async def run(self, *stages: str) -> None:
        """Until all is processed."""
        async with application(self.settings, stages) as app:
            assert await app.drain()

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        return rows(self.settings, query, *parameters)

    def facts(self, scope: str = "ana") -> dict[str, str]:
        """The ids of the active facts by what they say."""
        return facts(self.settings, scope)

    async def branch(
        self,
        name: str = "new",
        *overrides: str,
        model: str | None = "new",
        report: Report = unreported,
        stopping: asyncio.Event | None = None,
        **asked: Any,
    ) -> Reextracted:
        own = differing(self.settings, overrides, None, model)
        return await reextract(
            self.settings, Reextract(name, overrides=own, **asked), report, stopping
        )

    def of_branch(self, name: str = "new") -> Settings:
        return branch_settings(self.settings, read_branch(self.settings, name))

    def unchanged(self) -> dict[str, str]:
        """Digests of all files that lie in the live folder, beside its branches. What SQLite makes
        for any reader is left out: its index of a write-ahead log, and that while it is empty."""
        found = {}
        for path in sorted(self.settings.data_dir.rglob("*")):
            inside = path.relative_to(self.settings.data_dir)
            if path.is_file() and inside.parts[0] != "branches" and path.suffix != ".sqlite-shm":
                if path.suffix == ".sqlite-wal" and not path.stat().st_size:
                    continue
                found[str(inside)] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found


def rows(settings: Settings, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Of all partitions."""
    found: list[tuple[Any, ...]] = []
    options = shard_options(settings, HashingEmbeddingModel(256))
    with open_log(settings, "read") as log:
        partitions = log.partitions("memory-writes")
    for number in range(partitions):
        shard = open_shard(settings, number, options)
        try:
            with shard.reading() as reader:
                found += reader.execute(query, list(parameters)).fetchall()
        finally:
            shard.close()
    return found


def facts(settings: Settings, scope: str = "ana") -> dict[str, str]:
    told = rows(
        settings,
        "SELECT content, memory_id FROM memory_rows WHERE scope = ? AND NOT is_deleted"
        " AND type <> 'episodic' ORDER BY content",
        scope,
    )
    return dict(told)


def state(settings: Settings) -> dict[str, str]:
    """The state hash by partition and table."""
    found = {}
    options = shard_options(settings, HashingEmbeddingModel(256))
    with open_log(settings, "read") as log:
        partitions = log.partitions("memory-writes")
    for number in range(partitions):
        shard = open_shard(settings, number, options)
        try:
            with shard.reading() as reader:
                for table, digest in table_hashes(reader).items():
                    found[f"{number} {table}"] = digest
        finally:
            shard.close()
    return found
