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

from palimpsest.streams.claims.attributes import relative_claim
from palimpsest.streams.claims.claim import Claim
from palimpsest.streams.claims.english import expanded, is_english
from palimpsest.streams.claims.grammar import LEADING_TIME, clause_claim
from palimpsest.streams.claims.lexicon import (
    ADJECTIVE,
    DISCIPLINES,
    FAVOURITES,
    GAMES,
    ILLNESSES,
    LANGUAGES,
)
from palimpsest.streams.claims.places import is_known
from palimpsest.streams.claims.subjects import KIN, KIN_MODIFIER, NAME, PETS, PLURALS, subject_of
from palimpsest.streams.claims.times import time_at_end
from palimpsest.streams.claims.values import fits
from palimpsest.streams.claims.verbs import FINITE, past_of

MAX_SENTENCE_CHARACTERS: Final = 600
MAX_CLAUSES: Final = 12

_LEAD_WORDS: Final = (
    r"hey|hi|hello|wow|oh+|ooh+|yeah|yes|yep|yup|yea|well|so|and|but|also|actually|okay|ok"
    r"|(?:ha){2,}h?|lol|lmao|omg|hm+|um+|uh+|ah+|aw+|btw|by the way|fyi|anyway|anyways|honestly"
    r"|plus|no|nope|nah|thanks|thank you(?: so much)?|great|cool|awesome|nice|sure|right|totally"
    r"|absolutely|definitely|of course|same here|me too|exactly|fun fact|just so you know|as you"
    r" know|for context|for reference|for the record|to be honest|tbh|personally|in fact|luckily"
    r"|fortunately|sadly|unfortunately|finally|guess what|(?:some )?(?:good|great|big|exciting|sad"
    r"|bad|amazing) news|speaking of which|on another note|ps|p\.s\.|note|update|edit|cool|true|i"
    r" know|i agree|sounds good|got it|you know|look|see|alright|all right|cause|cuz|for me|as for"
    r" me|me(?! and\b)|then|still|basically|oh my god|sorry|though|on (?:a|the) (?:bright|brighter"
    r"|positive|plus) side|on top of that|in other news|you know what is (?:crazy|funny|weird)"
)
_LEAD: Final = re.compile(
    rf"^(?:(?:{_LEAD_WORDS})\b(?:,? (?!I\b|My\b"
    rf"|We\b)[A-Z][a-z]+(?=[,!.]))?(?:[,!.:\u2013\u2014-]+\s*|\s+))",
    re.IGNORECASE,
)
_VOCATIVE: Final = re.compile(
    r"^(?!I\b|My\b|We\b|Yesterday|Today|Tomorrow|Recently|Currently)[A-Z][a-z]+, (?=I\b|my\b|we\b"
    r"|I')"
)
_WISH: Final = re.compile(
    r"^(?:(?:can|could|would) you )?(?:please )?(?:(?:also|just|always|do) )*(?:remember|note|do"
    r" not forget|keep in mind|bear in mind|be aware|know|for future reference|for future"
    r" conversations|commit to memory|I (?:should|must|have to|want to|wanted to|forgot to|need to"
    r"|would like to) (?:also )?(?:mention|add|tell you|say|note|point out|let you know|clarify"
    r"|share)|I (?:will )?(?:add|mention|recall|just remembered|remember)|did I (?:mention|tell"
    r" you)|it is (?:worth mentioning|a (?:pity|shame))|I am (?:happy|glad|proud|excited|sad"
    r"|sorry) to (?:say|report|announce|share|tell you)|the (?:thing|truth|fact) is|turns out|it"
    r" turns out|the reason is|I (?:think|guess)(?= my favou?rite))(?: (?:this|down|too))?(?:,?"
    r" that\b|[:,])?\s+(?=(?:I|my|our|we)\b)",
    re.IGNORECASE,
)
_AS_SOMEONE: Final = re.compile(r"^As (?:someone|somebody|a person) who (?P<what>[^,]{3,60}), ")
_AS_A: Final = re.compile(r"^[Aa]s (?P<what>an? [^,]{3,60}), (?=(?:I|my|we)\b)")
_GIVEN: Final = re.compile(r"^(?:Since|As|Because|Given that|Now that) (?=(?:I|my|we|our)\b)")
_ASIDE: Final = re.compile(
    r",? (?:by the way|btw|of course|to be honest|tbh|you know|I mean),",
    re.IGNORECASE,
)

