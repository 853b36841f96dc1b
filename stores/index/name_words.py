"""The words of a question that match a name."""

from __future__ import annotations

import re
import unicodedata

from palimpsest.schemas.normal_forms import is_verb
from palimpsest.stores.database.analysis import query_tokens

MIN_TOKEN_CHARACTERS = 2
MAX_TOKENS = 64
"""Tokens of a query that are looked up; longer input is text, not a question."""

_WORD = re.compile(r"[^\W_]+")
_ACRONYM_WORDS = frozenset(("us", "it", "who"))
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).lower()


def query_words(query: str, language: str = "english") -> frozenset[str]:
    """The tokens of a query to look names up by, with their stems; at most MAX_TOKENS words."""
    normal = unicodedata.normalize("NFKC", query)
    written = _WORD.findall(normal)[:MAX_TOKENS]
    shouted = normal.isupper()
    telling = frozenset(query_tokens(" ".join(written), language))
    tokens: set[str] = set()
    for place, word in enumerate(written):
        following = written[place + 1].lower() if place + 1 < len(written) else ""
        # The US and us: an acronym is written in capitals.
        is_pronoun = word.lower() in _ACRONYM_WORDS and (shouted or not word.isupper())
        if is_pronoun or is_verb(word.lower(), following):
            continue
        stems = query_tokens(word, language)
        # Will is a function word only where it is not written as a name.
        if telling.intersection(stems) or (place and word[0].isupper()):
            tokens.update((word.lower(), *filter(_WORD.fullmatch, stems)))
    return frozenset(token for token in tokens if len(token) >= MIN_TOKEN_CHARACTERS)


def stands_whole(name: str) -> bool:
    """Whether a folded name is in a script without spaces, so must occur in a query as a whole."""
    return _UNSPACED.search(name) is not None


def words_of_name(name: str, language: str) -> set[str]:
    """The whole words of a folded name, with their stems."""
    words: set[str] = set()
    for word in _WORD.findall(name):
        if len(word) >= MIN_TOKEN_CHARACTERS:
            words.update((word, *query_tokens(word, language)))
    return words


def stands_in(name: str, query: str, tokens: frozenset[str], language: str) -> bool:
    """Whether a query (folded, with its tokens) contains a canonical name or alias."""
    name = folded(name)
    if stands_whole(name):
        return len(name) >= MIN_TOKEN_CHARACTERS and name in query
    return not tokens.isdisjoint(words_of_name(name, language))
