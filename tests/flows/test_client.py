"""The client of the service: the library's methods over HTTP, against a real one on a real port."""

from __future__ import annotations

import asyncio
import doctest
import inspect
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from palimpsest import (
    AsyncClient,
    Client,
    ForbiddenError,
    NotDoneError,
    NotFoundError,
    NotYetAppliedError,
    RateLimitedError,
    RequestError,
    UnauthorizedError,
)
from palimpsest.ops.errors import SqlRefusedError
from tests.flows.http_server import Served, server
from tests.flows.program import until

NOBODY = "00000000-0000-5000-8000-000000000000"
MANY = tuple(f"http.{kind}_per_minute=1000000" for kind in ("modify", "delete", "batch_forget"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with server(tmp_path_factory.mktemp("served"), *MANY) as running:
        yield running


@pytest.fixture
def memory(served: Served) -> Iterator[Client]:
    with client_of(served, attempts=1_000, retry_seconds=60.0) as made:
        yield made


def client_of(served: Served, **given: Any) -> Client:
    return Client(served.address, **{"scope": "ana", "wait_seconds": 60.0, **given})


# --- the same as the embedded library ---------------------------------------------------------


def test_the_example_runs(served: Served) -> None:
    """That of the class; those of the methods are the library's."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    names = {"base_url": served.address}
    parser = doctest.DocTestParser()
    runner.run(parser.get_doctest(inspect.getdoc(Client) or "", names, "Client", None, 0))
    assert runner.tries > 1
    assert runner.summarize(verbose=False).failed == 0


def test_a_client_imports_neither_service_nor_stores() -> None:
    code = (
        "import sys; from palimpsest import Client; memory = Client();"
        "print([each for each in ('fastapi', 'starlette', 'uvicorn', 'duckdb', 'lancedb', 'numpy',"
        " 'pyarrow', 'pydantic_settings') if each in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# --- what is asked and told -------------------------------------------------------------------


def test_all_filters_reach_the_service(memory: Client) -> None:
    scope = "filters"
    kept = memory.remember(
        "Ana sails on Sundays",
        type="preference",
        importance=0.9,
        tags=["sea", "week"],
        pinned=True,
        who="Ana",
        project="boat",
        session_id="s/1",
        source_type="diary",
        source_id="page 7",
        metadata={"line": 3},
        scope=scope,
    )
    memory.remember("Ben sails too", scope=scope)
    now = datetime.now(UTC)
    found = memory.recall(
        "sails",
        limit=5,
        types=["preference"],
        tags=["sea"],
        all_tags=["sea", "week"],
        who="ana",
        pinned=True,
        min_importance=0.9,
        project="boat",
        session_id="s/1",
        since=now - timedelta(hours=1),
        until=now + timedelta(hours=1),
        as_of=now + timedelta(hours=1),
        group=False,
        explain=True,
        neighbours=1,
        rerank=False,
        scope=scope,
    )
    [result] = found.results
    assert (result.id, result.explanation is not None) == (kept.id, True)
    for without in ({"tags": ["land"]}, {"categories": ["none"]}, {"session_id": "s"}):
        assert memory.recall("sails", types=["preference"], scope=scope, **without).results == ()
    stored = memory.get(kept.id, scope=scope)
    assert (stored.source_type, stored.metadata) == ("diary", {"line": 3})


def test_any_text_is_a_scope_a_session_and_a_name(memory: Client) -> None:
    for scope in ("Ünïcode/日本", "a b?c=d&e#%2F", ".."):
        added = memory.add("Nora lives in Zürich.", speaker="Ana", session_id="a/b", scope=scope)
        [turn] = added.memory_ids
        assert memory.get(turn, scope=scope).session_id == "a/b"
        memory.wait_until_processed()
        assert scope in {each.scope for each in memory.scopes().scopes}
        assert memory.stats(scope=scope).turns == 1
    for name, other in (("TCP/IP", "the protocol"), ("a/../b", "dots"), ("Zoë/é", "Zoe #1?")):
        assert memory.alias(name, other, scope="names").status == "added"
        assert memory.get_entity(name, scope="names").name == name
        assert memory.get_entity(other, scope="names").name == name
        with pytest.raises(NotFoundError, match="nothing called"):
            memory.get_entity(f"{name}/aliases", scope="names")
    for dots in (".", "..", "../.."):
        with pytest.raises(RequestError, match=r"no letter|nothing called"):
            memory.get_entity(dots, scope="names")


def test_an_answer_may_be_huge(memory: Client) -> None:
    table = memory.sql("SELECT i, repeat('x', 40) AS text FROM range(500000) AS t(i)")
    assert (table.num_rows, table.nbytes > 20_000_000) == (500_000, True)


def test_turns_of_many_bodies_are_added_in_order(memory: Client) -> None:
    turns = [{"content": f"verse {number}: {'la ' * 1_300}"} for number in range(200)]
    added = memory.add(turns, scope="bodies")
    assert len(set(added.memory_ids)) == 200
    page = memory.list(types=["episodic"], limit=1_000, scope="bodies")
    assert [each.id for each in page.memories[::-1]] == [*added.memory_ids]
    again = {"turn_id": "t1", "content": "I sail.", "occurred_at": "2026-03-01T09:00:00Z"}
    assert memory.add(again, scope="again") == memory.add(again, scope="again")
    memory.add({**again, "content": "I ski."}, scope="again")  # a dead letter; must not hang
    with pytest.raises(RequestError, match="content: must not be blank"):
        memory.add({"content": " "}, scope="again")
    assert memory.stats(scope="again").turns == 1
    assert memory.add([]).memory_ids == ()


BAD: dict[str, tuple[Callable[[Client], object], type[Exception], str]] = {
    "turn": (lambda m: m.add([{"content": "ok"}, {"content": 5}]), RequestError, "turn 1: content"),
    "large": (lambda m: m.add("x" * 3_000_000), RequestError, "bytes"),
    "question": (lambda m: m.recall(" "), RequestError, "query: must not be blank"),
    "filter": (lambda m: m.recall("x", colour="red"), RequestError, "colour: there is no such"),
    "no id": (lambda m: m.get("../health"), NotFoundError, "whole ids"),
    "nobody": (lambda m: m.get(NOBODY), NotFoundError, "there is no memory"),
    "sql": (lambda m: m.sql("DROP TABLE memory_rows"), SqlRefusedError, "SELECT"),
    "name": (lambda m: m.get_entity("Nobody"), NotFoundError, "nothing called Nobody"),
    "surrogate": (lambda m: m.remember("\ud83d"), RequestError, "half a surrogate pair"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_told_as_by_the_library(memory: Client, name: str) -> None:
    ask, kind, expected = BAD[name]
    with pytest.raises(kind, match=expected):
        ask(memory)


def test_what_takes_too_long_is_told_and_found_later(served: Served) -> None:
    with client_of(served, scope="late", wait_seconds=0.0) as memory:
        with pytest.raises(NotYetAppliedError, match="durable") as late:
            memory.remember("Ana bakes")
        memory.wait_until_processed()
        assert late.value.command_id is not None
        state = memory.command_result(late.value.command_id)
        assert state is not None
        assert (state.applied, state.command) == (True, "remember")
        assert memory.command_result(late.value.command_id, scope="another") is None
        assert memory.command_result(NOBODY) is None
        assert memory.list().memories[0].content == "Ana bakes"


# --- at once ----------------------------------------------------------------------------------


async def test_tasks_and_threads_share_a_client(served: Served) -> None:
    texts = [f"note {number} of many" for number in range(12)]
    async with AsyncClient(served.address, scope="tasks", wait_seconds=60.0) as memory:
        changes = await asyncio.gather(*(memory.remember(text) for text in texts))
        assert len({each.id for each in changes}) == 12
        found = await asyncio.gather(*(memory.get(each.id) for each in changes))
        assert [each.content for each in found] == texts
    blocking = client_of(served, scope="threads")
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for count in range(3):
                kept = blocking.remember(f"thread {number} said {count}")
                assert blocking.get(kept.id).content == f"thread {number} said {count}"
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert failures == []
    blocking.close()
    kept = blocking.sql("SELECT content FROM memories WHERE scope = 'threads'")  # opened anew
    assert {f"thread {number} said 2" for number in range(4)} <= {*kept["content"].to_pylist()}
    blocking.close()


def test_a_client_is_used_in_one_event_loop_after_the_other(served: Served) -> None:
    memory = AsyncClient(served.address, scope="loops", wait_seconds=60.0)
    kept = asyncio.run(memory.remember("It is the same one"))
    assert asyncio.run(memory.get(kept.id)).content == "It is the same one"
    asyncio.run(memory.close())


# --- who may ----------------------------------------------------------------------------------


def test_a_token_is_sent_and_a_wrong_one_is_told(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = ("http.modify_per_minute=1", "http.batch_forget_per_minute=1")
    with server(tmp_path_factory.mktemp("tokens"), *rates) as served:
        token = served.token("ana", "ana")
        with client_of(served) as memory, pytest.raises(UnauthorizedError, match="send a token"):
            memory.stats()
        with client_of(served, token="palimpsest_wrong") as memory:
            with pytest.raises(UnauthorizedError) as refused:
                memory.remember("a secret")
            assert "palimpsest_wrong" not in str(refused.value)
        monkeypatch.setenv("PALIMPSEST_TOKEN", token)
        with client_of(served, attempts=1) as memory:
            kept = memory.remember("critical: Ana is here")
            until(lambda: memory.history(kept.id))
            assert memory.history(kept.id).events[0].changed_by == "ana"
            with pytest.raises(NotFoundError, match="scope"):
                memory.remember("not mine", scope="ben")
            with pytest.raises(ForbiddenError, match="all scopes"):
                memory.sql("SELECT 1")
            memory.modify(kept.id, importance=0.5, reason="test")
            with pytest.raises(RateLimitedError) as limited:
                memory.modify(kept.id, importance=0.6, reason="test")
            assert 1 <= limited.value.retry_after <= 60
        with client_of(served, machine=True) as agent, pytest.raises(NotDoneError) as forbidden:
            agent.forget([kept.id], reason="tidy", force=True)
        assert forbidden.value.kind == "forbidden"
        monkeypatch.setenv("PALIMPSEST_TOKEN", served.token("writer", "ana", may=["remember"]))
        with client_of(served) as memory:
            assert len(memory.add(["I sail.", "I ski."]).memory_ids) == 2  # and cannot look
            with pytest.raises(ForbiddenError, match="recall"):
                memory.recall("sail")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"base_url": "localhost:7245"}, "not a valid URL"),
        ({"base_url": "http://"}, "not a valid URL"),
        ({"base_url": "http://127.0.0.1:99999"}, "not a valid URL"),
        ({"base_url": "http://x:port"}, "base_url"),
        ({"token": ""}, "token"),
        ({"token": "a\nb"}, "token"),
        ({"token": "häuser"}, "token"),
    ],
)
def test_what_a_client_cannot_be_made_with(given: dict[str, str], expected: str) -> None:
    with pytest.raises(RequestError, match=expected) as refused:
        Client(**given)  # type: ignore[arg-type]
    assert "häuser" not in str(refused.value)
