"""The plan of the house, kept true: imports point down, stages are pure, types are told."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "streams", "stores", "ops")
MAX_LINES = 450
MAX_FUNCTION_LINES = 60
LONG_FILES = {"schemas/messages.py": 600}
"""A catalogue is longer than a program; each with a limit of its own."""

STAGES = ("normalize", "extract", "decide", "apply_writes", "graph_persist", "audit")
PURE_STDLIB = {
    "__future__",
    "abc",
    "base64",
    "bisect",
    "collections",
    "contextlib",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "html",
    "ipaddress",
    "itertools",
    "json",
    "math",
    "operator",
    "re",
    "string",
    "struct",
    "textwrap",
    "types",
    "typing",
    "unicodedata",
    "uuid",
}
"""What of the standard library neither reads the world nor changes it (but see EFFECTS)."""
EFFECTS = {
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "datetime.date.today",
    "uuid.uuid1",
    "uuid.uuid4",
}
PURE_PACKAGES = {"pydantic", "pydantic_core", "numpy"}
"""Third-party packages that a stage or a helper of one may use; numpy.random is refused below."""
EXCUSED = {("streams.store_port", "asyncio"): "names the type of a store's lock in a Protocol"}
"""(module, import) to why it is no effect."""
ALLOWED_BELOW = {
    "schemas": {"schemas"},
    "streams": {"schemas", "streams"},
    "stores": {"schemas", "stores"},
    "ops": {"schemas", "streams", "stores", "ops"},
}
STREAMS_SEEN_BY_STORES = {"streams.store_port", "streams.logs.base", "streams.models.base"}
SCRIPTS = {"schemas.generate"}
"""Programs inside a pure package: what they do to files is what they are for."""


@dataclass(frozen=True)
class Module:
    """A source file and what it says."""

    path: Path
    name: str
    tree: ast.Module

    @property
    def package(self) -> str:
        return self.name.partition(".")[0]

    def imports(self) -> Iterator[tuple[str, int]]:
        """Every imported module or name, dotted, with its line."""
        for node in ast.walk(self.tree):
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


def load(path: Path) -> Module:
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(path, name, ast.parse(path.read_text(encoding="utf-8"), str(path)))


MODULES = {
    module.name: module
    for package in PACKAGES
    for module in map(load, sorted((ROOT / package).rglob("*.py")))
}


def modules(*packages: str) -> list[Module]:
    return [module for module in MODULES.values() if module.package in packages]


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


def stage_modules() -> dict[str, Module]:
    """The stage files and every module of streams that they import, however far."""
    found: dict[str, Module] = {}
    waiting = [f"streams.{stage}" for stage in STAGES]
    while waiting:
        name = waiting.pop()
        if name in found or name not in MODULES or name == "streams":
            continue
        found[name] = MODULES[name]
        imported = (own(target) for target, _ in MODULES[name].imports())
        waiting += [target for target in imported if target and target.startswith("streams.")]
    return found


# --- who may import whom ----------------------------------------------------------------------


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_down(package: str) -> None:
    report(
        [
            complaint(module, line, f"{package} may not import {name}")
            for module in modules(package)
            for name, line in module.imports()
            if name.partition(".")[0] in PACKAGES
            and name.partition(".")[0] not in ALLOWED_BELOW[package]
            and not (package == "stores" and own(name) in STREAMS_SEEN_BY_STORES)
        ]
    )


def test_nothing_in_the_product_imports_the_tests() -> None:
    report(
        [
            complaint(module, line, f"imports {name}")
            for module in MODULES.values()
            for name, line in module.imports()
            if name.partition(".")[0] == "tests"
        ]
    )


def test_only_the_kafka_log_imports_faust() -> None:
    report(
        [
            complaint(module, line, "only streams/logs/kafka.py imports faust")
            for module in MODULES.values()
            for name, line in module.imports()
            if name.partition(".")[0] == "faust" and module.name != "streams.logs.kafka"
        ]
    )


# --- purity -----------------------------------------------------------------------------------


def impure(module: Module) -> list[str]:
    """Imports and calls of a module that could read the world or change it."""
    complaints = []
    names: dict[str, str] = {}
    for name, line in module.imports():
        top = name.partition(".")[0]
        if top in PACKAGES or (module.name, name) in EXCUSED:
            continue
        if top not in PURE_STDLIB | PURE_PACKAGES or name.startswith("numpy.random"):
            kind = "standard library" if top in sys.stdlib_module_names else "third-party"
            complaints.append(complaint(module, line, f"imports {name} ({kind}, not listed pure)"))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Import):
            names |= {a.asname or a.name: a.name for a in node.names}
    for node in ast.walk(module.tree):
        said = dotted(node, names)
        if said in EFFECTS or said.startswith("numpy.random"):
            line = getattr(node, "lineno", 0)
            complaints.append(complaint(module, line, f"{said} reads the world"))
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"open", "print", "input", "exec", "eval", "__import__"}
        ):
            complaints.append(complaint(module, node.lineno, f"calls {node.func.id}()"))
    return complaints


def dotted(node: ast.AST, names: dict[str, str]) -> str:
    """`datetime.now` as `datetime.datetime.now`, by what the module imported; else empty."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute):
        base = dotted(node.value, names)
        return f"{base}.{node.attr}" if base else ""
    return ""


