"""The text of a mail in HTML, without what it quotes and without its signature."""

from __future__ import annotations

import html
import re
from typing import Final

_ELEMENT: Final = re.compile(
    r"<(?P<end>/?)(?P<name>[a-zA-Z][a-zA-Z0-9]{0,15})(?P<rest>[^<>]{0,4000})>"
)
_DECLARATION: Final = re.compile(r"<[!?][^<>]{0,1000}>")
_GAPS: Final = re.compile(r"[^\S\n]+")
_UNSEEN: Final = frozenset({"head", "script", "style", "title", "template"})
_BLOCKS: Final = frozenset(
    "address article blockquote br dd div dl dt h1 h2 h3 h4 h5 h6 hr li ol p pre section table"
    " td th tr ul".split()
)
_QUOTE: Final = re.compile(r"gmail_quote|yahoo_quoted|moz-cite-prefix|protonmail_quote", re.I)
_REST: Final = re.compile(r"divRplyFwdMsg|appendonsend|mail-editor-reference-message", re.I)
"""After it all is quoted."""
_SIGNATURE: Final = re.compile(r"gmail_signature|moz-signature|protonmail_signature", re.I)
_KINDS: Final = ((_QUOTE, "quotations"), (_SIGNATURE, "signatures"))
_EMPTY: Final = frozenset("area base br col hr img input link meta source wbr".split())
"""Elements without an end."""


def text_of_html(page: str) -> tuple[str, list[str]]:
    """Returns the words of a page, a block a line, and the kinds of what is left out."""
    page = _without_comments(page)
    words: list[str] = []
    left_out: list[str] = []
    skipped, depth = "", 0
    """The element that is skipped, and how many of its name are open in it."""
    place = 0
    for tag in _ELEMENT.finditer(page):
        if not skipped:
            words.append(_plain(page[place : tag.start()]))
        place = tag.end()
        name, is_end = tag["name"].lower(), bool(tag["end"])
        if skipped:
            if name == skipped and not tag["rest"].endswith("/"):
                depth += -1 if is_end else 1
            skipped = skipped if depth else ""
            continue
        if name in _BLOCKS:
            words.append("\n")
        if is_end or name in _EMPTY:
            continue
        if _REST.search(tag["rest"]):
            left_out.append("quotations")
            return _lines(words), left_out
        kind = _skipped_kind(name, tag["rest"])
        if kind is not None:
            left_out += [kind] if kind else []
            skipped, depth = name, 1
    if not skipped:
        words.append(_plain(page[place:]))
    return _lines(words), left_out


def _skipped_kind(name: str, attributes: str) -> str | None:
    """Returns the kind of an element that is left out, empty if nobody sees it; None if it is
    read."""
    if name in _UNSEEN:
        return ""
    if name == "blockquote":
        return "quotations"
    return next((kind for marks, kind in _KINDS if marks.search(attributes)), None)


def _without_comments(page: str) -> str:
    parts = []
    place = 0
    while (begins := page.find("<!--", place)) >= 0:
        ends = page.find("-->", begins)
        if ends < 0:
            break
        parts.append(page[place:begins])
        place = ends + 3
    return "".join((*parts, page[place:]))


def _plain(text: str) -> str:
    """Returns a text between two tags, whose line breaks are spaces."""
    return html.unescape(_DECLARATION.sub("", text).replace("\n", " ")).replace("\xa0", " ")


def _lines(words: list[str]) -> str:
    lines = (_GAPS.sub(" ", line).strip() for line in "".join(words).split("\n"))
    return "\n".join(line for line in lines if line)
