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
_SENT_ON = re.compile(
    r"[\s*_>]{0,8}(?:fwd?|re|wg|aw|tr|rv|forwarded(?: message)?)[\s*_]{0,3}[:：][\s*_]{0,3}"
    r"|[\s*_>]{0,8}-{2,10} ?(?:forwarded|original) message ?-{2,10}\s{1,8}"
)
"""What a mail program puts before what somebody else may have written."""
_GREETING = re.compile(
    r"[\s*_]{0,8}(?:hi|hello|hey|dear|hiya|good (?:morning|afternoon|evening))"
    r"(?P<whom>(?: [^\W\d_][\w'.-]{0,30}){0,3})(?:[,!:，！]|\s[\u2013\u2014-](?=\s))\s{0,8}"
    r"(?=(?:the|i|i'm|i've|we|we're|my|our|it|it's|this|that|there|there's|he|she|they|a|an|his|her"
    r"|their|fyi|note|btw|please note|(?:just )?(?:a )?(?:quick |friendly )?reminder)\b)"
)
"""Whom a text is for says nothing where a statement follows; "call Ben" is for them alone."""
_EVERYBODY = frozenset(("", "there", "all", "everyone", "everybody", "team", "folks", "again"))
_OWN = frozenset("i i'm i've i'd i'll me my mine we we're we've our us ich mein meine wir".split())
_ADDRESSED = frozenset("you you're you've you'll you'd your yours u ur du dein deine ihr".split())
_SAID = re.compile(
    r"[-+]?\d+(?:[.,:/-]\d+)*|[^\W_]+(?:'[^\W_]+)*|!="
    r"|[^\w\s.,;:!?…。、！？،؟\"“”„«»‹›()\[\]{}*`'–—-]"
)
"""A number with its sign and marks, a word with its apostrophes, or a sign that says something:
"C#" is not "C", and "$5" not "€5"."""


def statement_key(text: str) -> str:
    """Returns a key that is equal for texts that differ in case, spaces, punctuation, a greeting
    and a label such as "Reminder:" or "Fwd:" only; empty for a text without a word or a sign. A
    number, a name or a negation is always part of it, and whether the text asks. What was sent on
    in the first person, and who is addressed as "you", stays part of it: it may be somebody else.
    """
    folded = unicodedata.normalize("NFC", text.casefold()).replace("’", "'")
    start = 0
    personal: frozenset[str] = frozenset()
    while found := (
        _LABEL.match(folded, start)
        or _SENT_ON.match(folded, start)
        or _GREETING.match(folded, start)
    ):
        if found.re is _SENT_ON:
            personal |= _OWN
        elif found.re is _GREETING and found["whom"].strip() not in _EVERYBODY:
            personal |= _ADDRESSED
        start = found.end()
    said = _SAID.findall(folded, start)
    if personal and not personal.isdisjoint(said):
        said = _SAID.findall(folded)
    words = " ".join(said)
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
