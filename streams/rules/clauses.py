"""An English sentence in the statements that it joins, each with its own subject. Pure.

"I moved to Lisbon and started a job" says two things. A sentence is split only where nothing can
reach over the joint: no condition, doubt, relative clause or negation before it, no pronoun after
it that would lose its noun. In doubt it stays whole.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from palimpsest.streams.rules.words import AUXILIARY, BASE_VERBS, PAST, third_person

MIN_CLAUSE_WORDS: Final = 3

_BINDING_WORDS: Final = (
    "if unless whether when whenever while because since until who whom which that whose where"
    " although though whereas than either neither nor or both only instead would could should say"
    " says said think thinks thought told wish hope maybe perhaps probably might possibly"
    " apparently"
    " supposedly allegedly"
)
_BINDING: Final = frozenset(_BINDING_WORDS.split())
"""Words that bind what follows them to one side of a joint, or both sides to each other."""
_LOWER_WORD: Final = re.compile(r"[a-z]+")
_AS: Final = re.compile(r"\bas (?!an? )", re.IGNORECASE)
_VERB_TO: Final = re.compile(
    r"\bto (?![A-Z\U000f0000-\U000fffff]|the\b|an?\b|my\b|work\b|school\b)"
)
_NEGATED: Final = re.compile(
    r"n't\b|\b(?:not|no|never|hardly|barely|rarely|seldom|without|cannot)\b", re.IGNORECASE
)
_NAME: Final = r"[^\W\d_a-z][\w-]+(?: [^\W\d_a-z][\w-]+)?"
_TIME: Final = (
    r"(?:(?:[Yy]esterday|[Tt]oday|[Rr]ecently|(?:[Ll]ast|[Tt]his) (?:week|weekend|month|year|summer"
    r"|winter|spring|autumn|fall|night|[A-Z][a-z]+)|[Ii]n (?:\d{4}|[A-Z][a-z]+)),? )?"
)
_ADVERBS: Final = (
    r"(?:(?:also|just|really|now|still|recently|finally|already|even|then|always|often) )*"
)
_SUBJECT: Final = re.compile(
    rf"(?P<subject>{_TIME}(?:I|We|we|(?:[Mm]y|[Oo]ur"
    rf"|[Tt]he) (?:[a-z]+ ){{1,2}}?(?:{_NAME} )?(?={_ADVERBS}[a-z'])"
    rf"|(?:[Mm]y|[Oo]ur|[Tt]he) [a-z]+|{_NAME})) ?(?P<adverbs>{_ADVERBS})(?P<verb>[a-z]+(?:'t)?"
    rf"|'m|'ve|'d|'ll|'s)"
)
_CONTRACTED: Final = re.compile(r"(?P<subject>I|We|we)(?P<verb>'m|'ve|'d|'ll|'re)\b")
_JOINT: Final = re.compile(r"; |,? (?:and|but) (?:also |then |now )?|, ")
_DANGLING: Final = re.compile(
    r"\b(?:it|them|they|he|she|him|there|this|these|those|so|too|either|ones|myself|himself|herself"
    r"|did|does|do|don't|doesn't|didn't|isn't|wasn't)[.!]*$|\b(?:it|them|they|he|she|him)\b",
    re.IGNORECASE,
)
_FINAL_OBJECT: Final = re.compile(r"^(?P<most>.+ )(?:it|them)(?P<end>[.!]*)$")
_LIKING: Final = re.compile(
    rf"^(?:I|{_NAME}) {_ADVERBS}(?:love|like|hate|enjoy|prefer|dislike|loves|likes|hates|enjoys"
    rf"|prefers"
    r"|dislikes|drink|drinks|eat|eats|play|plays|use|uses) (?P<object>[\w-]+(?: [\w-]+){0,2})$"
)
_FINITE: Final = frozenset(
    "is are was were has have had am isn't aren't wasn't".split()
    + list(AUXILIARY)
    + list(BASE_VERBS)
    + [third_person(verb) for verb in BASE_VERBS]
)
# Verbs whose past is never a participle, or hardly ever without an auxiliary.
_PLAIN_PAST: Final = frozenset(
    "moved started got bought joined adopted visited quit left went took met became began learned"
    " sold opened returned decided spent saw ate drank wrote ran lived worked studied taught played"
    " enrolled graduated landed switched became volunteered travelled traveled stayed changed"
    " signed"
    " rented founded launched celebrated hiked finished drove flew gave came".split()
)
_OBJECT_START: Final = frozenset(
    "a an the my our in at for as to with on from up every two three four some into near"
    " home".split()
)
_PRESENT: Final = frozenset(
    "live work study teach own play run drive speak have sing volunteer".split()
)


def clauses(sentence: str) -> list[str]:
    """`sentence` in order of its statements; itself alone where splitting is not safe."""
    if " and " not in sentence and " but " not in sentence and not _MAY_JOIN.search(sentence):
        return [sentence]
    if _is_bound(sentence):
        return [sentence]
    parts: list[str] = []
    for part in _by_subjects(sentence):
        parts += _by_verbs(part)
    return [part[0].upper() + part[1:] for part in parts]


_MAY_JOIN: Final = re.compile(r"[;,] (?:I\b|[Mm]y\b)")


def _is_bound(sentence: str) -> bool:
    if not _BINDING.isdisjoint(_LOWER_WORD.findall(sentence.lower())):
        return True
    return _VERB_TO.search(sentence) is not None or _AS.search(sentence) is not None


def _by_subjects(sentence: str) -> list[str]:
    """Split where both sides have a subject and a verb of their own."""
    if not _is_clause(sentence):
        return [sentence]
    starts, begun = [0], 0
    for joint in _JOINT.finditer(sentence):
        left, right = sentence[begun : joint.start()], sentence[joint.end() :]
        if _is_clause(left) and _is_clause(right) and not _may_list(joint):
            starts.append(joint.start())
            begun = joint.end()
    parts: list[str] = []
    for begin, end in pairwise([*starts, len(sentence)]):
        piece = sentence[begin:end]
        bare = _JOINT.sub("", piece, count=1) if begin else piece
        if not parts:
            parts.append(bare)
            continue
        told = _with_object(parts[-1], bare)
        if told is None:
            parts[-1] += piece
        else:
            parts.append(told)
    return parts


def _may_list(joint: re.Match[str]) -> bool:
    # "I met Rita, Tom …": after a bare comma only a first person begins a clause for certain.
    return joint.group() == ", " and not joint.string.startswith(
        ("I ", "I'", "My ", "my "), joint.end()
    )


def _is_clause(text: str) -> bool:
    if len(text.split()) < MIN_CLAUSE_WORDS:
        return False
    if _CONTRACTED.match(text):
        return True
    return any(
        _finite(match["verb"], match["subject"]) for match in [_SUBJECT.match(text)] if match
    )


def _finite(verb: str, subject: str) -> bool:
    if verb in BASE_VERBS and not subject.endswith(("I", "We", "we")):
        return False  # "my work" is no clause; plurals are left alone
    return verb in _FINITE or PAST.match(verb) is not None


def _with_object(left: str, right: str) -> str | None:
    """`right` standing alone: a final "it" is what the left side likes. None when it cannot."""
    if _DANGLING.search(right) is None:
        return right
    final, liking = _FINAL_OBJECT.match(right), _LIKING.match(left)
    if final is None or liking is None or _DANGLING.search(final["most"]):
        return None
    return f"{final['most']}{liking['object']}{final['end']}"


def _by_verbs(clause: str) -> list[str]:
    """Split "I moved to Lisbon and started a job": the second verb takes the subject along."""
    if _NEGATED.search(clause):
        return [clause]
    subject = _SUBJECT.match(clause)
    if subject is None or subject["subject"].split()[-1] in ("We", "we"):
        return [clause]
    prefix = subject["subject"].rstrip() + " "
    parts, rest = [], clause
    while (joint := re.search(r",? and (?:also |then )?(?=[a-z])", rest)) is not None:
        left, right = rest[: joint.start()], rest[joint.end() :]
        if not _same_form(subject["verb"], right) or len(left.split()) < MIN_CLAUSE_WORDS:
            break
        if _DANGLING.search(right):
            break
        parts.append(left)
        rest = prefix + right
    return [*parts, rest]


def _same_form(verb: str, right: str) -> bool:
    """Whether `right` goes on with a verb of the same tense as `verb`, and an object."""
    second, _, after = right.partition(" ")
    following = after.partition(" ")[0]
    if following not in _OBJECT_START and not following[:1].isupper():
        return False
    if verb in _PLAIN_PAST:
        return second in _PLAIN_PAST
    if verb in _PRESENT:
        return second in _PRESENT
    thirds = {third_person(word) for word in _PRESENT if word != "have"}
    return verb in thirds and second in thirds
