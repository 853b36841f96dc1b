"""Claims in a whole turn: its prose, sentence by sentence, with lists under a heading ("My
allergies: walnuts, milk") as sentences. Pure, in linear time."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Final

from palimpsest.streams.claims.claim import Claim
from palimpsest.streams.claims.english import past_of
from palimpsest.streams.claims.grammar import USER
from palimpsest.streams.claims.language import ENGLISH, expression, rewritings, word_set
from palimpsest.streams.claims.reading import claims_in, is_fiction
from palimpsest.streams.claims.values import is_known
from palimpsest.streams.text.quotes import QUOTED, masked

MAX_ITEMS: Final = 8

_LISTED: Final = re.compile(r"(?:[-*+•‣–]|\d{1,2}[.)])\s+(?P<item>[^.:]{2,40})")
_BETWEEN: Final = re.compile(r",? and |[,;/] ?")


def written_out(lines: list[str]) -> list[str]:
    """`lines` with each heading and its list, on its line or below it, as one sentence."""
    found: list[str] = []
    at = 0
    while at < len(lines):
        heading = expression("heading").fullmatch(lines[at].strip().rstrip(".!"))
        at += 1
        if heading is None:
            found.append(lines[at - 1])
            continue
        items = [item for item in _BETWEEN.split(heading["items"].strip()) if item]
        while not heading["items"] and at < len(lines) and len(items) < MAX_ITEMS:
            item = _LISTED.fullmatch(lines[at].strip())
            if item is None:
                break
            items.append(item["item"])
            at += 1
        if items:
            frame = ENGLISH["headings"][(heading["what"] or heading["alone"]).lower()]
            listed = " and ".join(filter(None, (", ".join(items[:-1]), items[-1])))
            found.append(f"{frame} {listed}.")
    return found


MAX_CAST_CHARACTERS: Final = 80
"""Of a sentence that may cast two who talk together with the next one."""
MAX_SENTENCES: Final = 400

_FENCED: Final = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_ITEM: Final = re.compile(r"^(?:[-*+•‣–]|\d{1,2}[.)])\s+")
_WORD: Final = re.compile(r"[^\W_]+")
_HIDDEN: Final = "\uf8ff"
_SENTENCES: Final = re.compile(r"(?<=[.!?…][\"')])\s+|(?<=[.!?…])\s+|(?<=[。！？])\s*")


def claims_of_turn(
    content: str, speaker: str, said_at: datetime, before: str = "", *, in_a_part: bool = False
) -> list[Claim]:
    """What the turn claims of the speaker and theirs, in order, none twice.

    `before`: the assistant's turn right before it, whose last sentences count where the speaker
    agrees to them; else "". `in_a_part`: the speaker plays one that an earlier turn set up.
    """
    today = said_at.date()
    found = agreed(content, before, speaker, today) if before and not in_a_part else []
    invents, plays, is_another, last = False, in_a_part, False, ""
    for line in prose(content, speaker):
        about, invents = "", False
        said: list[Claim] = []
        for sentence in sentences(line)[:MAX_SENTENCES]:
            text = sentence.replace("\u2019", "'")
            plays = plays and expression("stops_playing").search(text) is None
            plays = plays or _casts_both(last, text)
            is_another = _is_written_by_another(text, speaker, is_another)
            last = text
            goes_on = invents and expression("goes_on_inventing").search(text) is not None
            invents = (
                goes_on or is_fiction(text) or expression("tells_fiction").search(text) is not None
            )
            unsaid = goes_on or plays or is_another
            unsaid = unsaid or expression("corrected_within").search(text) is not None
            claims = [] if unsaid else claims_in(sentence, speaker, today, about)
            plays = plays or expression("begins_playing").search(text) is not None
            corrects = expression("corrects").match(text)
            if corrects is not None and (claims or corrects["all"]):
                slots = {claim.slot for claim in claims}
                taken_back = [each for each in said if not slots or each.slot in slots]
                found = [claim for claim in found if claim not in taken_back]
            found += claims
            said = claims
            about = next((claim.holder for claim in claims if claim.holder != speaker), "")
    return list(dict.fromkeys(found))


def _casts_both(before: str, text: str) -> bool:
    """Whether the sentence, or it after the one before, gives a part to each of the two who talk:
    "You play the doctor and I'm the patient"."""
    casts = expression("casts_both")
    told = f"{before[-MAX_CAST_CHARACTERS:]} {text}" if len(before) <= MAX_CAST_CHARACTERS else text
    return "you" in told[:20].lower() and casts.match(told.lstrip()) is not None


def _is_written_by_another(text: str, speaker: str, is_another: bool) -> bool:
    """Whether somebody else writes from this sentence on ("This is Ben on Ana's phone"), until the
    speaker is back."""
    found = expression("another_writes").match(text)
    if found is not None:
        return not _is_speaker((found["who"] or found["signed"]), speaker)
    if not is_another:
        return False
    again = expression("writes_again").match(text)
    return again is None or not _is_speaker(again["who"], speaker)


def _is_speaker(name: str, speaker: str) -> bool:
    return name.casefold() in speaker.casefold().split()


_OF_PLAYS: Final = re.compile(r"(?i)role|pretend|believe|play")
"""In whatever sets up a role play."""


def plays_after(content: str, plays: bool) -> bool:
    """Whether a role play goes on after the turn; `plays`: whether one went on before it."""
    if not plays and _OF_PLAYS.search(content) is None:
        return False
    for sentence in sentences(content.replace("\u2019", "'"))[:MAX_SENTENCES]:
        if plays or expression("casts_parts").search(sentence) is not None:
            plays = expression("leaves_parts").search(sentence) is None
    return plays


def sets_up_play(content: str) -> bool:
    """Whether the turn sets up a role play in words that are hardly said of anything else: it is
    taken to go on for the whole session."""
    told = sentences(content.replace("\u2019", "'"))[:MAX_SENTENCES]
    return any(expression("sets_up_play").search(sentence) is not None for sentence in told)


def prose(content: str, speaker: str) -> list[str]:
    """The lines of `content` in the speaker's own words: no code, quotations, mail or other voices.

    Nothing where the text is handed in to be worked on, or taken back as a joke.
    """
    text = _FENCED.sub("\n", content.replace("\u2019", "'"))
    forwarded = expression("forwarded").search(text)
    if forwarded is not None:
        text = text[: forwarded.start()]
    task = expression("task")
    # To be asked to end a role play is no task: looked at only where there seems to be one.
    is_task = task.search(text) and task.search(expression("leaves_parts").sub("", text))
    if is_task or expression("joke").search(text):
        return []
    lines: list[str] = []
    for raw in written_out(text.split("\n")):
        line = _ITEM.sub("", raw.strip())
        label = expression("line_label").match(line)
        if label is not None:
            name = label["name"].casefold()
            if name != speaker.casefold() and name not in word_set("own_labels"):
                continue
            line = line[label.end() :]
        if line and line[0] not in ">#|":
            lines.append(masked(QUOTED.sub(_unquoted, line)).text)
    return lines


def _unquoted(match: re.Match[str]) -> str:
    """A title in quotation marks is a name; other quotations are somebody's words."""
    inner = match.group()[1:-1].rstrip(",").partition(": ")[0]
    return inner if expression("title").fullmatch(inner) else _HIDDEN


