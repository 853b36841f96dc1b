"""What is known of languages, as data: words, texts and expressions that lie in TOML beside the
modules that use them. Read with a module's package, once, as an import is: pure.
"""

from __future__ import annotations

import pkgutil
import re
import tomllib
from functools import cache
from typing import Final, cast

_BREAK: Final = re.compile(r"(?:\A|\n) {4,}|\n")
_FLAGGED: Final = re.compile(r"\A\(\?([aims]+)\)(.*)", re.DOTALL)
_NAMED: Final = re.compile(r"\{([a-z_]+(?:\+[a-z_]+)*)\}")


def read_table(module: str, file: str) -> object:
    """What a file beside the module holds; the module says of what type it is."""
    return tomllib.loads((pkgutil.get_data(module, file) or b"").decode())


def joined(text: str) -> str:
    """The text of an expression, which may be written over several lines."""
    return _BREAK.sub("", text)


class Lexicon:
    """Lists of words (`words`) and expressions (`patterns`) of a file beside a module.

    Of several words in a list, those of one entry are joined by "_". An expression may name others,
    and lists, in braces; flags at its beginning hold for all of it.
    """

    def __init__(self, module: str, file: str) -> None:
        self.tables = cast("dict[str, dict[str, str]]", read_table(module, file))
        self.word_set = cache(self._word_set)
        self.spaced_set = cache(self._spaced_set)
        self.fragment = cache(self._fragment)
        self.expression = cache(self._expression)

    def words(self, name: str) -> list[str]:
        """A list of words, in the order of the file."""
        return self.tables["words"][name].split()

    def _word_set(self, name: str) -> frozenset[str]:
        return frozenset(self.words(name))

    def _spaced_set(self, name: str) -> frozenset[str]:
        """A list in which some are of several words."""
        return frozenset(word.replace("_", " ") for word in self.words(name))

    def _fragment(self, name: str) -> str:
        """The text of an expression, with what it names put in; of words, the longest first."""
        text = self.tables["patterns"].get(name)
        if text is not None:
            return _FLAGGED.sub(r"(?\1:\2)", self.filled(joined(text)))
        listed: frozenset[str] = frozenset().union(*map(self.spaced_set, name.split("+")))
        return "|".join(sorted(listed, key=lambda word: (-len(word), word)))

    def filled(self, text: str) -> str:
        """The text of an expression with what it names put in."""
        return _NAMED.sub(lambda match: self.fragment(match[1]), text)

    def _expression(self, name: str) -> re.Pattern[str]:
        return re.compile(self.fragment(name))
