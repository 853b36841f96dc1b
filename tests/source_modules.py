"""The product's source files, for tests that read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("schemas", "streams", "stores", "ops")
INSTALLED = "palimpsest"
"""The name that all of them are installed and imported below."""


@dataclass(frozen=True)
class Module:
    """A source file and what it says, parsed when a test first asks."""

    path: Path
    name: str
    source: str = ""

    @cached_property
    def text(self) -> str:
        return self.source or self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of the tree, as `ast.walk` yields it."""
        return tuple(ast.walk(self.tree))

    @property
    def package(self) -> str:
        return self.name.partition(".")[0]

    def imports(self) -> Iterator[tuple[str, int]]:
        """Every imported module or name, dotted, with its line; own ones as by their folder."""
        for name, line in self.full_imports:
            yield name.removeprefix(f"{INSTALLED}."), line

    @cached_property
    def full_imports(self) -> tuple[tuple[str, int], ...]:
        """Every imported module or name, dotted as it is written, with its line."""
        return tuple(self._imports())

    def _imports(self) -> Iterator[tuple[str, int]]:
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.name, node.lineno
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                for alias in node.names:
                    yield f"{base}.{alias.name}", node.lineno

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        if self.path.name != "__init__.py":
            parts = parts[:-1]
        parts = parts[: len(parts) - node.level + 1]
        return ".".join([*parts, *([node.module] if node.module else [])])


@cache
def load(path: Path) -> Module:
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(path, name)


MODULES = {
    module.name: module
    for package in PACKAGES
    for module in map(load, sorted((ROOT / package).rglob("*.py")))
}


def modules(*packages: str) -> list[Module]:
    return [module for module in MODULES.values() if module.package in packages]


def sources() -> list[Module]:
    """The product and its tests."""
    return [*MODULES.values(), *map(load, sorted((ROOT / "tests").rglob("*.py")))]


def own(name: str) -> str | None:
    """The own module that an imported dotted name is or lies in."""
    while name:
        if name in MODULES:
            return name
        name = name.rpartition(".")[0]
    return None


def complaint(module: Module, line: int, text: str) -> str:
    return f"{module.path.relative_to(ROOT)}:{line}: {text}"


def report(complaints: list[str]) -> None:
    assert not complaints, "\n" + "\n".join(complaints)
