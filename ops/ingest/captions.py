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
    Document,
    Item,
    Keys,
    Note,
    ReadOptions,
    Unreadable,
    Utterance,
    later,
    named,
)

_CLOCK: Final = (
    r"(?:(?P<hours>\d{1,4}):)?(?P<minutes>\d{1,2}):(?P<seconds>\d{2})(?:[.,](?P<rest>\d{1,3}))?"
)
_TIMING: Final = re.compile(rf"\s*{_CLOCK}\s*-->\s*(?:\d{{1,4}}:)?\d{{1,2}}:\d{{2}}.*")
_LINE: Final = re.compile(
    rf"\s*(?:(?P<open>\[)|(?P<paren>\())?{_CLOCK}(?(open)\])(?(paren)\))\s*[-–]?\s*"
    r"(?P<name>[^:]{1,60}): (?P<text>.+)"
)
_VOICE: Final = re.compile(r"<v(?:\.[^ <>]*)?\s+([^<>]+)>")
_TAG: Final = re.compile(r"</?[^<>\s][^<>]*>|\{\\[^{}]*\}")
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


def read_captions(document: Document, options: ReadOptions) -> Iterator[Item]:
    """Yields the utterances in order, each at `options.now` plus its offset. Raises Unreadable if
    there is no cue."""
    cues = list(_joined(_cues(document.text)))
    if not cues:
        raise Unreadable("no transcript: no line with a time (00:01:02,000 --> 00:01:04,000)")
    yield Note(
        f"the transcript tells times from its beginning only; it is taken to begin at"
        f" {options.now:%Y-%m-%d %H:%M:%S} UTC"
    )
    if not any(cue.speaker for cue in cues):
        yield Note("the transcript names no speakers")
    session = options.session or document.stem
    keys = Keys("captions", session)
    for cue in cues:
        yield Utterance(
            place=f"{document.name}:{cue.line}",
            key=keys.key(str(cue.begins), cue.speaker, cue.text),
            text=cue.text,
            at=later(options.now, cue.begins),
            session=session[:256],
            speaker=cue.speaker,
        )


def _cues(text: str) -> Iterator[_Cue]:
    """Yields the cues of all formats, in order."""
    cue: _Cue | None = None
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.rstrip("\r")
        begins = _TIMING.fullmatch(line) or _LINE.fullmatch(line)
        if begins is not None:
            if cue is not None:
                yield cue
            cue = _Cue(number, _offset(begins), "", "")
            if begins.re is _LINE:
                cue.speaker, cue.text = named(begins["name"]), begins["text"].strip()
        elif not line.strip():
            if cue is not None and cue.text:
                yield cue
                cue = None
        elif cue is not None:
            cue.text = f"{cue.text}\n{line}".strip()
    if cue is not None:
        yield cue


def _offset(begins: re.Match[str]) -> timedelta:
    return timedelta(
        hours=int(begins["hours"] or 0),
        minutes=int(begins["minutes"]),
        seconds=int(begins["seconds"]),
        milliseconds=int((begins["rest"] or "0").ljust(3, "0")),
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
