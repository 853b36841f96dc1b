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
from functools import partial
from typing import Final

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
SECRETS: Final = (
    "a", "A", "1 ", "1-", ".", "A1", "f", "0 12 ", "+1 ", "(0) ", "1.1.", "::", "a@a.", "a:b@",
    "a://", "a://a:", "http://", "eyJ", "eyJaaaaaaaa.", "eyJa.", "sk-", "sk-a", "gh", "ghp_",
    "xox", "xoxb-", "AKIA", "AA00 ", "DE89 ", "123-45-", "00", "0a", "bearer ", "basic ",
    "authorization: ", "password", "password: ", "password is ", "pw=", "pw=a,",
    "password for a ", "token", "token:", "api key ", "secret_", "pass_", "pin ",
    "the password is ", "code 1", "security code for a ", "sid=", "_sid=a",
    "seed phrase abandon ", "safe combination ", "PIN", "use 4821 ", "482 913 is your a ", "-p a",
    "net user a ", "login a/", "\u200b", "Ａ", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----a", "-----END ", "curl -u a", "-u ", "--password ", "パスワード",
    "パスワードは", "密码是", "ド", "[REDACTED:", "[RED",
)  # fmt: skip
"""What else a text is made of that takes long to look for secrets in."""
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


def too_slow(name: str, call: Callable[[str], object]) -> dict[str, float]:
    """The first unit whose texts take too long, with their seconds."""
    for unit in (*UNITS, *SECRETS) if name.startswith("streams.sensitive") else UNITS:
        if seconds(call, unit, SIZE // 4) > QUARTER_SECONDS:
            took = seconds(call, unit, SIZE)
            if took > MOST_SECONDS:
                return {f"{name} of {unit!r}": took}
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


def test_patterns_take_linear_time() -> None:
    found = {
        (pattern.pattern, pattern.flags, name in MATCHED): (f"{module}.{name}[{number}]", pattern)
        for module, loaded in imported(("schemas", "streams", "stores", "ops"))
        for name, value in vars(loaded).items()
        for number, pattern in enumerate(patterns_in(value))
    }
    assert len(found) > 100
    slow: dict[str, float] = {}
    for (*_, is_matched), (name, pattern) in found.items():
        slow |= too_slow(name, pattern.match if is_matched else partial(pattern.sub, ""))
    assert not slow


def test_functions_take_linear_time() -> None:
    found = {
        f"{module}.{name}": value
        for module, loaded in imported(PURE)
        if not module.startswith(EFFECTS)
        for name, value in vars(loaded).items()
        if getattr(value, "__module__", "") == loaded.__name__  # type: ignore[attr-defined]
        and reads_one_text(inspect.unwrap(value) if callable(value) else value)
    }
    assert len(found) > 50
    slow: dict[str, float] = {}
    for name, function in found.items():
        slow |= too_slow(name, function)
    assert not slow