def sentences(line: str) -> list[str]:
    """`line` in sentences; an abbreviation's full stop ends none."""
    parts: list[str] = []
    for part in _SENTENCES.split(line):
        if parts and expression("abbreviated").search(parts[-1][-8:]):
            parts[-1] = f"{parts[-1]} {part}"
        elif part:
            parts.append(part)
    return parts


MAX_AGREED_SENTENCES: Final = 3
_FIRST_PERSON: Final = rewritings(ENGLISH["first_person"])


def is_agreement(content: str) -> bool:
    """Whether `content` agrees to what was said right before it, plainly and of the speaker: not
    "Yes, he does" nor "Yes, but not anymore"."""
    text = content.replace("\u2019", "'").strip()[:MAX_BEFORE_CHARACTERS]
    agrees = expression("agrees").match(text)
    if agrees is None:
        return False
    rest = text[agrees.end() :]
    _, *others = _SENTENCES.split(f"yes{rest}", maxsplit=2)
    said = _after_yes(text)
    return not (
        expression("takes_back").match(rest)
        or expression("agreed_otherwise").search(said)
        or expression("agreed_never").search(said)
        or expression("agreed_plainly").search(said) is None
        or any(expression("agreed_not").match(other) for other in others)
    )


_SPOKEN_YES: Final = re.compile(r"(?i)^(?:oh )?(?:yes|yeah|yep|yup),? ")


def rests_on(fact: str, content: str, before: str) -> bool:
    """Whether a turn of this content agrees to the one `before` it, and the fact tells what only
    that one says."""
    if not before or not is_agreement(content):
        return False
    asked, own = (set(_WORD.findall(text.casefold())) for text in (before, content))
    told = set(_WORD.findall(fact.casefold()))
    return not told.isdisjoint(asked - own - word_set("source_light"))


