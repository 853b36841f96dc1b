"""Another address, number, partner or day of an event than a known one. Pure."""

from __future__ import annotations

import re
from typing import Final

from palimpsest.streams.claims.language import expression
from palimpsest.streams.claims.values import are_two_names, tells_more

_ADDRESSES: Final = (expression("mail"), expression("telephone"), expression("street"))
_EVENTS_ON_DAYS: Final = (expression("event"), expression("planned"))
_PARTNER: Final = expression("partner")
_ONE_DAY: Final = re.compile(r"wedding|due date|deadline|graduation|surgery|moving day")
_MAIL: Final = re.compile(r"e-?mail(?: address)?")
MAX_CHARACTERS: Final = 200


def is_other_attribute(new: str, known: str) -> bool:
    """Whether `new` gives another address, partner or day of an event. Several events may share a
    name (an exam, a class), so the day of most is another only where it is said to have moved."""
    if _is_other_partner(new, known):
        return True
    said = _folded(new)
    lately = said.endswith(" now")
    for shape in (*_ADDRESSES, *_EVENTS_ON_DAYS):
        one = shape.fullmatch(said.removesuffix(" now"))
        if one is None:
            continue
        other = shape.fullmatch(_folded(known).removesuffix(" now"))
        if other is None or one["holder"] != other["holder"] or _key(one) != _key(other):
            continue
        if shape in _ADDRESSES:
            return _is_another(one["value"], other["value"])
        same_shape = one["value"][0].isdigit() == other["value"][0].isdigit()
        moved = lately or one["news"] is not None or _ONE_DAY.fullmatch(one["key"]) is not None
        return moved and same_shape and one["value"] != other["value"]
    return False


def _is_other_partner(new: str, known: str) -> bool:
    found = [_PARTNER.fullmatch(each.replace("\u2019", "'").rstrip(".! ")) for each in (new, known)]
    one, other = found
    if one is None or other is None or one["key"] != other["key"]:
        return False
    names = [each["value"].casefold() for each in (one, other)]
    if one["holder"].casefold() != other["holder"].casefold() or any(
        map(expression("adjective").fullmatch, names)
    ):
        return False
    return are_two_names(*names)


def _is_another(new: str, known: str) -> bool:
    """Another address or number, not the same in another notation."""
    if "@" in new:
        return new != known
    if tells_more(*(re.sub("[,/]", " ", text) for text in (new, known))):
        return False  # one has the town, too
    house = re.match(r"\d+\w? ", new)
    if house is not None and not new.replace(" ", "").isdecimal():
        return not known.startswith(house[0])
    digits, others = (re.sub(r"\D", "", text) for text in (new, known))
    return not (digits.endswith(others) or others.endswith(digits))


def _key(found: re.Match[str]) -> str:
    return _MAIL.sub("email", found["key"]).replace("phone number", "number")


def _folded(statement: str) -> str:
    if len(statement) > MAX_CHARACTERS:
        return ""
    return statement.replace("\u2019", "'").casefold().rstrip(".! ")