_SUBJECT: Final = r"(?:I|we|my|our|he|she)\b"
_WITH_VERB: Final = (
    r"(?:(?:I|we|he|she)\b|(?:my|our) (?:[\w'-]{1,20},? ){1,4}?(?:is|are|was|were|has|have|had|does"
    r"|did|will|can|would|got|went|[a-z]{2,12}(?:ed|s)) )"
)
"""A subject and its verb, so that "my partner and our two cats" stays together."""
_GAP: Final = r"(?<!\s)\s++"
"""All of a gap or nothing of it, so that a long one is read once."""
_SPLIT: Final = re.compile(
    rf";\s+|{_GAP}[-\u2013\u2014]+\s+|(?<!\s)\s*+\u2014\s*|\.{{3,}}\s*"
    rf"|{_GAP}\((?=[^()]{{1,200}}\)\s*$)|,?{_GAP}(?:and\s++(?={_WITH_VERB})|(?:but|so|plus|because"
    rf"|'?cause|cuz|also|and so|and also|but also)\s++(?=(?:(?:now|then) )?{_SUBJECT})|(?:and|but"
    rf"|so)\s++(?=(?:if|maybe|perhaps|hopefully)\b))|,?{_GAP}(?:(?:although|(?:especially )?(?:as"
    rf"|since)|though|considering)\s++(?=(?:I|my|we|our)\b(?! (?:was|were)\b))|after\s++(?=(?:I"
    rf"|we) (?:[a-z]+ed|went|got)\b))|,\s++(?:which is why\s++)?(?={_SUBJECT}|(?:maybe|perhaps)\b)",
    re.IGNORECASE,
)
_QUESTION_PART: Final = re.compile(
    r"(?:,|\s[-\u2013\u2014]+)\s++(?:and |but |so |or )?(?:do|does|did|can|could|would|will|what"
    r"|how|which|who|where|when|why|any|is|are|should|have|has|how's|what's|right|you|or|if|isn't"
    r"|don't|wondering|maybe)\b.*$"
    rf"|{_GAP}(?:and|but|so)\s++(?:(?:I was|I am|I'm|was) (?:just |also )?wondering|do you|can you"
    r"|could you|would you|what|how|which|is there|are there|should I)\b.*$",
    re.IGNORECASE | re.DOTALL,
)
_DROPPED_END: Final = re.compile(
    r",? (?:because|'cause|cause|cuz|bc|so that|so it|so they|so much so|which|and it|but it|and"
    r" they|but they|and that|and this|it is|it was|they are|it has|that is|and the|but the|thanks"
    r" to|due to|since it|as it|since they|who is|who are|such a)\b.*$| (?:where (?:I|we)|and"
    r" (?:\w+ing (?:with|in|on|at|to|for|from|my|the|a|some|new|different)|something|everything"
    r"|their|its|his|her|wow)|rather than|(?:in order )?to (?:explore|see|watch|try|meet|learn|get"
    r"|help|improve|build|stay|keep|celebrate|raise|make))\b.*$|, (?:so|and|but|where|who|very"
    r"|really|super|such|pretty|quite|just|mostly|especially|particularly|including|a bit|plus"
    r"|thanks|lol|haha|even|lots of|all of|not to mention|the|\w+ing (?:with|in|on|at|to|for|from"
    r"|my|the|a|them|it|out)|with the)\b.*$",
    re.IGNORECASE | re.DOTALL,
)
_SAID_OF_IT: Final = re.compile(r" (?:that|which|who)\b.*$", re.DOTALL)
_HAD: Final = frozenset("possession pet family home work hobby".split())
"""Of what is theirs, more may be said: what they like is another thing without it."""
_DOUBT: Final = re.compile(
    r"\b(?:if|unless|wish|maybe|perhaps|probably|possibly|might|guess|I think|not sure|I hope"
    r"|hopefully|thinks?|thought|someday|one day|or so|or not)\b",
    re.IGNORECASE,
)
"""What is said up to here is said, and what comes after may not be so."""
_ALL_DOUBTED: Final = re.compile(
    r"\b(?:(?:I |[a-z]+ )?(?:think|thinks|thought|guess|hope|wish)|maybe|perhaps|probably|not sure"
    r"|or so|or not)$",
    re.IGNORECASE,
)
_UNREAL: Final = (
    r"imagine|imagining|pretend|pretending|suppose|supposing|would have|hypothetical\w*|what if|as"
    r" though|as if|dreamed|dreamt|dream that|role-?play|in (?:another|a parallel|my next) life"
    r"|quoted|quote|jokes?|joking|kidding|yeah right|sarcas\w*|pretends|lyrics|once upon a time"
    r"|(?<!favorite )(?<!favourite )character|the story|novel about|act as|in case"
)
_INVENTED: Final = re.compile(rf"\b(?:{_UNREAL})\b", re.IGNORECASE)
_UNSAFE: Final = re.compile(
    rf"\b(?:{_UNREAL}|says?|said|saying|tells?|told|wrote|writes|written by|claims?|claimed"
    r"|believes?|asked|asks|according to|heard|rumou?rs?|replied|texted|insists?|supposedly"
    r"|apparently|allegedly|in that case)\b",
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
    r"|(?:Went|Visited|Bought|Adopted|Joined|Attended|Finished|Started|Moved) )",
    re.IGNORECASE,
)
_MARKS: Final = re.compile(
    r"[\U0001f000-\U0001faff\u2600-\u27bf\ufe0f\u200d]+|(?<=\s)[:;]-?[)(DPp3]+"
)
_AND: Final = re.compile(r",? (?:and|but)(?: (?:also|now|then))? ")


