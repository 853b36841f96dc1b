"""Identifiers and names of a question, and the texts that have them, however they are written
there. Pure, in linear time."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from palimpsest.streams.sensitive.numbers import find_emails, find_phones
from palimpsest.streams.sensitive.spans import NATIONAL_DIGITS, Span
from palimpsest.streams.text.dates import MONTHS
from palimpsest.streams.text.tables import Lexicon

_LEXICON: Final = Lexicon(__name__, "forgetting.toml")
expression = _LEXICON.expression
MAX_CHARACTERS: Final = 2_000
"""Of a question; what lies beyond is not read."""
MIN_ALONE: Final = 4
"""Characters of an identifier that stands for itself; a shorter one counts with the word before:
"room 12"."""
_SIGNS: Final = r"[-\s._/:@()#]"
_BETWEEN: Final = _SIGNS + "{0,2}"
# More of the same identifier: a sign with something right after it, but not the blank of a text.
_BEFORE: Final = r"(?<![^\W_])(?<![^\W_][-._/:@])"
_AFTER: Final = r"(?![^\W_]|[-._/:@+][^\W_])"
_PIECE: Final = re.compile(r"\S+")
_EDGE: Final = " \t.,;:!?()[]{}\"'“”„«»"
_DATE: Final = re.compile(
    r"(?<!\d)(?:(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})"
    r"|(?P<d2>\d{1,2})\.(?P<m2>\d{1,2})\.(?P<y2>\d{4})|(?P<m3>\d{1,2})/(?P<d3>\d{1,2})/(?P<y3>\d{4}))(?!\d)"
)
_MONTHS: Final = tuple(f"{name[:3]}(?:{name[3:]})?" for name in MONTHS)
_MONTH: Final = "|".join(_MONTHS)
_DATE_IN_WORDS: Final = re.compile(
    rf"(?<!\d)(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<m>{_MONTH})\.?,? (?P<y>\d{{4}})(?!\d)"
    rf"|\b(?P<m2>{_MONTH})\.? (?P<d2>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<y2>\d{{4}})(?!\d)",
    re.IGNORECASE,
)
_MONTHS_BY_NAME: Final = {month[:3]: number for number, month in enumerate(_MONTHS, 1)}
_ADDRESS: Final = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")
_HANDLE: Final = re.compile(r"(?<![^\W_])@(\w[\w.-]*\w)")
_ALTERNATIVES: Final = re.compile(r" / |[(),;]|\b(?:aka|alias|a\.k\.a\.)(?!\w)", re.IGNORECASE)
_BARE: Final = re.compile(r"\w+(?:[-.]\w+)*")
_INFLECTIONS: Final = frozenset("s es d ed ing er r ly n en e ies".split())
"""Endings with which a word is the same still."""
_UNCOMPOSED: Final = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "ħ": "h", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th", "ð": "d"}
)
_LETTERS: Final = str.maketrans(
    dict(zip("абвгдезийклмнопрстуфхцыэіў", "abvgdeziiklmnoprstufhcieiu", strict=True))
    | {"ц": "ts", "ж": "zh", "ч": "ch", "ш": "sh", "щ": "shch", "ъ": "", "ь": "", "ю": "iu"}
    | {"я": "ia", "є": "ie", "ї": "i", "ґ": "g", "ј": "i", "љ": "l", "њ": "n", "ћ": "c", "џ": "d"}
    | dict(zip("αβγδεζηικλμνξοπρσςτυφχωϊ", "avgdeziiklmnxoprsstifhoi", strict=True))
    | {"θ": "th", "ψ": "ps"}
)
_SOUNDS: Final = [
    (re.compile(pattern), sound) for pattern, sound in _LEXICON.tables["sounds"].items()
]
_WORD: Final = re.compile(r"[^\W_]+")
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]{2,}"
)
_KINDS: Final[tuple[tuple[re.Pattern[str], str, Callable[[str], Iterable[Span]] | None], ...]] = (
    (expression("phone"), "phone ", find_phones),
    (expression("mail"), "", find_emails),
    (expression("named"), "", None),
)


def folded(text: str) -> str:
    """Without case, width and accents: "Großmann" as "grossmann", "José" as "jose"."""
    plain = unicodedata.normalize("NFKD", text.casefold().translate(_UNCOMPOSED))
    return "".join(each for each in plain if not unicodedata.combining(each))


class Asked(NamedTuple):
    """What a question that asks to forget names, without the asking ("Please forget what I told you
    about Ana"); whether it asks for all of it, and whether it names a thing ("erase the trip") and
    no statement ("forget where I live")."""

    text: str
    is_all: bool
    is_thing: bool


def asked(question: str) -> Asked:
    """Reads a question that asks to forget."""
    lead = expression("lead").match(question.strip())
    text = (question.strip() if lead is None else question.strip()[lead.end() :]).rstrip(" ?.!")
    tail = expression("tail").search(text)
    text = text if tail is None else text[: tail.start()]
    is_all = expression("everything").search(question) is not None or (
        lead is not None and (lead["about"] or lead["all"]) is not None
    )
    if not text.strip():
        return Asked(question, is_all, False)
    return Asked(text, is_all, lead is not None and expression("statement").match(text) is None)


def having_words(words: Collection[str], texts: Mapping[str, str]) -> set[str]:
    """The ids of the texts that have all these words (folded), inflected or not."""
    asked = {word: {word, *_without_ending((word,))} for word in words}
    found = set()
    for key, text in texts.items():
        has = set(_WORD.findall(folded(text)))
        short = _without_ending(has)
        if all(word in short or not forms.isdisjoint(has) for word, forms in asked.items()):
            found.add(key)
    return found


def _without_ending(words: Iterable[str]) -> set[str]:
    """What these words may be inflected from: "trip" of "trips"."""
    return {word[: -len(end)] for word in words for end in _INFLECTIONS if word.endswith(end)}


def alike(question: str, texts: Mapping[str, str]) -> set[str]:
    """The ids of the texts that only look as if they had what the question names: they have a word
    that goes on where one of the question ends ("ops2", "redwood"), while another text has all the
    words of the question."""
    words = set(_BARE.findall(_UNSPACED.sub(" ", folded(question))))
    known = {key: set(_BARE.findall(folded(text))) for key, text in texts.items()}
    said = {word for word in words if any(word in has for has in known.values())}
    longer = {key for key, has in known.items() if _goes_on(said - has, has)}
    return longer if any(said <= has for has in known.values()) else set()


def _goes_on(words: set[str], has: set[str]) -> bool:
    """Whether one of the words is the beginning of another word, and no inflection of it."""
    # By the lengths that there are, which are few: not each word with each.
    lengths = {len(word) for word in words if len(word) > 1}
    return any(
        each[:length] in words and each[length:] not in _INFLECTIONS
        for each in has
        for length in lengths
    )


# --- identifiers ------------------------------------------------------------------------------


def identifiers(question: str) -> list[re.Pattern[str]]:
    """For each identifier of a question (number of a telephone, address, date, handle, whatever has
    a digit or a sign within) what finds it in a text, and nothing that goes on before or after:
    "OPS-31" is not in "OPS-310"."""
    text = question[:MAX_CHARACTERS]
    found: list[re.Pattern[str]] = []
    for taking in (_dates, _addresses, _emails, _phones, _others):
        for start, end, pattern in taking(text):
            found.append(re.compile(pattern, re.IGNORECASE))
            text = text[:start] + " " * (end - start) + text[end:]
    return found


def identifiers_asked(question: str, texts: Iterable[str]) -> list[re.Pattern[str]]:
    """The identifiers in these texts of the kinds that the question asks for by name."""
    found: dict[str, None] = {}
    for word, say, look in _KINDS:
        if not word.search(question):
            continue
        for text in texts:
            if look is None:
                found.update((match.group(), None) for match in _HANDLE.finditer(text))
            else:
                # With the word that tells what a number without signs is.
                found.update((f"{say}{text[each.start : each.end]}", None) for each in look(text))
    return [pattern for each in found for pattern in identifiers(each)]


Found = Iterator[tuple[int, int, str]]


def _dates(text: str) -> Found:
    for match in (*_DATE.finditer(text), *_DATE_IN_WORDS.finditer(text)):
        said = {name[0]: value for name, value in match.groupdict().items() if value}
        year, day = int(said["y"]), int(said["d"])
        month = int(said["m"]) if said["m"].isdigit() else _MONTHS_BY_NAME[said["m"][:3].casefold()]
        named = f"(?:{_MONTHS[month - 1]})" if 1 <= month <= len(_MONTHS) else "(?!)"
        forms = (
            rf"{year}[-/.]0?{month}[-/.]0?{day}",
            rf"0?{day}\.\s?0?{month}\.\s?{year}",
            rf"0?{month}/0?{day}/{year}",
            rf"0?{day}(?:st|nd|rd|th)?(?: of)? {named}\.?,? {year}",
            rf"{named}\.? 0?{day}(?:st|nd|rd|th)?,? {year}",
        )
        yield *match.span(), rf"(?<!\d)(?:{'|'.join(forms)})(?!\d)"


def _addresses(text: str) -> Found:
    for match in _ADDRESS.finditer(text):
        parts = r"\.".join(f"0{{0,2}}{int(part)}" for part in match.group().split("."))
        yield *match.span(), rf"(?<![\d.]){parts}(?!\.?\d)"


def _emails(text: str) -> Found:
    for span in find_emails(text):
        name, _, host = text[span.start : span.end].partition("@")
        name = name.partition("+")[0]
        pattern = rf'(?<![\w.%+-])"?{re.escape(name)}"?(?:\+[\w.-]{{1,64}})?@{re.escape(host)}'
        yield span.start, span.end, pattern + r"(?![\w-]|\.\w)"


def _phones(text: str) -> Found:
    for span in find_phones(text):
        digits = re.sub(r"\D", "", text[span.start : span.end]).lstrip("0")[-NATIONAL_DIGITS:]
        # What stands before is a code of the country, an area or a 0, which not all write.
        yield span.start, span.end, rf"{_spread(digits)}(?!\d)"


def _others(text: str) -> Found:
    pieces = [
        (match.start() + len(found) - len(found.lstrip(_EDGE)), found.strip(_EDGE))
        for match in _PIECE.finditer(text)
        if _WORD.search(found := match.group())
    ]
    place = 0
    while place < len(pieces):
        first = last = place
        place += 1
        inner = pieces[first][1].partition("'")[0]
        if not any(
            each.isdigit() or each in "_@/" or (each == "." and not inner.endswith("."))
            for each in inner
        ):
            continue
        while place < len(pieces) and any(map(str.isdigit, pieces[place][1])):
            last, place = place, place + 1
        while first and pieces[first - 1][1].isupper() and pieces[first - 1][1].isascii():
            first -= 1
        said = "".join(piece for _, piece in pieces[first : last + 1])
        if len(_compact(said)) < MIN_ALONE and first:
            first -= 1
            said = pieces[first][1] + said
        compact = _compact(re.sub(r"^https?://(?:www\.)?", "", said, flags=re.IGNORECASE))
        if len(compact) > 1:
            end = pieces[last][0] + len(pieces[last][1])
            yield pieces[first][0], end, f"{_BEFORE}{_spread(compact)}{_AFTER}"


def _compact(text: str) -> str:
    return re.sub(_SIGNS, "", text)


def _spread(compact: str) -> str:
    return _BETWEEN.join(map(re.escape, compact))


# --- names ------------------------------------------------------------------------------------


class Naming(NamedTuple):
    """The ids of the texts that have the names of a question, and what else it says (folded)."""

    ids: set[str]
    rest: set[str]


def naming(question: str, texts: Mapping[str, str], ignored: Collection[str]) -> Naming:
    """The texts that have the names of the question: all its names, or as many as any text has; in
    any of the forms that it gives ("Ken Sato / 佐藤健"), and in another script ("Анна" for "Anna").
    A name has a capital in both, so Frank is not in "a frank talk"; `ignored` words (folded) are
    none."""
    asked = unicodedata.normalize("NFKC", question[:MAX_CHARACTERS])
    known = {key: _written(text) for key, text in texts.items()}
    ids: set[str] = set()
    rest = {folded(word) for word in _WORD.findall(_UNSPACED.sub(" ", asked))} - set(ignored)
    for part in _ALTERNATIVES.split(asked):
        names = {word: _forms(word) for word in _names(part) if folded(word) not in ignored}
        held = {
            key: {word for word, forms in names.items() if forms & has}
            for key, has in known.items()
        }
        most = max(map(len, held.values()), default=0)
        holding = {key for key, has in held.items() if most and len(has) == most}
        rest -= {folded(word) for key in holding for word in held[key]}
        ids |= holding
    runs = _UNSPACED.findall(asked)
    ids |= {
        key
        for key, text in texts.items()
        if any(run in unicodedata.normalize("NFKC", text) for run in runs)
    }
    return Naming(ids, {word for word in rest if len(word) > 1})


def has_case(text: str) -> bool:
    """Whether names could be told in it by their capitals."""
    return text.lower() != text.upper()


def _names(text: str) -> set[str]:
    plain = text.replace("'s", " ").replace("’s", " ")
    return {word for word in _WORD.findall(plain) if word[0].isupper()}


def _written(text: str) -> set[str]:
    """The forms of the names of a text: their letters, and their sound marked by the script."""
    return {form for word in _names(text) for form in (*_spellings(word), _sound(word))}


def _forms(word: str) -> set[str]:
    """The forms in which a text may have this name: its letters, or its sound in another script."""
    script, _, sound = _sound(word).partition(" ")
    return {*_spellings(word), f"{'other' if script == 'latin' else 'latin'} {sound}"}


def _spellings(word: str) -> tuple[str, ...]:
    plain = folded(word)
    return plain, re.sub("([aou])e", r"\1", plain)


def _sound(word: str) -> str:
    plain = folded(word)
    sound = plain.replace("ου", "u").translate(_LETTERS)
    script = "latin" if sound == plain else "other"
    for pattern, replaced in _SOUNDS:
        sound = pattern.sub(replaced, sound)
    return f"{script} {sound}"
