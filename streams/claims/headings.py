"""Lists under a heading, "My allergies: walnuts, milk", as sentences. Pure."""

from __future__ import annotations

import re
from typing import Final

MAX_ITEMS: Final = 8

_SENTENCES: Final = {
    "allergies": "I am allergic to",
    "hobbies": "My hobbies are",
    "languages": "I speak",
    "pets": "I have",
    "likes": "I like",
    "dislikes": "I dislike",
    "diet": "I am",
    "job": "My job is",
    "occupation": "My occupation is",
    "profession": "My profession is",
    "name": "My name is",
    "birthday": "My birthday is",
    "hometown": "My hometown is",
    "home town": "My hometown is",
}
_HEADING: Final = re.compile(
    rf"(?:my (?:food )?(?P<what>{'|'.join(_SENTENCES)})|(?:food )?(?P<alone>allergies)): ?"
    r"(?P<items>.*)",
    re.IGNORECASE,
)
"""Others than allergies need "my": a sheet about an invented person has the same headings."""
_ITEM: Final = re.compile(r"(?:[-*+•‣–]|\d{1,2}[.)])\s+(?P<item>[^.:]{2,40})")
_BETWEEN: Final = re.compile(r",? and |[,;/] ?")


def written_out(lines: list[str]) -> list[str]:
    """`lines` with each heading and its list, on its line or below it, as one sentence."""
    found: list[str] = []
    at = 0
    while at < len(lines):
        heading = _HEADING.fullmatch(lines[at].strip().rstrip(".!"))
        at += 1
        if heading is None:
            found.append(lines[at - 1])
            continue
        items = [item for item in _BETWEEN.split(heading["items"].strip()) if item]
        while not heading["items"] and at < len(lines) and len(items) < MAX_ITEMS:
            item = _ITEM.fullmatch(lines[at].strip())
            if item is None:
                break
            items.append(item["item"])
            at += 1
        if items:
            frame = _SENTENCES[(heading["what"] or heading["alone"]).lower()]
            listed = " and ".join(filter(None, (", ".join(items[:-1]), items[-1])))
            found.append(f"{frame} {listed}.")
    return found
