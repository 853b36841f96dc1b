"""Where a text quotes another one."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from palimpsest.schemas.normal_forms import folded, one_line

ERASED: Final = "[erased]"
"""What stands for a quotation, and for what a model said of a text."""
LONG: Final = 100
"""Of a longer text a beginning of so many characters is taken for a quotation, up to its end."""
_WORD: Final = re.compile(r"\w+|[^\w\s]")


class Quotations:
    """Finds where any of some texts is quoted: as it is, in JSON, or as Python shows it; whole
    words, in any case."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._by_first_word: dict[str, list[str]] = {}
        shown: set[str] = set()
        for text in filter(None, texts):
            # A text of several lines is quoted on one, too.
            for form in {text, one_line(text)}:
                escaped = (json.dumps(form)[1:-1], json.dumps(form, ensure_ascii=False)[1:-1])
                for given in (form, *escaped):
                    shown |= {_lower(given), _lower(repr(given)[1:-1])}
        for given in sorted(shown, key=lambda each: (-len(each), each)):
            first = _WORD.search(given)
            if first is not None:
                begun = given[first.start() :]
                self._by_first_word.setdefault(first.group(), []).append(begun)

    def __iter__(self) -> Iterator[str]:
        """All that is looked for, in lower case."""
        return itertools.chain.from_iterable(self._by_first_word.values())

    def left_out(self, text: str) -> str:
        """The text with ERASED for each quotation."""
        parts, done = [], 0
        for word in _WORD.finditer(text):
            end = None if word.start() < done else self.end(text, word.start())
            if end is not None:
                parts += [text[done : word.start()], ERASED]
                done = end
        return "".join((*parts, text[done:]))

    def end(self, text: str, start: int) -> int | None:
        """Where the quotation ends that begins at a word; None where none does."""
        first = _WORD.match(text, start)
        for given in self._by_first_word.get(_lower(first.group()), ()) if first else ():
            end = start + len(given)
            if _lower(text[start:end]) == given and not _inside_word(text, end):
                return end
            if len(given) > LONG and _lower(text[start : start + LONG]) == given[:LONG]:
                return len(text)
        return None


def _lower(text: str) -> str:
    """In lower case, character by character: one alone would become two."""
    return text.replace("İ", "i").lower()


def _inside_word(text: str, place: int) -> bool:
    return 0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum()


MARK: Final = re.compile(r"\[erased [^\s\]]+(?: \d+)?\]")


def mark_of(memory_id: str, number: int = 1) -> str:
    """The mark that replaces the `number`-th text of an erased memory; 0: one that it never had."""
    return f"[erased {memory_id}]" if number == 1 else f"[erased {memory_id} {number}]"


def marks_of(texts: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], str]:
    """Returns marks by memory and folded text, for memories' texts by their ids, oldest first."""
    return {
        (memory_id, text): mark_of(memory_id, number)
        for memory_id in sorted(texts)
        for number, text in enumerate(dict.fromkeys(map(folded, texts[memory_id])), 1)
    }


def is_mark(text: str) -> bool:
    return MARK.fullmatch(text) is not None
