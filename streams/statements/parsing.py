"""A statement taken apart into the claims that a later one may contradict. Pure.

Conservative: a statement that is not plain (a question, quote, condition or doubt, one of the past,
a pronoun for what another sentence named) claims nothing, so nothing is concluded from it.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

from palimpsest.streams.statements import english, german, japanese
from palimpsest.streams.statements.claims import NOTHING, SAYS, Claim, Claims, Words
from palimpsest.streams.statements.grammar import Grammar, Relation, Sense, Token, Tokens

MAX_CHARACTERS: Final = 400
"""Of a statement that is read; a longer one is no plain statement."""

_APOSTROPHES: Final = str.maketrans(dict.fromkeys("\u2019\u02bc\u2018`\u00b4", "'"))
_SPEAKER: Final = re.compile(r"(?P<name>[^:.!?\"\n]{1,80}?)\s*:\s+(?P<text>\S.*)", re.DOTALL)
_UNPLAIN: Final = re.compile(r"[?？\"“”„»«「」『』]|[.!…]\s+\S|\n")
_JAPANESE: Final = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
_GERMAN: Final = re.compile(
    r"\b(?:ich|nicht|kein\w*|ist|sind|wohn\w*|eine?[nmrs]?|der|die|das|dem|den|und|mein\w*|bei|hat"
    r"|habe|nie|niemals|mag|für|im|am|zu|auf|mit|kann|isst|esse|trink\w*|jeden|lieblings\w*)\b"
    r"|[äöüß]",
    re.IGNORECASE,
)
_ENGLISH: Final = re.compile(
    r"\b(?:the|an?|is|are|was|of|and|has|have|at|on|for|to|not|does|do|no|with|never|every|my)\b",
    re.IGNORECASE,
)
_TOKEN: Final = re.compile(
    r"'s\b|[-+\u2212]?\d+(?:[.,:/]\d+)*|[^\W_]+(?:[-.'&][^\W_]+)*|[,;:()\u2013\u2014]|[^\s\w.!]"
)
CACHED_STATEMENTS: Final = 8_192
"""A memory is a candidate again and again; its claims take about a kilobyte."""
_YEAR: Final = re.compile(r"\d{4}")
_BREAKS: Final = frozenset(",;:()\u2013\u2014")


@lru_cache(CACHED_STATEMENTS)
def read(text: str, as_news: bool = True) -> Claims:
    """The claims of a statement, in a fixed order; none where it is not a plain one. What it tells
    as news is read only where that is asked for."""
    text = unicodedata.normalize("NFKC", text).translate(_APOSTROPHES).strip()
    if len(text) > MAX_CHARACTERS:
        return NOTHING
    said = _SPEAKER.fullmatch(text)
    speaker, body = (said["name"].casefold(), said["text"]) if said else ("", text)
    body = body.strip().rstrip(".!。…")
    if _UNPLAIN.search(body):
        return NOTHING
    if _JAPANESE.search(body):
        return japanese.read(body, speaker)
    germanly = len(_GERMAN.findall(body)) > len(_ENGLISH.findall(body))
    return _read(body, speaker, german.GRAMMAR if germanly else english.GRAMMAR, as_news)


def _read(body: str, speaker: str, grammar: Grammar, as_news: bool) -> Claims:
    habits: list[str] = []

    def habit(match: re.Match[str]) -> str:
        habits.append(" ".join(match.group().casefold().split()))
        return " "

    plain = grammar.habits.sub(habit, grammar.expand(body))
    tokens = tuple(Token(raw.casefold(), raw) for raw in _TOKEN.findall(plain))
    tokens = _spoken(tokens, speaker, grammar)
    qualifiers = frozenset(habits)
    whole = _sense(tokens, qualifiers, grammar)
    held = () if whole is None else _claims(whole, grammar, as_news=False)
    if not as_news:
        return Claims(held)
    clause = _first_clause(tokens, grammar)
    first = _sense(clause, qualifiers, grammar) if clause else None
    told: tuple[Claim, ...] = ()
    for sense in (whole, first):
        if sense is not None:
            told += (*_claims(sense, grammar, as_news=True), *grammar.endings(sense))
    return Claims(held, tuple(dict.fromkeys(told)))


def _spoken(tokens: Tokens, speaker: str, grammar: Grammar) -> Tokens:
    """With the speaker's name for "I" and "my". A statement that its speaker makes of something
    else stays theirs: another's door is another door."""
    if not speaker or not tokens:
        return tokens
    name = tuple(Token(word, word.capitalize()) for word in _TOKEN.findall(speaker))
    mine = grammar.speaker | grammar.speakers
    words = [token.word for token in tokens]
    about = words[0] in mine or words[: len(name)] == [token.word for token in name]
    said: list[Token] = [] if about else [Token(f"@{speaker}", "@")]
    for token in tokens:
        if token.word in grammar.speaker:
            said += name
        elif token.word in grammar.speakers:
            said += [*name, Token("'s", "'s")]
        else:
            said.append(token)
    return tuple(said)


