"""The client when answers are lost, services die and come back, or say nothing."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from palimpsest import AsyncClient, Client, NotDoneError, RequestError, UnavailableError
from palimpsest.ops.library.client import MemoryEvent
from palimpsest.ops.transport.sending import backoff, retry_after
from tests.flows.bad_network import Answer, Behaviour, Lost, Relay, Silence, Unheard
from tests.flows.http_server import Served, server
from tests.flows.program import PATIENCE_S, Program, until
from tests.flows.test_http_program import serving

AWAY = Answer(
    503,
    json.dumps({"code": "unavailable", "status": 503, "detail": "a worker is away"}).encode(),
    {"content-type": "application/problem+json", "retry-after": "0"},
)
BAD_GATEWAY = Answer(502, b"<html>bad gateway</html>", {"content-type": "text/html"})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    many = ("http.modify_per_minute=1000000", "http.batch_forget_per_minute=1000000")
    with server(tmp_path_factory.mktemp("failures"), *many) as running:
        yield running


@pytest.fixture
def relay(served: Served) -> Iterator[Relay]:
    with Relay(served.address) as made:
        yield made


@contextlib.contextmanager
def client_of(relay: Relay, **given: Any) -> Iterator[Client]:
    told = {"scope": "ana", "wait_seconds": 60.0, "attempts": 5, **given}
    with Client(relay.address, **told) as memory:
        yield memory


# --- answers that are lost --------------------------------------------------------------------

TROUBLE: dict[str, list[Behaviour]] = {
    "lost twice": [Lost(), Lost()],
    "away, then lost": [AWAY, Lost(), BAD_GATEWAY],
}


@pytest.mark.parametrize("name", TROUBLE)
def test_what_is_sent_again_is_done_once(relay: Relay, name: str) -> None:
    relay.spares_reads = True
    with client_of(relay, scope=name) as memory:
        relay.script = [*TROUBLE[name]]
        kept = memory.remember("critical: Ring Nora")
        assert (kept.deduped, kept.version) == (False, 1)
        keys = {json.loads(each.body)["key"] for each in relay.seen}
        assert (len(relay.seen), len(keys)) == (len(TROUBLE[name]) + 1, 1)

        relay.script = [*TROUBLE[name]]
        assert memory.correct(kept.id, "Ring Nora twice").version == 2
        relay.script = [*TROUBLE[name]]
        assert memory.add("I drink tea.").memory_ids
        assert memory.stats().turns == 1
        others = [memory.remember(f"note {number}").id for number in range(2)]
        relay.script = [*TROUBLE[name]]
        assert {each.status for each in memory.forget(others, reason="test").changes} == {
            "forgotten"
        }
        relay.script = [*TROUBLE[name]]
        forgotten = memory.forget([kept.id], reason="test", force=True)
        assert [(each.status, each.version) for each in forgotten.changes] == [("forgotten", 3)]
        assert changes(memory, kept.id) == ["created", "updated", "deleted"]
        relay.spares_reads = False
        relay.script = [*TROUBLE[name]]
        assert memory.get(kept.id).is_deleted


def changes(memory: Client, memory_id: str) -> list[str]:
    memory.wait_until_processed()  # the history is written after the change
    told = [event.event for event in memory.history(memory_id).events]
    return [each for each in told if each in ("created", "updated", "deleted")]


def test_of_a_lost_answer_the_retry_gets_the_refusal_of_the_first(relay: Relay) -> None:
    relay.spares_reads = True
    with client_of(relay, scope="refused") as memory:
        kept = memory.remember("critical: Ring Nora")
        for trouble in ([Lost()], [AWAY, Lost()]):
            relay.script = [*trouble]
            with pytest.raises(NotDoneError) as refused:
                memory.forget([kept.id], reason="test")
            assert refused.value.kind == "pinned"
        assert memory.get(kept.id).version == 1


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(False, id="before it answers", marks=pytest.mark.soak),
        pytest.param(True, id="after it answered"),
    ],
)
def test_a_write_goes_on_when_its_server_is_killed_and_started_anew(
    tmp_path: Path, after: bool
) -> None:
    program = Program(tmp_path)
    with contextlib.ExitStack() as undo:
        process, address = undo.enter_context(serving(program))
        relay = undo.enter_context(Relay(address))
        until(lambda: ready(address))
        memory = undo.enter_context(client_of(relay, attempts=1_000, retry_seconds=PATIENCE_S))
        kept = memory.remember("Ana lives in Lisbon")
        died = threading.Event()

        def kill() -> None:
            process.kill()
            process.wait(PATIENCE_S)
            died.set()

        writing = undo.enter_context(ThreadPoolExecutor(1))
        relay.spares_reads = True
        relay.script = [Lost(kill) if after else Unheard(kill)]
        moved: Future[Any] = writing.submit(memory.correct, kept.id, "Ana lives in Porto")
        assert died.wait(PATIENCE_S)
        (program.folder / "output").unlink()
        _, relay.target = undo.enter_context(serving(program))
        change = moved.result(PATIENCE_S)
        assert (change.status, change.version) == ("updated", 2)
        assert changes(memory, kept.id) == ["created", "updated"]


def ready(address: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{address}/ready", trust_env=False, timeout=PATIENCE_S).status_code == 200
    return False


# --- when to give up --------------------------------------------------------------------------

UNANSWERED: dict[str, tuple[Behaviour, type[Exception], str, int]] = {
    "nothing": (Silence(), UnavailableError, "no answer in time", 3),
    "cut": (Lost(), UnavailableError, "cannot be reached", 3),
    "away": (AWAY, UnavailableError, "a worker is away", 3),
    "a gateway": (BAD_GATEWAY, UnavailableError, "answered 502", 3),
    "another page": (Answer(404, b"<html>"), RequestError, "check the base_url", 1),
    "no JSON": (Answer(200, b"{"), RequestError, "no JSON", 1),
    "another JSON": (Answer(200, b"[]"), RequestError, "not one of this service", 1),
    "elsewhere": (
        Answer(302, b"", {"location": "http://127.0.0.1:1/"}),
        RequestError,
        "answered 302",
        1,
    ),
}


@pytest.mark.parametrize("name", UNANSWERED)
def test_a_request_is_sent_so_often_and_then_told(relay: Relay, name: str) -> None:
    behaviour, kind, expected, times = UNANSWERED[name]
    relay.script = [behaviour] * 10
    seconds = 0.2 if name == "nothing" else PATIENCE_S
    given = {"timeout": seconds, "wait_seconds": 0.1, "attempts": 3, "retry_seconds": 600.0}
    for ask in (lambda m: m.stats(), lambda m: m.remember("x"), lambda m: m.recall("secret")):
        relay.seen.clear()
        relay.connections = 0
        with client_of(relay, **given) as memory, pytest.raises(kind, match=expected) as told:
            ask(memory)
        # Of a request that was given up the relay may hear only now. Of one whose time was over
        # when it was connected, as on a busy machine, it hears no more than that.
        until(lambda: relay.connections >= times)
        assert relay.connections == times
        assert len(relay.seen) == times or name == "nothing"
        assert "secret" not in str(told.value)


def test_a_service_that_asks_for_more_time_than_there_is_is_not_waited_for(relay: Relay) -> None:
    for seconds in ("3600", "Wed, 21 Oct 2099 07:28:00 GMT"):
        relay.script = [Answer(AWAY.status, AWAY.body, {**AWAY.headers, "retry-after": seconds})]
        relay.seen.clear()
        with client_of(relay) as memory, pytest.raises(UnavailableError):
            memory.stats()
        assert len(relay.seen) == 1


def test_pauses_grow_differ_and_follow_the_service() -> None:
    for attempt in range(1, 40):
        pauses = {backoff(attempt) for _ in range(20)}
        assert len(pauses) > 1
        assert all(0.05 <= pause <= 5.0 for pause in pauses)
    assert min(backoff(7) for _ in range(20)) > max(backoff(2) for _ in range(20))
    for told, seconds in (("7", 7), ("", 0), ("soon", 0), ("-1", 0), ("Thu, 01 Jan 1970", 0)):
        assert retry_after(httpx.Headers({"Retry-After": told})) == seconds
    assert retry_after(httpx.Headers({"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"})) > 1e8


def test_nobody_is_there(free_port: int) -> None:
    memory = Client(f"http://127.0.0.1:{free_port}", attempts=2)
    with pytest.raises(UnavailableError, match=r"cannot be reached.*is `palimpsest serve` running"):
        memory.stats()
    memory.close()


@pytest.fixture
def free_port() -> Iterator[int]:
    """Nobody listens there, and no other process can take it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


