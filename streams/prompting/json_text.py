"""A model's text to the JSON object in it. Pure, and linear in the text whatever it holds.

Small models wrap their object in thoughts, Markdown fences and prose, leave commas behind and are
cut off by their token limit. Fences need no removal: they are prose around the object. One
scanner finds the outermost object and the places of its list items; pydantic's parser (which
refuses deep nesting instead of overflowing) reads them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue
from pydantic_core import from_json

MAX_REPLY_CHARACTERS: Final = 200_000
"""A valid extraction has at most about 60,000; what lies beyond is not read."""
MAX_STARTS: Final = 8
"""Places tried where an object may begin, so that garbage costs a bounded number of scans."""
MAX_OBJECTS: Final = 50
"""Objects of one reply that are joined, one after the other."""
MAX_DEPTH: Final = 64
MAX_ITEMS: Final = 500
"""List items salvaged from an object that does not parse as a whole."""

JsonObject = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class FoundObject:
    """The object, and whether parts of it were lost on the way."""

    value: JsonObject
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Scan:
    """One pass over an object: where it ends (None: cut or ill-nested) and its lists' items."""

    end: int | None = None
    items: dict[str, list[tuple[int, int]]] = field(default_factory=dict)


_STRING: Final = r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_TOKEN: Final = re.compile(rf"{_STRING}|[{{}}\[\]]", re.DOTALL)
_START: Final = re.compile(r'\{\s*+["}]')
_THOUGHTS: Final = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_THOUGHTS_END: Final = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_LOOSE: Final = re.compile(rf"({_STRING})|,\s*+(?=[}}\]])", re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}"
    r"|(?P<lone>u[dD][89a-fA-F][\da-fA-F]{2})|u[\da-fA-F]{4}|[\"\\/bfnrt]|(?P<odd>.))",
    re.DOTALL,
)


def without_thoughts(text: str) -> str:
    """`text` without `<think>…</think>` before its object, also when a tag is missing.

    Thoughts are looked for only before the first brace that can open an object: further on the
    letters `<think>` are part of what the object says.
    """
    position = 0
    begin = _START.search(text)
    while (opened := _THOUGHTS.search(text, position)) is not None:
        if begin is not None and begin.start() < opened.start():
            break
        closed = _THOUGHTS_END.search(text, opened.end())
        position = closed.end() if closed else len(text)
        if begin is not None and begin.start() < position:
            begin = _START.search(text, position)
    rest = text[position:]
    closed = _THOUGHTS_END.search(rest)
    if closed is not None and not rest.lstrip().startswith("{"):
        # Some chat templates write the opening tag themselves, so only the closing one is reported.
        rest = rest[closed.end() :]
    return rest


def find_object(text: str, wanted: Sequence[str]) -> FoundObject | None:
    """The outermost object of `text` that has one of the `wanted` keys; None when there is none.
    Where there are several, their lists are joined; of everything else the first counts.

    Keys in capitals are the same: those of the object and of its lists' items come in lower case.
    Read in turn: the object as it is; with trailing commas, bare line breaks and broken escapes
    repaired; and, where that fails too, the items of its `wanted` lists that are whole.
    """
    warnings: tuple[str, ...] = ()
    if len(text) > MAX_REPLY_CHARACTERS:
        text = text[:MAX_REPLY_CHARACTERS]
        warnings = (f"reply cut at {MAX_REPLY_CHARACTERS} characters",)
    text = text.encode("utf-8", "replace").decode("utf-8")
    objects, is_all = _objects(without_thoughts(text), wanted)
    if not objects:
        return None
    warnings += tuple(dict.fromkeys(line for each in objects for line in each.warnings))
    if len(objects) > 1:
        warnings += (f"{len(objects)} JSON objects in the reply: their lists are joined",)
    if not is_all:
        warnings += (f"only the first {MAX_OBJECTS} JSON objects of the reply are used",)
    return FoundObject(_joined([each.value for each in objects], wanted), warnings)