def claims_in(sentence: str, speaker: str, today: date, about: str = "") -> list[Claim]:
    """The claims that `sentence` makes, each in the third person; none where in doubt.

    `speaker` is whom "I" stands for, `about` whom "she" or "he" stands for at its beginning (""
    where no one was named). Times are counted from `today`, the speaker's day. Of a question the
    parts before it count.
    """
    text = " ".join(_MARKS.sub(" ", sentence.replace("\u2019", "'")).split())
    if not text or len(text) > MAX_SENTENCE_CHARACTERS or not is_english(text):
        return []
    is_question = "?" in text
    text = _SUBJECT_DROPPED.sub("I ", text)
    text = _ASIDE.sub(",", expanded(text)).rstrip(" .!?~")
    text = _GIVEN.sub("", _without_lead(text))
    by_the_way = [] if _INVENTED.search(text) else _mentioned(text, speaker, today)
    found: list[Claim] = []
    if is_question:
        cut = _QUESTION_PART.sub("", text)
        text = "" if _ASKS.match(text) or cut == text else cut
    if _UNSAFE.search(text) or _WHOSE_WORDS.match(text) or _LABEL.match(text):
        return [] if _LABEL.match(text) or _WHOSE_WORDS.match(text) else by_the_way
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


def _stated(text: str) -> list[str]:
    """The clauses before the first that is doubted, and those after a "but"; none where the doubt
    is about what stands before it."""
    stated: list[str] = []
    doubted, end = False, 0
    for part in _SPLIT.split(text)[:MAX_CLAUSES]:
        begin = text.index(part, end)
        doubted = (doubted and "but" not in text[end:begin]) or _DOUBT.search(part) is not None
        end = begin + len(part)
        if doubted and _ALL_DOUBTED.search(part):
            return []
        if not doubted:
            stated.append(part)
    return stated


