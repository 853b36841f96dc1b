"""Claims in a sentence of a conversation, about the speaker and theirs. Pure, in linear time.

Silence over noise: a sentence that asks, supposes, reports, doubts or quotes gives none, and a
clause that is not taken whole gives none.
"""

from __future__ import annotations

import re
from datetime import date
from itertools import islice
from typing import Final

from palimpsest.streams.claims.attributes import relative_claim
from palimpsest.streams.claims.claim import Claim
from palimpsest.streams.claims.contractions import expanded
from palimpsest.streams.claims.grammar import LEADING_TIME, clause_claim
from palimpsest.streams.claims.language import is_english
from palimpsest.streams.claims.subjects import KIN, KIN_MODIFIER, NAME, PLURALS, subject_of
from palimpsest.streams.claims.times import time_at_end
from palimpsest.streams.claims.values import fits
from palimpsest.streams.claims.verbs import FINITE

MAX_SENTENCE_CHARACTERS: Final = 600
MAX_CLAUSES: Final = 12

_LEAD_WORDS: Final = (
    r"hey|hi|hello|wow|oh+|ooh+|yeah|yes|yep|yup|yea|well|so|and|but|also|actually|okay|ok"
    r"|(?:ha){2,}h?"
    r"|lol|lmao|omg|hm+|um+|uh+|ah+|aw+|btw|by the way|fyi|anyway|anyways|honestly|plus|no|nope|nah"
    r"|thanks|thank you(?: so much)?|great|cool|awesome|nice|sure|right|totally|absolutely"
    r"|definitely"
    r"|of course|same here|me too|exactly|fun fact|just so you know|as you know|for context"
    r"|for reference|for the record|to be honest|tbh|personally|in fact|luckily|fortunately|sadly"
    r"|unfortunately|finally|guess what|(?:some )?(?:good|great|big|exciting|sad|bad|amazing)"
    r" news|speaking of which|on another note"
    r"|ps|p\.s\.|note|update|edit|cool|true|i know|i agree|sounds good|got it|you know|look|see"
    r"|alright|all right|cause|cuz|for me|as for me|me(?! and\b)|then|still|basically|oh my god"
    r"|sorry"
)
_LEAD: Final = re.compile(
    rf"^(?:(?:{_LEAD_WORDS})\b(?:,? (?!I\b|My\b"
    rf"|We\b)[A-Z][a-z]+(?=[,!.]))?(?:[,!.:\u2013\u2014-]+\s*|\s+))",
    re.IGNORECASE,
)
_VOCATIVE: Final = re.compile(r"^(?!I\b|My\b|We\b)[A-Z][a-z]+, (?=I\b|my\b|we\b|I')")
_WISH: Final = re.compile(
    r"^(?:(?:can|could|would) you )?(?:please )?(?:(?:also|just|always|do) )*(?:remember|note"
    r"|do not forget|keep in"
    r" mind|bear in mind|be aware|know|for future reference|for future conversations|commit to"
    r" memory"
    r"|I (?:should|must|have to|want to|wanted to|forgot to|need to|would like to) (?:also"
    r" )?(?:mention|add|tell you|say|note"
    r"|point out|let you know|clarify|share)|I (?:will )?(?:add|mention|recall|just remembered"
    r"|remember)|did I (?:mention|tell"
    r" you)|it is worth mentioning|I am (?:happy|glad|proud|excited|sad"
    r"|sorry) to (?:say|report|announce|share|tell you)|the (?:thing|truth|fact) is|turns out"
    r"|it turns out"
    r"|the reason is)(?: (?:this|down|too))?(?:,? that\b|[:,])?\s+(?=(?:I|my|our|we)\b)",
    re.IGNORECASE,
)
_AS_A: Final = re.compile(r"^[Aa]s (?P<what>an? [^,]{3,60}), (?=(?:I|my|we)\b)")
_ASIDE: Final = re.compile(
    r",? (?:by the way|btw|of course|to be honest|tbh|you know|I mean),", re.IGNORECASE
)