def _objects(text: str, wanted: Sequence[str]) -> tuple[list[FoundObject], bool]:
    """The objects that have a wanted key, one after the other, and whether that is all of them."""
    objects: list[FoundObject] = []
    position = in_vain = 0
    while in_vain < MAX_STARTS and (start := _START.search(text, position)) is not None:
        if len(objects) == MAX_OBJECTS:
            return objects, False
        scan = _scan(text, start.start(), wanted)
        whole = None if scan.end is None else _parse(text[start.start() : scan.end])
        whole = None if whole is None else _lower(whole)
        if whole is None or _is_repeated(whole, scan):
            found = _salvage(text, scan)
        else:
            found = FoundObject(whole) if any(key in whole for key in wanted) else None
        if found is None:
            in_vain += 1
            position = start.end()
            continue
        objects.append(found)
        if scan.end is None:
            break
        position = scan.end
    return objects, True


def _is_repeated(value: JsonObject, scan: _Scan) -> bool:
    """Whether a list stood there twice under one key, of which a parser keeps the last."""
    return any(
        isinstance(listed := value.get(key), list)
        and len(spans) > sum(isinstance(item, dict) for item in listed)
        for key, spans in scan.items.items()
    )


def _joined(values: Sequence[JsonObject], wanted: Sequence[str]) -> JsonObject:
    """The first value, with the wanted lists of the others behind its own."""
    joined = dict(values[0])
    for value in values[1:]:
        for key in wanted:
            more, known = value.get(key), joined.get(key)
            if isinstance(more, list):
                joined[key] = [*known, *more] if isinstance(known, list) else more
    return joined


def _scan(text: str, start: int, wanted: Sequence[str]) -> _Scan:
    """Follow the brackets from the object at `start` to its end."""
    scan = _Scan()
    stack: list[str] = []
    key, item, counted = "", -1, 0
    for token in _TOKEN.finditer(text, start):
        mark = token.group()
        if mark in ("{", "["):
            if len(stack) == MAX_DEPTH:
                return scan
            stack.append(mark)
            if stack == ["{", "[", "{"]:
                item = token.start()
            elif stack == ["{", "["] and key in wanted:
                scan.items.setdefault(key, [])
        elif mark in ("}", "]"):
            if not stack or stack.pop() != ("{" if mark == "}" else "["):
                return scan
            if stack == ["{", "["] and mark == "}" and key in wanted and counted < MAX_ITEMS:
                counted += 1
                scan.items[key].append((item, token.end()))
            elif not stack:
                scan.end = token.end()
                return scan
        elif len(stack) == 1:
            key = mark[1:-1].lower()
    return scan


def _salvage(text: str, scan: _Scan) -> FoundObject | None:
    if not scan.items:
        return None
    value: JsonObject = {}
    lost = 0
    for key, spans in scan.items.items():
        parsed = [_parse(text[begin:end]) for begin, end in spans]
        whole: list[JsonValue] = [_lower(item) for item in parsed if item is not None]
        lost += len(parsed) - len(whole)
        value[key] = whole
    if not any(value.values()):
        return None
    cut = "reply is cut or not valid JSON: only its whole items are used"
    return FoundObject(value, (cut, f"{lost} items unreadable") if lost else (cut,))


def _lower(value: JsonObject) -> JsonObject:
    """`value` with its keys, and those of its lists' items, in lower case; of two that are then the
    same, the one that was so goes before."""
    found: JsonObject = {}
    for key in sorted(value, key=lambda key: key == key.lower()):
        each = value[key]
        if isinstance(each, list):
            each = [_lower(item) if isinstance(item, dict) else item for item in each]
        found[key.lower()] = each
    return found


def _parse(text: str) -> JsonObject | None:
    for is_repaired in (False, True):
        if is_repaired:
            text = _LOOSE.sub(lambda match: _repaired_string(match.group(1) or ""), text)
        try:
            value = from_json(text)
        except ValueError:
            continue
        return value if isinstance(value, dict) else None
    return None


def _repaired_string(token: str) -> str:
    if "\\" in token:
        token = _ESCAPE.sub(_repaired_escape, token)
    return _CONTROL.sub(" ", token)


def _repaired_escape(match: re.Match[str]) -> str:
    if match["lone"]:
        return "\ufffd"
    odd = match["odd"]
    return match.group() if odd is None else str(odd)