# --- following --------------------------------------------------------------------------------


@pytest.mark.soak
def test_events_are_followed_over_a_restart_of_the_service(tmp_path: Path) -> None:
    """Without a gap, and none twice: also what happened while nobody could be reached."""
    program = Program(tmp_path)
    with contextlib.ExitStack() as undo:
        first = undo.enter_context(contextlib.ExitStack())
        _, address = first.enter_context(serving(program))
        until(lambda: ready(address))
        memory = undo.enter_context(
            Client(address, scope="ana", wait_seconds=60.0, attempts=1_000, retry_seconds=60.0)
        )
        told: list[MemoryEvent] = []
        follower = threading.Thread(target=follow, args=(memory, told))
        follower.start()
        probes = [memory.remember("Ana is here").id]
        while not told:  # it begins when it is connected
            probes.append(memory.remember(f"Ana is here {len(probes)}").id)
        until(lambda: told[-1].memory_id == probes[-1])
        before = len(told)
        kept = [memory.remember("Ana bakes")]
        memory.remember("nobody else's", scope="ben")
        until(lambda: len(told) == before + 1)
        first.close()
        (program.folder / "output").unlink()
        undo.enter_context(serving(program, "--port", str(httpx.URL(address).port)))
        kept += [memory.remember(f"Ana bakes {number}") for number in range(3)]
        memory.forget([kept[0].id], reason="test")
        until(lambda: told[-1].kind == "forgotten")
        new = told[before:]
        assert [each.memory_id for each in new] == [*(each.id for each in kept), kept[0].id]
        assert [each.kind for each in new] == [*["created"] * 4, "forgotten"]
        again = itertools.islice(memory.events(after=new[1].position), 3)
        assert [*again] == new[2:]
        memory.close()
        follower.join(PATIENCE_S)
        assert not follower.is_alive()