_SUBJECT: Final = r"(?:I|we|my|our|he|she)\b"
_WITH_VERB: Final = (
    r"(?:(?:I|we|he|she)\b|(?:my|our) (?:[\w'-]{1,20},? ){1,4}?"
    r"(?:is|are|was|were|has|have|had|does|did|will|can|would|got|went|[a-z]{2,12}(?:ed|s)) )"
)
"""A subject and its verb, so that "my partner and our two cats" stays together."""
_GAP: Final = r"(?<!\s)\s++"
"""All of a gap or nothing of it, so that a long one is read once."""
_SPLIT: Final = re.compile(
    rf";\s+|{_GAP}[-\u2013\u2014]+\s+|(?<!\s)\s*+\u2014\s*|\.{{3,}}\s*"
    rf"|{_GAP}\((?=[^()]{{1,200}}\)\s*$)"
    rf"|,?{_GAP}(?:and\s++(?={_WITH_VERB})"
    rf"|(?:but|so|plus|because|'?cause|cuz|also|and so|and also|but also)\s++(?={_SUBJECT}))"
    rf"|,?{_GAP}(?:although|as|since|though)\s++(?=(?:I|my|we|our)\b(?! (?:was|were)\b))"
    rf"|,\s++(?={_SUBJECT})",
    re.IGNORECASE,
)
_QUESTION_PART: Final = re.compile(
    r"(?:,|\s[-\u2013\u2014]+)\s++(?:and |but |so |or )?(?:do|does|did|can|could|would|will|what"
    r"|how|which|who|where|when|why|any"
    r"|is|are|should|have|has|how's|what's|right|you|or|if|isn't|don't|wondering|maybe)\b.*$"
    rf"|{_GAP}(?:and|but|so)\s++(?:(?:I was|I am|I'm|was) (?:just |also )?wondering|do you|can you"
    r"|could you|would you|what|how|which|is there"
    r"|are there|should I)\b.*$",
    re.IGNORECASE | re.DOTALL,
)
_DROPPED_END: Final = re.compile(
    r",? (?:because|'cause|cause|cuz|bc|so that|so it|so they|so much so|which|and it|but it"
    r"|and they|but they|and that|and this|it is|it was"
    r"|they are|it has|that is|and the|but the|thanks to|due to|since it|as it|since they|who"
    r" is|who are|such a)\b.*$"
    r"|, (?:so|and|but|where|who|very|really|super|such|pretty|quite|just|mostly|especially"
    r"|particularly|including"
    r"|a bit|plus|thanks|lol|haha|even|lots of|all of|not to mention|with the)\b.*$",
    re.IGNORECASE | re.DOTALL,
)
_UNSAFE: Final = re.compile(
    r"\b(?:if|unless|imagine|imagining|pretend|pretending|suppose|supposing|wish|would have"
    r"|would be|hypothetical\w*"
    r"|what if|as though|as if|dreamed|dreamt|dream that|role-?play|in (?:another|a parallel|my"
    r" next) life"
    r"|says?|said|saying|tells?|told|wrote|writes|written by|claims?|claimed|thinks?|thought"
    r"|believes?"
    r"|asked|asks|quoted|quote|according to|heard|rumou?rs?|replied|texted|insists?|jokes?"
    r"|joking|kidding"
    r"|yeah right|sarcas\w*|maybe|perhaps|probably|possibly|might|guess|I think|not sure"
    r"|supposedly|apparently"
    r"|allegedly|I hope|hopefully|in that case|or so|or not|or maybe|pretends|lyrics|once upon"
    r" a time|someday|one day"
    r"|character|the story|novel about|act as|in case)\b",
    re.IGNORECASE,
)
_WHOSE_WORDS: Final = re.compile(
    r"^(?:as|like) (?!an? )[^,]{1,60} (?:put|puts|sang|sings|once)\b", re.IGNORECASE
)
_LABEL: Final = re.compile(r"^[^\W\d_][\w'.-]{0,30}(?: [^\W\d_a-z][\w'.-]{0,30}){0,2}: ")
_ASKS: Final = re.compile(
    r"^(?:do|does|did|is|are|was|were|will|would|should|could|can|shall|have|has|had|what|where"
    r"|who|whom|why|how|which|when)\b",
    re.IGNORECASE,
)
_SUBJECT_DROPPED: Final = re.compile(
    r"^(?=(?:Just|Recently|Finally) (?:\w+ed|got|went|bought|saw|had|took|came|made|won|read|ran) "
    r"|(?:Went|Visited|Bought|Adopted|Joined|Attended|Finished|Started|Moved) )"
)
_MARKS: Final = re.compile(
    r"[\U0001f000-\U0001faff\u2600-\u27bf\ufe0f\u200d]+|(?<=\s)[:;]-?[)(DPp3]+"
)
_AND: Final = re.compile(r",? (?:and|but)(?: (?:also|now|then))? ")


