"""How values are shown and read: filters of the templates, and the values of a query string."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

from palimpsest.ops.operations.operation import Parameter

ON: Final = frozenset({"on", "true", "1", "yes"})


def url(path: str, **query: Any) -> str:
    """A URL with a query string, without empty values. Encodes the path's special characters."""
    left = {name: value for name, value in query.items() if value not in (None, "", False)}
    shown = quote(path, safe="/:@")
    return f"{shown}?{urlencode(left, doseq=True)}" if left else shown


def own_path(target: str) -> str:
    """The path to go on to; the first view for anything that could lie elsewhere."""
    is_own = target.startswith("/") and not target.startswith("//") and "\\" not in target
    return target if is_own and target.isprintable() else "/"


def whole(text: str, otherwise: int) -> int:
    """The number that a text is; `otherwise` for anything else, and for one beyond a billion."""
    return int(text) if text.isdecimal() and len(text) < 10 else otherwise


def typed(parameter: Parameter, value: str) -> Any:
    """The value of a form or a query string for a field of an operation."""
    if parameter.repeated:
        return [each for part in value.split(",") if (each := part.strip())]
    if parameter.plain_type is bool:
        return value in ON
    if parameter.plain_type is datetime:
        # Of UTC if it names no zone; dates and texts that are no time stay as they are.
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            return value
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()
    return value


def time(value: str | datetime | None, seconds: bool = False) -> Markup:
    """A time in UTC, to the minute or the second; the whole of it as its title."""
    if value is None:
        return Markup("<span class='none'>never</span>")
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else value
        at = at.astimezone(UTC)
    except (ValueError, OverflowError):  # a year that this cannot count
        return Markup("{}").format(value)
    whole = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    shown = at.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")
    return Markup("<time datetime='{0}' title='{0}'>{1}</time>").format(whole, shown)


AGES: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def age(since: str | None) -> Markup:
    """How long ago a time was, in its largest unit: `12 s`, `3 min`; the time as its title."""
    if since is None:
        return Markup("–")
    seconds = max(0.0, (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds())
    size, unit = next((each for each in AGES if seconds >= each[0]), AGES[-1])
    told = f"{number(seconds // size)} {unit}"
    return Markup("<span title='since {}'>{}</span>").format(since, told)


def number(value: float | None, digits: int = 0) -> str:
    """A number with a thin space between thousands."""
    return "–" if value is None else f"{value:,.{digits}f}".replace(",", "\u202f")


def count(value: int, one: str, many: str = "") -> str:
    """A number with its noun: `1 turn`, `2 turns`."""
    return f"{number(value)} {one if value == 1 else many or one + 's'}"


def pretty(value: Any) -> str:
    """A JSON value on several lines; a text that is JSON likewise, any other text as it is."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
    return json.dumps(value, indent=2, ensure_ascii=False)


def words(name: str) -> str:
    """A name of the API as words, without underscores and hyphens."""
    return name.replace("_", " ").replace("-", " ")


def capitalized(text: str) -> str:
    """A text that begins with a capital."""
    return text[:1].upper() + text[1:]


_TONES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("ok", "done", "stored", "idle", "applied", "active", "open"), "good"),
    "healthy": "good",
    **dict.fromkeys(("running", "queued", "extracting", "chunking", "embedding"), "busy"),
    **dict.fromkeys(("waiting", "held", "blocked", "pending", "stopped", "redriven"), "warn"),
    "degraded": "warn",
    **dict.fromkeys(("dead", "failed", "rejected", "deleted", "forgotten", "unusable"), "bad"),
    "unhealthy": "bad",
}


def state(name: str) -> Markup:
    """A state in words, with a colour where it has one."""
    return Markup('<span class="state {}">{}</span>').format(_TONES.get(name, "plain"), words(name))


def lines(value: str) -> Markup:
    """A text with its line breaks."""
    return Markup("<br>").join(escape(line) for line in value.splitlines())


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    each.__name__: each
    for each in (time, age, number, count, pretty, words, capitalized, state, lines)
}
