"""The inline entity linker: which names of a text may be entities. No model, no I/O."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

MAX_NAMES = 64
MAX_WORDS = 5

# Words that look like names: they begin with a capital, or have one or a digit inside.
_NAME_LIKE = re.compile(r"[\w'’-]*[^\W_a-z][\w'’-]*(?:\.\d+)*")
_QUOTED = re.compile(r"[\"“«「『]([^\"”»」』]{2,60})[\"”»」』]")
_POSSESSIVE = ("'s", "’s")


def canonical_name(name: str) -> str:
    """The name by which an entity is known: NFKC, lower-cased, white space folded."""
    if not name.isascii():
        name = unicodedata.normalize("NFKC", name)
    return " ".join(name.split()).lower()


@lru_cache(maxsize=4096)
def _candidates(text: str) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for match in _QUOTED.finditer(text):
        _note(found, match.group(1))
    run: list[str] = []
    last_end = -1
    for match in _NAME_LIKE.finditer(text):
        word = match.group()
        if not _is_name_like(word):
            continue
        if run and not text[last_end : match.start()].isspace():
            _note_run(found, run)
            run = []
        run.append(word)
        last_end = match.end()
    _note_run(found, run)
    return tuple(found.items())[:MAX_NAMES]


def candidate_names(text: str) -> dict[str, str]:
    """Canonical name to how it stands in the text, for every run of capitalised words (and every
    part of such a run), every word with a digit or inner capital, and every quoted name.

    At most MAX_NAMES, in text order.
    """
    return dict(_candidates(text))


def unspaced_part(text: str) -> str:
    """The part of a text in scripts without word spaces or capitals, in which known names are
    looked for as they are; empty for others."""
    if text.isascii():
        return ""
    kept = "".join(c if _is_unspaced(c) else " " for c in unicodedata.normalize("NFKC", text))
    return " ".join(kept.split()).lower()


def names_in(text: str, name: str) -> str | None:
    """How `name` (canonical) stands in the text by the linker's rules; None where it does not."""
    shown = candidate_names(text).get(name)
    if shown is None and not name.isascii() and name in unspaced_part(text):
        return name
    return shown


def _note_run(found: dict[str, str], run: list[str]) -> None:
    for start in range(len(run)):
        for end in range(start + 1, min(len(run), start + MAX_WORDS) + 1):
            shown = " ".join(run[start:end])
            if len(shown) >= 2:
                _note(found, shown)


def _note(found: dict[str, str], shown: str) -> None:
    found.setdefault(canonical_name(shown), shown)
    if shown.endswith(_POSSESSIVE):
        found.setdefault(canonical_name(shown[:-2]), shown[:-2])


def _is_name_like(word: str) -> bool:
    return word[0].isupper() or any(c.isdigit() or c.isupper() for c in word)


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
