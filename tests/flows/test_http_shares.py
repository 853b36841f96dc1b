"""What one token may have open at once, and that its end is the end of what it has open."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import httpx
import pytest

from palimpsest.ops.http.tokens import Tokens
from tests.flows.http_server import Served, problem, server
from tests.flows.program import until

FLAGS = ("http.streams_per_token=2", "http.requests_per_token=4", "http.sql_seconds=3")
ENDLESS = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"


@pytest.fixture
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with server(tmp_path_factory.mktemp("shares"), *FLAGS) as running:
        running.token("root", "*")
        yield running


def stream(undo: contextlib.ExitStack, client: httpx.Client) -> httpx.Response:
    answer: httpx.Response = undo.enter_context(client.stream("GET", "/api/events?scope=ana"))
    return answer


def test_event_streams_of_a_token_are_few_and_others_have_their_own(running: Served) -> None:
    one, other = (running.token(name, "ana") for name in ("one", "other"))
    with contextlib.ExitStack() as undo:
        mine = undo.enter_context(running.client(one))
        open_ones = [stream(undo, mine) for _ in range(2)]
        lines = [each.iter_lines() for each in open_ones]
        assert [next(each) for each in lines] == [": follows"] * 2
        refused = mine.get("/api/events?scope=ana")
        problem(refused, 503, "unavailable")
        problem(mine.get("/api/scopes/ana/export"), 503, "unavailable")
        with running.client(other) as client:
            assert stream(undo, client).status_code == 200
        open_ones[0].close()
        until(lambda: mine.get("/api/scopes/ana/export").status_code != 503)


def test_requests_of_a_token_at_once_are_bounded(running: Served) -> None:
    busy, other = (running.token(name, "ana") for name in ("busy", "other"))
    with contextlib.ExitStack() as undo:
        for _ in range(4):
            connection = undo.enter_context(running.connected())
            # The body is on its way for as long as the test likes.
            connection.sendall(
                b"POST /api/turns HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
                b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{" % busy.encode()
            )
        mine = undo.enter_context(running.client(busy))
        until(lambda: mine.get("/api/memories?scope=ana").status_code == 429)
        with running.client(other) as client:
            assert client.get("/api/memories?scope=ana").status_code == 200


def test_the_queries_of_a_token_leave_a_place_to_others(running: Served) -> None:
    greedy, other = (running.token(name, "*", may=["sql"]) for name in ("greedy", "other"))
    with (
        ThreadPoolExecutor(4) as pool,
        running.client(greedy) as mine,
        running.client(other) as client,
    ):
        asking = [pool.submit(mine.post, "/api/sql", json={"query": ENDLESS}) for _ in range(4)]
        first = client.post("/api/sql", json={"query": "SELECT 1"})
        assert not all(each.done() for each in asking)
        answers = [first, *(client.post("/api/sql", json={"query": "SELECT 1"}) for _ in range(3))]
        assert [answer.status_code for answer in answers] == [200] * 4, answers[0].text
        assert {each.result().status_code for each in asking} == {422, 503}


def test_a_token_that_sends_more_than_is_processed_is_refused_alone(running: Served) -> None:
    busy, other = (running.token(name, "ana") for name in ("busy", "other"))
    numbers = itertools.count()
    with running.client(busy) as mine, running.client(other) as client:

        def sent(by: httpx.Client) -> httpx.Response:
            turn = {"turn_id": f"t{next(numbers)}", "content": "I like tea. " * 25_000}
            return by.post("/api/turns", json=turn)

        def is_refused() -> bool:
            answer = sent(mine)
            return answer.status_code == 429

        until(is_refused)
        assert sent(client).status_code == 202
        said = {"content": "I like coffee."}
        until(lambda: mine.post("/api/memory/remember", json=said).status_code == 200)


def test_a_stream_ends_with_its_token(running: Served) -> None:
    secret = running.token("gone", "ana")
    with (
        running.client(secret) as client,
        client.stream("GET", "/api/events?scope=ana") as open_one,
    ):
        lines = open_one.iter_lines()
        assert next(lines) == ": follows"
        Tokens(running.folder).revoke("gone")
        with contextlib.suppress(httpx.RemoteProtocolError):
            list(lines)
    with running.client(secret) as client:
        problem(client.get("/api/memories?scope=ana"), 401, "unauthorized")


def test_a_token_ends_at_its_time_and_what_it_has_open_too(
    running: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    made = Tokens(running.folder).create(
        "short", ["ana"], ["recall"], "human", now, now + timedelta(hours=1)
    )
    with running.client(made[1]) as client:
        with client.stream("GET", "/api/events?scope=ana") as open_one:
            assert open_one.status_code == 200
            hour_later = SimpleNamespace(now=lambda zone: now + timedelta(hours=1))
            monkeypatch.setattr("palimpsest.ops.http.tokens.datetime", hour_later)
            with contextlib.suppress(httpx.RemoteProtocolError):
                list(open_one.iter_lines())
        problem(client.get("/api/memories?scope=ana"), 401, "unauthorized")


def test_mcp_gives_no_stream_that_stays_open(running: Served) -> None:
    pytest.importorskip("mcp")
    with running.client(running.token("agent", "ana")) as client:
        answer = client.get("/mcp", headers={"Accept": "text/event-stream"})
        problem(answer, 405, "method_not_allowed")
