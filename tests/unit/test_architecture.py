"""The plan of the house, kept true: imports point down, stages are pure, types are told."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Mapping

import pytest

from palimpsest.streams.topology import STAGE_NAMES
from tests.source_modules import (
    INSTALLED,
    MODULES,
    PACKAGES,
    ROOT,
    Module,
    complaint,
    modules,
    own,
    report,
    sources,
)

MAX_LINES = 600
MAX_FUNCTION_LINES = 50

STAGES = tuple(name.replace("-", "_") for name in STAGE_NAMES)
PURE_FOLDERS = tuple(
    f"streams.{name}." for name in ("prompting", "rules", "sensitive", "claims", "text")
)
PURE_STDLIB = {
    "__future__",
    "abc",
    "base64",
    "bisect",
    "calendar",
    "collections",
    "contextlib",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
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
    "pkgutil",
    "re",
    "shlex",
    "string",
    "struct",
    "textwrap",
    "tomllib",
    "types",
    "typing",
    "unicodedata",
    "uuid",
}
"""What of the standard library neither reads the world nor changes it (but see EFFECTS); pkgutil
reads files of the package, as importing does."""
EFFECTS = {
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "datetime.date.today",
    "uuid.uuid1",
    "uuid.uuid4",
}
PURE_PACKAGES = {
    "anyascii",
    "pydantic",
    "pydantic_core",
    "numpy",
    "stdnum",
    "dateparser",
    "Stemmer",
}
"""Third-party packages that a stage or a helper of one may use; numpy.random is refused below."""
ALLOWED_BELOW = {
    "schemas": {"schemas"},
    "streams": {"schemas", "streams"},
    "stores": {"schemas", "stores"},
    "ops": {"schemas", "streams", "stores", "ops"},
}
PORTS = {"streams.store_port", "streams.logs.file_lock"}
"""All of `streams` that a store may see."""
SCRIPTS = {"schemas.generate"}
"""Programs inside a pure package: what they do to files is what they are for."""


def stage_modules() -> dict[str, Module]:
    """The stage files, their pure helpers, and every module of streams that these import."""
    found: dict[str, Module] = {}
    stages = {leaf: name for name in sorted(MODULES) if (leaf := name.rpartition(".")[2]) in STAGES}
    assert {*stages} == {*STAGES}
    waiting = [*stages.values()]
    waiting += [name for name in MODULES if name.startswith(PURE_FOLDERS)]
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
            and not (package == "stores" and own(name) in PORTS)
        ]
    )


SURFACES = tuple(
    f"ops.{name}."
    for name in "transport surfaces http server cli terminal mcp library worker".split()
)
"""The ways to the operations."""


def test_operations_stand_below_the_surfaces() -> None:
    report(
        [
            complaint(module, line, f"imports {name}, which stands above it")
            for module in MODULES.values()
            if module.name.startswith(("ops.operations.", "ops.replay.operations"))
            for name, line in module.imports()
            if name.startswith(SURFACES)
        ]
    )


FLOORS = (
    ("ops.folder_swap", "ops.log_folder"),
    ("ops.parts", "ops.documents."),
    ("ops.opening",),
    ("ops.maintenance.",),
    ("ops.maintenance.embedded", "ops.kafka.application"),
    ("ops.replay.",),
    ("ops.worker.bootstrap",),
)
"""Who works on a log, from below: what opens it, what is done beside the stages, the process that
runs them, what makes other memories from it, and the process with all of that."""


def test_what_works_on_a_log_imports_nothing_above_it() -> None:
    report(
        [
            complaint(module, line, f"imports {name}, which stands above it")
            for height, floor in enumerate(FLOORS)
            for module in MODULES.values()
            if module.name.startswith(floor)
            for name, line in module.imports()
            for above in FLOORS[height + 1 :]
            if (own(name) or "").startswith(above)
        ]
    )


def loaded_by(name: str, *, parts: int = 1) -> set[str]:
    """The modules that importing `name` loads, in a new process, by so many parts of their
    names."""
    program = (
        f"import sys; import palimpsest; before = {{*sys.modules}}\nimport {name}\n"
        "loaded = [name for name in {*sys.modules} - before if sys.modules[name] is not None]\n"
        f"print(*sorted({{'.'.join(name.split('.')[:{parts}]) for name in loaded}}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return {*done.stdout.split()}


def test_the_catalogue_needs_the_standard_library_only() -> None:
    """So that `palimpsest --help` is instant."""
    loaded = loaded_by("palimpsest.ops.surfaces.catalogue")
    assert loaded - sys.stdlib_module_names == {INSTALLED}


def test_the_program_loads_what_a_command_needs_with_the_command() -> None:
    """So that `palimpsest --version` is instant, and a process for SQL there in half the time."""
    heavy = {"ssl", "pydantic", "httpx", "fastapi"}
    assert loaded_by("palimpsest.stores.database.query_process") & heavy == set()
    heavy |= {"asyncio", "numpy", "duckdb"}
    assert loaded_by("palimpsest.ops.cli.main") & heavy == set()


def imports_of(module: Module) -> set[str]:
    """The own modules that it imports, anywhere: also in functions and for types only."""
    found = {own(name) for name, _ in module.imports()}
    return {name for name in found if name is not None and name != module.name}


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Modules that import each other, however far around: a list a circle."""
    left = {name: set(targets) for name, targets in graph.items()}
    found = []
    while left:
        start = next(iter(left))
        importers: dict[str, set[str]] = {name: set() for name in left}
        for name, targets in left.items():
            for target in targets & left.keys():
                importers[target].add(name)
        circle = reached(left, start) & reached(importers, start) | {start}
        if len(circle) > 1:
            found.append(sorted(circle))
        left = {name: targets - circle for name, targets in left.items() if name not in circle}
    return found


def reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """All that `start` imports, however far."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for name in graph.get(waiting.pop(), set()) - found:
            found.add(name)
            waiting.append(name)
    return found


def test_no_module_imports_itself_around_others() -> None:
    assert circles({name: imports_of(module) for name, module in MODULES.items()}) == []


def test_folders_do_not_import_each_other() -> None:
    """But a folder whose loose modules are the plan or the base of those in a folder of its own."""
    folders = {
        name: name if module.path.name == "__init__.py" else name.rpartition(".")[0]
        for name, module in MODULES.items()
    }
    targets: dict[str, set[str]] = {}
    for name, module in MODULES.items():
        targets.setdefault(folders[name], set()).update(
            folders[each] for each in imports_of(module)
        )
    mutual = {
        tuple(sorted((one, other)))
        for one, imported in targets.items()
        for other in imported - {one}
        if one in targets.get(other, ())
    }
    allowed = {("stores", f"stores.{name}") for name in ("index", "writing")}
    allowed |= {("streams", f"streams.{name}") for name in ("apply", "decide", "graph")}
    assert mutual == allowed


BY_FOLDER = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(PACKAGES)})\b", re.MULTILINE)


def test_own_modules_are_imported_by_the_installed_name() -> None:
    """Tests run in a checkout, where the folders could be imported too: as modules of their own."""
    report(
        [
            complaint(module, line, f"import it as {INSTALLED}.{name}")
            for module in sources()
            if BY_FOLDER.search(module.text)  # to parse them all takes seconds
            for name, line in module.full_imports
            if name.partition(".")[0] in PACKAGES
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


FAUST_MODULES = {"streams.kafka.faust_client", "streams.kafka.faust_agents"}


def test_only_two_modules_import_faust() -> None:
    report(
        [
            complaint(module, line, "only the agents and their client import faust")
            for module in MODULES.values()
            for name, line in module.imports()
            if name.partition(".")[0] == "faust" and module.name not in FAUST_MODULES
        ]
    )


# --- purity -----------------------------------------------------------------------------------


def impure(module: Module) -> list[str]:
    """Imports and calls of a module that could read the world or change it."""
    complaints = []
    names: dict[str, str] = {}
    for name, line in module.imports():
        top = name.partition(".")[0]
        if top in PACKAGES:
            continue
        if top not in PURE_STDLIB | PURE_PACKAGES or name.startswith("numpy.random"):
            kind = "standard library" if top in sys.stdlib_module_names else "third-party"
            complaints.append(complaint(module, line, f"imports {name} ({kind}, not listed pure)"))
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Import):
            names |= {a.asname or a.name: a.name for a in node.names}
    for node in module.nodes:
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


def test_files_stay_readable_in_one_go() -> None:
    long = {
        str(module.path.relative_to(ROOT)): lines
        for module in sources()
        for lines in [len(module.text.splitlines())]
        if lines > MAX_LINES
    }
    report([f"{name}: {lines} lines: it is two things" for name, lines in long.items()])


def test_functions_stay_readable_at_a_glance() -> None:
    report(
        [
            complaint(module, node.lineno, f"{node.name} has {length} lines of code")
            for module in sources()
            for node in module.nodes
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
    module = Module(ROOT / "streams" / "example.py", "streams.example", source)
    assert any(expected in text for text in impure(module)), impure(module)


def test_purity_is_left_in_peace() -> None:
    source = (
        "from datetime import datetime, UTC\nimport uuid\nimport numpy as np\n"
        "from palimpsest.schemas.envelope import Envelope\n"
        "x = datetime(2026, 1, 1, tzinfo=UTC)\ny = uuid.uuid5\nz = np.zeros(3)\n"
    )
    module = Module(ROOT / "streams" / "example.py", "streams.example", source)
    assert impure(module) == []


def test_relative_imports_are_resolved() -> None:
    source = "from . import base\nfrom ..rules import model\nfrom .lock import X"
    module = Module(ROOT / "streams" / "logs" / "example.py", "streams.logs.example", source)
    assert [name for name, _ in module.imports()] == [
        "streams.logs.base",
        "streams.rules.model",
        "streams.logs.lock.X",
    ]


def test_a_circle_is_seen() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a", "f"}, "f": {"e"}}
    assert circles(graph) == [["b", "c"], ["e", "f"]]


def test_an_import_for_types_or_in_a_function_counts() -> None:
    source = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from palimpsest.streams.runtime.runner import StageRunner\n"
        "def late():\n    from palimpsest.streams.rules import model\n"
    )
    module = Module(ROOT / "streams" / "example.py", "streams.example", source)
    assert imports_of(module) == {
        "streams.runtime.runner",
        "streams.rules.model",
    }


def test_runners_are_made_in_one_place() -> None:
    """So that a setting of theirs holds on both logs."""
    places = {
        name
        for name, module in MODULES.items()
        for node in module.nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "StageRunner"
    }
    assert places == {"ops.parts"}


def test_what_is_done_under_a_lock_is_over_when_it_is_released() -> None:
    """Who is cancelled leaves `asyncio.to_thread` at once, and the thread goes on: a lock around it
    would be released while what it guards is still at work. `offload.in_thread` waits for it."""
    report(
        [
            complaint(module, call.lineno, "asyncio.to_thread under a lock: use offload.in_thread")
            for module in MODULES.values()
            for node in module.nodes
            if isinstance(node, ast.AsyncWith)
            and any(re.search(r"lock\b", ast.unparse(item.context_expr)) for item in node.items)
            for call in ast.walk(node)
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "asyncio.to_thread"
        ]
    )


def test_a_recall_loads_no_grammar_of_statements() -> None:
    """Without a worker it would take a third longer."""
    loaded = loaded_by("palimpsest.ops.operations.recalling", parts=3)
    assert f"{INSTALLED}.stores.recall" in loaded
    assert f"{INSTALLED}.streams.claims" not in loaded
