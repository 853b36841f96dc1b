"""No expression and no function over what others wrote takes more than linear time.

Both are found by importing the product, not by a list, so that a new one is tried, too. A quadratic
one takes hundreds of times longer for the texts below than a linear one: the bound is far from
both. What takes next to nothing for a quarter of such a text is not tried with all of it.
"""

from __future__ import annotations

import importlib
import inspect
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pytest

from tests.source_modules import INSTALLED, MODULES

SIZE: Final = 8_000
"""Characters of a bad text."""
MOST_SECONDS: Final = 0.15
"""Of processor time for two bad texts. A linear expression takes about 1 ms, a quadratic 300."""
QUARTER_SECONDS: Final = MOST_SECONDS / 32
"""Of a quarter of the text: the quadratic ones that take longer than `MOST_SECONDS` for all of it
take twice this."""
UNITS: Final = (
    *("x", "X", "a ", "A ", "Ab ", "-", "- ", " ", "\n", "\t", "0", "1,", "1.", "4111 ", "'", '"'),
    *("(", "[", "{", "<", "<a ", "**", "`", "=", "a=", ":", "://", "@", "a@", ".a", "a.", "/", "_"),
    *(
        "QUJD",
        "ACGT",
        "é",
        "ß",
        "字",
        "م",
        "한",
        "is ",
        "I ",
        "my ",
        "and ",
        ", and ",
        "not ",
        "\\",
    ),
    *("name: ", "password ", "[REDACTED:phone] ", "[erased ", "a\u0301", "it's ", "no, ", "to "),
)
PURE: Final = ("schemas", "streams", "stores.index.analysis", "stores.recall", "ops.ingest")
"""Where functions from a text are tried."""
EFFECTS: Final = ("streams.kafka", "streams.logs", "streams.runtime", "streams.models")


def imported(prefixes: Iterable[str]) -> Iterator[tuple[str, object]]:
    """Modules of the product by name, without what cannot be imported here (an extra)."""
    for name in sorted(MODULES):
        if not name.startswith(tuple(prefixes)) or name.startswith("ops.bench.peers"):
            continue
        try:
            yield name, importlib.import_module(f"{INSTALLED}.{name}" if name else INSTALLED)
        except ImportError:
            continue


def patterns_in(found: object, depth: int = 3) -> Iterator[re.Pattern[str]]:
    if isinstance(found, re.Pattern):
        if isinstance(found.pattern, str):
            yield found
    elif depth and isinstance(found, dict):
        for each in found.values():
            yield from patterns_in(each, depth - 1)
    elif depth and isinstance(found, tuple | list | set | frozenset) and len(found) < 1_000:
        for each in found:
            yield from patterns_in(each, depth - 1)
    elif depth and type(found).__module__.startswith(INSTALLED):
        for slot in getattr(found, "__dataclass_fields__", ()):
            yield from patterns_in(getattr(found, slot, None), depth - 1)


SOURCES: Final = "".join(module.path.read_text("utf-8") for module in MODULES.values())
SEARCHED: Final = frozenset(
    re.findall(r"\b(\w+)\.(?:search|subn?|finditer|findall|split)\b", SOURCES)
)
MATCHED: Final = frozenset(re.findall(r"\b(\w+)\.(?:full)?match\b", SOURCES)) - SEARCHED
"""Names of expressions that are tried at one place of a text alone."""

PATTERNS: Final = {
    (pattern.pattern, pattern.flags, name in MATCHED): (f"{module}.{name}[{number}]", pattern)
    for module, loaded in imported(("schemas", "streams", "stores", "ops"))
    for name, value in vars(loaded).items()
    for number, pattern in enumerate(patterns_in(value))
}


def reads_one_text(function: Callable[..., object]) -> bool:
    """Whether a function can be called with a single text."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    if "Pattern" in str(signature.return_annotation):
        return False  # it makes an expression of words of the program's
    parameters = [*signature.parameters.values()]
    needed = [each for each in parameters if each.default is each.empty]
    plain = inspect.isfunction(function) and not inspect.iscoroutinefunction(function)
    kinds = {each.kind for each in needed}
    return (
        plain
        and len(needed) == 1
        and kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}
        and needed[0].annotation in ("str", str)
    )


FUNCTIONS: Final = {
    f"{module}.{name}": value
    for module, loaded in imported(PURE)
    if not module.startswith(EFFECTS)
    for name, value in vars(loaded).items()
    if getattr(value, "__module__", "") == loaded.__name__  # type: ignore[attr-defined]
    and reads_one_text(inspect.unwrap(value) if callable(value) else value)
}


def too_slow(call: Callable[[str], object]) -> dict[str, float]:
    """The first unit whose texts take too long, with their seconds."""
    for unit in UNITS:
        if seconds(call, unit, SIZE // 4) > QUARTER_SECONDS:
            took = seconds(call, unit, SIZE)
            if took > MOST_SECONDS:
                return {unit: took}
    return {}


def seconds(call: Callable[[str], object], unit: str, size: int) -> float:
    """Processor time for a bad text and one that ends another way."""
    text = unit * (size // len(unit))
    began = time.thread_time()
    for each in (text, text + "!\x00é"):
        try:
            found = call(each)
            if inspect.isgenerator(found):
                for _ in found:
                    pass
        except (ValueError, LookupError, TypeError):
            pass
    return time.thread_time() - began


def test_patterns_and_functions_are_found() -> None:
    assert len(PATTERNS) > 100
    assert len(FUNCTIONS) > 50


@pytest.mark.parametrize(
    ("pattern", "is_matched"),
    [pytest.param(pattern, key[2], id=name) for key, (name, pattern) in PATTERNS.items()],
)
def test_a_pattern_takes_linear_time(pattern: re.Pattern[str], is_matched: bool) -> None:
    slow = too_slow(pattern.match if is_matched else lambda text: pattern.sub("", text))
    assert not slow, (pattern.pattern, slow)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_function_takes_linear_time(name: str) -> None:
    slow = too_slow(FUNCTIONS[name])
    assert not slow, slow
