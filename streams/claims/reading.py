"""Claims in a sentence of a conversation, about the speaker and theirs. Pure, in linear time.

Silence over noise: a sentence that asks, supposes, reports, doubts or quotes gives none, and a
clause that is not taken whole gives none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from itertools import islice
from typing import Final

from palimpsest.streams.claims.claim import Claim
from palimpsest.streams.claims.english import FINITE, expanded, is_english, past_of
from palimpsest.streams.claims.grammar import LEADING_TIME, clause_claim
from palimpsest.streams.claims.language import (
    ENGLISH,
    FAVOURITES,
    expression,
    rewritings,
    word_set,
)
from palimpsest.streams.claims.subjects import NO_PERSONS, PETS, PLURALS, relative_claim, subject_of
from palimpsest.streams.claims.times import time_at_end
from palimpsest.streams.claims.values import fits, is_known

MAX_SENTENCE_CHARACTERS: Final = 600
MAX_CLAUSES: Final = 12
MAX_ASIDES: Final = 3
"""At the end of one sentence."""

_WISH: Final = expression("wish")
_AS_SOMEONE: Final = re.compile(r"^As (?:someone|somebody|a person) who (?P<what>[^,]{3,60}), ")
_AS_A: Final = re.compile(r"^[Aa]s (?P<what>an? [^,]{3,60}), (?=(?:I|my|we)\b)")
_GIVEN: Final = re.compile(r"^(?:Since|As|Because|Given that|Now that) (?=(?:I|my|we|our)\b)")

_SAID_OF_IT: Final = re.compile(r" (?:that|which|who)\b.*$", re.DOTALL)
_HAD: Final = frozenset("possession pet family home work hobby".split())
"""Of what is theirs, more may be said: what they like is another thing without it."""
_DOUBT: Final = expression("doubt")
_LABEL: Final = re.compile(r"^[^\W\d_][\w'.-]{0,30}(?: [^\W\d_a-z][\w'.-]{0,30}){0,2}: ")
_AND: Final = re.compile(r",? (?:and|but)(?: (?:also|now|then))? ")


def claims_in(sentence: str, speaker: str, today: date, about: str = "") -> list[Claim]:
    """The claims that `sentence` makes, each in the third person; none where in doubt.

    `speaker` is whom "I" stands for, `about` whom "she" or "he" stands for at its beginning (""
    where no one was named). Times are counted from `today`, the speaker's day. Of a question the
    parts before it count.
    """
    text = " ".join(expression("marks").sub(" ", sentence.replace("\u2019", "'")).split())
    if not text or len(text) > MAX_SENTENCE_CHARACTERS or not is_english(text):
        return []
    if is_fiction(text):
        return [
            claim
            for part in _outside_fiction(text)
            for claim in claims_in(part, speaker, today, about)
        ]
    is_question = "?" in text
    text = expanded(expression("subject_dropped").sub("I ", text)).rstrip(" .!?~")
    text = _retold(_GIVEN.sub("", _without_lead(_without_asides(text))))
    by_the_way = [] if expression("invented").search(text) else _mentioned(text, speaker, today)
    found: list[Claim] = []
    if is_question:
        cut = expression("question_part").sub("", text)
        text = "" if cut == text else cut
    if expression("unsafe").search(text) or _LABEL.match(text):
        return [] if _LABEL.match(text) else by_the_way
    text = _AS_SOMEONE.sub(r"I \g<what>, ", text)
    as_a = _AS_A.match(text)
    if as_a is not None:
        if fits("job", as_a["what"]) or fits("meal", as_a["what"]):
            found += _claims(f"I am {as_a['what']}", speaker, today)
        text = text[as_a.end() :]
    text, beside = _with_company(text)
    when = ""
    for part in _stated(text):
        clause = f"{when}{_without_lead(part.strip(' ,)'))}"
        when = f"{clause}, " if LEADING_TIME.sub("", f"{clause}, I") == "I" else ""
        if beside:
            is_said = _TOGETHER.search(clause) and not _PARTED.search(clause)
            clause = clause if is_said else f"{clause}{beside}"
            beside = ""
        pronoun, _, predicate = clause.partition(" ")
        if pronoun.lower() in ("he", "she"):
            if about:
                found += _claims(f"{about} {predicate}", speaker, today)
            continue
        claims = _claims(clause, speaker, today)
        found += claims
        about = next((claim.holder for claim in claims if claim.holder != speaker), "")
    found = [claim for claim in found if not _is_irony(claim, sentence)]
    return _consistent(found + _unsaid(by_the_way, found))


_ROLLED_EYES: Final = "\U0001f644"


def _is_irony(claim: Claim, told: str) -> bool:
    """Whether it tells of a liking that is hardly meant: "Great, I love traffic jams"."""
    if claim.slot not in ("likes", "favourite") or not claim.holds:
        return False
    if _ROLLED_EYES in told or expression("nobody_likes").search(claim.value):
        return True
    is_odd = expression("few_like").fullmatch(claim.value) is not None
    return is_odd and expression("ironical").search(told) is not None


def _unsaid(by_the_way: list[Claim], found: list[Claim]) -> list[Claim]:
    """Of what is said by the way, what no other claim tells."""
    named = " ".join(claim.text for claim in found)
    return [
        claim
        for claim in by_the_way
        if f"{claim.key} {claim.value}" not in named
        and f"'s {claim.key} " not in named
        and f"'s {claim.key}'s " not in named
    ]


def is_fiction(text: str) -> bool:
    """Whether a part of the sentence tells what holds in a novel, a game or a dream."""
    return expression("fiction").search(text.rstrip(" .!?~")) is not None


def _outside_fiction(text: str) -> list[str]:
    """The parts of a sentence that are said to be so in reality: before the frame of a fiction, or
    after a word that ends it. The frame covers all other clauses, "and I have a horse", too."""
    begins = expression("fiction").search(text.rstrip(" .!?~"))
    real = expression("in_reality").search(text)
    if begins is None or real is None:
        return []
    if real.start() < begins.start():
        parts = [text[real.end() : begins.start()]]
    else:
        parts = [text[real.end() :]]
    return [part for part in parts if part.strip() and not is_fiction(part)]


_RETOLD: Final = rewritings(ENGLISH["retold"])
_ASKED: Final = rewritings(ENGLISH["asked"])
_RETOLD_FIRST: Final = rewritings(ENGLISH["retold_first"])
_BETWEEN: Final = re.compile(r"[,;.!]")
_RETOLD_HINTS: Final = word_set("retold_hints")
"""Without one of them nothing of `_RETOLD_FIRST` is there."""


def _retold(text: str) -> str:
    """The sentence with a retraction in other words ("outgrew my allergy to") as a denial, and what
    is asked for always as a preference."""
    if expression("asked_by").match(text):
        for pattern, written in _ASKED:
            text = pattern.sub(written, text)
    if not _RETOLD_HINTS.isdisjoint(_BETWEEN.sub(" ", text).split()):
        for pattern, written in _RETOLD_FIRST:
            text = pattern.sub(written, text)
    if expression("retold_by").search(text):
        for pattern, written in _RETOLD:
            text = pattern.sub(written, text)
        text = _CAPITAL_DEED.sub(lambda match: match.group().lower(), text)
    return text


_CAPITAL_DEED: Final = re.compile(r"(?<= like )[A-Z][a-z]{2,20}ing\b")


def _without_asides(text: str) -> str:
    """The sentence without ", by the way" and others that are no part of what it says."""
    text = expression("aside_between").sub(" ", text)
    for _ in range(MAX_ASIDES):
        shorter = expression("aside_at_end").sub("", text)
        if shorter == text:
            break
        text = shorter
    return text


def _stated(text: str) -> list[str]:
    """The clauses before the first that is doubted, and those after a "but"; none where the doubt
    is about what stands before it."""
    stated: list[str] = []
    doubted, end = False, 0
    for part in expression("split").split(text)[:MAX_CLAUSES]:
        begin = text.index(part, end)
        doubted = (doubted and "but" not in text[end:begin]) or _DOUBT.search(part) is not None
        end = begin + len(part)
        if doubted and expression("all_doubted").search(part):
            return []
        if not doubted:
            stated.append(part)
    return stated


_VOWEL: Final = re.compile(r"[aeio]|u(?!k|ni|s)|[AEIO]", re.ASCII)
_NUMBERED: Final = re.compile(r"two |three |four |five ")
_TOGETHER: Final = re.compile(r"\bwith\b|\bmarried|\bengaged|\bdivorced|\bdating|\bbr(?:eak|oke)\b")
"""Two who did something together, of whom the speaker is one."""
_PARTED: Final = re.compile(r" (?:broke|broken|split) up$")
_GONE: Final = expression("gone")
_KINDRED: Final = expression("kindred")
_NOT_KEPT: Final = expression("not_kept")
_RENEWED: Final = re.compile(r"^(?:(?:new|old|current|own|beloved|trusty) )+")


_BY_THE_WAY: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]] = (
    (expression("trip"), lambda m: f"I took {_with_article(m['what'])} {m['when']}"),
    (expression("homeland"), lambda m: f"My {m['which']} is {m['place']}"),
    (expression("role"), lambda m: f"I am {m['job']}"),
    (_KINDRED, lambda m: f"I have {_with_article(m['relation'])}"),
    (expression("trip_taken"), lambda m: f"I took {m['what']} {m['when']}"),
    (expression("daily"), lambda m: f"I am taking {_with_article(m['what'])}{m['when'] or ''}"),
    (expression("job_at"), lambda m: f"I work at {m['org']}"),
    (expression("done_at"), lambda m: f"I {m['verb']} at {m['what']}"),
    (expression("bought"), lambda m: f"I {m['verb']} {_with_article(m['what'])} {m['rest']}"),
)
"""What stands in a noun phrase, and the sentence that would say it."""


def _mentioned(text: str, speaker: str, today: date) -> list[Claim]:
    """Who is theirs, by the way: "my sister Rita", "my role as a nurse"; a question says it,
    too."""
    if " my " in text or " our " in text:
        text = expression("not_theirs").sub(r"\g<as> the", text)
    found: list[Claim] = []
    for each in islice(expression("mentioned").finditer(text), 4):
        name = (each["name"] or each["name_"]).removesuffix("'s")
        relation = each["relation"] or each["relation_"]
        if (relation.rpartition(" ")[2] in PLURALS) != (" and " in name):
            continue
        first = name.split()[0]
        if first in _NO_NAMES or first.lower() in FINITE or is_known(first.lower()):
            continue
        found.append(relative_claim(speaker, relation, name))
    for each in islice(expression("professional").finditer(text), 4):
        if fits("job", f"a {each['relation']}") or each["role"].endswith(("ist", "ian", "geon")):
            found.append(relative_claim(speaker, each["relation"], each["doctor"] or each["name"]))
    for pattern, sentence in _BY_THE_WAY:
        for each in islice(pattern.finditer(text), 2):
            is_kin = pattern is _KINDRED
            is_nobody = text.partition(" is my ")[0].casefold() in NO_PERSONS
            if is_kin and (
                is_nobody or _GONE.search(text) or _says_of_more(each, text[each.end() :])
            ):
                continue
            found += _claims(sentence(each), speaker, today)
    theirs = [*islice(expression("my").finditer(text), 6)]
    if theirs and _NOT_KEPT.search(text) is None:
        for each in theirs:
            found += _belonging(each["what"], speaker, today)
    return found


def _says_of_more(kin: re.Match[str], rest: str) -> bool:
    """Whether what follows the name of a relative or an animal makes it a part of another thing,
    the allergy of "my cat allergy", or tells which of several ("my two kids from before")."""
    word = _NEXT_WORD.match(rest)
    if word is None:
        return False
    follows = word["word"].lower()
    if _NUMBERED.match(kin["relation"]) and follows in ("from", "who", "that", "of", "with"):
        return True
    is_verb = follows in FINITE or follows.endswith(("ed", "ly"))
    return not is_verb and follows not in word_set("after_kin")


_NEXT_WORD: Final = re.compile(r" (?P<word>[a-z][\w'-]*)")


def _belonging(text: str, speaker: str, today: date) -> list[Claim]:
    """What "my" stands before, as far as it is a thing that somebody has: "my mountain bike"."""
    words = _RENEWED.sub("", text).split()
    for count in range(len(words), 0, -1):
        thing = " ".join(words[:count])
        if fits("goods", thing) and (count > 1 or fits("kept", thing)):
            if expression("not_yet").match(thing) or expression("is_kin").search(thing):
                return []
            return _claims(f"I have {_with_article(thing)}", speaker, today)
    return []


def _with_article(text: str) -> str:
    last = re.split(r" (?:to|in|at|with) ", text, maxsplit=1)[0].rpartition(" ")[2]
    if last in PLURALS or (last.endswith("s") and not last.endswith("ss")) or _NUMBERED.match(text):
        return text
    return f"an {text}" if _VOWEL.match(text) else f"a {text}"


_NO_NAMES: Final = word_set("no_names")


def _without_lead(text: str) -> str:
    for _ in range(6):
        shorter = _WISH.sub("", expression("reading_lead").sub("", text, count=1), count=1)
        if shorter == text:
            break
        text = shorter
    return text[:1].upper() + text[1:]


_POINTS: Final = expression("points")
_TASTES: Final = frozenset("loves likes enjoys hates dislikes adores".split())
_TASTED: Final = PETS | word_set("games") | word_set("disciplines") | frozenset().union(*FAVOURITES)
"""Products, firms and places love other things: "Netflix loves reboots"."""
MAX_TASTE_WORDS: Final = 5
"""Length of "Tom hates fish", the likes that are taken of somebody who is only named."""


def _claim(clause: str, speaker: str, today: date) -> Claim | None:
    own = clause.startswith(("I ", "We ", "we ", "My favo", "Our favo")) or "'s favo" in clause
    if own and _POINTS.search(clause):
        return None
    found = clause_claim(clause, speaker, today)
    if found is None:
        return None
    if found.holder.startswith(speaker) or found.slot in word_set("named_slots"):
        return found
    if (found.slot, found.key) == ("event", "loss"):
        return found
    words = clause.split()
    is_taste = len(words) <= MAX_TASTE_WORDS and words[1] in _TASTES
    return found if is_taste and found.value.casefold() in _TASTED else None


def _claims(clause: str, speaker: str, today: date) -> list[Claim]:
    """The claim of a clause, or those of its two verbs; the reason after it is left out."""
    clause = expression("appointed").sub(_as_appointment, _renamed(clause.strip(" ,.!")))
    clause = _MANAGED.sub(_as_done, expression("my_car").sub(r"I have \g<what>", clause))
    named = _APPOSED.match(clause)
    if named is not None and _renamed(named["self"]) != named["self"]:
        return [
            *_claims(named["self"], speaker, today),
            *_claims(f"I am {named['what']}", speaker, today),
        ]
    joined = _two_verbs(clause, speaker, today)
    if joined:
        return joined
    whole = _claim(clause, speaker, today)
    if whole is not None:
        return [whole]
    shorter = expression("dropped_end").sub("", clause)
    if shorter != clause:
        joined = _two_verbs(shorter, speaker, today)
        whole = None if joined else _claim(shorter, speaker, today)
        if joined or whole is not None:
            return joined if whole is None else [whole]
    had = _claim(_SAID_OF_IT.sub("", clause), speaker, today)
    return [] if had is None or had.slot not in _HAD else [had]


def _with_company(text: str) -> tuple[str, str]:
    """The sentence with "we" for "my brother and I", and whom the speaker was with."""
    company = expression("company").match(text)
    if company is None:
        return text, ""
    beside = f" with {company['with'] or company['beside']}"
    beside = beside.replace("My ", "my ").replace("Our ", "our ")
    return f"We {text[company.end() :]}", beside


_APPOSED: Final = re.compile(r"(?P<self>I am [A-Z][\w'-]+(?: [A-Z][\w'-]+)?), (?P<what>an? .+)$")
_CALLED: Final = expression("reading_called")
_NOT_CALLED: Final = word_set("states") | word_set("languages") | word_set("illnesses")
_MANAGED: Final = expression("managed")


def _as_done(match: re.Match[str]) -> str:
    past = past_of(match["verb"])
    return match.group() if past is None else f"{match['who']} {past} "


def _renamed(clause: str) -> str:
    """ "I am Marta" and "Call me Bo" as "My name is Marta" and "My nickname is Bo"."""
    liked = expression("best_loved").fullmatch(clause)
    if liked is not None and not _POINTS.search(clause):
        thing = liked["what"] or liked["thing"]
        return f"I love {thing.lower() if thing.partition(' ')[0].endswith('ing') else thing}"
    found = _CALLED.fullmatch(clause) or expression("names_self").fullmatch(clause)
    if found is None or found["name"] in _NO_NAMES or not _is_given_name(found["name"]):
        return clause
    what = "nickname" if found.re is _CALLED else "name"
    return f"My {what} is {found['name']}"


def _is_given_name(text: str) -> bool:
    folded = text.casefold()
    first = folded.partition(" ")[0]
    return not (
        first in _NOT_CALLED
        or expression("adjective").fullmatch(first)
        or is_known(folded)
        or fits("job", f"a {folded}")
        or fits("meal", folded)
        or first.endswith(("ing", "ed", "ful", "ive"))
    )


def _as_appointment(match: re.Match[str]) -> str:
    """ "My flight to Oslo is on Friday" as "I have a flight to Oslo on Friday"."""
    what = match["what"]
    if not fits("appointment", f"a {what}"):
        return match.group()
    return f"I {match['now'] or ''}have {_with_article(what)} "


def _two_verbs(clause: str, speaker: str, today: date) -> list[Claim]:
    """ "I live in Lisbon and work at Oceano": the second verb has the subject of the first."""
    if " and " not in clause and " but " not in clause:
        return []
    lead = LEADING_TIME.match(clause)
    parsed = subject_of(clause if lead is None else clause[lead.end() :], speaker)
    if parsed is None or parsed[0].kind == "attribute":
        return []
    rest = parsed[1]
    subject = clause[: len(clause) - len(rest)]
    _, time = time_at_end(rest)
    for joint in islice(_AND.finditer(rest), 6):
        second = rest[joint.end() :]
        if second.partition(" ")[0].lower() not in FINITE:
            continue
        said = f"{subject}{rest[: joint.start()]}"
        first = _claim(said, speaker, today)
        if first is None and time is not None:
            first = _claim(f"{said} {time.words}", speaker, today)
        if first is None:
            return []
        other = _claim(f"{subject}{second}", speaker, today)
        return [first] if other is None else [first, other]
    return []


def _consistent(claims: list[Claim]) -> list[Claim]:
    """Without those that the same sentence denies: "I don't like it, I love it" is a figure."""
    return [
        claim
        for claim in dict.fromkeys(claims)
        if not any(
            other.slot == claim.slot
            and other.holder == claim.holder
            and other.value.casefold() == claim.value.casefold()
            and other.holds != claim.holds
            for other in claims
        )
    ]
