"""What is made of a memory's text: its keys, what is embedded, and what is indexed."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from typing import Final

from palimpsest.schemas.echoes import spoken
from palimpsest.schemas.normal_forms import one_line

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)
# A page of advice of an assistant is embedded by its outline: a vector of all of it is near to
# everything, and takes ten times as long to make as that of a person's message.
OUTLINE_CHARACTERS: Final = 320
"""Some 70 pieces of an embedding model's vocabulary, as in a person's message."""
EMBEDDED_WHOLE: Final = ("", "user")
"""The roles of persons; no role is as a person's. Of what others say the outline is embedded."""
LEAD_CHARACTERS: Final = 160
PART_CHARACTERS: Final = 16
"""Of a paragraph: what there is no room for is left out from the end."""
_PART: Final = re.compile(r"\s(?=(?:\d{1,3}[.)]|[-*+•–—]|#{1,6})\s)")
"""Where a paragraph begins that is an item of a list or has a heading, in a text on one line."""
_MARKUP: Final = re.compile(r"\*\*|__|`+|\|+|(?<!\S)(?:#{1,6}|-{3,}|={3,})(?!\S)")
"""Each sign of it is a piece of the vocabulary like a word, and says nothing."""


def dedup_key(scope: str, content_hash: str) -> str:
    """The value of `MemoryRow.dedup_key` of an active, non-episodic memory."""
    return f"{content_hash}|{scope}"


def embedding_text(
    memory_type: str, who: str, content: str, said_at: datetime, role: str = "user"
) -> str:
    """The text that a memory's vector is made from: a turn with its day and speaker, without what
    it echoes; of one that no person wrote its outline. `said_at` is by the clock of who said it: on
    whose day people ask for it."""
    if memory_type != "episodic":
        return content
    day = f"{said_at.day} {MONTHS[said_at.month - 1]} {said_at.year}"
    # A turn that is nothing but an echo needs a vector, too.
    said = one_line(spoken(content) or content)
    text = said if role in EMBEDDED_WHOLE else outline(said)
    return f"{day}. {f'{who}: {text}' if who else text}"


_FIRST_PERSON: Final = re.compile(r"\b(?:I|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself|[Ww]e|[Uu]s|[Oo]urs?)\b")


def refers_to_speaker(text: str) -> bool:
    """Whether an English text speaks of the one who says it, so that it needs a name to be read by
    others."""
    return _FIRST_PERSON.search(text) is not None


def embedding_key(text: str) -> str:
    """SHA-256 hex of an embedded text: equal texts share one stored vector."""
    return hashlib.sha256(text.encode()).hexdigest()


def linked_text(memory_type: str, who: str, content: str) -> str:
    """The text in which names of entities are looked for: a turn's speaker is named too, and what
    it echoes is left out."""
    if memory_type != "episodic":
        return one_line(content)
    said = one_line(spoken(content))
    return f"{who}: {said}" if who else said


def index_text(memory_type: str, who: str, content: str, said_at: datetime) -> str:
    """The text that is indexed: a turn with its day, by the clock of its speaker, and the speaker,
    as people ask for it."""
    if memory_type != "episodic":
        return content
    day = f"({said_at.day} {MONTHS[said_at.month - 1]}, {said_at.year})"
    return f"{day} {who}: {content}" if who else f"{day} {content}"


def outline(text: str) -> str:
    """How a long text begins and how each of its paragraphs does, without the signs of Markdown; a
    short one as it is."""
    if len(text) <= OUTLINE_CHARACTERS:
        return text
    first, *others = _PART.split(text)
    beginnings = [_beginning(first, LEAD_CHARACTERS if others else OUTLINE_CHARACTERS)]
    room = OUTLINE_CHARACTERS - len(beginnings[0])
    for number, part in enumerate(others):
        if room <= 0:
            break
        share = max(room // (len(others) - number), PART_CHARACTERS)
        beginnings.append(_beginning(part, share))
        room -= len(beginnings[-1]) + 1
    found = " ".join(beginnings)
    return " ".join(_MARKUP.sub(" ", found).split()) or found


def _beginning(text: str, characters: int) -> str:
    """Whole words, unless the first one is longer than that."""
    return text if len(text) <= characters else text[:characters].rsplit(" ", 1)[0]
