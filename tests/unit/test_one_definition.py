"""A new operation is one definition: library, client and agents have it by its name."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest

from palimpsest import AsyncClient, AsyncMemory, Client, Memory, RequestError
from palimpsest.ops.library import memory_methods
from palimpsest.ops.library.memory_methods import MemoryMethods, offer
from palimpsest.ops.operations.catalogue import OPERATIONS
from palimpsest.ops.operations.operation import Doc, Json, Read, Scope, Surface
from palimpsest.ops.queries.sources import Sources


@dataclass(frozen=True, slots=True)
class Echoed:
    """A text, as often as was asked for."""

    scope: str
    text: str


@dataclass(frozen=True, slots=True)
class Echo(Read[Echoed]):
    """Return a text as it is."""

    text: Annotated[str, Doc("the text", min_length=1, argument=True)]
    scope: Scope = ""
    times: Annotated[int, Doc("how often", ge=1, le=3)] = 1

    surface: ClassVar = Surface(("POST", "/api/echo"), command="echo", tool="echo_text")

    def read(self, sources: Sources) -> Json:
        return {"scope": self.scope, "text": self.text * self.times}


@pytest.fixture(autouse=True)
def offered() -> Iterator[None]:
    offer(MemoryMethods, {**OPERATIONS, Echo.slug: Echo})
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


async def test_agents_have_it(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    from palimpsest.ops.mcp.server import memory_server

    settings = {"embedding.provider": "hashing"}
    async with AsyncMemory(tmp_path, scope="ana", settings=settings) as memory:
        server = memory_server(lambda: memory, operations={**OPERATIONS, Echo.slug: Echo})
        tools = {each.name: each for each in await server.list_tools()}
        assert [*tools["echo_text"].input_schema["properties"]] == ["text", "times"]
        result: Any = await server.call_tool("echo_text", {"text": "ab", "times": 3})
        assert "ababab" in str(result)


def test_every_operation_is_listed_so_that_it_is_typed() -> None:
    """What `offer` adds is unknown to editors and mypy."""
    source = inspect.getsource(memory_methods)
    assert [slug for slug in OPERATIONS if f"    {slug} = method(" not in source] == [
        "add_document",
        "start_replay",
    ]
