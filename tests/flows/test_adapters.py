"""Each adapter in its framework's own use: the real packages, models that say what they are told.

The packages are the dependency group `frameworks`; without one its tests are skipped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, TypedDict

import pytest

from palimpsest import Client, Memory
from palimpsest.ops.adapters.history import History, Message
from palimpsest.ops.library.memory_methods import BlockingMethods
from palimpsest.ops.operations.operation import Operation
from tests.flows.http_server import server

UNLIMITED = [f"http.{kind}_per_minute=1000000" for kind in ("modify", "delete", "batch_forget")]
SETTINGS = {"embedding.provider": "hashing"}


def opened(folder: Path) -> Memory:
    return Memory(folder, scope="ana", settings=SETTINGS, wait_seconds=60.0)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[BlockingMethods]:
    with opened(tmp_path) as made:
        yield made


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[BlockingMethods]:
    """One that a service has."""
    with (
        server(tmp_path, *UNLIMITED) as served,
        Client(served.address, scope="ana", wait_seconds=60.0) as client,
    ):
        yield client


def framework(name: str) -> Any:
    return pytest.importorskip(name, reason="pip install --group frameworks")


# --- the conversation that all histories are --------------------------------------------------


async def test_a_history_keeps_order_and_whole_messages(remote: BlockingMethods) -> None:
    history = History(remote, "s1")
    other = History(remote, "s2")
    for number in range(0, 30, 3):
        await history.append(
            Message("user", f"text {n}", {"n": n, "spaces": "a  b\n"})
            for n in range(number, number + 3)
        )
        await other.append([Message("user", "foreign", {"n": -1})])
    await remote.aio.add("Not a message of a framework.", session_id="s1")
    assert [each["n"] for each in await history.messages()] == [*range(30)]  # type: ignore[index]
    assert [each["n"] for each in await history.messages(4)] == [26, 27, 28, 29]  # type: ignore[index]
    assert await history.pop() == {"n": 29, "spaces": "a  b\n"}
    await history.append([Message("user", "", {"n": 99}), Message("tool", "x", {"n": 100})])
    assert [each["n"] for each in await history.messages(3)] == [28, 99, 100]  # type: ignore[index]
    await history.clear()
    assert await history.messages() == []
    assert await history.pop() is None
    assert len(await other.messages()) == 10
    with pytest.raises(ValueError, match="the session is empty"):
        History(remote, " ")


# --- LangGraph --------------------------------------------------------------------------------


def test_a_graph_remembers_across_threads(tmp_path: Path) -> None:
    """What one thread puts, another finds by meaning, also after a restart of the program."""
    framework("langgraph")
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.runtime import Runtime

    from palimpsest.ops.adapters.langgraph import PalimpsestStore

    class State(TypedDict):
        said: str
        known: list[str]

    class Context(TypedDict):
        user: str

    def answer(state: State, runtime: Runtime[Context]) -> dict[str, Any]:
        assert runtime.store is not None
        space = (runtime.context["user"], "memories")
        found = runtime.store.search(space, query=state["said"], limit=1)
        runtime.store.put(space, f"k{abs(hash(state['said']))}", {"text": state["said"]})
        return {"known": [item.value["text"] for item in found]}

    def graph(memory: BlockingMethods) -> Any:
        builder = StateGraph(State, context_schema=Context)
        builder.add_node("answer", answer)
        builder.add_edge(START, "answer")
        builder.add_edge("answer", END)
        return builder.compile(checkpointer=InMemorySaver(), store=PalimpsestStore(memory))

    def say(made: Any, thread: str, user: str, text: str) -> list[str]:
        state = made.invoke(
            {"said": text, "known": []},
            {"configurable": {"thread_id": thread}},
            context={"user": user},
        )
        known: list[str] = state["known"]
        return known

    with opened(tmp_path) as memory:
        made = graph(memory)
        assert say(made, "1", "u1", "Ana works at a bakery in Lisbon") == []
        assert say(made, "1", "u1", "Ben plays the trombone") != ["Ben plays the trombone"]
        assert say(made, "2", "u2", "what is there in Lisbon?") == []  # another user's
    with opened(tmp_path) as memory:
        known = say(graph(memory), "3", "u1", "which bakery in Lisbon?")
        assert known == ["Ana works at a bakery in Lisbon"]


@pytest.fixture
async def store(memory: BlockingMethods) -> AsyncIterator[Any]:
    return store_of(memory)


def store_of(memory: BlockingMethods) -> Any:
    framework("langgraph")
    from palimpsest.ops.adapters.langgraph import PalimpsestStore

    return PalimpsestStore(memory)


async def test_an_item_is_put_replaced_and_deleted(remote: BlockingMethods) -> None:
    store = store_of(remote)
    space = ("users", "ü/1")
    first = {"text": "likes  two\nspaces", "n": 1, "tags": ["a"], "none": None}
    await store.aput(space, "k 1", first)
    kept = await store.aget(space, "k 1")
    assert (kept.value, kept.key, kept.namespace) == (first, "k 1", space)
    await store.aput(space, "k 1", first)  # nothing new
    assert (await store.aget(space, "k 1")).updated_at == kept.updated_at
    for value in ({**first, "n": 2}, {"text": "likes tea"}, {}):
        await store.aput(space, "k 1", value)
        assert (await store.aget(space, "k 1")).value == value
    await store.aput(space, "k2", first)  # the same text under another key
    await store.aput(("users", "2"), "k 1", first)  # and in another namespace
    assert (await store.aget(space, "k 1")).value == {}
    await store.adelete(space, "k2")
    await store.adelete(space, "missing")
    assert await store.aget(space, "k2") is None
    assert (await store.aget(("users", "2"), "k 1")).value == first
    assert await store.aget(("users",), "k 1") is None


async def test_items_are_searched_by_words_filters_and_pages(store: Any) -> None:
    for number in range(6):
        await store.aput(
            ("a", str(number % 2)), f"k{number}", {"text": f"bee {number}", "n": number}
        )
    await store.aput(("b",), "k", {"text": "bee elsewhere", "n": 0})
    assert len(await store.asearch(("a",))) == 6
    assert [item.key for item in await store.asearch(("a", "1"))] == ["k5", "k3", "k1"]
    assert [item.key for item in await store.asearch((), limit=2, offset=1)] == ["k5", "k4"]
    big = await store.asearch(("a",), filter={"n": {"$gte": 3, "$ne": 4}})
    assert {item.key for item in big} == {"k3", "k5"}
    assert [item.key for item in await store.asearch(("a",), filter={"n": 2})] == ["k2"]
    assert await store.asearch(("a",), filter={"n": {"$gt": "text"}}) == []
    found = await store.asearch(("a",), query="bee 4", limit=1)
    assert [(item.key, item.score > 0) for item in found] == [("k4", True)]
    assert {item.key for item in await store.asearch(("a",), query="bee", filter={"n": 5})} == {
        "k5"
    }
    with pytest.raises(ValueError, match=r"there is no \$near"):
        await store.asearch(("a",), filter={"n": {"$near": 2}})


async def test_a_filtered_search_asks_as_often_for_many_items_as_for_few(
    memory: BlockingMethods, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Operation[Any]] = []
    transport = memory.aio.transport
    execute = transport.execute

    async def counted(operation: Operation[Any], seconds: float) -> Any:
        asked.append(operation)
        return await execute(operation, seconds)

    monkeypatch.setattr(transport, "execute", counted)
    counts = set()
    for number in range(12):
        await store.aput(("a",), f"k{number}", {"text": f"bee {number}", "n": number})
        if number in (1, 11):
            asked.clear()
            found = await store.asearch(("a",), query="bee", filter={"n": {"$lt": 2}})
            assert {item.key for item in found} == {"k0", "k1"}
            counts.add(len(asked))
    assert counts == {4}  # namespaces, the recall, its rows; the others, for they are too few


async def test_what_is_not_indexed_is_not_found_by_it(store: Any) -> None:
    await store.aput(("a",), "k1", {"text": "zebra", "note": "walrus"}, index=["text"])
    await store.aput(("a",), "k2", {"text": "walrus"}, index=False)
    await store.aput(("a",), "k3", {"text": "walrus"})
    zebras = await store.asearch(("a",), query="zebra")
    assert zebras[0].key == "k1"
    found = await store.asearch(("a",), query="walrus")
    assert found[0].key == "k3"
    assert [(item.key, item.score) for item in found][-1] == ("k2", None)


async def test_namespaces_are_listed(store: Any) -> None:
    for space in (("a", "b", "c"), ("a", "b", "d"), ("x", "b"), ("gone",)):
        await store.aput(space, "k", {"text": "/".join(space)})
    await store.adelete(("gone",), "k")
    assert await store.alist_namespaces() == [("a", "b", "c"), ("a", "b", "d"), ("x", "b")]
    assert await store.alist_namespaces(prefix=("a",), max_depth=2) == [("a", "b")]
    assert await store.alist_namespaces(suffix=("b",)) == [("x", "b")]
    assert await store.alist_namespaces(prefix=("*", "b"), limit=1, offset=1) == [("a", "b", "d")]


async def test_reads_of_a_batch_come_before_its_writes(store: Any) -> None:
    from langgraph.store.base import GetOp, PutOp

    space = ("a",)
    got = await store.abatch(
        [PutOp(space, "k", {"n": 1}), GetOp(space, "k"), PutOp(space, "k", {"n": 2})]
    )
    assert got == [None, None, None]
    assert (await store.aget(space, "k")).value == {"n": 2}


# --- LangChain --------------------------------------------------------------------------------


async def test_a_retriever_gives_documents_to_a_chain(memory: BlockingMethods) -> None:
    framework("langchain_core")
    from langchain_core.runnables import RunnableLambda

    from palimpsest.ops.adapters.langchain import PalimpsestRetriever

    memory.add(["I live in Lisbon.", "I drink tea."], speaker="Ana", session_id="s1")
    retriever = PalimpsestRetriever(memory=memory, k=1, filters={"types": ["episodic"]})
    chain = retriever | RunnableLambda(lambda found: [each.page_content for each in found])
    assert chain.invoke("where is Lisbon?") == ["I live in Lisbon."]
    assert await chain.ainvoke("who drinks tea?") == ["I drink tea."]
    [document] = retriever.invoke("tea")
    assert (document.metadata["who"], document.metadata["session_id"]) == ("Ana", "s1")
    assert memory.get(str(document.id)).content == document.page_content


@pytest.mark.filterwarnings("ignore:RunnableWithMessageHistory")
async def test_a_chat_goes_on_where_it_was(tmp_path: Path) -> None:
    framework("langchain_core")
    from langchain_core.language_models.fake_chat_models import FakeListChatModel
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_core.runnables.history import RunnableWithMessageHistory

    from palimpsest.ops.adapters.langchain import PalimpsestChatHistory

    def chat(memory: BlockingMethods, answer: str) -> Any:
        return RunnableWithMessageHistory(
            FakeListChatModel(responses=[answer]),
            lambda session: PalimpsestChatHistory(memory, session),
        )

    config = {"configurable": {"session_id": "s1"}}
    with opened(tmp_path) as memory:
        chat(memory, "Hello Ana").invoke([HumanMessage("I live in Lisbon.")], config)
    with opened(tmp_path) as memory:
        await chat(memory, "In Lisbon").ainvoke([HumanMessage("Where do I live?")], config)
        history = PalimpsestChatHistory(memory, "s1")
        contents = [each.content for each in history.messages]
        assert contents == ["I live in Lisbon.", "Hello Ana", "Where do I live?", "In Lisbon"]
        asked = AIMessage("", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "c1"}])
        history.add_messages([asked, ToolMessage("2", tool_call_id="c1")])
        newest: list[Any] = (await history.aget_messages())[-2:]
        assert newest[0].tool_calls[0]["args"] == {"x": 1}
        assert newest[1].tool_call_id == "c1"
        assert memory.recall("Lisbon").results
        history.clear()
        assert history.messages == []


# --- OpenAI Agents ----------------------------------------------------------------------------


async def test_an_agents_session_goes_on_after_a_restart(tmp_path: Path) -> None:
    agents = framework("agents")
    from openai.types.responses import ResponseOutputMessage, ResponseOutputText

    from palimpsest.ops.adapters.openai_agents import PalimpsestSession

    agents.set_tracing_disabled(True)
    seen: list[Any] = []

    class Told(agents.Model):  # type: ignore[misc, name-defined]
        async def get_response(self, *args: Any, **kwargs: Any) -> Any:
            seen.append(args[1] if len(args) > 1 else kwargs["input"])
            text = ResponseOutputText(
                text=f"answer {len(seen)}", type="output_text", annotations=[]
            )
            message = ResponseOutputMessage(
                id="m", content=[text], role="assistant", status="completed", type="message"
            )
            return agents.ModelResponse(output=[message], usage=agents.Usage(), response_id=None)

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    agent = agents.Agent(name="helper", model=Told())
    with opened(tmp_path) as memory:
        session = PalimpsestSession(memory, "support-7")
        assert isinstance(session, agents.Session)
        await agents.Runner.run(agent, "I live in Lisbon.", session=session)
    with opened(tmp_path) as memory:
        session = PalimpsestSession(memory, "support-7")
        await agents.Runner.run(agent, "Where do I live?", session=session)
        texts = [each.get("content") for each in seen[-1]]
        assert texts[0] == "I live in Lisbon."
        assert "answer 1" in str(texts[1])
        assert texts[2] == "Where do I live?"
        items = await session.get_items()
        assert len(items) == 4
        assert await session.get_items(1) == items[-1:]
        assert await session.pop_item() == items[-1]
        assert await session.get_items() == items[:-1]
        assert memory.recall("Lisbon").results
        await session.add_items(
            [{"type": "function_call", "name": "f", "call_id": "c", "arguments": "{}"}]
        )
        assert (await session.get_items())[-1]["call_id"] == "c"
        await session.clear_session()
        assert await session.get_items() == []


# --- LlamaIndex -------------------------------------------------------------------------------


async def test_a_chat_engine_remembers(tmp_path: Path) -> None:
    framework("llama_index.core")
    from llama_index.core.chat_engine import SimpleChatEngine
    from llama_index.core.llms import ChatMessage, MockLLM

    from palimpsest.ops.adapters.llama_index import PalimpsestMemory

    def engine(memory: BlockingMethods, session: str) -> Any:
        kept = PalimpsestMemory.from_defaults(memory=memory, session_id=session)
        return SimpleChatEngine.from_defaults(llm=MockLLM(), memory=kept)

    with opened(tmp_path) as memory:
        engine(memory, "s1").chat("I live in Lisbon.")
        memory.wait_until_processed()
    with opened(tmp_path) as memory:
        await engine(memory, "s2").achat("Where does user live?")
        kept = PalimpsestMemory.from_defaults(memory=memory, session_id="s1")
        assert next(each.content for each in kept.get_all()) == "I live in Lisbon."
        other = PalimpsestMemory.from_defaults(memory=memory, session_id="s3")
        known = other.get("what is in Lisbon?")
        assert "Lisbon" in str(known[0].content)
        assert known[0].role.value == "system"
        assert other.get() == []
        kept.set([ChatMessage(role="user", content="new")])
        await kept.aput(ChatMessage(role="assistant", content="yes"))
        assert [each.content for each in await kept.aget_all()] == ["new", "yes"]
        kept.reset()
        assert kept.get_all() == []
