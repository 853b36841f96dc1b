"""Conversations in which something stops being true, and what may be shown of them afterwards.

A line of `tests/data/stale_conversations.jsonl` is a conversation, played in a scope of its own.
Its steps are turns, remembered texts and commands. The facts of a turn are given, so that what
is measured is whether anything stale is shown, whatever the extraction draws from a text.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast
from unittest.mock import patch

from pydantic import JsonValue

from palimpsest.ops.library.memory_methods import AsyncMethods
from palimpsest.ops.requests import JsonObject
from palimpsest.streams.models.base import Prompt, Reply

FILE: Final = Path(__file__).parent / "data" / "stale_conversations.jsonl"
WAIT_SECONDS: Final = 120.0
WORDS_OF_MARKS: Final = re.compile(r"\((?:no longer\b|until [\d-]{10}|a newer statement waits)")
"""How a mark begins in a text for a model."""

Step = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shown:
    """A text that somebody or a model is shown, and whether a mark stands with it."""

    text: str
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Conversation:
    """`steps` in order: `say` (a turn with its facts and relations), `remember`, `correct` … `to`,
    `forget`, `recover`, `apply`, each naming a memory by its text. `stale` are patterns that may
    be shown only with a mark, `forgotten` those that may not be shown at all; `marked` and `kept`
    must be found by the questions, with a mark or without. `entities` are looked at, too;
    `updates`: whether the pipeline may update and delete."""

    id: str
    updates: bool
    steps: tuple[Step, ...]
    questions: tuple[str, ...]
    stale: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()

    @property
    def scope(self) -> str:
        return f"stale/{self.id}"

    def faults(self, shown: Iterable[Shown]) -> list[str]:
        """What is shown that must not be, or not without a mark."""
        return [
            f"{self.id}: {what} {pattern!r} is shown in {each.text!r}"
            for each in shown
            for what, patterns in (("forgotten", self.forgotten), ("stale", self.stale))
            for pattern in patterns
            if _stands(pattern, each.text) and not (what == "stale" and each.marked)
        ]

    def missing(self, shown: Sequence[Shown], *, chosen: bool = False) -> list[str]:
        """What the questions should find and do not. What is `chosen` for a model may leave out
        what no longer holds."""
        wanted = [(pattern, False) for pattern in self.kept]
        wanted += [] if chosen else [(pattern, True) for pattern in self.marked]
        return [
            f"{self.id}: {pattern!r} is not found{' with a mark' if is_marked else ''}"
            for pattern, is_marked in wanted
            if not any(_stands(pattern, s.text) and s.marked >= is_marked for s in shown)
        ]


def _stands(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None


def shown_line(text: str) -> Shown:
    """A line of a text for a model, with its mark in words."""
    return Shown(text, WORDS_OF_MARKS.search(text) is not None)


def conversations(path: Path = FILE) -> list[Conversation]:
    """All conversations of the file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [
        Conversation(**{name: _tuple(value) for name, value in json.loads(line).items()})
        for line in lines
    ]


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# --- the model ------------------------------------------------------------------------------------