def test_stages_and_their_helpers_are_pure() -> None:
    report([text for module in stage_modules().values() for text in impure(module)])


def test_schemas_are_pure_and_need_pydantic_only() -> None:
    pure = [module for module in modules("schemas") if module.name not in SCRIPTS]
    report([text for module in pure for text in impure(module)])
    report(
        [
            complaint(module, line, f"schemas need pydantic only, not {name}")
            for module in modules("schemas")
            for name, line in module.imports()
            if name.partition(".")[0] not in {*sys.stdlib_module_names, *PACKAGES}
            and name.partition(".")[0] not in {"pydantic", "pydantic_core"}
        ]
    )


# --- types and sizes --------------------------------------------------------------------------


def test_no_any_in_streams_and_schemas() -> None:
    report(
        [
            complaint(module, getattr(node, "lineno", 0), "Any: say what it is")
            for module in modules("streams", "schemas")
            for node in ast.walk(module.tree)
            if (isinstance(node, ast.Name) and node.id == "Any")
            or (isinstance(node, ast.Attribute) and node.attr == "Any")
            or (isinstance(node, ast.alias) and node.name == "Any")
            or (isinstance(node, ast.Constant) and mentions_any(node, module))
        ]
    )


def mentions_any(node: ast.Constant, module: Module) -> bool:
    """Whether a text is a type in quotes (an annotation or the first argument of cast) with Any."""
    if not isinstance(node.value, str) or "Any" not in node.value:
        return False
    for parent in ast.walk(module.tree):
        annotation = getattr(parent, "annotation", None) or getattr(parent, "returns", None)
        if annotation is not None and node in ast.walk(annotation):
            return True
        if (
            isinstance(parent, ast.Call)
            and isinstance(parent.func, ast.Name)
            and parent.func.id == "cast"
            and parent.args[0] is node
        ):
            return True
    return False


def test_files_stay_readable_in_one_go() -> None:
    report(
        [
            f"{name}: {lines} lines, more than {limit}: it is two things"
            for module in MODULES.values()
            for name in [str(module.path.relative_to(ROOT))]
            for lines in [len(module.path.read_text(encoding="utf-8").splitlines())]
            for limit in [LONG_FILES.get(name, MAX_LINES)]
            if lines > limit
        ]
    )


def test_functions_stay_readable_at_a_glance() -> None:
    report(
        [
            complaint(module, node.lineno, f"{node.name} has {length} lines of code")
            for module in modules("schemas", "streams", "stores")
            for node in ast.walk(module.tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            for length in [code_lines(node)]
            if length > MAX_FUNCTION_LINES
        ]
    )


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the signature to the end, without the docstring's."""
    length = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        first = function.body[0]
        length -= (first.end_lineno or first.lineno) - first.lineno + 1
    return length


# --- what is said and what is there -----------------------------------------------------------


def branches_on_text(module: Module) -> list[str]:
    """Comparisons and searches in the text of an exception: its kind or a code is what tells."""
    found = []
    for function in ast.walk(module.tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        errors = {n.name for n in ast.walk(function) if isinstance(n, ast.ExceptHandler) and n.name}
        for node in ast.walk(function):  # a caught error under another name
            value = node.value if isinstance(node, ast.Assign) else None
            if isinstance(node, ast.Assign) and isinstance(value, ast.Name) and value.id in errors:
                errors |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        for node in ast.walk(function):
            asked: list[ast.expr] = []
            if isinstance(node, ast.Compare):
                asked = [node.left, *node.comparators]
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in {"startswith", "endswith", "search", "match", "find"}
            ):
                asked = [node.func.value, *node.args]
            if any(_text_of_error(each, errors) for each in asked):
                found.append(complaint(module, node.lineno, "branches on the text of an error"))
    return found


def _text_of_error(node: ast.expr, errors: set[str]) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        first = node.args[0]
        return (
            node.func.id in {"str", "repr"} and isinstance(first, ast.Name) and first.id in errors
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _text_of_error(node.func.value, errors)  # str(error).lower()
    if isinstance(node, ast.Subscript):
        return _text_of_error(node.value, errors)  # error.args[0]
    return (
        isinstance(node, ast.Attribute)
        and node.attr in {"args", "message", "msg"}
        and isinstance(node.value, ast.Name)
        and node.value.id in errors
    )


def test_nothing_branches_on_the_text_of_an_error() -> None:
    report([text for module in MODULES.values() for text in branches_on_text(module)])


DocumentedNode = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_NAMED = re.compile(r"(?:^|[.;:]\s+|\n\s*)`([a-z_][a-z0-9_]*)` (?:is|are) ")


def absent_parameters(module: Module) -> list[str]:
    """Names that a sentence of a docstring begins with (`name` is ...) and that the module does not
    have: neither as a parameter, attribute or function nor as a text."""
    docs = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Expr)}
    known = set(module.name.split("."))
    for node in ast.walk(module.tree):
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                known.update(value.split("."))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            known.update(re.findall(r"[a-z_][a-z0-9_]*", node.value))
    return [
        complaint(module, getattr(node, "lineno", 1), f"explains {name}, which is not there")
        for node in ast.walk(module.tree)
        for doc in [_docstring(node)]
        if doc is not None and isinstance(doc.value, str)
        for name in _NAMED.findall(doc.value)
        if name not in known
    ]


