"""A language model that a test tells what to answer, by a function or by the turn's own words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence

from pydantic import JsonValue

from palimpsest.streams.models.base import Prompt, Reply


class ScriptedModel:
    """Answers by a function of the prompt, and counts."""

    provider = "scripted"
    model = "scripted-1"

    def __init__(self, answer: Callable[[Prompt], str]) -> None:
        self._answer = answer
        self.prompts: list[Prompt] = []

    async def generate(self, prompt: Prompt) -> Reply:
        self.prompts.append(prompt)
        # Let the others have a turn, as a model would.
        await asyncio.sleep(0)
        return Reply(self._answer(prompt), self.model, self.provider, 10, 5, 0.0)

    async def check(self) -> str | None:
        return None

    async def close(self) -> None:
        return None


def spoken(prompt: Prompt) -> str:
    """The answer of a model that does what the turn says, so that a test can say what it wants.

    The turn's content is cut at ` / `: `a > likes > b` is a triple, `?…` a reply that is no JSON,
    anything else a fact (`…~0.4` with its confidence). Facts that begin with `Now` update the
    nearest candidate, with `Gone` delete it, with `Same` are known; `Odd` names no candidate and
    `Garbled` gets no JSON.
    """
    if prompt.purpose == "extract":
        return _extraction(str(prompt.subject["content"]))
    fact, candidates = prompt.subject["fact"], prompt.subject["candidates"]
    assert isinstance(fact, dict)
    assert isinstance(candidates, list)
    return _decision(str(fact["content"]), [c["id"] for c in candidates if isinstance(c, dict)])


def _extraction(content: str) -> str:
    facts: list[JsonValue] = []
    entities: list[JsonValue] = []
    for part in content.split(" / "):
        if part.startswith("?"):
            return "I would rather not say."
        if part.count(" > ") == 2:
            source, relationship, target = part.split(" > ")
            entities.append(
                {"source": source, "relationship": relationship, "target": target}
                | {"source_type": "person", "target_type": "place", "confidence": 0.8}
            )
        else:
            text, _, confidence = part.partition("~")
            facts.append({"content": text, "type": "fact", "confidence": float(confidence or 0.9)})
    return json.dumps({"facts": facts, "entities": entities})


def _decision(content: str, ids: Sequence[JsonValue]) -> str:
    first = content.split(maxsplit=1)[0]
    if first == "Garbled":
        return "{"
    action = {"Now": "UPDATE", "Gone": "DELETE", "Same": "NONE", "Odd": "UPDATE"}.get(first, "ADD")
    target = None if action == "ADD" else "nobody" if first == "Odd" else ids[0]
    return json.dumps(
        {"action": action, "targetId": target, "confidence": 0.9, "reason": f"it says {first}"}
    )