def _first_clause(tokens: Tokens, grammar: Grammar) -> Tokens:
    """The tokens before the first break; none where there is no break, or where what follows
    takes something back."""
    for place, token in enumerate(tokens):
        if token.word in _BREAKS or token.word in grammar.breaks:
            rest = {later.word for later in tokens[place:]}
            return () if rest & grammar.restricts else tokens[:place]
    return ()


def _sense(tokens: Tokens, qualifiers: frozenset[str], grammar: Grammar) -> Sense | None:
    """The clause without its negation and light words; None for what is not plain."""
    tokens = tuple(token for token in tokens if token.word not in _BREAKS)
    said = {token.word for token in tokens}
    if _subject_is_unclear(tokens, grammar) or said & grammar.unclear:
        return None
    # "May" is a month, "may" is a doubt.
    if any(token.word in grammar.doubtful and not token.is_name for token in tokens):
        return None
    tokens, tail = _without_tail(tokens, grammar)
    if tail:
        qualifiers |= {tail}
    kept, denials = _without_denials(tokens, grammar)
    if denials > 1:
        return None
    left = _plain(kept, denials == 1, grammar)
    if not left or left[-1].raw.casefold() in grammar.open_ends:
        return None
    present = {token.word for token in left}
    for wording, plain in grammar.synonyms:
        if wording[0] in present and present.issuperset(wording):
            left = _reworded(left, wording, plain)
            present.update(plain)
    if len(left) < 2:
        return None
    words = tuple(token.word for token in left)
    return Sense(
        left, words, denials == 1, qualifiers, bool(said & grammar.news), bool(said & grammar.more)
    )


def _plain(kept: list[Token], denies: bool, grammar: Grammar) -> Tokens:
    """The tokens that carry the clause, in their plain forms. Names and nouns stay as they are:
    one cousin is not the cousins."""
    plain: list[Token] = []
    before = ""
    for token in kept:
        light = token.word in grammar.light or token.word in grammar.news
        if not (light or (denies and token.word in grammar.in_denials)):
            noun = token.is_name or before in grammar.before_nouns
            word = token.word if noun else grammar.stem(token.word)
            # What is one of many is not a name, however it is written.
            raw = token.raw.casefold() if before in grammar.indefinite else token.raw
            plain.append(Token(word, raw))
        before = token.word
    return tuple(plain)


def _without_tail(tokens: Tokens, grammar: Grammar) -> tuple[Tokens, str]:
    """The clause without the one that says before, after or for what it is so, and that one."""
    for place, token in enumerate(tokens):
        if place > 1 and token.word in grammar.tails:
            return tokens[:place], " ".join(later.word for later in tokens[place:])
    return tokens, ""


def _subject_is_unclear(tokens: Tokens, grammar: Grammar) -> bool:
    """Whether it is not said whom the clause is about; "we" are those of a named speaker."""
    begin = 1 if tokens and tokens[0].raw == "@" else 0
    if len(tokens) - begin < 2:
        return True
    first, second = tokens[begin], tokens[begin + 1]
    if begin and first.word in grammar.we:
        return False
    if first.word in grammar.articles and not second.is_name:
        return not second.word.endswith(("e", "en"))  # "das ist", but "das neue Haus"
    return first.word in grammar.unclear_subjects


def _without_denials(tokens: Tokens, grammar: Grammar) -> tuple[list[Token], int]:
    """The tokens without the negations that deny the statement, and how many these were. One
    that denies something else ("not only") stays as a word."""
    kept: list[Token] = []
    denials = 0
    for place, token in enumerate(tokens):
        after = tokens[place + 1].word if place + 1 < len(tokens) else ""
        if token.word not in grammar.negations or after in grammar.no_negation:
            kept.append(token)
            continue
        denials += 1
        if kept and kept[-1].word in grammar.helpers:
            kept.pop()
    return kept, denials


def _reworded(tokens: Tokens, wording: Words, plain: Words) -> Tokens:
    size = len(wording)
    for place in range(len(tokens) - size + 1):
        if tuple(token.word for token in tokens[place : place + size]) == wording:
            new = tuple(Token(word, tokens[place].raw) for word in plain)
            return tokens[:place] + new + tokens[place + size :]
    return tokens


def _claims(sense: Sense, grammar: Grammar, *, as_news: bool) -> tuple[Claim, ...]:
    """The whole as one claim and, of what is affirmed, what it says in known relations."""
    if grammar.past.search(" ".join(sense.words)):
        return ()
    whole = Claim(SAYS, sense.words, holds=not sense.denies, qualifiers=sense.qualifiers)
    if sense.denies:
        return (whole,)
    found = [whole, *_opposites(sense, grammar), *_diet(sense, grammar)]
    if sense.adds:
        return tuple(found)
    for relation in grammar.relations:
        if as_news or not relation.tells:
            found += _related(sense, relation, grammar, as_news)
    found += _described(sense, grammar, as_news)
    return tuple(found)