def _docstring(node: ast.AST) -> ast.Constant | None:
    if not isinstance(node, DocumentedNode) or not node.body:
        return None
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return first.value
    return None


def test_what_a_docstring_explains_is_there() -> None:
    report([text for module in MODULES.values() for text in absent_parameters(module)])


Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
CALLED_FROM_OUTSIDE = {
    "capture_signals": "uvicorn",
    "settings_customise_sources": "pydantic-settings",
    "wait_empty": "Faust",
    "erase": "nothing yet but its contract: erasure does not reach the log so far",
    "restart": "tests of outages, on a real broker",
    "require_programs": "tests that need a broker",
    "state_hash": "tests that compare whole stores",
}
"""Public names that nothing in the product uses, and who does."""


def test_every_public_function_and_class_has_a_caller() -> None:
    """By name: one that is used somewhere under the same name is not found, and may be dead."""
    used: Counter[str] = Counter()
    defined: list[tuple[Module, int, str]] = []
    for module in MODULES.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Name):
                used[node.id] += 1
            elif isinstance(node, ast.Attribute):
                used[node.attr] += 1
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                used[node.value] += 1  # in __all__, an annotation, a table of names
            elif isinstance(node, Defined) and not node.name.startswith("_"):
                defined.append((module, node.lineno, node.name))
    report(
        [
            complaint(module, line, f"{name} has no caller in the product")
            for module, line, name in defined
            if not used[name] and name not in CALLED_FROM_OUTSIDE
        ]
    )


# --- the tests of the tests -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import time", "imports time"),
        ("from os import path", "imports os.path"),
        ("import httpx", "third-party"),
        ("from datetime import datetime\nx = datetime.now()", "datetime.datetime.now reads"),
        ("import datetime as d\nx = d.datetime.utcnow()", "datetime.datetime.utcnow reads"),
        ("import uuid\nx = uuid.uuid4()", "uuid.uuid4 reads"),
        ("from uuid import uuid4\nx = uuid4()", "uuid.uuid4 reads"),
        ("import numpy as np\nx = np.random.rand()", "numpy.random"),
        ("x = open('file')", "calls open"),
    ],
)
def test_impurity_is_seen(source: str, expected: str) -> None:
    module = Module(ROOT / "streams" / "example.py", "streams.example", ast.parse(source))
    assert any(expected in text for text in impure(module)), impure(module)


def test_purity_is_left_in_peace() -> None:
    source = (
        "from datetime import datetime, UTC\nimport uuid\nimport numpy as np\n"
        "from schemas.envelope import Envelope\n"
        "x = datetime(2026, 1, 1, tzinfo=UTC)\ny = uuid.uuid5\nz = np.zeros(3)\n"
    )
    module = Module(ROOT / "streams" / "example.py", "streams.example", ast.parse(source))
    assert impure(module) == []


def test_relative_imports_are_resolved() -> None:
    tree = ast.parse("from . import base\nfrom ..models import rules\nfrom .lock import X")
    module = Module(ROOT / "streams" / "logs" / "example.py", "streams.logs.example", tree)
    assert [name for name, _ in module.imports()] == [
        "streams.logs.base",
        "streams.models.rules",
        "streams.logs.lock.X",
    ]


@pytest.mark.parametrize(
    "test",
    ["'gone' in str(error)", "error.args[0] == 'gone'", "str(error).lower().startswith('x')"],
)
def test_a_branch_on_a_text_is_seen(test: str) -> None:
    source = f"def f():\n    try: g()\n    except E as error:\n        if {test}: raise"
    module = Module(ROOT / "streams" / "example.py", "streams.example", ast.parse(source))
    assert len(branches_on_text(module)) == 1


def test_an_absent_parameter_is_seen() -> None:
    source = 'def f(a):\n    """`a` is there. `idle` is awaited."""\n'
    module = Module(ROOT / "streams" / "example.py", "streams.example", ast.parse(source))
    assert [text.split(": ")[1] for text in absent_parameters(module)] == [
        "explains idle, which is not there"
    ]


def test_runners_are_made_in_one_place() -> None:
    """So that a setting of theirs holds on both logs."""
    places = {
        name
        for name, module in MODULES.items()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "StageRunner"
    }
    assert places == {"ops.parts"}