_VOWEL: Final = re.compile(r"[aeio]|u(?!k|ni|s)|[AEIO]", re.ASCII)
_NUMBERED: Final = re.compile(r"two |three |four |five ")
_IS_KIN: Final = re.compile(rf"\b(?:{KIN})s?\b", re.IGNORECASE)
_WHO: Final = rf"(?:[Mm]y|[Oo]ur) {KIN_MODIFIER}(?:{KIN})(?:,? (?:{NAME}))?,?|(?:{NAME})"
_COMPANY: Final = re.compile(
    rf"^(?:(?:[Mm]e|I) and (?P<with>{_WHO})|(?P<beside>{_WHO}) and (?:I|me))(?: both)? (?=\w)"
)
_TOGETHER: Final = re.compile(r"\bwith\b|\bmarried|\bengaged|\bdivorced|\bdating|\bbr(?:eak|oke)\b")
"""Two who did something together, of whom the speaker is one."""
_MENTIONED: Final = re.compile(
    rf"\b(?:[Mm]y|[Oo]ur) (?P<relation>{KIN_MODIFIER}(?:{KIN}))(?: from \w+)?,? (?P<name>(?:(?:Dr"
    rf"|Mr|Mrs|Ms)\.? )?(?:{NAME})(?:(?: and)? (?:{NAME}))?)(?P<own>'s)?(?![\w'])"
    rf"|(?<![\w'-])(?P<name_>{NAME}), my (?P<relation_>{KIN_MODIFIER}(?:{KIN}))(?=[,.;!?]|$)"
)
_TRIP: Final = re.compile(
    rf"\b(?:my|our) (?:recent )?(?P<what>(?:[a-z0-9-]+ ){{0,3}}(?:trip|vacation|hike|cruise"
    rf"|honeymoon) (?:to|in) (?:the )?(?:{NAME})(?: (?:{NAME})){{0,3}}) "
    r"(?P<when>last (?!\w+day)\w+|(?:a few|\w+) (?:weeks?|months?|years?) ago)"
)
_GONE: Final = re.compile(
    r"\b(?:if I|wish|passed away|passing|died|death|dies|(?:put|putting) (?:\w+ ){1,4}?down)\b"
)
"""Of whom it is not said any more that the speaker has them."""
_PROFESSIONAL: Final = re.compile(
    rf"\b[Mm]y (?P<relation>(?:[a-z-]+ ){{0,2}}(?P<role>[a-z-]{{2,30}}))(?:,? (?P<doctor>(?:Dr|Mr"
    rf"|Mrs|Ms|Prof)\b\.? (?:{NAME}))|, (?P<name>{NAME})(?=,|$))"
)
_HOMELAND: Final = re.compile(
    rf"\bmy (?P<which>home ?town|home country|home state|home city),? (?P<place>(?:{NAME})(?:"
    rf" (?:{NAME}))?)"
)
_ROLE: Final = re.compile(
    r"\b(?:my|in my) (?:current |new |day )?(?:role|job|position|career|work) as (?P<job>an?"
    r" [^,.;?!]{3,50}?)(?= at\b| for\b| in\b| and\b|[,.;?!]|$)"
)
_KINDRED: Final = re.compile(
    r"\b(?:[Mm]y|[Oo]ur(?! kids| children)) (?:\d+-year-old )?(?P<relation>(?:older|younger|little"
    r"|big|twin) (?:sister|brother)s?|(?:(?:two|three|four|five) )?(?:wife|husband|girlfriend"
    r"|boyfriend|fiancée|fiancé|fiancee|fiance|kids|children|sons?|daughters?|dogs?|cats?|twins"
    r"|siblings|nieces?|nephews?|grandkids|grandchildren|grandsons?|granddaughters?|puppy|kitten"
    r"|parrot|rabbit|hamster|horses?|chickens|goats))s?\b(?!'s name| name| is (?:called|named)|,?"
    r" (?:named|called) |-in-law|,? [A-Z]| (?:\w+ing|not|gotten|been)\b)"
)
_MY: Final = re.compile(
    r"(?<!\bget )(?<!getting )(?<!\bbuy )(?<!buying )\b(?:[Mm]y|[Oo]ur) (?P<what>\w[\w'&/-]*(?:"
    r" (?!of\b|for\b|in\b|with\b|at\b|on\b|to\b|from\b|and\b|or\b|the\b)\w[\w'&/-]*){0,3})"
)
_NOT_KEPT: Final = re.compile(
    r"\b(?:if I|wish|donat\w+|sold|sell|selling|gave|giving|get rid|getting rid|stolen|stole"
    r"|returned|lost)\b"
)
_NOT_YET: Final = re.compile(
    r"(?:next|dream|future|first|last|previous|former|rental|borrowed|ideal|perfect|favou?rite"
    r"|entire|whole|potential|childhood|hotel|friends?|local|growing|overall|gfs?|bfs?"
    r"|(?:.*\W)?\w+'s?) ",
    re.IGNORECASE,
)
"""What begins so is not theirs, or not any more."""
_RENEWED: Final = re.compile(r"^(?:(?:new|old|current|own|beloved|trusty) )+")
_DAILY: Final = re.compile(
    r"\b(?:[Mm]y|[Oo]ur) (?:daily |weekly |regular )?(?P<what>(?!first|last|next|new|best|upcoming"
    r"|own|fav)[\w-]+(?: [\w-]+)? (?:class|classes|lessons?))\b(?P<when> on \w+days(?: and"
    r" \w+days)?)?(?! was| went)"
)
_TRIP_TAKEN: Final = re.compile(
    r"\b(?P<what>an? (?:[\w-]+ ){1,2}(?:trip|vacation|hike|cruise|tour)) (?:that )?(?:we|I) (?:took"
    r"|had|went on) (?P<when>last (?!\w+day)\w+|(?:a few|\w+) (?:weeks?|months?|years?) ago)"
)
_DONE_AT: Final = re.compile(
    r"\b(?P<what>(?:an?|the|my) [\w-]+(?: [\w-]+){0,2}) (?:where )?I (?P<verb>volunteer|work|study"
    r"|teach)(?: at)?(?=$|[,.;!?]| (?:at|on|and|with|to|yesterday|today|last)\b)"
)
_BOUGHT: Final = re.compile(
    r"\b(?:this|the|my|an?) (?P<what>[\w-]+(?: (?!that\b)[\w-]+){0,3}) (?:that )?I (?:just "
    r"|recently )?(?P<verb>got|bought|adopted|inherited) (?P<rest>[^,.;!?]{3,60})"
)
_JOB_AT: Final = re.compile(
    rf"\b(?:[Mm]y (?:current |new )?(?:job|work|role|position)|working on (?:a|the) (?:\w+"
    rf" )?project) at (?P<org>(?:{NAME})(?: (?:{NAME})){{0,3}})"
)


