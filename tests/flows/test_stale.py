"""The stale set: nothing that was corrected, replaced, forgotten, has ended or is disputed is
shown as if nothing had happened, on any surface, right after the last command was answered."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from palimpsest import Memory
from palimpsest.ops.errors import NotFoundError
from palimpsest.ops.library.memory_methods import AsyncMethods
from palimpsest.ops.mcp.operation_tools import tool_of
from palimpsest.ops.mcp.tools import WORDS
from palimpsest.ops.surfaces.catalogue import OPERATIONS
from palimpsest.stores.recall.query import Mark
from tests.stale_set import (
    Conversation,
    Shown,
    conversations,
    play,
    shown_line,
    stated_facts,
)

ALL = conversations()
SOME = ALL[::3]
"""For what answers by the same operations as another test."""
SETTINGS = {"embedding.provider": "hashing", "llm.provider": "rules", "decision.decider": "model"}


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """A memory in which the conversations were played."""
    folder = tmp_path_factory.mktemp("stale")
    with (
        stated_facts(ALL),
        Memory(folder, scope="stale", settings=SETTINGS, wait_seconds=120.0) as made,
    ):
        made.aio.background.blocking(play(made.aio, ALL))
        yield made


def marked(text: str, marks: Sequence[Mark]) -> Shown:
    return Shown(text, bool(marks))


def check(shown: dict[str, list[Shown]], *, missing: bool = True, chosen: bool = False) -> None:
    """No conversation's stale texts are among what is shown of it, and what holds is."""
    told = [each for each in ALL if each.id in shown]
    faults = [fault for each in told for fault in each.faults(shown[each.id])]
    if missing:
        faults += [f for each in told for f in each.missing(shown[each.id], chosen=chosen)]
    assert faults == []


def recalled(memory: Memory, each: Conversation, question: str) -> Iterator[Shown]:
    for group in (True, False) if each in SOME else (False,):
        found = memory.recall(question, scope=each.scope, limit=20, group=group, neighbours=2)
        for result in found.results:
            yield marked(result.content, result.marks)
            for neighbour in result.neighbours:
                yield marked(neighbour.content, neighbour.marks)
        for related in found.related:
            yield marked(related.content, related.marks)


def test_recall(memory: Memory) -> None:
    check({e.id: [s for q in e.questions for s in recalled(memory, e, q)] for e in ALL})


def test_a_mark_has_the_date_of_the_statement_that_changed_it(memory: Memory) -> None:
    """Not the date on which the conversation was imported."""
    for each in ALL:
        if not each.id.startswith(("superseded-", "deleted-")):
            continue
        dates = {step["at"][:10] for step in each.steps[1:]}
        for question in each.questions:
            for result in memory.recall(question, scope=each.scope, limit=20).results:
                since = {str(mark.since.date()) for mark in result.marks if mark.since}
                assert since <= dates, (each.id, result)


def test_every_pattern_would_be_found() -> None:
    """The set itself: what must not be shown was once stated."""
    for each in ALL:
        texts = [json.dumps(step, ensure_ascii=False) for step in each.steps]
        told = [Shown(text) for text in texts]
        wanted = len(each.stale) + len(each.forgotten)
        assert len(each.faults(told)) >= wanted, each.id


def test_lists_and_single_memories(memory: Memory) -> None:
    shown: dict[str, list[Shown]] = {}
    for each in ALL:
        page = memory.list(scope=each.scope, limit=100)
        shown[each.id] = [marked(found.content, found.marks) for found in page.memories]
        for found in page.memories if each in SOME else ():
            got = memory.get(found.id, scope=each.scope)
            shown[each.id].append(marked(got.content, got.marks))
    check(shown)