def agreed(content: str, before: str, speaker: str, today: date) -> list[Claim]:
    """What the assistant's turn `before` says of the speaker and `content` plainly agrees to."""
    if not is_agreement(content):
        return []
    found: list[Claim] = []
    text = content.replace("\u2019", "'").strip()
    is_past = expression("agreed_past").search(_SPOKEN_YES.sub("", text)) is not None
    lines = prose(before[-MAX_BEFORE_CHARACTERS:], "")
    last = sentences(lines[-1])[-MAX_AGREED_SENTENCES:] if lines else []
    if any(_is_to_another(each["name"], speaker) for each in _GREETED.finditer(" ".join(lines))):
        return []
    for sentence, name in map(_without_address, last):
        if _is_to_another(name, speaker):
            continue
        if is_past and expression("asked_past").search(sentence) is None:
            continue
        # "Yes" to "You do not eat meat?" may mean either.
        denied = expression("denied_question").search(
            expression("tag").sub("", sentence.rstrip("?!. "))
        )
        if denied and expression("agreed_to_a_denial").match(text) is None:
            continue
        told = in_first_person(sentence)
        claims = claims_in(told, speaker, today)
        more = expression("agreed_more").match(_after_yes(text))
        if more is not None:
            claims = claims_in(f"{told} and {more['more']}", speaker, today) if claims else []
            # "And miserable" is nothing that somebody is allergic to.
            added_to = "allergy" if more["to"] else "language"
            claims = [each for each in claims if each.slot == added_to]
        found += claims
    return found


_GREETED: Final = re.compile(
    r"\b(?:[Hh]i|[Hh]ello|[Hh]ey|[Tt]hanks|[Tt]hank you|[Ww]elcome(?: back)?"
    r"|[Gg]ood (?:morning|evening|afternoon)),? (?P<name>[A-Z][\w'-]{1,40})(?=[!,.])"
)
_ADDRESSED: Final = re.compile(
    r"^@?(?P<name>[A-Z][\w'-]{1,40}), (?=so\b|do\b|are\b|you\b|did\b|have\b)"
)
_ADDRESSED_LAST: Final = re.compile(r", @?(?P<name>[A-Z][\w'-]{1,40})(?=[?.!]*$)")
"""Whom a question is put to, at its beginning or at its end: "So you live in Oslo, Ana?"; a country
is named so, too ("in Oslo, Norway")."""


def _without_address(sentence: str) -> tuple[str, str]:
    """A sentence without the name of whom it speaks to, and that name."""
    for found in (_ADDRESSED.search(sentence), _ADDRESSED_LAST.search(sentence)):
        if found is not None and not is_known(found["name"].casefold()):
            left = sentence[: found.start()] + sentence[found.end() :]
            return left[:1].upper() + left[1:], found["name"]
    return sentence, ""


def _is_to_another(name: str, speaker: str) -> bool:
    """Whether somebody with another name is spoken to; one without a name may have any."""
    is_named = speaker not in ("", USER)
    return name != "" and is_named and name.casefold() not in speaker.casefold().split()


def _after_yes(text: str) -> str:
    """What stands in the first sentence after "yes"."""
    agrees = expression("agrees").match(text)
    rest = "" if agrees is None else text[agrees.end() :]
    return _SENTENCES.split(f"yes{rest}", maxsplit=1)[0][3:].lstrip(" ,;-")


MAX_BEFORE_CHARACTERS: Final = 1_000


def in_first_person(sentence: str) -> str:
    """ "So you live in Lisbon?" and "Do you live in Lisbon?" as the one who agrees would say it."""
    text = expression("tag").sub("", sentence.strip().rstrip("?!. "))
    text = expression("confirmed").sub("", text)
    asked = expression("asked").match(text)
    if asked is not None:
        helper = asked["helper"].lower()
        kept = "" if helper in ("do", "did", "does") else f"{helper} "
        if helper in ("did", "does"):
            verb, _, rest = asked["rest"].partition(" ")
            past = past_of(verb) if helper == "did" else None
            if past is None:
                return ""  # the verb's form is not known here
            told = f"{past} {rest}"
        else:
            told = asked["rest"]
        text = f"{asked['subject'].strip()} {kept}{told}"
    if not text.lower().startswith(("you", "my", "i ")):
        return ""
    for second, first in _FIRST_PERSON:
        text = second.sub(first, text)
    return text