def _opposites(sense: Sense, grammar: Grammar) -> list[Claim]:
    found: list[Claim] = []
    for place, word in enumerate(sense.words):
        known = grammar.opposites.get(word)
        if known is None or not place:
            continue
        group, side = known
        if group in grammar.states and not _is_state(sense.words, place, grammar):
            continue
        frame = (*sense.words[:place], "_", *sense.words[place + 1 :])
        found.append(Claim(f"opposite {group}", frame, (side,), True, sense.qualifiers))
    return found


def _is_state(words: Words, place: int, grammar: Grammar) -> bool:
    """Whether the word is what the subject is said to be, and not "the open window"."""
    return grammar.copula in words[1:place]


def _diet(sense: Sense, grammar: Grammar) -> list[Claim]:
    """A vegetarian eats no meat."""
    words = sense.words
    foods = grammar.diets.get(words[-1])
    if foods is None or len(words) < 3 or words[-2] != grammar.copula:
        return []
    return [Claim(SAYS, (*words[:-2], grammar.eat, food), holds=False) for food in foods]


def _related(sense: Sense, relation: Relation, grammar: Grammar, as_news: bool) -> list[Claim]:
    size = len(relation.phrase)
    # "For weeks" and "every summer" are no event that lasts.
    if relation.phrase[0] not in sense.words or (relation.tells and sense.qualifiers):
        return []
    for place in range(1, len(sense.words) - size):
        if sense.words[place : place + size] == relation.phrase:
            value = _value(sense.tokens[place + size :], grammar, as_news)
            rest = sense.words[place + size + len(value) :]
            if not value or (relation.tells and not _is_recent(rest, grammar)):
                return []
            name = value[0].is_name
            is_news = relation.tells or sense.is_news
            said = tuple(token.word for token in value)
            frame = sense.words[:place]
            if _is_of_several(sense.tokens[: place + 1], grammar):
                return []
            return [Claim(relation.name, frame, said, True, sense.qualifiers, name, is_news)]
    return []


def _is_of_several(tokens: Tokens, grammar: Grammar) -> bool:
    """Whether a subject and its verb speak of several, who may each have another value. "We" of a
    speaker are taken for one."""
    *subject, verb = tokens
    if any(token.word in grammar.breaks for token in subject):
        return True
    one = subject[-1].is_name or subject[-1].word in grammar.we
    return verb.raw.casefold() in grammar.several and not one


def _value(tokens: Tokens, grammar: Grammar, as_news: bool) -> Tokens:
    """The tokens up to a word that ends a value; none where what follows narrows it or, in what
    is known, tells more."""
    for place, token in enumerate(tokens):
        if token.word in grammar.narrows and not as_news:
            return ()
        if token.word in grammar.stops or token.word in grammar.narrows:
            rest = {later.word for later in tokens[place:]}
            return (
                () if not as_news and rest & (grammar.breaks | grammar.narrows) else tokens[:place]
            )
    return tokens


def _is_recent(rest: Words, grammar: Grammar) -> bool:
    """Whether what follows an event leaves it the last word: not "in 2009", "as a child", "for two
    weeks". The parser knows no dates but the words'."""
    said = set(rest)
    if said & grammar.elsewhen:
        return False
    dated = any(_YEAR.fullmatch(word) for word in rest) or bool(said & grammar.spans)
    return not dated or bool(said & grammar.last)


def _described(sense: Sense, grammar: Grammar, as_news: bool) -> list[Claim]:
    """A favourite, or an attribute of which a thing has one."""
    words = sense.words
    if grammar.copula not in words[1:-1]:
        return []
    place = words.index(grammar.copula, 1)
    if sense.tokens[place].raw.casefold() in grammar.several:
        return []
    subject, value = words[:place], sense.tokens[place + 1 :]
    if any(grammar.favourite.fullmatch(word) for word in subject):
        relation = "favourite"
        value = _value(value, grammar, as_news)
    elif _head(subject, grammar) in grammar.attributes:
        relation = "attribute"
    else:
        return []
    if not value or "of" in subject[:2] or grammar.vague & {token.word for token in value}:
        return []
    said = tuple(token.word for token in value)
    name = value[0].is_name
    return [Claim(relation, subject, said, True, sense.qualifiers, name, sense.is_news)]


def _head(subject: Words, grammar: Grammar) -> str:
    for place, word in enumerate(subject):
        if place and word in grammar.of:
            return subject[place - 1]
    return subject[-1] if subject else ""
