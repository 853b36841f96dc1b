"""What somebody or an event has one of: an address, a telephone number, a partner, a day. Pure."""

from __future__ import annotations

import re
from typing import Final

from palimpsest.streams.claims.denial import MAX_CHARACTERS
from palimpsest.streams.claims.exclusion import ADJECTIVE, are_two_names
from palimpsest.streams.text.dates import MONTHS

_MONTH: Final = "|".join(MONTHS)
_DAY: Final = (
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    rf"|\d{{1,2}} (?:{_MONTH})|(?:{_MONTH}) \d{{1,2}})"
)
_HOLDER: Final = r"(?P<holder>(?:the user|[^\W\d_][\w-]{0,30})'s|the) "
_NEWER: Final = r"(?P<news>(?:new|current) )?"
_KIND: Final = r"(?:(?:mobile|cell|work|private|personal|home|office) )?"
_MOVED: Final = r"(?:(?:was|has been|is) )?(?:moved|postponed|rescheduled|brought forward) to"
_ADDRESSES: Final = tuple(
    re.compile(f"{_HOLDER}{_NEWER}(?P<key>{key}) is (?:now )?(?P<value>{value})")
    for key, value in (
        (f"{_KIND}e-?mail(?: address)?", r"[^\s@]{1,80}@[^\s@]{1,80}"),
        (f"{_KIND}(?:phone )?number", r"\+?\d[\d ()./-]{3,20}"),
        (f"{_KIND}address", r"\d{1,5}\w? (?:[\w-]{1,20} ?){1,4}"),
    )
)
_EVENT: Final = re.compile(
    rf"{_HOLDER}(?P<key>(?:[\w-]{{1,30}} ){{0,2}}?[\w-]{{1,30}}) (?:is (?:on )?|(?P<news>{_MOVED}"
    rf"|is now on) )(?P<value>{_DAY})"
)
_NAME: Final = r"[^\W\d_a-z][\w'-]{1,30}(?: [^\W\d_a-z][\w'-]{1,30})?"
_PARTNER: Final = re.compile(
    rf"(?P<holder>{_NAME}|[Tt]he user)'s (?P<key>wife|husband|spouse|partner|boyfriend|girlfriend"
    rf"|fiancée?) is (?:now )?(?:called |named )?(?P<value>{_NAME})"
)
_ONE_DAY: Final = re.compile(r"wedding|due date|deadline|graduation|surgery|moving day")
_MAIL: Final = re.compile(r"e-?mail(?: address)?")


def is_other_attribute(new: str, known: str) -> bool:
    """Whether `new` gives another address, partner or day of an event. Several events may share a
    name (an exam, a class), so the day of most is another only where it is said to have moved."""
    if _is_other_partner(new, known):
        return True
    for shape in (*_ADDRESSES, _EVENT):
        one = shape.fullmatch(_plain(new))
        if one is None:
            continue
        other = shape.fullmatch(_plain(known))
        if other is None or one["holder"] != other["holder"] or _key(one) != _key(other):
            continue
        if shape is not _EVENT:
            return _is_another(one["value"], other["value"])
        same_shape = one["value"][0].isdigit() == other["value"][0].isdigit()
        moved = one["news"] is not None or _ONE_DAY.fullmatch(one["key"]) is not None
        return moved and same_shape and one["value"] != other["value"]
    return False


def _is_other_partner(new: str, known: str) -> bool:
    found = [_PARTNER.fullmatch(each.replace("\u2019", "'").rstrip(".! ")) for each in (new, known)]
    one, other = found
    if one is None or other is None or one["key"] != other["key"]:
        return False
    names = [each["value"].casefold() for each in (one, other)]
    if one["holder"].casefold() != other["holder"].casefold() or any(
        map(ADJECTIVE.fullmatch, names)
    ):
        return False
    return are_two_names(*names)


def _is_another(new: str, known: str) -> bool:
    """Another address or number, not the same in another notation."""
    if "@" in new:
        return new != known
    house = re.match(r"\d+\w? ", new)
    if house is not None and not new.replace(" ", "").isdecimal():
        return not known.startswith(house[0])
    digits, others = (re.sub(r"\D", "", text) for text in (new, known))
    return not (digits.endswith(others) or others.endswith(digits))


def _key(found: re.Match[str]) -> str:
    return _MAIL.sub("email", found["key"]).replace("phone number", "number")


def _plain(statement: str) -> str:
    if len(statement) > MAX_CHARACTERS:
        return ""
    return statement.replace("\u2019", "'").casefold().rstrip(".! ")