def claims_in(
    sentence: str, speaker: str, today: date, about: str = "", *, asked: bool = False
) -> list[Claim]:
    """The claims that `sentence` makes, each in the third person; none where in doubt.

    `speaker` is whom "I" stands for, `about` whom "she" or "he" stands for at its beginning (""
    where no one was named). Times are counted from `today`, the speaker's day. `asked`: the
    sentence may be a question, whose parts before the question count.
    """
    text = " ".join(_MARKS.sub(" ", sentence.replace("\u2019", "'")).split())
    if not text or len(text) > MAX_SENTENCE_CHARACTERS or not is_english(text):
        return []
    is_question = "?" in text
    text = _SUBJECT_DROPPED.sub("I ", text)
    text = _ASIDE.sub(",", expanded(text)).rstrip(" .!?~")
    text = _without_lead(text)
    by_the_way = [] if _UNSAFE.search(text) else _mentioned(text, speaker, today)
    if is_question:
        cut = _QUESTION_PART.sub("", text)
        if _ASKS.match(text) or cut == text:
            return by_the_way
        text = cut
    if _UNSAFE.search(text) or _WHOSE_WORDS.match(text) or _LABEL.match(text):
        return []
    found: list[Claim] = []
    as_a = _AS_A.match(text)
    if as_a is not None:
        if fits("job", as_a["what"]) or fits("meal", as_a["what"]):
            found += _claims(f"I am {as_a['what']}", speaker, today)
        text = text[as_a.end() :]
    text, beside = _with_company(text)
    when = ""
    for part in _SPLIT.split(text)[:MAX_CLAUSES]:
        clause = f"{when}{_without_lead(part.strip(' ,)'))}"
        when = f"{clause}, " if LEADING_TIME.fullmatch(f"{clause}, ") else ""
        if beside:
            clause = clause if _TOGETHER.search(clause) else f"{clause}{beside}"
            beside = ""
        pronoun, _, predicate = clause.partition(" ")
        if pronoun.lower() in ("he", "she"):
            if about:
                found += _claims(f"{about} {predicate}", speaker, today)
            continue
        claims = _claims(clause, speaker, today)
        found += claims
        about = next((claim.holder for claim in claims if claim.holder != speaker), "")
    named = " ".join(claim.text for claim in found)
    found += [
        claim
        for claim in by_the_way
        if f"{claim.key} {claim.value}" not in named and f"'s {claim.key} " not in named
    ]
    return _consistent(found)


