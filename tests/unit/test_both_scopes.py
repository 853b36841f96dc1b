"""How the answers of an agent's two scopes become one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

from hypothesis import given
from hypothesis import strategies as st

from palimpsest import AsyncMemory
from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.mcp.both_scopes import Answers, BothScopes, best, joined, merged, shares
from palimpsest.ops.mcp.server import memory_server
from palimpsest.ops.mcp.tools import AgentPlace
from palimpsest.schemas.echoes import marked, spoken
from palimpsest.stores.recall.context import estimate_tokens

AT = datetime(2026, 3, 1, tzinfo=UTC)
PLACE = AgentPlace("ana")
MEMORY: Any = SimpleNamespace(scope="srv")


def memory(content: str, score: float = 0.5, **more: Any) -> Any:
    values = {"id": content, "type": "fact", "who": "", "occurred_at": AT, "marks": ()}
    return SimpleNamespace(**values | {"content": content, "score": score} | more)


def test_the_better_of_both_come_first_and_equal_texts_once() -> None:
    found = best(
        [
            ("ana", memory("Ana hums.", 0.4)),
            ("ana", memory("Ana sings.", 0.9, unlikely=True)),
            ("srv", memory("ana  hums", 0.6)),
            ("srv", memory("Ben hums.", 0.5)),
        ]
    )
    assert [(at, each.content) for at, each in found] == [
        ("srv", "ana  hums"),
        ("srv", "Ben hums."),
        ("ana", "Ana sings."),
    ]


def test_a_budget_is_shared_by_weight_and_what_is_left_is_the_others() -> None:
    assert shares({"ana": 900, "srv": 900}, {"ana": 3.0, "srv": 1.0}, 800) == {
        "ana": 600,
        "srv": 200,
    }
    assert shares({"ana": 70, "srv": 900}, {"ana": 3.0, "srv": 1.0}, 800) == {
        "ana": 70,
        "srv": 730,
    }
    assert shares({"ana": 900, "srv": 900}, {"ana": 0.0, "srv": 0.0}, 800) == {
        "ana": 400,
        "srv": 400,
    }
    assert shares({"ana": 900, "srv": 900}, {"ana": 9.0, "srv": 0.1}, 300) == {"ana": 300}
    assert shares({"srv": 900}, {"srv": 1.0}, 300) == {"srv": 300}


@given(
    st.tuples(st.integers(1, 2_000), st.integers(1, 2_000)),
    st.tuples(st.floats(0, 10), st.floats(0, 10)),
    st.integers(50, 2_000),
)
def test_no_budget_is_exceeded(
    needs: tuple[int, int], weights: tuple[float, float], room: int
) -> None:
    names = ("ana", "srv")
    parts = shares(
        dict(zip(names, needs, strict=True)), dict(zip(names, weights, strict=True)), room
    )
    assert parts
    assert sum(parts.values()) <= room


def test_blocks_stand_under_their_headings_without_repeats() -> None:
    one = marked("## Profile\n- Ana is vegan\n## 1 March 2026\n- Ana hums")
    other = marked("## 1 March 2026\n- ana  hums.\n## 2 March 2026\n- Ben sings")
    text = joined([("# Personal memory (ana)", one), ("# Shared memory (srv)", other)])
    assert text == marked(
        "# Personal memory (ana)\n## Profile\n- Ana is vegan\n## 1 March 2026\n- Ana hums\n\n"
        "# Shared memory (srv)\n## 2 March 2026\n- Ben sings"
    )
    assert spoken(f"Hello.\n{text}\nWhat now?").split() == ["Hello.", "What", "now?"]
    assert joined([("# A", one), ("# B", one)]).count("#") == joined([("# A", one)]).count("#")


def entity(name: str, kind: str, **more: Any) -> Any:
    values = {"name": name, "type": kind, "aliases": (), "summary": None, "relations": ()}
    return SimpleNamespace(**values | {"attributes": (), "memories": ()} | more)


def test_an_entity_of_both_is_one_with_the_scope_of_what_only_one_says() -> None:
    lives = {"name": "Lisbon", "relation": "lives_in", "direction": "out"}
    knows = {"name": "Ben", "relation": "knows", "direction": "in"}
    newer = memory("Ana hums", occurred_at=AT + timedelta(days=1))
    turn = memory("I sing", type="episodic", occurred_at=AT + timedelta(days=2))
    eats = {"aspect": "food", "kind": "constraint", "content": "no nuts"}
    here = entity(
        "Ana", "person", aliases=("Anne",), relations=(lives,), memories=(newer, memory("Old"))
    )
    here.attributes = (eats,)
    there = entity("Ana", "person", summary="A guest.", relations=(lives, knows), memories=(turn,))
    found = merged(Answers({"ana": here, "srv": there}))
    assert found.attributes == ("food (constraint): no nuts (ana)",)
    assert (found.name, found.type, found.aliases) == ("Ana", "person", ("Anne",))
    assert found.summary == "A guest. (srv)"
    assert found.relations == ("Ana lives in Lisbon", "Ben knows Ana (srv)")
    assert [(each.content, each.scope) for each in found.memories] == [
        ("Ana hums", "ana"),
        ("Old", "ana"),
        ("I sing", "srv"),
    ]


def test_two_things_with_one_name_are_told_apart() -> None:
    here, there = entity("Apollo", "animal"), entity("Apollo", "project")
    assert merged(Answers({"ana": here, "srv": there})).type == "animal (ana); project (srv)"


async def test_the_error_of_one_scope_hides_nothing_of_the_other() -> None:
    async def ask(scope: str) -> str:
        if scope == "ana":
            raise NotFoundError("nothing is known")
        return "found"

    answers = await BothScopes(PLACE).asked(MEMORY, ask)
    assert answers == Answers({"srv": "found"}, ("ana: nothing is known",))


async def test_what_no_scope_answers_is_an_error() -> None:
    async def same(scope: str) -> str:
        raise RequestError("query: must not be blank")

    async def each(scope: str) -> str:
        raise NotFoundError(f"not in {scope}")

    with pytest.raises(RequestError, match=r"^query: must not be blank$"):
        await BothScopes(PLACE).asked(MEMORY, same)
    with pytest.raises(NotFoundError, match="ana: not in ana; srv: not in srv"):
        await BothScopes(PLACE).asked(MEMORY, each)


async def test_a_scope_that_the_caller_may_not_see_is_not_asked() -> None:
    asked = []

    async def ask(scope: str) -> str:
        asked.append(scope)
        return scope

    place = AgentPlace("ana", sees=lambda scope: scope == "srv")
    answers = await BothScopes(place).asked(MEMORY, ask)
    assert (asked, answers.notices) == (["srv"], ("ana: there is no scope ana",))


async def test_one_scope_named_twice_is_asked_once() -> None:
    asked = []

    async def ask(scope: str) -> str:
        asked.append(scope)
        return scope

    await BothScopes(AgentPlace("srv")).asked(MEMORY, ask)
    assert asked == ["srv"]


def test_only_agents_with_two_scopes_have_other_tools() -> None:
    def unused() -> Any:
        raise AssertionError("no tool is called here")

    alone, both = (
        {each.name: each for each in asyncio.run(memory_server(unused, place).list_tools())}
        for place in (AgentPlace(), PLACE)
    )
    differ = {name for name in alone if alone[name] != both[name]}
    assert alone.keys() == both.keys()
    assert differ == {"search_memory", "get_context", "get_entity_info"}
    for name in differ:
        assert alone[name].input_schema == both[name].input_schema


@pytest.fixture
async def filled(tmp_path: Path) -> AsyncIterator[AsyncMemory]:
    settings = {"embedding.provider": "hashing"}
    async with AsyncMemory(tmp_path, scope="srv", settings=settings) as made:
        for number in range(12):
            text = f"The tea room number {number} opens at {number + 7} in the morning."
            await made.remember(text)
            await made.remember(f"Ana drinks tea of kind {number} in the morning.", scope="ana")
        yield made


async def test_both_share_the_limit_and_the_budget(filled: AsyncMemory) -> None:
    server = memory_server(lambda: filled, PLACE)

    async def use(tool: str, **arguments: Any) -> Any:
        result: Any = await server.call_tool(tool, arguments)
        return result.structured_content

    found = (await use("search_memory", query="tea in the morning", limit=7))["memories"]
    assert len(found) == 7
    assert found == sorted(found, key=lambda each: -each["score"])
    assert {each["scope"] for each in found} <= {"ana", "srv"}
    for budget in (50, 90, 150, 250, 2_000):
        told = await use("get_context", query="tea in the morning", budget=budget)
        assert 0 < estimate_tokens(told["text"]) <= budget, told
        assert told["notices"] == []
    assert "# Personal memory (ana)" in told["text"]
    assert "# Shared memory (srv)" in told["text"]
    told = await use("get_context", query="which tea does Ana drink?", budget=250)
    assert told["text"].splitlines()[1] == "# Personal memory (ana)"
