"""The library's methods and the tools of agents as files, a line for each, so that each change of
them is seen. After a change that is meant, `python -m tests.unit.test_interfaces` writes them."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from palimpsest import AsyncClient, AsyncMemory

GOLDEN = Path(__file__).parents[1] / "golden"
LIBRARY = GOLDEN / "library.txt"
TOOLS = GOLDEN / "mcp.json"


def library() -> str:
    """`Memory` and `Client` have the same methods, without `async`."""
    lines = [f"{kind.__name__}{inspect.signature(kind)}" for kind in (AsyncMemory, AsyncClient)] + [
        f"{name}{inspect.signature(made)}"
        for name, made in inspect.getmembers(AsyncClient, inspect.isroutine)
        if not name.startswith("_")
    ]
    return "\n".join(lines) + "\n"


def tools() -> str:
    from palimpsest.ops.mcp.server import memory_server

    def unused() -> Any:
        raise AssertionError("no tool is called here")

    listed = asyncio.run(memory_server(unused).list_tools())
    told = [each.model_dump_json(exclude_none=True, by_alias=True) for each in listed]
    return "[\n" + ",\n".join(told) + "\n]\n"


def test_the_methods_of_the_library_are_as_they_were() -> None:
    assert library() == LIBRARY.read_text(encoding="utf-8"), "see the first lines of this file"


def test_the_tools_of_agents_are_as_they_were() -> None:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    assert tools() == TOOLS.read_text(encoding="utf-8"), "see the first lines of this file"


if __name__ == "__main__":
    LIBRARY.write_text(library(), encoding="utf-8")
    TOOLS.write_text(tools(), encoding="utf-8")
