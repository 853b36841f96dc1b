"""The inline entity linker: which names of a text may be entities. No model, no I/O."""

from __future__ import annotations

import re
import unicodedata

MAX_NAMES = 64
MAX_WORDS = 5

_WORD = re.compile(r"[\w'’-]+(?:\.\d+)*", re.UNICODE)
_QUOTED = re.compile(r"[\"“«「『']([^\"”»」』']{2,60})[\"”»」』']")
_SPACE = re.compile(r"\s+")
_POSSESSIVE = re.compile(r"['’]s$")


def canonical_name(name: str) -> str:
    """The name by which an entity is known: NFKC, lower-cased, white space folded."""
    return _SPACE.sub(" ", unicodedata.normalize("NFKC", name)).strip().lower()


def candidate_names(text: str) -> dict[str, str]:
    """Canonical name to how it stands in the text, for every run of capitalised words (and every
    part of such a run), every word with a digit or inner capital, and every quoted name.

    At most MAX_NAMES, in text order.
    """
    found: dict[str, str] = {}
    for match in _QUOTED.finditer(text):
        _note(found, match.group(1))
    run: list[str] = []
    last_end = 0
    for match in _WORD.finditer(text):
        word = match.group()
        if run and text[last_end : match.start()].strip():
            _note_run(found, run)
            run = []
        last_end = match.end()
        if _is_name_like(word):
            run.append(word)
        else:
            _note_run(found, run)
            run = []
    _note_run(found, run)
    return dict(list(found.items())[:MAX_NAMES])


def unspaced_part(text: str) -> str:
    """The part of a text in scripts without word spaces or capitals, in which known names are
    looked for as they are; empty for others."""
    if text.isascii():
        return ""
    kept = "".join(c if _is_unspaced(c) else " " for c in unicodedata.normalize("NFKC", text))
    return _SPACE.sub(" ", kept).strip().lower()


def names_in(text: str, name: str) -> str | None:
    """How `name` (canonical) stands in the text by the linker's rules; None where it does not."""
    shown = candidate_names(text).get(name)
    if shown is None and not name.isascii() and name in unspaced_part(text):
        return name
    return shown


def _note_run(found: dict[str, str], run: list[str]) -> None:
    for start in range(len(run)):
        for end in range(start + 1, min(len(run), start + MAX_WORDS) + 1):
            _note(found, " ".join(run[start:end]))


def _note(found: dict[str, str], shown: str) -> None:
    for form in (shown, _POSSESSIVE.sub("", shown)):
        name = canonical_name(form)
        if len(name) >= 2:
            found.setdefault(name, form)


def _is_name_like(word: str) -> bool:
    return word[0].isupper() or any(c.isdigit() for c in word) or any(c.isupper() for c in word[1:])


def _is_unspaced(character: str) -> bool:
    return (
        "\u3040" <= character <= "\u30ff"
        or "\u3400" <= character <= "\u9fff"
        or "\uac00" <= character <= "\ud7af"
        or "\u0e00" <= character <= "\u0eff"
        or "\u0600" <= character <= "\u06ff"
        or "\u0590" <= character <= "\u05ff"
        or "\u0900" <= character <= "\u097f"
    )
