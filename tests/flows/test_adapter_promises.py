"""What the frameworks' base classes promise of a store, a session and a memory, case by case."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from palimpsest import Client, Memory
from palimpsest.ops.adapters import history
from palimpsest.ops.adapters.history import History, Message
from palimpsest.ops.library.memory_methods import BlockingMethods
from tests.flows.http_server import server
from tests.flows.test_adapters import UNLIMITED, framework, opened

SECRET = {
    "password": "correct horse battery",
    "card": "4111 1111 1111 1111",
    "deep": [{"api_key": "sk-proj-abcdefghijklmnopqrstuvwx0123456789", "mail": "ana@example.com"}],
    "order": 4111111111111111,
}


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with opened(tmp_path) as made:
        yield made


@pytest.fixture
def store(memory: Memory) -> Any:
    return langgraph_store(memory)


def langgraph_store(memory: BlockingMethods, **options: Any) -> Any:
    framework("langgraph")
    from palimpsest.ops.adapters.langgraph import PalimpsestStore

    return PalimpsestStore(memory, **options)


def keys(found: list[Any]) -> set[str]:
    return {item.key for item in found}


# --- LangGraph --------------------------------------------------------------------------------


async def test_a_value_comes_back_as_it_was_put(memory: Memory, store: Any) -> None:
    space = ("a", "4111111111111111")
    for key in ("k", "token sk-proj-abcdefghijklmnopqrstuvwx0123456789"):
        await store.aput(space, key, SECRET)
        [found] = [each for each in await store.asearch(("a",)) if each.key == key]
        assert found.value == (await store.aget(space, key)).value == SECRET
    texts = memory.list(scope="ana/a/4111111111111111").memories
    assert texts
    assert "correct horse" not in str(texts)
    assert "4111 1111" not in str(texts)


async def test_redaction_of_values_can_be_switched_on(memory: Memory) -> None:
    store = langgraph_store(memory, redact=True)
    await store.aput(("a",), "k", SECRET)
    assert (await store.aget(("a",), "k")).value["password"] == "[REDACTED:password]"


async def test_a_prefix_may_be_a_list(store: Any) -> None:
    from langgraph.store.base import GetOp, PutOp, SearchOp

    [_] = await store.abatch([PutOp(["a", "b"], "k", {"text": "bees"})])
    [got, found] = await store.abatch([GetOp(["a", "b"], "k"), SearchOp(["a"])])
    assert got.namespace == ("a", "b")
    assert keys(found) == {"k"}


async def test_an_empty_query_lists_items(store: Any) -> None:
    await store.aput(("a",), "k", {"text": "bees"})
    for query in ("", "  \n"):
        assert keys(await store.asearch(("a",), query=query)) == {"k"}


async def test_concurrent_puts_of_one_key_leave_one_text(memory: Memory) -> None:
    stores = [langgraph_store(memory) for _ in range(2)]
    puts = [stores[n % 2].aput(("a",), "k", {"text": f"bee {n}"}) for n in range(8)]
    await asyncio.gather(*puts)
    rows = memory.list(session_id="k", scope="ana/a", limit=100).memories
    assert len([each for each in rows if each.source_type == "langgraph"]) == 1
    [found] = await stores[0].asearch(("a",))
    assert found.value == (await stores[1].aget(("a",), "k")).value


async def test_a_search_ranks_items_and_loses_none(store: Any) -> None:
    for number in range(12):
        await store.aput(
            ("a",), f"k{number}", {"text": f"walrus {number}", "even": number % 2 == 0}
        )
    await store.aput(("a",), "best", {"text": "zebras graze on the plain", "even": True})
    found = await store.asearch(("a",), query="where do zebras graze?", limit=20)
    assert found[0].key == "best"
    assert len(found) == 13
    found = await store.asearch(("a",), query="zebras", filter={"even": True}, limit=20)
    assert len(found) == 7
    first = await store.asearch(("a",), query="zebras", limit=5)
    second = await store.asearch(("a",), query="zebras", limit=5, offset=5)
    assert len(keys(first) | keys(second)) == 10


async def test_filters_reach_into_values(store: Any) -> None:
    await store.aput(("a",), "k1", {"user": {"city": "Ghent", "age": 30}, "tags": ["x", "y"]})
    await store.aput(("a",), "k2", {"user": {"city": "Porto", "age": 40}, "tags": ["x"]})
    await store.aput(("a",), "k3", {"user.city": "Ghent"})
    for condition, wanted in (
        ({"user.city": "Ghent"}, {"k1", "k3"}),
        ({"user.age": {"$gt": 30}}, {"k2"}),
        ({"user": {"city": "Porto"}}, {"k2"}),
        ({"user": {"age": {"$lte": 30}}}, {"k1"}),
        ({"tags": ["x"]}, {"k2"}),
        ({"tags": ("x", "y")}, {"k1"}),
        ({"user.city.street": "Ghent"}, set()),
    ):
        assert keys(await store.asearch(("a",), filter=condition)) == wanted, condition


async def test_fields_are_indexed_apart(memory: Memory, store: Any) -> None:
    value = {"title": "zebra", "body": "walrus", "notes": [{"t": "heron"}, {"t": "stork"}]}
    await store.aput(("a",), "k1", value, index=["title", "notes[*].t"])
    await store.aput(("a",), "k2", {"title": "walrus", "body": "zebra"}, index=["title"])
    rows = memory.list(session_id="k1", scope="ana/a").memories
    assert {each.content for each in rows} >= {"zebra", "heron", "stork"}
    for query, first in (("zebra", "k1"), ("stork", "k1"), ("walrus", "k2")):
        found = await store.asearch(("a",), query=query)
        assert found[0].key == first
        assert keys(found) == {"k1", "k2"}
    fewer = {"title": "zebra", "notes": []}
    await store.aput(("a",), "k1", fewer, index=["title", "notes[*].t"])
    assert (await store.aget(("a",), "k1")).value == fewer
    rows = memory.list(session_id="k1", scope="ana/a").memories
    assert len([each for each in rows if each.source_type == "langgraph"]) == 1
    assert len(await store.asearch(("a",))) == 2


async def test_fields_of_the_store_are_the_default(memory: Memory) -> None:
    store = langgraph_store(memory, fields=["title"])
    await store.aput(("a",), "k", {"title": "zebra", "body": "walrus"})
    [row] = memory.list(session_id="k", scope="ana/a").memories
    assert row.content == "zebra"


async def test_items_end_with_their_time(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    from langgraph.store.base import GetOp

    from palimpsest.ops.adapters import langgraph as module

    late, now = timedelta(), module.utc_now
    monkeypatch.setattr(module, "utc_now", lambda: now() + late)
    store = langgraph_store(memory, ttl={"default_ttl": 10, "refresh_on_read": True})
    await store.aput(("a",), "default", {"text": "ten minutes"})
    await store.aput(("a",), "long", {"text": "an hour"}, ttl=60)
    await store.aput(("a",), "ever", {"text": "for good"}, ttl=None)
    before = await store.aget(("a",), "default", refresh_ttl=False)
    late = timedelta(minutes=9)
    got = await store.aget(("a",), "default")  # which gives it ten minutes more
    assert (got.value, got.updated_at) == (before.value, before.updated_at)
    late = timedelta(minutes=18)
    assert keys(await store.asearch(("a",), refresh_ttl=False)) == {"default", "long", "ever"}
    late = timedelta(minutes=20)
    assert keys(await store.asearch(("a",), query="ten minutes")) == {"long", "ever"}
    [gone] = await store.abatch([GetOp(("a",), "default")])
    assert gone is None
    late = timedelta(minutes=200)
    assert await store.asweep_ttl() == 2
    assert await store.asweep_ttl() == 0
    assert keys(await store.asearch(("a",))) == {"ever"}


async def test_a_namespace_without_items_is_not_listed(memory: Memory, store: Any) -> None:
    await store.aput(("a",), "k", {"text": "Ana moved to Lisbon in March."})
    memory.remember("Ana lives in Lisbon.", scope="ana/a")  # as what is drawn from an item
    await store.adelete(("a",), "k")
    assert await store.alist_namespaces() == []


async def test_many_puts_of_a_batch_are_many_at_once(
    memory: Memory, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from langgraph.store.base import PutOp

    running, most = 0, 0
    remember = memory.aio.remember

    async def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return await remember(*args, **kwargs)
        finally:
            running -= 1

    monkeypatch.setattr(memory.aio, "remember", counted)
    await store.abatch([PutOp(("a",), f"k{n}", {"text": f"bee {n}"}) for n in range(40)])
    assert most > 8
    assert len(await store.asearch(("a",), limit=100)) == 40


# --- conversations ------------------------------------------------------------------------------


async def test_a_message_is_taken_back_once(memory: Memory) -> None:
    sessions = [History(memory, "s1") for _ in range(3)]
    await sessions[0].append(Message("user", f"text {n}", n) for n in range(7))
    popped = await asyncio.gather(*(sessions[n % 3].pop() for n in range(6)))
    assert sorted(map(str, popped)) == [*"123456"]
    assert await sessions[0].messages() == [0]


async def test_messages_of_a_batch_stay_together(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where several histories append at the same moment by the clock."""
    moment = history.utc_now()
    monkeypatch.setattr(history, "utc_now", lambda: moment)
    batches = [
        History(memory, "s1").append(
            Message("user", f"batch {batch} message {n}", [batch, n]) for n in range(8)
        )
        for batch in range(5)
    ]
    await asyncio.gather(*batches)
    found: Any = await History(memory, "s1").messages()
    runs = [found[start : start + 8] for start in range(0, 40, 8)]
    for run in runs:
        assert run == [[run[0][0], n] for n in range(8)]


