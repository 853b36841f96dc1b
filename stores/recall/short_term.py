"""The current session as a part of a context: its summary, the turns since, and the request for a
new summary. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Final

from palimpsest.schemas.echoes import spoken
from palimpsest.stores.recall.context import estimate_tokens, folded, laid_out
from palimpsest.stores.recall.query import Mark, with_marks

TITLE: Final = "## This conversation"
CUT: Final = "…"
MIN_CHARACTERS: Final = 40
"""Of a summary that is shown cut: less says next to nothing."""


@dataclass(frozen=True, slots=True)
class KeptTurn:
    """A turn by the id of its memory, with the marks of what in it no longer holds."""

    id: str
    who: str
    content: str
    occurred_at: datetime
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class ShortTerm:
    """What is kept of a session now. Turns come oldest first; `since_summary` are those that the
    summary does not know, all of them where there is none. `explicit_intent`: the last user turn
    asks to have something remembered for good."""

    turns: tuple[KeptTurn, ...] = ()
    turns_expire_at: datetime | None = None
    explicit_intent: bool = False
    since_summary: tuple[KeptTurn, ...] = ()
    summary: str | None = None
    summary_by: str | None = None
    summary_at: datetime | None = None
    summary_expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SessionBlock:
    """The part of a context; `ids` are those of the turns shown, `line_ids` those of each line of
    the text, none where it shows no turn."""

    text: str
    tokens: int
    line_ids: tuple[tuple[str, ...], ...]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(chain.from_iterable(self.line_ids)))


def within(turns: Sequence[KeptTurn], most: int, characters: int) -> tuple[KeptTurn, ...]:
    """The newest of the turns that fit, oldest first; the newest one is cut where it is longer."""
    kept: list[KeptTurn] = []
    left = characters
    for turn in reversed(turns[-most:] if most else ()):
        if len(turn.content) > left:
            if not kept:
                kept.append(replace(turn, content=turn.content[: left - 1] + CUT))
            break
        left -= len(turn.content)
        kept.append(turn)
    return tuple(reversed(kept))


def session_block(kept: ShortTerm | None, nudge: str, budget: int) -> SessionBlock | None:
    """The summary, the newest turns since, and the nudge where one is given, within a budget of
    tokens; None where nothing fits. What is oldest is left out first, the nudge before all else."""
    kept = kept or ShortTerm()
    left = budget - estimate_tokens(TITLE)
    head: list[tuple[str, tuple[str, ...]]] = []
    if kept.summary is not None:
        line = _fitting(f"Summary: {folded(kept.summary)}", left)
        if line is not None:
            head.append((line, ()))
            left -= 1 + estimate_tokens(line)
    tail: list[tuple[str, tuple[str, ...]]] = []
    for turn in reversed(kept.since_summary):
        said = spoken(turn.content)
        if not said:
            continue
        content = with_marks(said, turn.marks)
        line = f"- {laid_out(f'{turn.who}: {content}' if turn.who else content)}"
        cost = 1 + estimate_tokens(line)
        if cost > left:
            break
        left -= cost
        tail.append((line, (turn.id,)))
    lines = [*head, *((each, ids) for line, ids in reversed(tail) for each in line.split("\n"))]
    if nudge and 1 + estimate_tokens(nudge) <= left:
        lines += [(line, ()) for line in nudge.split("\n")]
    if not lines:
        return None
    text = "\n".join((TITLE, *(line for line, _ in lines)))
    return SessionBlock(text, estimate_tokens(text), ((), *(ids for _, ids in lines)))


def _fitting(line: str, tokens: int) -> str | None:
    """As much of the line as fits, None where that says next to nothing."""
    if 1 + estimate_tokens(line) <= tokens:
        return line
    low, high = 0, len(line)
    while low < high:
        middle = (low + high + 1) // 2
        if 1 + estimate_tokens(line[:middle] + CUT) <= tokens:
            low = middle
        else:
            high = middle - 1
    return line[:low].rstrip() + CUT if low >= MIN_CHARACTERS else None
