"""No expression and no function over what others wrote takes more than linear time.

Both are found by importing the product, not by a list, so that a new one is tried, too. What takes
next to nothing for an eighth of a bad text is not tried with all of it. Growth decides, not a time
alone: for four times the text a linear one takes four times as long on any machine, a quadratic one
sixteen times.
"""

from __future__ import annotations

import importlib
import inspect
import re
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Final

from tests.source_modules import INSTALLED, MODULES

SIZE: Final = 4_000
"""Characters of a bad text."""
MOST_SECONDS: Final = 0.01
"""Of processor time for two bad texts. A linear expression takes about 0.5 ms, a quadratic 40."""
EIGHTH_SECONDS: Final = MOST_SECONDS / 128
"""Of an eighth of the text: the quadratic ones that take longer than `MOST_SECONDS` for all of it
take twice this."""
MOST_GROWTH: Final = 8
"""How many times longer four times the text may take: between linear (4) and quadratic (16)."""
REPEATS_NOTHING: Final = re.compile(r"[^*+{]*")
"""An expression that takes as long at each place of a text, however long the rest is."""
REPEATS: Final = 3
"""The shortest of so many counts, since whatever else runs only ever makes a time longer."""
TRIES: Final = 5
"""So many times in a row a growth must be too large: for a quadratic one it is each time."""
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
    *(
        "<v ",
        "{\\",
        "name: ",
        "password ",
        "[REDACTED:phone] ",
        "[erased ",
        "a\u0301",
        "it's ",
        "no, ",
        "to ",
    ),
)
SECRETS: Final = (
    "a", "A", "1 ", "1-", ".", "A1", "f", "0 12 ", "+1 ", "(0) ", "1.1.", "::", "a@a.", "a:b@",
    "a://", "a://a:", "http://", "eyJ", "eyJaaaaaaaa.", "eyJa.", "sk-", "sk-a", "gh", "ghp_",
    "xox", "xoxb-", "AKIA", "AA00 ", "DE89 ", "123-45-", "00", "0a", "bearer ", "basic ",
    "ghp_a1\n", "sk-\n> A1", "A" * 64 + "\n", "password: 'a''", "code for the door ",
    "authorization: ", "password", "password: ", "password is ", "pw=", "pw=a,",
    "password for a ", "token", "token:", "api key ", "secret_", "pass_", "pin ",
    "the password is ", "code 1", "security code for a ", "sid=", "_sid=a",
    "seed phrase abandon ", "safe combination ", "PIN", "use 4821 ", "482 913 is your a ", "-p a",
    "net user a ", "login a/", "\u200b", "Ａ", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----a", "-----END ", "curl -u a", "-u ", "--password ", "パスワード",
    "パスワードは", "密码是", "ド", "[REDACTED:", "[RED",
)  # fmt: skip
"""What else a text is made of that takes long to look for secrets in."""
PURE: Final = ("schemas", "streams", "stores.database.analysis", "stores.recall", "ops.ingest")
"""Where functions from a text are tried."""
EFFECTS: Final = ("streams.kafka", "streams.logs", "streams.runtime", "streams.models")


def imported(prefixes: Iterable[str]) -> Iterator[tuple[str, object]]:
    """Modules of the product by name, without what cannot be imported here (an extra)."""
    for name in sorted(MODULES):
        if not name.startswith(tuple(prefixes)):
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


NAMED: Final = re.compile(r'\bexpression\("(\w+)"\)')
"""An expression of a lexicon, which is made where it is first used."""
CONSTANT: Final = re.compile(rf"^\w+: Final = {NAMED.pattern}$", re.MULTILINE)
"""One that a module has as a member, under a name of its own."""


def named_expressions() -> Iterator[tuple[str, SimpleNamespace]]:
    """The expressions of lexicons that a module names, as the members of one."""
    for name, loaded in imported(("streams", "ops")):
        named = NAMED.findall(CONSTANT.sub("", MODULES[name].text))
        made: Callable[[str], object] = getattr(loaded, "expression", str)
        yield name, SimpleNamespace(**{each: made(each) for each in named})


def only_matched() -> set[str]:
    """Names of expressions that are tried at one place of a text alone."""
    source = NAMED.sub(r"\1", "".join(module.text for module in MODULES.values()))
    searched = re.findall(r"\b(\w+)\.(?:search|subn?|finditer|findall|split)\b", source)
    return {*re.findall(r"\b(\w+)\.(?:full)?match\b", source)} - {*searched}


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


def too_slow(name: str, call: Callable[[str], object], most: int = 1_000) -> dict[str, float]:
    """The first unit, of so many, whose texts take too long, with their seconds."""
    units = (*UNITS, *SECRETS) if name.startswith("streams.sensitive") else UNITS
    for unit in units[:most]:
        if (
            seconds(call, unit, SIZE // 8) > EIGHTH_SECONDS
            and (took := seconds(call, unit, SIZE)) > MOST_SECONDS
        ):
            growths = (growth(call, unit) for _ in range(TRIES))
            if all(each > MOST_GROWTH for each in growths):
                return {f"{name} of {unit!r}": took}
    return {}


def growth(call: Callable[[str], object], unit: str) -> float:
    """How many times as long four times the text takes."""
    quarter, whole = (
        min(seconds(call, unit, size) for _ in range(REPEATS)) for size in (SIZE // 4, SIZE)
    )
    return whole / quarter


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
        except (ValueError, LookupError, TypeError, RecursionError):
            pass
    return time.thread_time() - began


def test_patterns_take_linear_time() -> None:
    matched = only_matched()
    found = {
        (pattern.pattern, pattern.flags, name in matched): (f"{module}.{name}[{number}]", pattern)
        for module, loaded in (
            *imported(("schemas", "streams", "stores", "ops")),
            *named_expressions(),
        )
        for name, value in vars(loaded).items()
        for number, pattern in enumerate(patterns_in(value))
        if not REPEATS_NOTHING.fullmatch(pattern.pattern)
    }
    assert len(found) > 100
    slow: dict[str, float] = {}
    for (*_, is_matched), (name, pattern) in found.items():
        slow |= too_slow(name, pattern.match if is_matched else partial(pattern.sub, ""))
    assert not slow


def test_growth_tells_quadratic_from_slow() -> None:
    assert too_slow("quadratic", lambda text: [text.split("!") for _ in 4 * text])
    assert not too_slow("slow", lambda text: [hash(text[:200]) + sum(range(400)) for _ in text], 5)


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