async def test_a_session_of_agents_keeps_tool_calls_and_its_limit(tmp_path: Path) -> None:
    framework("agents")
    from agents.memory import SessionSettings

    from palimpsest.ops.adapters.openai_agents import PalimpsestSession

    call = {
        "type": "function_call",
        "call_id": "call_4111111111111111",
        "name": "sign_in",
        "arguments": '{"password": "correct horse battery", "mail": "ana@example.com"}',
    }
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": str(SECRET)}
    with (
        server(tmp_path, *UNLIMITED) as served,
        Client(served.address, scope="ana", wait_seconds=60.0) as memory,
    ):
        session = PalimpsestSession(memory, "s1", session_settings={"limit": 2})
        assert session.session_settings == SessionSettings(limit=2)
        assert PalimpsestSession(memory, "s2").session_settings == SessionSettings()
        await session.add_items([{"role": "user", "content": "Sign in."}, call, result])
        assert await session.get_items() == [call, result]
        assert await session.get_items(1) == [result]
        assert await session.get_items(0) == []
        session.session_settings = {"limit": None}
        assert len(await session.get_items()) == 3
        hidden = PalimpsestSession(memory, "s3", redact=True)
        await hidden.add_items([call])
        [kept] = await hidden.get_items()
        assert "correct horse" not in str(kept)


