"""Normal forms of a text: what is stored, what is indexed, what identifies it."""

from __future__ import annotations

import hashlib
import re
import unicodedata

_BREAK = re.compile(r"\r\n?|[\v\f\x85\u2028\u2029]")
_QUOTES = "\"“”„«»「」『』‘’'"
_FINAL_PUNCTUATION = re.compile(r"(?<![.,!?;:])[.,!?;:]++$")


def storage_content(text: str) -> str:
    """NFC, trimmed, case kept; NUL is no text and is dropped. In a text of one line a run of white
    space is one space; one of several keeps its form, which lists and code are read by, with a
    line feed for each line break."""
    text = unicodedata.normalize("NFC", text.replace("\0", "")).strip()
    return _BREAK.sub("\n", text) if "\n" in text else one_line(text)


def one_line(text: str) -> str:
    """The text with each run of white space as one space: by this form texts are the same."""
    return " ".join(text.split())


def is_same_text(text: str, other: str) -> bool:
    """Whether two texts differ in white space at most."""
    return one_line(text) == one_line(other)


def normalized_content(stored: str) -> str:
    """The storage content on one line, lower-cased, without final punctuation."""
    return _FINAL_PUNCTUATION.sub("", one_line(stored).lower()).rstrip()


def hash_basis(stored: str) -> str:
    """The normalized content, or the lower-cased storage content on one line where that is
    empty."""
    return normalized_content(stored) or one_line(stored).lower()


def content_hash(stored: str) -> str:
    """SHA-256 hex of the hash basis: the dedup key within a scope."""
    return hashlib.sha256(hash_basis(stored).encode()).hexdigest()


_REMINDER = "(?:a )?(?:quick |friendly |gentle |small |another )?reminder|to remind you"
_LABELS = "|".join(
    (
        rf"(?:just |only )?(?:{_REMINDER})",
        r"note|nb|n\.b\.|fyi|for your information|for the record|btw|by the way|ps|p\.s\.",
        "(?:please )?remember|don't forget",
        *("(?:nur )?(?:zur )?erinnerung", "übrigens", "(?:petit )?rappel", "recordatorio"),
        *("promemoria", "lembrete", "herinnering", "påminnelse", "przypomnienie"),
        *("напоминание", "提醒", "リマインダー"),
    )
)
_LABEL = re.compile(
    rf"[\s*_>#\"“„(\[]{{0,8}}(?:{_LABELS})"
    r"(?:[\s*_]{0,3}[:,：，]|[\s*_]{1,3}[\u2013\u2014-](?=\s))[\s*_]{0,3}"
)
"""What only says that a statement is made again."""
_SAID = re.compile(
    r"[-+]?\d+(?:[.,:/-]\d+)*|[^\W_]+(?:'[^\W_]+)*|!="
    r"|[^\w\s.,;:!?…。、！？،؟\"“”„«»‹›()\[\]{}*`'–—-]"
)
"""A number with its sign and marks, a word with its apostrophes, or a sign that says something:
"C#" is not "C", and "$5" not "€5"."""


def statement_key(text: str) -> str:
    """Returns a key that is equal for texts that differ in case, spaces, punctuation and a label
    such as "Reminder:" only; empty for a text without a word or a sign. A number, a name or a
    negation is always part of it, and whether the text asks."""
    folded = unicodedata.normalize("NFC", text.casefold()).replace("’", "'")
    start = 0
    while label := _LABEL.match(folded, start):
        start = label.end()
    words = " ".join(_SAID.findall(folded, start))
    return f"{words}?" if words and folded.rstrip().endswith(("?", "？", "؟")) else words


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


_PREFIX = re.compile(r"^\s*(?:(critical)\s*:\s*)?(?:\[([^\]]{1,400})\]\s*:\s*)?", re.IGNORECASE)


def parse_prefix(content: str) -> tuple[bool, tuple[str, ...], str]:
    """(critical, tags, rest) of `critical: [a,b]: text`; both prefixes are optional."""
    match = _PREFIX.match(content)
    assert match is not None
    tags = tuple(tag.strip() for tag in (match.group(2) or "").split(",") if tag.strip())
    rest = content[match.end() :]
    return (match.group(1) is not None, tags, rest) if rest.strip() else (False, (), content)


def folded(text: str) -> str:
    """The form of a text from which its content hash is computed."""
    return hash_basis(storage_content(text))


def folded_hash(folded_text: str) -> str:
    """The content hash of a text that has this folded form."""
    return hashlib.sha256(folded_text.encode(errors="surrogatepass")).hexdigest()