class StatedFacts:
    """A language model that answers what the conversations give: the facts of each text, and which
    memory a fact updates, deletes or repeats."""

    provider = "stale-set"
    model = "stale-set-1"

    def __init__(self, played: Iterable[Conversation]) -> None:
        self._steps: dict[str, Step] = {}
        self._facts: dict[str, list[Mapping[str, Any]]] = {}
        for step in (step for each in played for step in each.steps):
            text = step.get("say", step.get("remember"))
            if text is not None and "facts" in step:
                self._steps[text] = step
                for fact in step["facts"]:
                    self._facts.setdefault(fact["text"], []).append(fact)

    async def generate(self, prompt: Prompt) -> Reply:
        answer = self._extract if prompt.purpose == "extract" else self._decide
        return Reply(json.dumps(answer(prompt.subject)), self.model, self.provider, 1, 1, 0.0)

    async def check(self) -> str | None:
        return None

    async def close(self) -> None:
        return None

    def _extract(self, subject: Mapping[str, JsonValue]) -> JsonValue:
        step = self._steps.get(str(subject["content"]), {})
        facts: list[JsonValue] = [
            {"content": fact["text"], "type": "fact", "confidence": 0.95}
            | ({"temporal": "temporal", "valid_until": fact["until"]} if "until" in fact else {})
            for fact in step.get("facts", ())
        ]
        relations: list[JsonValue] = [
            {"source": source, "relationship": kind, "target": target}
            | {"source_type": "person", "target_type": "concept", "confidence": 0.9}
            for source, kind, target in step.get("relations", ())
        ]
        return {"facts": facts, "entities": relations}

    def _decide(self, subject: Mapping[str, JsonValue]) -> JsonValue:
        fact = cast("JsonObject", subject.get("fact"))
        found = cast("list[JsonObject]", subject.get("candidates") or [])
        ids = {str(each["content"]): each["id"] for each in found}
        for given in self._facts.get(str(fact["content"]), ()):
            for name, action in (("updates", "UPDATE"), ("deletes", "DELETE"), ("repeats", "NONE")):
                if given.get(name) in ids:
                    target = ids[given[name]]
                    return {"action": action, "targetId": target, "confidence": 0.9, "reason": name}
        return {"action": "ADD", "targetId": None, "confidence": 0.9, "reason": "new"}


@contextmanager
def stated_facts(played: Sequence[Conversation]) -> Iterator[None]:
    """Memories and services that are opened within the block draw and decide as is given."""
    language = "palimpsest.ops.maintenance.process.language_model"
    with patch(language, lambda settings: StatedFacts(played)):
        yield


# --- playing --------------------------------------------------------------------------------------


async def play(memory: AsyncMethods, played: Sequence[Conversation]) -> None:
    """Play the conversations, step by step side by side; returns when the last command has its
    answer, whatever is still on its way."""
    updating = [each for each in played if each.updates]
    await asyncio.gather(*(_allow_updates(memory, each.scope) for each in updating))
    for number in range(max(len(each.steps) for each in played)):
        now = [(each, each.steps[number]) for each in played if number < len(each.steps)]
        texts = [(each, step) for each, step in now if "say" in step or "remember" in step]
        await asyncio.gather(*(_tell(memory, each, step) for each, step in texts))
        if texts:
            await memory.wait_until_processed(WAIT_SECONDS)
        commands = [(each, step) for each, step in now if (each, step) not in texts]
        await asyncio.gather(*(_command(memory, each, step) for each, step in commands))


async def _allow_updates(memory: AsyncMethods, scope: str) -> None:
    await memory.set_flags(scope, allow_update_delete=True, wait=WAIT_SECONDS)


async def _tell(memory: AsyncMethods, each: Conversation, step: Step) -> None:
    if "remember" in step:
        await memory.remember(step["remember"], scope=each.scope)
        return
    turn = {
        "content": step["say"],
        "speaker": step["who"],
        "role": step["role"],
        "session_id": step["session"],
        "occurred_at": datetime.fromisoformat(step["at"]).isoformat(),
    }
    await memory.add([turn], scope=each.scope, wait=False)


async def _command(memory: AsyncMethods, each: Conversation, step: Step) -> None:
    scope = each.scope
    if "correct" in step:
        memory_id = await _id_of(memory, scope, step["correct"])
        await memory.correct(memory_id, step["to"], scope=scope)
    elif "forget" in step:
        memory_id = await _id_of(memory, scope, step["forget"])
        cascade = bool(step.get("cascade"))
        await memory.forget([memory_id], reason="asked to", cascade=cascade, scope=scope)
    elif "recover" in step:
        memory_id = await _id_of(memory, scope, step["recover"], deleted=True)
        await memory.recover(memory_id, scope=scope)
    else:
        pending = (await memory.proposals(scope=scope)).proposals
        ids = [each.id for each in pending if each.fact == step["apply"]]
        await memory.apply_proposals(ids, scope=scope, reason="right", wait=WAIT_SECONDS)


async def _id_of(memory: AsyncMethods, scope: str, text: str, deleted: bool = False) -> str:
    page = await memory.list(scope=scope, deleted=deleted, limit=500)
    found = [each.id for each in page.memories if each.content == text]
    if len(found) != 1:
        raise AssertionError(f"{scope}: {len(found)} memories say {text!r}")
    return found[0]