# --- LangChain ----------------------------------------------------------------------------------


async def test_a_retriever_takes_k_with_the_question(memory: Memory) -> None:
    framework("langchain_core")
    from palimpsest.ops.adapters.langchain import PalimpsestRetriever

    memory.add([f"Bees number {n} live on the roof." for n in range(6)])
    retriever = PalimpsestRetriever(memory=memory, k=3, filters={"types": ["episodic"]})
    assert len(retriever.invoke("bees")) == 3
    assert len(retriever.invoke("bees", k=1)) == 1
    assert len(await retriever.ainvoke("bees", k=5)) == 5
    assert retriever.invoke("bees", types=["rule"]) == []
    assert retriever.invoke(" ") == []


# --- LlamaIndex ---------------------------------------------------------------------------------


def llama_memory(memory: BlockingMethods, session: str = "s1", **given: Any) -> Any:
    framework("llama_index.core")
    from palimpsest.ops.adapters.llama_index import PalimpsestMemory

    return PalimpsestMemory.from_defaults(memory=memory, session_id=session, **given)


def said(role: str, content: str, **more: Any) -> Any:
    from llama_index.core.llms import ChatMessage

    return ChatMessage(role=role, content=content, additional_kwargs=more)


def test_a_window_begins_with_a_question(memory: Memory) -> None:
    kept = llama_memory(memory, messages=3)
    kept.put_messages(
        [
            said("user", "first"),
            said("assistant", "", tool_calls=["c1", "c2"]),
            said("tool", "one", tool_call_id="c1"),
            said("tool", "two", tool_call_id="c2"),
            said("assistant", "both"),
        ]
    )
    assert [each.content for each in kept.get()] == ["both"]
    kept.put(said("user", "second"))
    assert [each.content for each in kept.get()] == ["second"]
    kept.put(said("assistant", "yes"))
    assert [each.content for each in kept.get()] == ["second", "yes"]
    assert len(kept.get_all()) == 7


def test_what_from_defaults_is_given_holds(memory: Memory) -> None:
    begun = [said("user", "one two three"), said("assistant", "four five"), said("user", "six")]
    kept = llama_memory(memory, chat_history=begun, token_limit=3, tokenizer_fn=str.split)
    assert [each.content for each in kept.get_all()] == [each.content for each in begun]
    assert [each.content for each in kept.get()] == ["six"]
    assert [each.content for each in kept.get(initial_token_count=2)] == ["six"]
    with pytest.raises(ValueError, match="Initial token count"):
        kept.get(initial_token_count=4)
    kept.put(said("user", "longer than the limit is"))
    assert [each.content for each in kept.get()] == ["longer than the limit is"]
    with pytest.raises(ValueError, match="tokenlimit"):
        llama_memory(memory, tokenlimit=3)
    with pytest.raises(ValueError, match="token_limit"):
        llama_memory(memory, token_limit=0)
    from llama_index.core.llms import MockLLM

    model = MockLLM(max_tokens=10)
    limit = int(model.metadata.context_window * 0.75)
    assert llama_memory(memory, "s2", llm=model).token_limit == limit


def test_a_memory_is_made_from_its_dict(memory: Memory) -> None:
    kept = llama_memory(memory, token_limit=7, budget=100, messages=5)
    kept.put(said("user", "hello"))
    data = kept.to_dict()
    assert data["session_id"] == "s1"
    again = type(kept).from_dict(data, memory=memory)
    assert (again.token_limit, again.budget, again.messages) == (7, 100, 5)
    assert [each.content for each in again.get_all()] == ["hello"]
    with pytest.raises(ValueError, match="memory"):
        type(kept).from_dict(data)
