"""What the source says is there: types, names in docstrings, callers, kinds of errors."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest

from tests.source_modules import (
    MODULES,
    ROOT,
    Module,
    complaint,
    modules,
    report,
)


def test_no_any_in_streams_and_schemas() -> None:
    report(
        [
            complaint(module, getattr(node, "lineno", 0), "Any: say what it is")
            for module in modules("streams", "schemas")
            for node in module.nodes
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
    for parent in module.nodes:
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


# --- what is said and what is there -----------------------------------------------------------


def branches_on_text(module: Module) -> list[str]:
    """Comparisons and searches in the text of an exception: its kind or a code is what tells."""
    found = []
    for function in module.nodes:
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        errors = {n.name for n in ast.walk(function) if isinstance(n, ast.ExceptHandler) and n.name}
        if not errors:
            continue
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
    docs = {id(node.value) for node in module.nodes if isinstance(node, ast.Expr)}
    known = set(module.name.split("."))
    for node in module.nodes:
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                known.update(value.split("."))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            known.update(re.findall(r"[a-z_][a-z0-9_]*", node.value))
    return [
        complaint(module, getattr(node, "lineno", 1), f"explains {name}, which is not there")
        for node in module.nodes
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
    "verify_all_partitions_active": "Faust",
    "collect": "prometheus-client",
    "send_400_response": "uvicorn",
    "restart": "tests of outages, on a real broker",
    "require_programs": "tests that need a broker",
    "state_hash": "tests that compare whole stores",
    "is_at": "templates of the console",
    "is_signed_in": "templates of the console",
}
"""Public names that nothing in the product uses, and who does."""


METHODS = frozenset({"get", "post", "patch", "delete"})
FOR_PROGRAMS = ("ops.adapters.", "ops.library.memory_methods")
"""What stands there is called by the users of a framework, or of the library."""


def routed(node: Defined) -> bool:
    """Whether it has a decorator such as `@routes.get("/path")` or `@command(group)`: the web
    framework or the command line calls it."""
    called = [each.func for each in node.decorator_list if isinstance(each, ast.Call)]
    return any(
        each.attr in METHODS if isinstance(each, ast.Attribute) else ast.unparse(each) == "command"
        for each in called
    )


def test_every_public_function_and_class_has_a_caller() -> None:
    """By name: one that is used somewhere under the same name is not found, and may be dead."""
    used: Counter[str] = Counter()
    defined: list[tuple[Module, int, str]] = []
    for module in MODULES.values():
        for node in module.nodes:
            if isinstance(node, ast.Name):
                used[node.id] += 1
            elif isinstance(node, ast.Attribute):
                used[node.attr] += 1
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                used[node.value] += 1  # in __all__, an annotation, a table of names
            elif isinstance(node, Defined) and not node.name.startswith("_") and not routed(node):
                defined.append((module, node.lineno, node.name))
    report(
        [
            complaint(module, line, f"{name} has no caller in the product")
            for module, line, name in defined
            if not used[name]
            and name not in CALLED_FROM_OUTSIDE
            and not module.name.startswith(FOR_PROGRAMS)
        ]
    )


# --- the tests of the tests -------------------------------------------------------------------


@pytest.mark.parametrize(
    "test",
    ["'gone' in str(error)", "error.args[0] == 'gone'", "str(error).lower().startswith('x')"],
)
def test_a_branch_on_a_text_is_seen(test: str) -> None:
    source = f"def f():\n    try: g()\n    except E as error:\n        if {test}: raise"
    module = Module(ROOT / "streams" / "example.py", "streams.example", source)
    assert len(branches_on_text(module)) == 1


def test_an_absent_parameter_is_seen() -> None:
    source = 'def f(a):\n    """`a` is there. `idle` is awaited."""\n'
    module = Module(ROOT / "streams" / "example.py", "streams.example", source)
    assert [text.split(": ")[1] for text in absent_parameters(module)] == [
        "explains idle, which is not there"
    ]
