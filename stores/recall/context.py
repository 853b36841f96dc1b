"""The block of text that a model reads: what is known about a question, within a token budget.

Pieces compete for the budget by what they add for their length. The most relevant ones are included
whole, the others as excerpts, so that many fit; what remains of the budget then extends excerpts,
most relevant first, and finally adds turns next to those found. The lines are in order of time
under the day of each. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from itertools import chain
from math import inf
from types import MappingProxyType
from typing import Final, Literal

from palimpsest.schemas.echoes import CONTINUED
from palimpsest.schemas.memory_texts import MONTHS, refers_to_speaker
from palimpsest.schemas.normal_forms import statement_key

Section = Literal["profile", "lines"]
PROFILE_TITLE: Final = "## Profile"
LEAST_LINE: Final = 12
"""Tokens below which no further line is tried."""
LEAST_EXCERPT: Final = 20
"""Tokens below which no text is cut to fit."""

Stems = Callable[[str], Set[str]]
Nearest = Callable[[str, Sequence[str]], int | None]


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """The profile takes at most `profile_share` of the budget and `profile_tokens`; below
    `full_profile` tokens of budget only what is essential and, if found pieces leave room, who the
    persons are. `whole_share` of the budget goes to whole pieces, the most relevant ones; all
    others begin as excerpts of the first length in `excerpts` (characters), and are extended to the
    next ones. What persons like takes, where it is asked for, at most `preferences_share` of the
    budget and `preferences_tokens`."""

    profile_share: float = 0.15
    profile_tokens: int = 300
    full_profile: int = 1_500
    whole_share: float = 0.4
    preferences_share: float = 0.15
    preferences_tokens: int = 120
    excerpts: tuple[int, ...] = (100, 300, 900)


DEFAULTS: Final = ContextSettings()


@dataclass(frozen=True, slots=True)
class Piece:
    """A turn, a fact or a part of a document, with the id and the time that it is shown with.
    `speaker` is empty if no one speaks. `note` says what part of it no longer holds. Times have a
    zone, the speaker's own."""

    id: str
    text: str
    at: datetime
    speaker: str = ""
    note: str = ""

    def line(self, text: str) -> str:
        """Returns its entry in the block with this form of its text."""
        who = f"{self.speaker}: " if self.speaker else ""
        note = f" {self.note}" if self.note else ""
        return f"- {who}{text}{note}"


@dataclass(frozen=True, slots=True)
class Profile:
    """What the persons in question are and need: facts whose absence would do harm (`essential`),
    who they are (`identity`) and the rest, each in order of importance. `constraints` are those of
    anything that the question names; `preferences`, if it asks for those, by how they begin."""

    essential: Sequence[Piece] = ()
    others: Sequence[Piece] = ()
    identity: Sequence[Piece] = ()
    constraints: Sequence[Piece] = ()
    preferences: Sequence[tuple[str, Sequence[Piece]]] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """What a question found, most relevant first; `neighbors` fill the remaining room: turns next
    to found ones, then unlikely results. `wanted` are the stems of the question's words; `stems`
    returns those of any text, `nearest` which sentence of a memory's is nearest in meaning, if
    the model tells that."""

    question: str
    pieces: Sequence[Piece]
    neighbors: Sequence[Piece]
    wanted: Set[str]
    stems: Stems
    nearest: Nearest | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """`text` is the Markdown block; `tokens` by `estimate_tokens`, at most the budget; `ids` those
    of the memories shown, by section, in the order of the text; `line_ids` those of each line of
    the text, none for a heading."""

    text: str
    tokens: int
    budget: int
    ids: Mapping[Section, tuple[str, ...]]
    line_ids: tuple[tuple[str, ...], ...]