def follow(memory: Client, told: list[MemoryEvent]) -> None:
    with contextlib.suppress(RequestError):  # the memory is closed
        for happening in memory.events():
            told.append(happening)


async def test_a_stream_that_ends_goes_on_where_it_began_or_was(relay: Relay) -> None:
    data = {"event": "created", "memory_id": "m", "content": "c", "changed_by": "x"}
    data |= {"actor_type": "human", "reason": "", "session_id": "", "at": "2026-03-01T10:00:00Z"}
    event = f": follows\n\nid: 9\nevent: created\ndata: {json.dumps(data)}\n\n"
    kind = {"content-type": "text/event-stream"}
    cut = event.replace("id: 9", "id: 12").encode()[:-2]  # an event that did not come whole
    relay.script = [
        Answer(200, b": follows\nid: 7\n\n: nothing happened\n\n", kind),
        Answer(200, event.encode(), kind),
        Answer(200, cut, kind),
        AWAY,
        Answer(200, event.replace("id: 9", "id: 12").encode(), kind),
    ]
    async with AsyncClient(relay.address, scope="ana") as memory:
        stream = memory.events()
        assert [(await anext(stream)).position for _ in range(2)] == ["9", "12"]
        await stream.aclose()
    asked = [each.headers.get("last-event-id") for each in relay.seen]
    assert asked == [None, "7", "9", "9", "9"]


async def test_whoever_stops_waiting_for_an_event_waits_no_more(served: Served) -> None:
    async with AsyncClient(served.address, scope="nothing happens", wait_seconds=60.0) as memory:
        waiting = asyncio.ensure_future(anext(memory.events()))
        assert (await memory.stats()).turns == 0
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await memory.stats()).turns == 0


async def test_following_what_is_anothers_is_refused(served: Served) -> None:
    with pytest.raises(RequestError, match="scope: must not be blank"):
        AsyncClient(served.address, scope=" ")
    async with AsyncClient(served.address) as memory:
        with pytest.raises(RequestError, match="scope"):
            await anext(memory.events(scope=" "))
        with pytest.raises(RequestError, match="there was no event 999999"):
            await anext(memory.events(after="999999", scope="ana"))
