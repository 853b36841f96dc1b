"""Normal forms of a text: what is stored, what is indexed, what identifies it."""

from __future__ import annotations

import hashlib
import re
import unicodedata

_SPACE = re.compile(r"\s+")
_QUOTES = "\"“”„«»「」『』‘’'"
_FINAL_PUNCTUATION = re.compile(r"(?<![.,!?;:])[.,!?;:]++$")


def storage_content(text: str) -> str:
    """NFC, trimmed, runs of white space as one space, case kept. NUL is no text and is dropped."""
    return _SPACE.sub(" ", unicodedata.normalize("NFC", text.replace("\0", ""))).strip()


def storage_lines(text: str) -> str:
    """The same with its line breaks: NFC, trimmed, without NUL."""
    return unicodedata.normalize("NFC", text.replace("\0", "")).strip()


def normalized_content(stored: str) -> str:
    """The storage content lower-cased, without final punctuation."""
    return _FINAL_PUNCTUATION.sub("", stored.lower()).rstrip()


def content_hash(stored: str) -> str:
    """SHA-256 hex of the normalized content, or of the lower-cased storage content where that is
    empty: the dedup key within a scope."""
    return hashlib.sha256((normalized_content(stored) or stored.lower()).encode()).hexdigest()


def canonical_name(name: str) -> str:
    """The name by which an entity is known: NFKC, lower-cased, white space folded."""
    if not name.isascii():
        name = unicodedata.normalize("NFKC", name)
    return " ".join(name.split()).lower()


def shown_name(name: str) -> str:
    """A given name without the quotes around it."""
    name = name.strip()
    while len(name) > 2 and name[0] in _QUOTES and name[-1] in _QUOTES:
        name = name[1:-1].strip()
    return name


_VERBS_AND_NAMES = frozenset(("will", "may", "hope"))
_AFTER_A_VERB = frozenset(
    "i you he she it we they there this that these those the my your his her our their".split()
)


def is_verb(word: str, following: str) -> bool:
    """Whether a lower-cased word that is a name too ("Will", "May", "Hope") is a verb before the
    lower-cased word that follows it."""
    return word in _VERBS_AND_NAMES and following in _AFTER_A_VERB