_BY_THE_WAY: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]] = (
    (_TRIP, lambda m: f"I took {_with_article(m['what'])} {m['when']}"),
    (_HOMELAND, lambda m: f"My {m['which']} is {m['place']}"),
    (_ROLE, lambda m: f"I am {m['job']}"),
    (_KINDRED, lambda m: f"I have {_with_article(m['relation'])}"),
    (_TRIP_TAKEN, lambda m: f"I took {m['what']} {m['when']}"),
    (_DAILY, lambda m: f"I am taking {_with_article(m['what'])}{m['when'] or ''}"),
    (_JOB_AT, lambda m: f"I work at {m['org']}"),
    (_DONE_AT, lambda m: f"I {m['verb']} at {m['what']}"),
    (_BOUGHT, lambda m: f"I {m['verb']} {_with_article(m['what'])} {m['rest']}"),
)
"""What stands in a noun phrase, and the sentence that would say it."""


def _mentioned(text: str, speaker: str, today: date) -> list[Claim]:
    """Who is theirs, by the way: "my sister Rita", "my role as a nurse"; a question says it,
    too."""
    found: list[Claim] = []
    for each in islice(_MENTIONED.finditer(text), 4):
        name = (each["name"] or each["name_"]).removesuffix("'s")
        relation = each["relation"] or each["relation_"]
        if (relation.rpartition(" ")[2] in PLURALS) != (" and " in name):
            continue
        first = name.split()[0]
        if first in _NO_NAMES or first.lower() in FINITE or is_known(first.lower()):
            continue
        found.append(relative_claim(speaker, relation, name))
    for each in islice(_PROFESSIONAL.finditer(text), 4):
        if fits("job", f"a {each['relation']}") or each["role"].endswith(("ist", "ian", "geon")):
            found.append(relative_claim(speaker, each["relation"], each["doctor"] or each["name"]))
    for pattern, sentence in _BY_THE_WAY:
        for each in (
            () if pattern is _KINDRED and _GONE.search(text) else islice(pattern.finditer(text), 2)
        ):
            found += _claims(sentence(each), speaker, today)
    for each in () if _NOT_KEPT.search(text) else islice(_MY.finditer(text), 6):
        found += _belonging(each["what"], speaker, today)
    return found


