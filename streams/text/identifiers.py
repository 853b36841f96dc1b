"""Identifiers and names of a question, and the texts that have them, however they are written
there. Pure, in linear time."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from palimpsest.streams.sensitive.addresses import find_emails
from palimpsest.streams.sensitive.numbers import find_phones
from palimpsest.streams.sensitive.spans import NATIONAL_DIGITS, Span

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
_ADDRESS: Final = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")
_HANDLE: Final = re.compile(r"(?<![^\W_])@(\w[\w.-]*\w)")
_ALTERNATIVES: Final = re.compile(r" / |[(),;]|\b(?:aka|alias|a\.k\.a\.)(?!\w)", re.IGNORECASE)
_WORD: Final = re.compile(r"[^\W_]+")
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]{2,}"
)
_KINDS: Final[tuple[tuple[re.Pattern[str], str, Callable[[str], Iterable[Span]] | None], ...]] = (
    (
        re.compile(
            r"phone|mobile|\bcell|\btel\b|telefon|handy|rufnummer|móvil|teléfono|電話|携帯|手机|电话",
            re.IGNORECASE,
        ),
        "phone ",
        find_phones,
    ),
    (re.compile(r"\be-?mail|correo|courriel|メール|邮箱", re.IGNORECASE), "", find_emails),
    (re.compile(r"\b(?:handle|user ?name|nick ?name|account)\b", re.IGNORECASE), "", None),
)


def folded(text: str) -> str:
    """Without case, width and accents: "Großmann" as "grossmann", "José" as "jose"."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(each for each in plain if not unicodedata.combining(each))


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
    for match in _DATE.finditer(text):
        year, month, day = (
            int(next(value for name in names if (value := match[name])))
            for names in (("y", "y2", "y3"), ("m", "m2", "m3"), ("d", "d2", "d3"))
        )
        forms = (
            rf"{year}[-/.]0?{month}[-/.]0?{day}",
            rf"0?{day}\.\s?0?{month}\.\s?{year}",
            rf"0?{month}/0?{day}/{year}",
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
        if not _is_identifier(pieces[first][1]):
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


def _is_identifier(piece: str) -> bool:
    inner = piece.partition("'")[0]
    return any(map(str.isdigit, inner)) or any(
        each in "_@/" or (each == "." and not inner.endswith(".")) for each in inner
    )


def _compact(text: str) -> str:
    return re.sub(_SIGNS, "", text)


def _spread(compact: str) -> str:
    return _BETWEEN.join(map(re.escape, compact))


# --- names ------------------------------------------------------------------------------------


class Naming(NamedTuple):
    """The ids of the texts that have the names of a question, and whether it says nothing else."""

    ids: set[str]
    is_all: bool


def naming(question: str, texts: Mapping[str, str], ignored: Collection[str]) -> Naming:
    """The texts that have the names of the question: all its names, or as many as any text has; in
    any of the forms that it gives ("Ken Sato / 佐藤健"). A name has a capital in both, so Frank is
    not in "a frank talk"; `ignored` words (folded) are none."""
    asked = unicodedata.normalize("NFKC", question[:MAX_CHARACTERS])
    known = {key: _names(text) for key, text in texts.items()}
    ids: set[str] = set()
    other = {folded(word) for word in _WORD.findall(_UNSPACED.sub(" ", asked))} - set(ignored)
    for part in _ALTERNATIVES.split(asked):
        names = _names(part) - set(ignored)
        most = max((len(names & has) for has in known.values()), default=0)
        holding = {key for key, has in known.items() if most and len(names & has) == most}
        other -= {name for name in names if any(name in known[key] for key in holding)}
        ids |= holding
    runs = _UNSPACED.findall(asked)
    ids |= {
        key
        for key, text in texts.items()
        if any(run in unicodedata.normalize("NFKC", text) for run in runs)
    }
    return Naming(ids, not {word for word in other if len(word) > 1})


def has_case(text: str) -> bool:
    """Whether names could be told in it by their capitals."""
    return text.lower() != text.upper()


def _names(text: str) -> set[str]:
    plain = text.replace("'s", " ").replace("’s", " ")
    return {folded(word) for word in _WORD.findall(plain) if word[0].isupper()}
