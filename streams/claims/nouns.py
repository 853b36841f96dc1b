"""What a claim's value may be: names, places, noun phrases, activities. Pure.

A value is taken by what it is made of: words that open a clause, point at another sentence or
judge make it none.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from palimpsest.streams.claims.lexicon import LANGUAGES
from palimpsest.streams.claims.places import is_known
from palimpsest.streams.claims.verbs import PASTS, PRESENTS

MAX_VALUE_WORDS: Final = 8
MAX_LISTED: Final = 6

_CLAUSE_WORDS: Final = frozenset(
    """that which who whom whose when where while whenever because since if unless until till
    though although whether than so then but as is are was were be been am has have had do does
    did will would could should can may might must not never no i you he she it we they me him us
    them your yours mine ours theirs hers this these those there here how what why too also either
    neither yes okay ok lol haha says said thinks claims apparently supposedly maybe perhaps
    probably instead anyway though however please thanks thank hopefully honestly right now today
    tomorrow yesterday tonight everyone someone anyone nobody everybody somebody anybody myself
    yourself himself herself itself ourselves themselves etc gonna wanna""".split()
)
"""None of these stands inside a value."""
_VAGUE: Final = frozenset(
    """thing things stuff something anything everything nothing one ones idea ideas way ways part
    parts sound fact bit lot lots kind kinds sort sorts time times day days moment moments look
    feel feeling vibe vibes point chance opportunity opportunities challenge challenges result
    results process experience experiences concept suggestion suggestions recommendation
    recommendations advice help question questions tip tips option options plan plans picture pic
    pics photo photos place places person people guy guys others other another more less most some
    any all both each few many much same such certain better best good great nice cool new
    progress positivity energy attitude message messages word words answer thought thoughts view
    views sense support conversation conversations chat example examples list reason name article
    post link version event events together style feature features detail details none""".split()
)
"""A value that is one of these, or ends with it after an adjective alone, says nothing."""
_POINTING: Final = frozenset("similar different various certain especially whole hard".split())
"""Adjectives that say nothing by themselves."""
_DETERMINERS: Final = re.compile(
    r"^(?:an?|the|some|my|our|his|her|their|its|own)\s+", re.IGNORECASE
)
_PREPOSITIONS: Final = ("of", "for", "in", "with", "at", "on", "from", "by", "about")
_EDGE: Final = frozenset(
    "of and or for in with to at on from by about into over the a an my".split()
)
_NO_END: Final = _EDGE | _VAGUE
_GENERIC: Final = frozenset(
    """beach beaches mountains ocean sea outdoors countryside snow rain sun theatre theater gym
    piano guitar violin drums cello flute saxophone opera ballet circus cinema movies library
    forest woods lake river desert city park parks zoo museum museums blues autumn fall winter
    summer spring cold heat dark sunshine sunset sunrise stars news beatles water wilderness
    """.split()
)
"""What stands for its kind with "the": "loves the beach"."""
_NAME_WORD: Final = r"[^\W\d_a-z][\w'’&.+-]*"
_NAME: Final = re.compile(
    rf"(?:the\s+)?{_NAME_WORD}(?:,?\s+(?:(?:of|the|de|la|el|del|di|da|do|dos|van|von|der|den|and|&"
    rf"|for|at)\s+)?(?:the\s+)?(?:{_NAME_WORD}|\d{{1,4}})){{0,6}}"
)
_WORD: Final = re.compile(r"[\w'’&+/.%$€£-]+")
_NUMBERS: Final = frozenset("one two three four five six seven eight nine ten twelve".split())
_SMALL_PLACE: Final = re.compile(
    r"(?:an?|the)\s+(?:(?:small|big|little|quiet|large|tiny|old|rural|remote|new|coastal"
    r"|cozy)\s+){0,2}(?:town|village|suburbs?|countryside|farm|island|apartment|flat|house|studio"
    r"|condo|cabin|dorm|houseboat|trailer|townhouse|mansion|bungalow|loft|mountains|city cent(?:er"
    r"|re))(?:\s+(?:near|in|outside|by|of)\s+(?P<near>.+))?"
)


def is_name(text: str) -> bool:
    """Whether `text` is written as a name: "Dr. J. Okafor", "the University of Porto"."""
    return len(text) <= 80 and _NAME.fullmatch(text) is not None and text not in ("I", "A")


def is_place(text: str) -> bool:
    """Whether `text` is where somebody can live: a name, a known city, "a small town"."""
    plain = text.strip()
    if is_name(plain):
        lowered = plain.lower()
        return lowered not in MOODS and _NOT_A_PLACE.isdisjoint(lowered.split())
    small = _SMALL_PLACE.fullmatch(plain)
    if small is not None:
        return small["near"] is None or is_place(small["near"])
    if plain.lower().startswith("downtown "):
        return is_place(plain[9:])
    return len(plain) <= 40 and all(is_known(part) for part in re.split(r",\s+", plain.lower()))


_NOT_A_PLACE: Final = frozenset(
    """i my you january february march april june july august september october november december
    monday tuesday wednesday thursday friday saturday sunday gmail outlook slack notion linux
    ubuntu windows mac macos android iphone ios python rust java javascript typescript aws azure
    gcp kubernetes docker spotify netflix excel sheets github gitlab zoom teams chrome firefox
    safari obsidian evernote whatsapp signal telegram postgres postgresql mysql redis kafka
    marketing sales engineering finance hr product thunderbird trello jira asana photoshop figma
    """.split()
)
"""Names that somebody moves to without changing home."""
MOODS: Final = LANGUAGES | frozenset(
    """peace harmony style sin denial fear hope love luxury poverty comfort silence freedom exile
    chaos pain shame secret spring summer autumn winter christmas easter night nights justice
    mondays tuesdays wednesdays thursdays fridays saturdays sundays""".split()
)
"""How, when and what for somebody lives or works, as the whole of a name; New Hope is a place."""


def without_determiner(text: str) -> str:
    return _DETERMINERS.sub("", text)


def is_noun_phrase(text: str, *, definite: bool = False) -> bool:
    """Whether `text` names something: a few words, none of which opens a clause.

    `definite`: "the …" counts although it may point at another sentence.
    """
    if is_name(text) and text.partition(" ")[0].lower() not in _CLAUSE_WORDS:
        return text.lower() not in _VAGUE
    words = _WORD.findall(text)
    if not words or len(words) > MAX_VALUE_WORDS or " ".join(words) != text.replace(",", ""):
        return False
    lowered = [word.lower() for word in words]
    if (
        "to" in lowered
        or not _CLAUSE_WORDS.isdisjoint(lowered)
        or any("n't" in word for word in lowered)
    ):
        return False
    if lowered[-1] in _EDGE or (lowered[0] in _EDGE and lowered[0] not in ("the", "a", "an", "my")):
        return False
    if lowered[0] == "the" and not definite:
        return len(lowered) == 2 and lowered[1] in _GENERIC
    if not _POINTING.isdisjoint(lowered) or lowered[0] in _NO_ACTIVITY | _LIGHT:
        return False
    head = _head(lowered)
    return head not in _VAGUE and not (len(lowered) == 1 and lowered[0] in _VAGUE)


def _words_of(text: str) -> list[str]:
    """The words of a phrase, folded; none where there is more than words and commas, a negation
    or an end that says nothing."""
    found = _WORD.findall(text)
    words = [word.lower() for word in found]
    if (
        not words
        or " ".join(found) != text.replace(",", "")
        or any("n't" in word for word in words)
    ):
        return []
    return [] if words[-1] in _EDGE or words[-1] in _VAGUE else words


def _head(words: list[str]) -> str:
    """The last word before a preposition: of "scary books about ghosts" it is "books"."""
    for number, word in enumerate(words):
        if number and word in _PREPOSITIONS:
            return words[number - 1]
    return words[-1]


def is_listed(text: str) -> bool:
    """Whether `text` is a noun phrase or a list of them: "dogs, cats and birds"."""
    parts = re.split(r", (?:and |or )?| (?:and|or) ", text)
    return len(parts) <= MAX_LISTED and all(is_noun_phrase(part) for part in parts)


def is_activity(text: str) -> bool:
    """Whether `text` is something done, told by its -ing form: "hiking in the mountains"."""
    first, _, rest = text.partition(" ")
    if not first.lower().endswith("ing") or len(first) < 5 or first.lower() in _NO_ACTIVITY:
        return False
    if first.lower() in _LIGHT and len(rest.split()) < 2:
        return False
    if not rest:
        return True
    words = _words_of(rest)
    return (
        0 < len(words) < MAX_VALUE_WORDS
        and _CLAUSE_WORDS.isdisjoint(words)
        and _POINTING.isdisjoint(words)
    )


_NO_ACTIVITY: Final = frozenset(
    """having hearing doing knowing thinking feeling something anything everything nothing during
    king ring thing looking using talking chatting letting keeping putting telling sharing hanging
    catching following asking coming starting working""".split()
)
_LIGHT: Final = frozenset(
    "being getting going seeing making taking giving finding trying helping".split()
)
"""These say something with two words more: "going to the beach", and not "taking control"."""


_PRONOUNS: Final = frozenset(
    "it that this them him you your these those one me us him her i we they something anything"
    " everything nothing if when what how whether because so who whose which while but not never"
    " everyone someone myself".split()
)


def is_verb_phrase(text: str) -> bool:
    """Whether `text` is what follows "to": "learn the violin", and none that points elsewhere."""
    words = _words_of(text)
    return (
        2 <= len(words) <= 12
        and words[0].isalpha()
        and words[0]
        not in ("be", "get", "go", "say", "do", "see", "have", "make", "just", "really")
        and _PRONOUNS.isdisjoint(words)
    )


_NOWHERE: Final = frozenset("place places event events thing things somewhere someplace".split())
_ROUTINE: Final = frozenset(
    "to work,to bed,to sleep,to class,to school,to home,to the gym,to the store,on a walk,for a"
    " walk"
    ",for a run,on a run,to the bathroom,to the movies,on a date".split(",")
)
"""What everybody does on many days."""


def _and_verb(words: list[str]) -> bool:
    """Whether a second verb follows: "a trip to Japan and need some help"."""
    return any(
        word in ("and", "but") and (after in PRESENTS or after in PASTS)
        for word, after in pairwise(words)
    )


def is_deed(text: str) -> bool:
    """Whether `text` is what somebody did, after the verb: "to a council meeting in Porto"."""
    words = _words_of(text)
    return (
        1 <= len(words) <= 14
        and _PRONOUNS.isdisjoint(words)
        and _CLAUSE_WORDS.isdisjoint(words)
        and words[0] not in _VAGUE
        and words[0] != "like"
        and words[-1] not in _NOWHERE
        and _head(words) not in _NOWHERE
        and text not in _ROUTINE
        and not _and_verb(words)
    )
