"""A new operation is one definition: library, client, HTTP, the command line and agents have it
by its name."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
import typer
from typer.testing import CliRunner

from palimpsest import (
    AsyncClient,
    AsyncMemory,
    Client,
    ForbiddenError,
    Memory,
    NotFoundError,
    RequestError,
    UnauthorizedError,
)
from palimpsest.ops.library import memory_methods
from palimpsest.ops.library.memory_methods import MemoryMethods, offer
from palimpsest.ops.operations import shared
from palimpsest.ops.operations.operation import Answer, Doc, Json, Read, Surface, Write, parameters
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.server.application import document
from palimpsest.ops.surfaces.catalogue import OPERATIONS
from palimpsest.ops.surfaces.command_line import register
from palimpsest.schemas import commands
from tests.flows.http_server import Served, problem, server


class Echoed(Answer):
    """A text, as often as was asked for."""

    scope: str
    text: str


class Echo(Read[Echoed]):
    """Return a text as it is."""

    text: Annotated[str, Doc("the text", min_length=1, argument=True)]
    scope: shared.Scope = ""
    times: Annotated[int, Doc("how often", ge=1, le=3)] = 1

    surface: ClassVar = Surface(("POST", "/api/echo"), command="echo", tool="echo_text")

    def read(self, sources: Sources) -> Json:
        return {"scope": self.scope, "text": self.text * self.times}


@pytest.fixture(autouse=True)
def offered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(OPERATIONS, Echo.slug, Echo)
    offer(MemoryMethods, OPERATIONS)
    yield
    del MemoryMethods.echo  # type: ignore[attr-defined]


def opened(folder: Path) -> Any:
    return Memory(folder, scope="ana", settings={"embedding.provider": "hashing"})


def test_the_library_has_it(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        assert memory.echo("ab", times=2) == Echoed("ana", "abab")
        assert memory.echo("ab", "ben") == Echoed("ben", "ab")
        with pytest.raises(RequestError, match="times"):
            memory.echo("ab", times=4)
        with pytest.raises(RequestError, match="there is no such argument; did you mean times"):
            memory.echo("ab", time=1)


async def test_the_library_with_an_event_loop_has_it(tmp_path: Path) -> None:
    settings = {"embedding.provider": "hashing"}
    async with AsyncMemory(tmp_path, scope="ana", settings=settings) as memory:
        echo: Any = getattr(memory, "echo")  # noqa: B009 - unknown to mypy
        assert await echo("ab") == Echoed("ana", "ab")


@pytest.mark.parametrize("kind", [Memory, AsyncMemory, Client, AsyncClient])
def test_all_have_its_signature_and_description(kind: Any) -> None:
    assert [*inspect.signature(kind.echo).parameters] == ["self", "text", "scope", "times"]
    assert "Return a text as it is." in kind.echo.__doc__
    assert "times: how often" in kind.echo.__doc__
    assert inspect.iscoroutinefunction(kind.echo) == (kind in (AsyncMemory, AsyncClient))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with server(tmp_path) as running:
        running.token("all", "*")
        yield running


def client_of(served: Served, **given: Any) -> Any:
    return Client(served.address, scope="ana", **given)


def test_http_and_the_client_have_it_under_its_permission(served: Served) -> None:
    token = served.token("ana", "ana")
    with client_of(served, token=token) as memory:
        assert memory.echo("ab", times=2) == Echoed("ana", "abab")
        for text, given, kind, told in (
            ("ab", {"times": 4}, RequestError, "times"),
            ("", {}, RequestError, "text"),
            ("ab", {"scope": "ben"}, NotFoundError, "there is no scope ben"),
        ):
            with pytest.raises(kind, match=told):
                memory.echo(text, **given)
    with client_of(served) as memory, pytest.raises(UnauthorizedError):
        memory.echo("ab")
    writer = served.token("writer", "ana", may=["remember"])
    with client_of(served, token=writer) as memory, pytest.raises(ForbiddenError, match="recall"):
        memory.echo("ab")
    for path in ("/api/echo", "/api/rpc/echo"):
        with served.client(token) as http:
            assert http.post(path, json={"text": "ab"}).json() == {"scope": "ana", "text": "ab"}
            problem(http.post(path, json={"text": "ab", "scope": "ben"}), 404, "not_found")
            problem(http.post(path, json={"text": "ab", "times": 4}), 422, "invalid")
            problem(http.post(path, json={"text": "ab", "time": 1}), 422, "invalid")
        with served.client(writer) as http:
            problem(http.post(path, json={"text": "ab"}), 403, "forbidden")
        with served.client() as http:
            problem(http.post(path, json={"text": "ab"}), 401, "unauthorized")


def test_the_openapi_document_describes_it() -> None:
    made = document()
    told = made["paths"]["/api/echo"]["post"]
    assert (told["operationId"], told["description"]) == ("echo", "Return a text as it is.")
    assert {"401", "403", "404", "422"} <= told["responses"].keys()
    times = made["components"]["schemas"]["Echo"]["properties"]["times"]
    assert (times["description"], times["maximum"]) == ("how often", 3)
    assert "Echoed" in str(told["responses"]["200"])


def test_the_command_line_has_it(tmp_path: Path) -> None:
    program = typer.Typer()
    program.callback()(lambda: None)  # with one command alone, its name would be left out
    register(program, {}, [Echo])

    def run(*arguments: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(program, [*arguments], env={"COLUMNS": "200", "NO_COLOR": "1"})
        return done.exit_code, done.stdout, done.stderr

    code, text, _ = run("echo", "--help")
    assert code == 0
    assert "Return a text as it is." in text
    assert "How often." in text
    with opened(tmp_path) as memory:
        assert memory.echo("ab") == Echoed("ana", "ab")
    asked: tuple[str, ...] = ("echo", "ab", "--scope", "ana", "--data-dir", str(tmp_path))
    asked += ("--set", "embedding.provider=hashing")
    code, text, _ = run(*asked, "--times", "2", "--json")
    assert (code, json.loads(text)) == (0, {"scope": "ana", "text": "abab"})
    code, text, _ = run(*asked)
    assert (code, text) == (0, "scope: ana\ntext: ab\n")
    code, _, told = run(*asked, "--times", "4")
    assert (code, "times" in told) == (2, True)


async def test_agents_have_it(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    from palimpsest.ops.mcp.server import memory_server

    settings = {"embedding.provider": "hashing"}
    async with AsyncMemory(tmp_path, scope="ana", settings=settings) as memory:
        server = memory_server(lambda: memory)
        tools = {each.name: each for each in await server.list_tools()}
        assert [*tools["echo_text"].input_schema["properties"]] == ["text", "times"]
        result: Any = await server.call_tool("echo_text", {"text": "ab", "times": 3})
        assert "ababab" in str(result)


def test_a_command_has_every_field_of_its_request() -> None:
    """Those that it does not have would be left out of the log without a word. In all scopes there
    is a command in each."""
    plain = [
        kind
        for kind in OPERATIONS.values()
        if issubclass(kind, Write) and kind.command is Write.command
    ]
    assert len(plain) > 5
    for kind in plain:
        own = {each.name for each in parameters(kind)} - {"key", "wait", "scope"}
        own -= {"all_scopes"}
        assert own <= getattr(commands, kind.body).model_fields.keys(), kind


def test_every_operation_is_listed_so_that_it_is_typed() -> None:
    """What `offer` adds is unknown to editors and mypy."""
    source = inspect.getsource(memory_methods)
    assert [slug for slug in OPERATIONS if f"    {slug} = method(" not in source] == [
        "add_document",
        "start_replay",
        "echo",
    ]