def assemble(
    profile: Profile, found: Found, budget: int, settings: ContextSettings = DEFAULTS
) -> Context | None:
    """Returns the block; None if nothing is there or fits. It does not repeat the question, and
    omits pieces with the same words as an earlier one."""
    share = min(int(budget * settings.profile_share), settings.profile_tokens)
    block = _Block(found, budget)
    # An answer that ignores a constraint is wrong.
    block.take_into_profile(profile.constraints, budget // 2)
    share = block.take_into_profile(profile.essential, share)
    room = min(int(budget * settings.preferences_share), settings.preferences_tokens)
    for name, pieces in profile.preferences:
        room = block.take_together(name, pieces, room)
    if budget >= settings.full_profile or not found.pieces:
        share = block.take_into_profile((*profile.identity, *profile.others), share)
    short, *longer = settings.excerpts
    whole = int(budget * settings.whole_share)
    for piece in found.pieces:
        spent = block.take(piece, (None, *reversed(longer)), whole)
        whole -= spent
        if not spent:
            block.take(piece, (short,))
    for characters in longer:
        block.extend(characters)
    block.take_into_profile(profile.identity, share)
    for piece in found.neighbors:
        block.take(piece, (short,))
    for characters in longer:
        block.extend(characters)
    block.extend(None)
    return block.context()


class _Block:
    """The lines taken so far, and the tokens left."""

    def __init__(self, found: Found, budget: int) -> None:
        self._found = found
        self._asked = statement_key(found.question)
        self._budget = self._left = budget
        self._profile: list[tuple[tuple[str, ...], str]] = []
        self._taken: dict[str, tuple[Piece, str]] = {}
        self._days: set[date] = set()
        self._said = {""}
        self._nearest: dict[str, int | None] = {}

    def take_into_profile(self, pieces: Sequence[Piece], room: int) -> int:
        """Adds to the profile what fits into these tokens and is not included yet, each on a line
        without a date. Returns the tokens left of them."""
        for piece in pieces:
            line, said = piece.line(laid_out(piece.text)), self._statement(piece)
            cost = _cost(line) + (0 if self._profile else _cost(PROFILE_TITLE))
            if said not in self._said and cost <= min(room, self._left):
                self._profile.append(((piece.id,), line))
                self._said.add(said)
                self._left -= cost
                room -= cost
        return room

    def take_together(self, name: str, pieces: Sequence[Piece], room: int) -> int:
        """Adds to the profile what fits into these tokens and is not included yet, on one line that
        has the name with which all begin once. Returns the tokens left of them."""
        line, ids = "", []
        title = 0 if self._profile else _cost(PROFILE_TITLE)
        for piece in pieces:
            said, text = self._statement(piece), piece.line(folded(piece.text).removesuffix("."))
            longer = f"{line}; {text[2:].removeprefix(f'{name} ')}" if line else text
            if said not in self._said and title + _cost(longer) <= min(room, self._left):
                line = longer
                ids.append(piece.id)
                self._said.add(said)
        if not ids:
            return room
        self._profile.append((tuple(ids), line))
        self._left -= title + _cost(line)
        return room - title - _cost(line)

    def take(self, piece: Piece, sizes: Sequence[int | None], allowed: int | None = None) -> int:
        """Adds the first form that fits into what is left and `allowed`: an excerpt of that many
        characters, or the whole (None). Returns the tokens spent."""
        room = self._left if allowed is None else min(allowed, self._left)
        said = self._statement(piece)
        if room < LEAST_LINE or said in self._said:
            return 0
        day = _day(piece)
        heading = 0 if day in self._days else _cost(_title(day))
        if len(piece.text) > LEAD and room < heading + LEAST_EXCERPT:
            return 0
        for characters in sizes:
            text = self._form(piece, characters)
            cost = heading + _cost(piece.line(text))
            if cost <= room:
                self._taken[piece.id] = piece, text
                self._said.add(said)
                self._days.add(day)
                self._left -= cost
                return cost
        return 0

    def extend(self, characters: int | None) -> None:
        """Extends the excerpts where that fits, in the order in which they were added."""
        for memory_id, (piece, shown) in self._taken.items():
            if self._left < LEAST_LINE:
                return
            if ELLIPSIS not in shown:
                continue
            text = self._form(piece, characters)
            more = estimate_tokens(text) - estimate_tokens(shown)
            if 0 < more <= self._left:
                self._taken[memory_id] = piece, text
                self._left -= more

    def context(self) -> Context | None:
        lines = [*self._profile]
        if lines:
            lines.insert(0, ((), PROFILE_TITLE))
        taken = sorted(
            self._taken.values(), key=lambda each: (_day(each[0]), each[0].at, each[0].id)
        )
        day = None
        for piece, text in taken:
            if _day(piece) != day:
                day = _day(piece)
                lines.append(((), _title(day)))
            lines.append(((piece.id,), piece.line(text)))
        if not lines:
            return None
        text = "\n".join(line for _, line in lines)
        line_ids = tuple(each for each, line in lines for _ in line.split("\n"))
        ids: dict[Section, tuple[str, ...]] = {
            "profile": tuple(chain.from_iterable(each for each, _ in self._profile)),
            "lines": tuple(piece.id for piece, _ in taken),
        }
        return Context(text, estimate_tokens(text), self._budget, MappingProxyType(ids), line_ids)

    def _statement(self, piece: Piece) -> str:
        """Returns a key that is equal for one statement, empty for the question. "I am allergic
        to kiwi" is another statement of each who says it; what no longer holds does not stand for
        the same words that do."""
        words = statement_key(piece.text)
        if not words or words == self._asked:
            return ""
        is_own = piece.speaker and refers_to_speaker(piece.text)
        said = f"{piece.speaker}: {words}" if is_own else words
        return f"{said} {piece.note}" if piece.note else said

    def _form(self, piece: Piece, characters: int | None) -> str:
        if characters is None:
            return laid_out(piece.text)
        found = self._found
        nearest = found.nearest and partial(self._nearest_of, found.nearest, piece.id)
        return excerpt(piece.text, characters, found.wanted, found.stems, nearest)

    def _nearest_of(self, nearest: Nearest, memory_id: str, sentences: Sequence[str]) -> int | None:
        if memory_id not in self._nearest:
            self._nearest[memory_id] = nearest(memory_id, sentences)
        return self._nearest[memory_id]


def _cost(line: str) -> int:
    """The tokens of a line with its line break."""
    return estimate_tokens(line) + 1


def _day(piece: Piece) -> date:
    """The day by the speaker's own clock."""
    return piece.at.date()


def _title(day: date) -> str:
    """Two tokens shorter than 2026-03-16, and usual in answers."""
    return f"## {day.day} {MONTHS[day.month - 1]} {day.year}"


# --- excerpts: the parts of a long text that matter to a question ---------------------------

ELLIPSIS: Final = "…"
LEAD: Final = 60
"""Characters of the lead, which then extends to the end of the sentence: less does not show the
subject of a turn."""
LONGEST: Final = 160
"""Maximum characters of a sentence that is not divided."""
SLACK: Final = 1.25
"""A text longer than requested by no more than this factor stays whole."""
BY_MEANING: Final = 2_000
"""Characters of a text from which on its sentence nearest in meaning is shown: of a shorter one the
sentences with the question's words hold more of the evidence."""
MOST: Final = 20_000
"""Maximum characters of a text that are read; the rest is ignored."""
MOST_BY_MEANING: Final = 200_000
"""The same where the sentence nearest in meaning is known."""
_END: Final = re.compile(r"(?<=\D[.!?…])\s+|(?<=[。！？])|\n\s*|\s(?=\[image: )")
_SPACE: Final = re.compile(r"\s+")
_LINE_BREAK: Final = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def folded(text: str) -> str:
    """Returns the text on one line, so that it opens no section of its own."""
    return _SPACE.sub(" ", text).strip()


def laid_out(text: str) -> str:
    """Returns the text with its lines, as code and poems need them; all but the first are indented
    so far that Markdown reads none of them as a heading or an item: the block has one entry for
    the text. Blank lines that follow each other are one."""
    if _LINE_BREAK.search(text) is None:
        return folded(text)
    first, *others = (line.rstrip() for line in text.strip().splitlines() or [""])
    lines = [folded(first)]
    for line in others:
        if line or lines[-1] != CONTINUED:
            lines.append(CONTINUED + line)
    return "\n".join(lines)


def excerpt(
    text: str,
    characters: int,
    wanted: Set[str],
    stems: Stems,
    nearest: Callable[[Sequence[str]], int | None] | None = None,
) -> str:
    """Returns about `characters` of the text: the lead, then the sentences with most of the words
    `wanted`, in their order, with "…" for each omission and, as in `laid_out`, lines. The best of
    them is included even if it is longer; of a long text the `nearest`, if that is known. Words
    that occur in fewer of the sentences count for more."""
    whole = folded(text)
    if len(whole) <= characters * SLACK:
        return laid_out(text)
    most = MOST if nearest is None else MOST_BY_MEANING
    sentences, breaks = _sentences(text[:most])
    kept = {0}
    length = len(sentences[0])
    while length < LEAD and len(kept) < len(sentences):
        length += 1 + len(sentences[len(kept)])
        kept.add(len(kept))
    held = [wanted & stems(sentence) for sentence in sentences]
    often = Counter(chain.from_iterable(held))
    hits = [sum(1 / often[stem] for stem in sorted(each)) for each in held]
    meant = nearest(sentences) if nearest is not None and len(whole) >= BY_MEANING else None
    if meant is not None and meant not in kept:
        kept.add(meant)
        length += 1 + len(sentences[meant])
    best = max(hits[number] for number in kept) if meant is None else inf
    for number in sorted(range(len(sentences)), key=lambda number: (-hits[number], number)):
        fits = length + len(sentences[number]) < characters
        if number not in kept and (fits or hits[number] > best):
            kept.add(number)
            length += 1 + len(sentences[number])
            best = max(best, hits[number])
    is_cut = len(text) > most
    return _joined(sentences, breaks, sorted(kept), is_cut)


def _joined(
    sentences: Sequence[str], breaks: Mapping[int, str], kept: Sequence[int], is_cut: bool
) -> str:
    """Returns the sentences with these numbers, in order; `is_cut`: more follows the last of
    all."""
    text, before = "", -1
    for number in kept:
        if number != before + 1:
            text += f" {ELLIPSIS}"
        text += breaks.get(number, " ") + sentences[number]
        before = number
    if before != len(sentences) - 1 or is_cut:
        text += f" {ELLIPSIS}"
    return text.strip()


def _sentences(text: str) -> tuple[list[str], dict[int, str]]:
    """Returns the sentences, and by the number of one that begins a line what is before it; splits
    a long one, between words if it has any."""
    found: list[str] = []
    breaks: dict[int, str] = {}
    done = 0
    for match in (*_END.finditer(text), None):
        rest = folded(text[done : match.start() if match else len(text)])
        while len(rest) > LONGEST:
            space = rest.rfind(" ", LONGEST // 2, LONGEST)
            end = LONGEST if space < 0 else space
            found.append(rest[:end].rstrip())
            rest = rest[end:].lstrip()
        if rest:
            found.append(rest)
        if match is not None:
            done = match.end()
            _, line_break, indent = match.group().rpartition("\n")
            if line_break and found:
                breaks[len(found)] = f"\n{CONTINUED}{indent}"
    return found or [""], breaks


# --- tokens, estimated without a tokenizer ---------------------------------------------------

_UNSPACED: Final = (
    r"\u0e00-\u0eff\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uff9f"
)
_TOKEN: Final = re.compile(
    r"(?<![A-Za-z])[A-Za-z]{1,8}|[A-Za-z]{1,5}|[0-9]{1,3}|[!-/:-@\[-`{-~]{1,2}"
    rf"|[{_UNSPACED}\n\u2010-\u2027]"
    rf"|[^\W\d_{_UNSPACED}A-Za-z]{{1,2}}"
    r"|([^\s])"
)
"""One match a token; the group holds a sign, which counts two."""


def estimate_tokens(text: str) -> int:
    """The estimate: about four characters of English a token.

    A word in the Latin script of up to eight characters counts one, and one more for every five
    characters begun after them; a word of another alphabet one for every two characters begun; a
    number one for every three digits; a run of ASCII marks one for every two; a character of a
    script without spaces, a typographic mark and a line break one each; other signs (emoji) two.
    Additive over lines: of two texts joined by a line break it is the sum and one.
    """
    found = _TOKEN.findall(text)
    return 2 * len(found) - found.count("")