_WHO: Final = rf"(?:[Mm]y|[Oo]ur) {KIN_MODIFIER}(?:{KIN})(?:,? (?:{NAME}))?,?|(?:{NAME})"
_COMPANY: Final = re.compile(
    rf"^(?:(?:[Mm]e|I) and (?P<with>{_WHO})|(?P<beside>{_WHO}) and (?:I|me))(?: both)? (?=\w)"
)
_TOGETHER: Final = re.compile(r"\bwith\b|\bmarried|\bengaged|\bdivorced|\bdating|\bbr(?:eak|oke)\b")
"""Two who did something together, of whom the speaker is one."""
_MENTIONED: Final = re.compile(
    rf"\b(?:[Mm]y|[Oo]ur) (?P<relation>{KIN_MODIFIER}(?:{KIN})),? (?P<name>(?:(?:Dr|Mr|Mrs"
    rf"|Ms)\.? )?(?:{NAME})(?:(?: and)? (?:{NAME}))?)(?P<own>'s)?(?![\w'])"
)
_TRIP: Final = re.compile(
    rf"\b(?:my|our) (?:recent )?(?P<what>(?:[a-z0-9-]+ ){{0,3}}(?:trip|vacation|hike|cruise"
    rf"|honeymoon) (?:to|in) (?:the )?(?:{NAME})(?: (?:{NAME})){{0,3}}) "
    r"(?P<when>last (?!\w+day)\w+|(?:a few|\w+) (?:weeks?|months?|years?) ago)"
)
_GONE: Final = re.compile(
    r"\b(?:passed away|passing|died|death|dies|(?:put|putting) (?:\w+ ){1,4}?down)\b"
)
"""Of whom it is not said any more that the speaker has them."""
_PROFESSIONAL: Final = re.compile(
    rf"\b[Mm]y (?P<relation>(?:[a-z-]+ ){{0,2}}(?P<role>[a-z-]{{2,30}}))"
    rf"(?:,? (?P<doctor>(?:Dr|Mr|Mrs|Ms|Prof)\b\.? (?:{NAME}))|, (?P<name>{NAME})(?=,|$))"
)
_HOMELAND: Final = re.compile(
    rf"\bmy (?P<which>home ?town|home country|home state|home city),? (?P<place>(?:{NAME})"
    rf"(?: (?:{NAME}))?)"
)
_ROLE: Final = re.compile(
    r"\b(?:my|in my) (?:current |new |day )?(?:role|job|position|career|work) as (?P<job>an?"
    r" [^,.;?!]{3,50}?)(?= at\b| for\b| in\b| and\b|[,.;?!]|$)"
)
_KINDRED: Final = re.compile(
    r"\b[Mm]y (?P<relation>wife|husband|girlfriend|boyfriend|fiancée|fiancé|fiancee|fiance|kids"
    r"|children|son|daughter"
    r"|sons|daughters|dog|dogs|cat|cats|twins)\b(?!'s name| name| is (?:called|named)|,?"
    r" (?:named|called) |-in-law|,? [A-Z])"
)


def _mentioned(text: str, speaker: str, today: date) -> list[Claim]:
    """Who is theirs, by the way: "my sister Rita", "my role as a nurse"; a question says it,
    too."""
    found: list[Claim] = []
    for each in islice(_MENTIONED.finditer(text), 4):
        name = each["name"].removesuffix("'s")
        if (each["relation"].rpartition(" ")[2] in PLURALS) != (" and " in name):
            continue
        if name.split()[0] in _NO_NAMES or name.split()[0].lower() in FINITE:
            continue
        found.append(relative_claim(speaker, each["relation"], name))
    for each in islice(_PROFESSIONAL.finditer(text), 4):
        if fits("job", f"a {each['relation']}") or each["role"].endswith(("ist", "ian", "geon")):
            found.append(relative_claim(speaker, each["relation"], each["doctor"] or each["name"]))
    trip = _TRIP.search(text)
    if trip is not None:
        article = "an" if trip["what"][0] in "aeiou" else "a"
        found += _claims(f"I took {article} {trip['what']} {trip['when']}", speaker, today)
    homeland = _HOMELAND.search(text)
    if homeland is not None:
        found += _claims(f"My {homeland['which']} is {homeland['place']}", speaker, today)
    role = _ROLE.search(text)
    if role is not None and fits("job", role["job"]):
        found += _claims(f"I am {role['job']}", speaker, today)
    for kin in () if _GONE.search(text) else islice(_KINDRED.finditer(text), 2):
        relation = kin["relation"]
        article = "" if relation in PLURALS else "a "
        found += _claims(f"I have {article}{relation}", speaker, today)
    return found


