"""Whom a clause is about: the speaker, somebody of theirs, a name. Pure."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from palimpsest.streams.claims.verbs import FINITE, SINGULAR

_FAMILY: Final = (
    "mother mom mum mama father dad papa sister brother wife husband spouse son daughter child kid"
    " kids children sons daughters parents sisters brothers siblings sibling twin twins cousin"
    " cousins aunt uncle niece nephew nieces nephews grandmother grandma grandfather grandpa"
    " grandparents granddaughter grandson grandkids grandchildren stepmother stepmom stepfather"
    " stepdad stepson stepdaughter stepsister stepbrother mother-in-law father-in-law sister-in-law"
    " brother-in-law son-in-law daughter-in-law in-laws baby toddler fiancé fiancée fiance fiancee"
    " partner girlfriend boyfriend ex ex-wife ex-husband godson goddaughter family"
)
_PEOPLE: Final = (
    "friend friends boss manager supervisor colleague colleagues coworker coworkers co-worker"
    " roommate roommates flatmate housemate neighbor neighbour neighbors neighbours teacher"
    " professor mentor doctor therapist dentist coach trainer landlord bandmate teammate"
    " business_partner pen_pal advisor psychiatrist dermatologist pediatrician tutor"
)
_PETS: Final = (
    "dog dogs cat cats puppy puppies kitten kittens pet pets hamster hamsters rabbit rabbits bunny"
    " guinea_pig guinea_pigs parrot parrots bird birds fish goldfish turtle turtles tortoise snake"
    " snakes lizard lizards gecko horse horses pony chicken chickens goat goats hen hens rooster"
    " ferret rat rats iguana chinchilla hedgehog pig sheep cow cows rottweiler labrador poodle"
    " husky corgi beagle pug chihuahua dachshund bulldog terrier pup python"
)
FAMILY: Final = frozenset(_FAMILY.split())
PEOPLE: Final = frozenset(word.replace("_", " ") for word in _PEOPLE.split())
PETS: Final = frozenset(word.replace("_", " ") for word in _PETS.split())
PLURALS: Final = frozenset(
    "kids children sons daughters parents sisters brothers siblings twins cousins nieces nephews"
    " grandparents grandkids grandchildren in-laws friends colleagues coworkers roommates neighbors"
    " neighbours dogs cats puppies kittens pets hamsters rabbits parrots birds turtles snakes"
    " lizards horses chickens goats hens rats cows family".split()
)

KIN: Final = "|".join(sorted((*FAMILY, *PEOPLE, *PETS), key=len, reverse=True))
KIN_MODIFIER: Final = (
    r"(?:(?:older|younger|elder|eldest|oldest|youngest|little|big|late|best|close|closest|good"
    r"|oldest|childhood|college|school|high school|work|twin|half|step|step-|rescue|new|old|current"
    r"|former|only|first|second|adopted|teenage|baby|family|maternal|paternal|great|middle|two"
    r"|three|four|five|\d-year-old|\d\d-year-old|\d-month-old|golden retriever|labrador|black|white"
    r"|orange|tabby|primary care|piano|guitar|yoga|personal|business|dear)\s+){0,3}"
)
NAME: Final = r"[^\W\d_a-z][\w'’.-]*[\w]|[^\W\d_a-z]"
_NO_SUBJECT: Final = frozenset(
    """it this that these those there here he she they what who which where when why how the a an
    his her their its your you everyone everybody someone somebody nobody anyone one some many
    most all each every both another other others no not yes if and but or so because since as
    while although though unless until after before then maybe perhaps probably hopefully today
    yesterday tomorrow now later once thanks thank please sorry hi hey hello ok okay well in on at
    by for from with without to of about just only also even still never always let lets sometimes
    usually something anything nothing everything things people god life love work time being
    whatever imagine suppose remember apparently luckily sadly unfortunately actually honestly
    basically i we me my our us mine ours myself""".split()
)

SubjectKind = Literal["self", "plural", "relative", "attribute"]


class Subject(NamedTuple):
    """`holder` as it is written in a claim; `owner` whose relative or attribute it is; `relation`
    the relative's relation ("older sister") and `name` theirs; `attribute` the words of what is
    theirs ("favourite colour")."""

    kind: SubjectKind
    holder: str
    owner: str
    relation: str = ""
    name: str = ""
    attribute: str = ""
    is_first: bool = False


_POSSESSED: Final = re.compile(
    rf"(?P<relation>{KIN_MODIFIER}(?:{KIN}))(?P<name>,? (?:{NAME})(?: (?:{NAME}))?,?)?(?=\s|$)"
)
_ATTRIBUTE: Final = re.compile(
    r"(?P<attribute>(?:(?:all-time|absolute|new|current|personal|number one) )?(?:favou?rite)(?:"
    r" (?:[\w'-]+)){1,4}?|(?:full |first |last |middle |real |maiden )?name|nickname|birthday|birth"
    r" ?date|(?:current |day |dream )?job|occupation|profession|(?:main |biggest |favou?rite"
    r" )?hobb(?:y|ies)|hometown|home ?town|home (?:country|state|city)|(?:native|first|mother)"
    r" (?:language|tongue)|(?:wedding )?anniversary|major|allergies|(?:main |biggest |ultimate "
    r"|next |long-term )?(?:goal|dream)|pronouns|age|blood type|height|star sign|zodiac sign)(?=\s)"
)
_NAMES: Final = re.compile(rf"(?:{NAME})(?: (?:{NAME})){{0,2}}|[^\W\d_][\w.-]{{1,40}}")
_THE_USER: Final = re.compile(r"(?:the|The) user\b")


def subject_of(text: str, speaker: str) -> tuple[Subject, str] | None:
    """Whom the clause `text` is about, and its predicate. None where no one is named whom the
    clause could be about. `speaker` stands for "I"."""
    first, _, rest = text.partition(" ")
    if first in ("I", "i"):
        return Subject("self", speaker, speaker, is_first=True), rest
    if first in ("We", "we"):
        return Subject("plural", speaker, speaker, is_first=True), rest
    if first in ("My", "my", "Our", "our"):
        return _possessed(speaker, rest, is_first=True)
    the_user = _THE_USER.match(text)
    if the_user is not None:
        return _named("The user", text[the_user.end() :])
    folded = first.lower().removesuffix("'s")
    if folded in _NO_SUBJECT or folded in FINITE or folded.endswith("ing"):
        return None
    if text.startswith((f"{speaker} ", f"{speaker}'s ")):
        return _named(speaker, text[len(speaker) :])
    return _any_name(text)


def _any_name(text: str) -> tuple[Subject, str] | None:
    """A name of up to three words; the fewest that leave a verb or a possessive."""
    words = text.split(maxsplit=4)
    for count in range(1, min(3, len(words) - 1) + 1):
        last = words[count - 1]
        name = " ".join(words[:count])
        if last.endswith(("'s", "’s")):
            name = name[:-2]
            if _NAMES.fullmatch(name) is None:
                return None
            return _named(name, text[len(name) :])
        if _NAMES.fullmatch(name) is None:
            return None
        if words[count].lower() in FINITE:
            if not name[0].isupper() and count > 1:
                return None
            return _named(name, text[len(name) :])
    return None


def _named(name: str, rest: str) -> tuple[Subject, str] | None:
    if rest.startswith(("'s ", "’s ")):
        return _possessed(name, rest[3:], is_first=False)
    if not rest.startswith(" "):
        return None
    return Subject("self", name, name), rest[1:]


def _possessed(owner: str, rest: str, *, is_first: bool) -> tuple[Subject, str] | None:
    attribute = _ATTRIBUTE.match(rest)
    if attribute is not None:
        # A favourite's kind may be of any words: it ends before the verb.
        return _with_attribute(owner, rest, is_first)
    relative = _POSSESSED.match(rest)
    if relative is None:
        return _with_figure(owner, rest, is_first)
    relation = relative["relation"]
    name = (relative["name"] or "").strip(", ")
    after = rest[relative.end() :]
    if name.endswith(("'s", "’s")):
        name, after = name[:-2], f"'s{after}"
    if relation.endswith("'s"):
        return None
    holder = f"{owner}'s {relation}{f' {name}' if name else ''}"
    if after.startswith(("'s ", "’s ")):
        return None
    predicate = after.strip()
    if predicate.partition(" ")[0].lower() not in (
        FINITE if relation.rpartition(" ")[2] in PLURALS else SINGULAR
    ):
        return None
    return Subject("relative", holder, owner, relation, name, is_first=is_first), predicate


_ATTRIBUTE_VERB: Final = re.compile(r" (?:is|are|was|has been|has always been) ")


def _with_attribute(owner: str, rest: str, is_first: bool) -> tuple[Subject, str] | None:
    verb = _ATTRIBUTE_VERB.search(rest)
    if verb is None or verb.start() > 60:
        return None
    words = rest[: verb.start()]
    if _ATTRIBUTE.fullmatch(words + " ", 0, len(words)) is None and not _whole(words):
        return None
    subject = Subject("attribute", owner, owner, attribute=words, is_first=is_first)
    return subject, rest[verb.start() + 1 :]


_FIGURED: Final = re.compile(
    r"(?P<attribute>(?!own\b)[a-z][\w'-]*(?: [a-z0-9][\w'-]*){0,4}) (?=(?:is|are|was) (?:about "
    r"|around |now )?[$€£]?\d)"
)


def _with_figure(owner: str, rest: str, is_first: bool) -> tuple[Subject, str] | None:
    """ "My commute is 45 minutes"."""
    found = _FIGURED.match(rest)
    if found is None:
        return None
    attribute = found["attribute"]
    return Subject("attribute", owner, owner, attribute=attribute, is_first=is_first), rest[
        found.end() :
    ]


def _whole(words: str) -> bool:
    found = _ATTRIBUTE.match(f"{words} ")
    return found is not None and (
        found.end() == len(words)
        or words.startswith(
            ("favo", "all-time", "absolute", "current", "new", "personal", "number one")
        )
    )