def _belonging(text: str, speaker: str, today: date) -> list[Claim]:
    """What "my" stands before, as far as it is a thing that somebody has: "my mountain bike"."""
    words = _RENEWED.sub("", text).split()
    for count in range(len(words), 0, -1):
        thing = " ".join(words[:count])
        if fits("goods", thing) and (count > 1 or fits("kept", thing)):
            if _NOT_YET.match(thing) or _IS_KIN.search(thing):
                return []
            return _claims(f"I have {_with_article(thing)}", speaker, today)
    return []


def _with_article(text: str) -> str:
    last = re.split(r" (?:to|in|at|with) ", text, maxsplit=1)[0].rpartition(" ")[2]
    if last in PLURALS or (last.endswith("s") and not last.endswith("ss")) or _NUMBERED.match(text):
        return text
    return f"an {text}" if _VOWEL.match(text) else f"a {text}"


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
_TASTED: Final = PETS | GAMES | DISCIPLINES | frozenset().union(*FAVOURITES)
"""Products, firms and places love other things: "Netflix loves reboots"."""
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
    is_taste = len(words) <= MAX_TASTE_WORDS and words[1] in _TASTES
    return found if is_taste and found.value.casefold() in _TASTED else None


def _claims(clause: str, speaker: str, today: date) -> list[Claim]:
    """The claim of a clause, or those of its two verbs; the reason after it is left out."""
    clause = _APPOINTED.sub(_as_appointment, _renamed(clause.strip(" ,.!")))
    clause = _MANAGED.sub(_as_done, _MY_CAR.sub(r"I have \g<what>", clause))
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
    shorter = _DROPPED_END.sub("", clause)
    if shorter != clause:
        joined = _two_verbs(shorter, speaker, today)
        whole = None if joined else _claim(shorter, speaker, today)
        if joined or whole is not None:
            return joined if whole is None else [whole]
    had = _claim(_SAID_OF_IT.sub("", clause), speaker, today)
    return [] if had is None or had.slot not in _HAD else [had]


def _with_company(text: str) -> tuple[str, str]:
    """The sentence with "we" for "my brother and I", and whom the speaker was with."""
    company = _COMPANY.match(text)
    if company is None:
        return text, ""
    beside = f" with {company['with'] or company['beside']}"
    beside = beside.replace("My ", "my ").replace("Our ", "our ")
    return f"We {text[company.end() :]}", beside