_NO_NAMES: Final = frozenset(
    "I The And But So My We He She They It In On At Is Was Has If When To For With Who That"
    " This Not Or"
    " Christmas Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March"
    " April"
    " May June July August September October November December".split()
)


def _without_lead(text: str) -> str:
    for _ in range(6):
        shorter = _VOCATIVE.sub("", _WISH.sub("", _LEAD.sub("", text, count=1), count=1), count=1)
        if shorter == text:
            break
        text = shorter
    return text[:1].upper() + text[1:]


_POINTS: Final = re.compile(
    r"\b(?:his|her|hers|their|its|it|this|that|these|those|them|him|here|there|same|such"
    r"|another)\b",
    re.IGNORECASE,
)
"""What stands in another sentence; where somebody else is the subject, "her" may be theirs."""
_NAMED_SLOTS: Final = frozenset(
    "home work allergy diet health family pet relationship language birthday age".split()
)
"""What is taken of somebody who is only named: invented people visit things, too."""
_TASTES: Final = frozenset("loves likes enjoys hates dislikes adores".split())
MAX_TASTE_WORDS: Final = 5
"""Length of "Tom hates fish", the likes that are taken of somebody who is only named."""


def _claim(clause: str, speaker: str, today: date) -> Claim | None:
    own = clause.startswith(("I ", "We ", "we ", "My favo", "Our favo"))
    if own and _POINTS.search(clause):
        return None
    found = clause_claim(clause, speaker, today)
    if found is None:
        return None
    if found.holder.startswith(speaker) or found.slot in _NAMED_SLOTS:
        return found
    words = clause.split()
    if found.slot != "likes" or len(words) > MAX_TASTE_WORDS or words[1] not in _TASTES:
        return None
    return found


def _claims(clause: str, speaker: str, today: date) -> list[Claim]:
    """The claim of a clause, or those of its two verbs; the reason after it is left out."""
    clause = _APPOINTED.sub(_as_appointment, clause.strip(" ,.!"))
    joined = _two_verbs(clause, speaker, today)
    if joined:
        return joined
    whole = _claim(clause, speaker, today)
    if whole is not None:
        return [whole]
    shorter = _DROPPED_END.sub("", clause)
    if shorter == clause:
        return []
    joined = _two_verbs(shorter, speaker, today)
    if joined:
        return joined
    whole = _claim(shorter, speaker, today)
    return [] if whole is None else [whole]


def _with_company(text: str) -> tuple[str, str]:
    """The sentence with "we" for "my brother and I", and whom the speaker was with."""
    company = _COMPANY.match(text)
    if company is None:
        return text, ""
    beside = f" with {company['with'] or company['beside']}"
    beside = beside.replace("My ", "my ").replace("Our ", "our ")
    return f"We {text[company.end() :]}", beside


_APPOINTED: Final = re.compile(
    r"^(?:My|my|Our|our) (?P<what>(?!.*wedding)[a-z][^,]{3,50}?) is (?:scheduled for )?"
    r"(?=(?:on|in|next|this|tomorrow) )"
)


def _as_appointment(match: re.Match[str]) -> str:
    """ "My flight to Oslo is on Friday" as "I have a flight to Oslo on Friday"."""
    what = match["what"]
    article = "an" if what[0] in "aeiou" else "a"
    return f"I have {article} {what} " if fits("appointment", f"a {what}") else match.group()


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