def test_entities(memory: Memory) -> None:
    shown: dict[str, list[Shown]] = {each.id: [] for each in ALL}
    for each in ALL:
        listed = memory.entities(scope=each.scope)
        # A name states nothing, but what was forgotten may not be named.
        shown[each.id] += [Shown(entity.name, True) for entity in listed.entities]
        for name in each.entities:
            try:
                found = memory.get_entity(name, scope=each.scope)
            except NotFoundError:
                continue
            shown[each.id] += [marked(m.content, m.marks) for m in found.memories]
            shown[each.id] += [
                Shown(f"{name} {relation['relation']} {relation['name']}".replace("_", " "))
                for relation in found.relations
                if relation["direction"] == "out"
            ]
    # An entity is named whatever of it has changed.
    check(shown, missing=False)


def test_a_correction_brings_the_relation_of_its_text(memory: Memory) -> None:
    memory.aio.background.blocking(memory.aio.wait_until_processed())
    scope = next(each.scope for each in ALL if each.id == "corrected-home-porto")
    found = memory.get_entity("Ana", scope=scope)
    told = [(relation["relation"], relation["name"]) for relation in found.relations]
    assert told == [("lives_in", "Lisbon")]


def test_status_counts_what_is_held_back(memory: Memory) -> None:
    held = [each.scope for each in ALL if each.id.startswith("held-")]
    assert memory.status().pending == dict.fromkeys(sorted(held), 1)


def test_a_preview_says_what_forgetting_hides(memory: Memory) -> None:
    scope = "stale/recovered-part"
    [fact] = [m for m in memory.list(scope=scope).memories if m.content == "Ben has diabetes"]
    [hidden] = memory.preview_forget([fact.id], scope=scope).hides
    assert (hidden.content, hidden.left) == (
        "I have diabetes. My hat is red.",
        "[forgotten] My hat is red.",
    )


def test_context(memory: Memory) -> None:
    shown: dict[str, list[Shown]] = {each.id: [] for each in ALL}
    for each in ALL:
        for question in each.questions:
            for session in (None, "now"):
                block = memory.context(question, scope=each.scope, session_id=session, budget=2_000)
                shown[each.id] += map(shown_line, (block.text or "").splitlines())
    check(shown, chosen=True)


def test_tools_of_agents(memory: Memory) -> None:
    async def asked() -> dict[str, list[Shown]]:
        shown: dict[str, list[Shown]] = {}
        for each in SOME:
            in_scope = AsyncMethods(memory.aio.transport, each.scope, memory.aio.wait_seconds)
            search, context, entity = tools_of(in_scope)
            lines = shown[each.id] = []
            for question in each.questions:
                found = (await search(query=question)).memories
                lines += [Shown(told.content, bool(told.no_longer)) for told in found]
                text = (await context(query=question)).text
                lines += map(shown_line, text.splitlines())
            for name in each.entities:
                try:
                    info = await entity(name=name)
                except NotFoundError:
                    continue
                lines += map(Shown, info.relations)
                lines += [Shown(told.content, bool(told.no_longer)) for told in info.memories]
        return shown

    check(memory.aio.background.blocking(asked()), chosen=True)


def tools_of(memory: AsyncMethods) -> Iterator[Callable[..., Awaitable[Any]]]:
    """Those that search, give a context and tell of an entity."""
    kinds = {kind.surface.tool: kind for kind in OPERATIONS.values()}
    for name in ("search_memory", "get_context", "get_entity_info"):
        yield tool_of(kinds[name], lambda: memory, WORDS[name])


def test_a_remembered_text_that_is_corrected_is_marked_by_nothing_that_it_said(
    tmp_path: Path,
) -> None:
    rules = {"embedding.provider": "hashing", "llm.provider": "rules"}
    with Memory(tmp_path, scope="ana", settings=rules, wait_seconds=120.0) as memory:
        kept = memory.remember("My sister Lena lives in Graz")
        memory.wait_until_processed()
        memory.correct(kept.id, "My sister Lena lives in Linz")
        [found] = memory.recall("where does Lena live?").results
        assert (found.content, found.marks) == ("My sister Lena lives in Linz", ())
        memory.wait_until_processed()
        told = {(each["relation"], each["name"]) for each in memory.get_entity("Lena").relations}
    assert ("lives_in", "Linz") in told
    assert {name for _, name in told} <= {"Linz", "The user"}  # "I" is no account's name