_GIVEN_NAME: Final = r"(?P<name>[A-Z][a-z'-]{1,15}(?: [A-Z][a-z'-]{1,20})?)"
_NAMES_SELF: Final = re.compile(rf"I am {_GIVEN_NAME}(?:,? from [A-Z].*|, the .*)?")
_APPOSED: Final = re.compile(r"(?P<self>I am [A-Z][\w'-]+(?: [A-Z][\w'-]+)?), (?P<what>an? .+)$")
_CALLED: Final = re.compile(
    r"(?:(?:[Yy]ou can |[Pp]lease |[Jj]ust )*[Cc]all me|(?:[Ee]very(?:one|body)|[Pp]eople|(?:[Mm]y"
    r" )?"
    rf"[Ff]riends|[Tt]hey) (?:just |all )?calls? me|I (?:usually |just )?go by|I am called)"
    rf" {_GIVEN_NAME}(?: for short)?"
)
_STATES: Final = frozenset(
    """done sorry sure ready back fine home hungry here good okay ok single married happy tired
    busy sick new free late alone alive awake afraid aware excited bored lost lucky proud glad
    angry sad mad crazy lazy sleepy healthy worried curious serious able right wrong wrong open
    sober straight bi gay trans lesbian queer deaf blind team type gen pro anti not just so very
    really too still god jesus christian catholic muslim jewish hindu sikh atheist agnostic mormon
    baptist democrat republican libra virgo leo gemini aries taurus cancer scorpio capricorn
    sagittarius aquarius pisces today tomorrow yesterday now later maybe there working going doing
    """.split()
)
"""What somebody is, and is not called, even where it is written in capitals."""
_MY_CAR: Final = re.compile(
    r"^[Mm]y (?:new |current )?(?:car|truck|van|bike|phone|laptop|camera|guitar) is (?P<what>an?"
    r" (?:\w+ ){0,2}[A-Z].*)$"
)
_MANAGED: Final = re.compile(
    r"^(?P<who>(?:I|[Ww]e)(?: just| finally| recently)?) (?:got|managed|(?:was|were) able|had"
    r" (?:the|a) (?:chance|opportunity)) to (?P<verb>[a-z]+) (?=\S)"
)
_BEST_LOVED: Final = re.compile(
    r"(?:One of my (?:all-time )?favou?rite [\w' ]{1,40} is (?:called )?(?P<what>.+)"
    r"|(?P<thing>.{2,40}) is one of my (?:all-time )?favou?rites?(?: [\w' ]{1,30})?)"
)
_APPOINTED: Final = re.compile(
    r"^(?:My|my|Our|our) (?P<what>(?!.*wedding)[a-z][^,]{3,50}?) is (?:scheduled for )?(?=(?:on|in"
    r"|next|this|tomorrow) )"
)


def _as_done(match: re.Match[str]) -> str:
    past = past_of(match["verb"])
    return match.group() if past is None else f"{match['who']} {past} "


def _renamed(clause: str) -> str:
    """ "I am Marta" and "Call me Bo" as "My name is Marta" and "My nickname is Bo"."""
    liked = _BEST_LOVED.fullmatch(clause)
    if liked is not None and not _POINTS.search(clause):
        thing = liked["what"] or liked["thing"]
        return f"I love {thing.lower() if thing.partition(' ')[0].endswith('ing') else thing}"
    found = _CALLED.fullmatch(clause) or _NAMES_SELF.fullmatch(clause)
    if found is None or found["name"] in _NO_NAMES or not _is_given_name(found["name"]):
        return clause
    what = "nickname" if found.re is _CALLED else "name"
    return f"My {what} is {found['name']}"


def _is_given_name(text: str) -> bool:
    folded = text.casefold()
    first = folded.partition(" ")[0]
    return not (
        first in _STATES | LANGUAGES | ILLNESSES
        or ADJECTIVE.fullmatch(first)
        or is_known(folded)
        or fits("job", f"a {folded}")
        or fits("meal", folded)
        or first.endswith(("ing", "ed", "ful", "ive"))
    )


def _as_appointment(match: re.Match[str]) -> str:
    """ "My flight to Oslo is on Friday" as "I have a flight to Oslo on Friday"."""
    what = match["what"]
    return f"I have {_with_article(what)} " if fits("appointment", f"a {what}") else match.group()


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
