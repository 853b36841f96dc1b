"""What of an item's value is searched, and which values a filter passes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from langgraph.store.base import get_text_at_path

COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def texts(value: object, paths: Sequence[str]) -> list[str]:
    """The texts of a value that can be searched, each once: those of every path, for `$` all that
    is text in it together."""
    found: list[str] = []
    for path in paths:
        found += ["; ".join(_all(value))] if path in ("", "$") else get_text_at_path(value, path)
    return [*dict.fromkeys(text for text in found if text.strip())]


def _all(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in _all(each)]
    if isinstance(value, list | tuple):
        return [text for each in value for text in _all(each)]
    return [] if value is None else [str(value)]


def passes(value: Any, conditions: Mapping[str, Any] | None) -> bool:
    """Whether every condition holds; a name with dots reaches into the value, unless the value has
    that very name."""
    return all(_fits(_at(value, name), wanted) for name, wanted in (conditions or {}).items())


def _at(value: Any, name: str) -> Any:
    if not isinstance(value, dict) or name in value:
        return value.get(name) if isinstance(value, dict) else None
    first, _, rest = name.partition(".")
    return _at(value.get(first), rest) if rest else None


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        if any(name.startswith("$") for name in wanted):
            return all(_compared(value, name, other) for name, other in wanted.items())
        return isinstance(value, dict) and passes(value, wanted)
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(wanted)
            and all(map(_fits, value, wanted))
        )
    return bool(value == wanted)


def _compared(value: Any, name: str, other: Any) -> bool:
    if name not in COMPARED:
        raise ValueError(f"there is no {name}; there are {', '.join(COMPARED)}")
    try:
        return COMPARED[name](value, other)
    except TypeError:
        return False  # as 5 > "a"
