"""Transcripts with times: SubRip (.srt), WebVTT (.vtt), and lines as `[00:01:02] Ana: Hello`.

A cue is what fits on a screen, not an utterance: consecutive cues of one speaker are joined while
they end in the middle of a sentence.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from palimpsest.ops.ingest.base import (
    Choices,
    Document,
    Item,
    Keys,
    Note,
    Unreadable,
    Utterance,
    later,
    named,
)

_CLOCK: Final = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{2})(?:[.,](\d{1,3}))?"
_TIMING: Final = re.compile(rf"\s*{_CLOCK}\s*-->\s*(?:\d{{1,4}}:)?\d{{1,2}}:\d{{2}}.*")
_LINE: Final = re.compile(
    rf"\s*(?:\[{_CLOCK}\]|\({_CLOCK}\)|{_CLOCK})\s*[-–]?\s*([^:]{{1,60}}): (.+)"
)
_VOICE: Final = re.compile(r"<v(?:\.[^ >]*)?\s+([^>]+)>")
_TAG: Final = re.compile(r"</?[^>\s][^>]*>|\{\\[^}]*\}")
_SPEAKER: Final = re.compile(r"(?:>> ?|- ?)?([^\W\d_][\w .'’()-]{0,59}): +(.+)", re.DOTALL)
_END: Final = re.compile(r"[.!?…。！？][\"'”’)\]]*$")
MAX_JOINED: Final = 2_000
"""Length, in characters, after which a new turn starts even in the middle of a sentence."""


@dataclass(slots=True)
class _Cue:
    line: int
    begins: timedelta
    speaker: str
    text: str


def is_captions(text: str) -> bool:
    """Whether the text begins like one of the three formats."""
    if text.lstrip("\ufeff").startswith("WEBVTT"):
        return True
    head = text.split("\n")[:30]
    return (
        any(_TIMING.fullmatch(line) for line in head)
        or sum(1 for line in head if _LINE.fullmatch(line))
        > len([line for line in head if line.strip()]) / 2
    )


def read_captions(document: Document, choices: Choices) -> Iterator[Item]:
    """Yields the utterances in order, each at `choices.since` plus its offset. Raises Unreadable if
    there is no cue."""
    cues = list(_joined(_cues(document.text)))
    if not cues:
        raise Unreadable("no transcript: no line with a time (00:01:02,000 --> 00:01:04,000)")
    yield Note(
        f"the transcript tells times from its beginning only; it is taken to begin at"
        f" {choices.since:%Y-%m-%d %H:%M:%S} UTC"
    )
    if not any(cue.speaker for cue in cues):
        yield Note("the transcript names no speakers")
    session = choices.session or document.stem
    keys = Keys("captions", session)
    for cue in cues:
        yield Utterance(
            place=f"{document.name}:{cue.line}",
            key=keys.key(str(cue.begins), cue.speaker, cue.text),
            text=cue.text,
            at=later(choices.since, cue.begins),
            session=session[:256],
            speaker=cue.speaker,
        )


def _cues(text: str) -> Iterator[_Cue]:
    """Yields the cues of all formats, in order."""
    cue: _Cue | None = None
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.rstrip("\r")
        timing, whole = _TIMING.fullmatch(line), _LINE.fullmatch(line)
        if timing is not None or whole is not None:
            if cue is not None:
                yield cue
            cue = _Cue(number, _offset((timing or whole).groups()), "", "")  # type: ignore[union-attr]
            if whole is not None and timing is None:
                cue.speaker, cue.text = named(whole.groups()[-2]), whole.groups()[-1].strip()
        elif not line.strip():
            if cue is not None and cue.text:
                yield cue
                cue = None
        elif cue is not None:
            cue.text = f"{cue.text}\n{line}".strip()
    if cue is not None:
        yield cue


def _offset(groups: tuple[str | None, ...]) -> timedelta:
    found = next(groups[i : i + 4] for i in (0, 4, 8) if i + 1 < len(groups) and groups[i + 1])
    hours, minutes, seconds, rest = found
    return timedelta(
        hours=int(hours or 0),
        minutes=int(minutes or 0),
        seconds=int(seconds or 0),
        milliseconds=int((rest or "0").ljust(3, "0")),
    )


def _joined(cues: Iterator[_Cue]) -> Iterator[_Cue]:
    """Yields cues with speaker and clean text; joins sentences that continue in the next cue."""
    before: _Cue | None = None
    speaking = ""
    for cue in cues:
        voice = _VOICE.search(cue.text)
        text = " ".join(html.unescape(_TAG.sub("", cue.text)).split())
        own = cue.speaker or (named(voice[1]) if voice else "")
        spoken = _SPEAKER.fullmatch(text) if not own else None
        if spoken is not None:
            own, text = named(spoken[1]), spoken[2]
        if not text:
            continue
        speaking = own or speaking
        now = _Cue(cue.line, cue.begins, speaking, text)
        if (
            before is not None
            and before.speaker == now.speaker
            and not _END.search(before.text)
            and len(before.text) < MAX_JOINED
        ):
            before.text = f"{before.text} {now.text}"
            continue
        if before is not None:
            yield before
        before = now
    if before is not None:
        yield before
