"""Transcripts: SubRip (.srt), WebVTT (.vtt), lines as `[00:01:02] Ana: Hello`, and paragraphs under
a line with a name and a time (`Ana  0:05`, `[Ana] 00:00:05`) or a time alone; `dialogue` reads
those without times.

A cue is what fits on a screen, not an utterance: consecutive cues of one speaker are joined while
they end in the middle of a sentence.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise
from typing import Final, TypeAlias

from palimpsest.ops.ingest.parsers.base import (
    Bad,
    Document,
    Item,
    Keys,
    LeftOut,
    Note,
    ReadOptions,
    Utterance,
    later,
    named,
    said,
    told_time,
)
from palimpsest.ops.ingest.parsers.dialogue import is_dialogue, read_dialogue
from palimpsest.ops.ingest.parsers.sounds import is_sound
from palimpsest.ops.ingest.parsers.stamps import stamp_of

_CLOCK: Final = (
    r"(?:(?P<hours>\d{1,4}):)?(?P<minutes>\d{1,2})"
    r":(?P<seconds>\d{2}|(?:(?<=:\d:)|(?<=:\d\d:))\d(?!\d))(?: ?[.,] ?(?P<rest>\d{1,3}))?"
)
"""A time, whose seconds have one digit only after hours: `1:2` is rather a verse or a score."""
_ARROW: Final = r"\s*(?:-{1,3}>|[—–]>|→)\s*"
_SETTINGS: Final = r"(?:\s+\w{1,20}:\S*)*\s*"
"""What WebVTT writes after the times of a cue."""
_TIMING: Final = re.compile(
    rf"\s*{_CLOCK}(?:\s*-->\s*(?:\d{{1,4}}:)?\d{{1,2}}:\d{{2}}.*"
    rf"|{_ARROW}(?:\d{{1,4}}:)?\d{{1,2}}:\d{{1,2}}(?: ?[.,] ?\d{{1,3}})?{_SETTINGS})"
)
_LINE: Final = re.compile(
    rf"\s*(?:(?P<open>\[)|(?P<paren>\())?{_CLOCK}(?(open)\])(?(paren)\))\s*[-–]?\s*"
    r"(?P<name>[^:]{1,60}): (?P<text>.+)"
)
_BARE: Final = re.compile(
    rf"(?=[\[(])(?:(?P<open>\[)|(?P<paren>\()){_CLOCK}(?(open)\])(?(paren)\))\s*(?P<text>\S.*)"
)
"""A line with a time in brackets and no name."""
_HEAD: Final = re.compile(
    r"(?:\[(?P<bracketed>[^\[\]\n]{1,60})\] "
    r"|(?P<name>[^\W\d_][^:\n\t]{0,59}?)"
    r"(?:(?:  |\t)\s{0,4}|, | [-–|] | (?=\d{1,2}:\d\d:)|(?P<open> ?[\[(])))"
    + _CLOCK
    + r"(?(open)[\])]:?)"
)
"""A line with a name and the time at which its bearer begins to speak."""
_TIMED_NAME: Final = re.compile(
    rf"[\[(]{_CLOCK}[\])]\s?[-–]?\s?(?P<name>[^\W\d_][^:\n\t]{{0,59}}):"
)
"""The same with the time before the name."""
_NAME_FIRST: Final = re.compile(
    rf"\s*(?P<name>[^\W\d_][^:\n\t\[\]()]{{0,59}}?) ?[\[(]{_CLOCK}[\])]: ?(?P<text>\S.*)"
)
"""A line with a name, a time and words."""
_NAME: Final = re.compile(r"[^\W\d_][^:.!?\n\t]{0,59}")
"""A line that may be a name."""
_ALONE: Final = re.compile(rf"(?P<open>\[)?{_CLOCK}(?(open)\])")
"""A line with just the time of those after it, each of which begins with a name."""
_PROGRAM: Final = re.compile(
    r"Transcribed by https?://\S+|Meeting ended after [\d:]+.{0,4}"
    r"|This editable transcript was computer generated.{0,200}"
)
"""Lines of the program."""
_UNREAD: Final = re.compile(
    r"[\d:][^\s>]{0,20} *-->"
    rf"|(?:[\d:][^\s>]{{0,20}})?{_ARROW}\d{{1,4}}:\d{{1,2}}:\d[\d.,]*{_SETTINGS}$"
    rf"|\d{{1,4}}:[^\s>]{{0,20}}{_ARROW}\d[^\s>]{{0,20}}{_SETTINGS}$"
    r"|(?:\[\d[^\[\]\s:]{0,4}:[^\[\]\s]{1,12}\]|\(\d[^()\s:]{0,4}:[^()\s:]{1,4}:[^()\s]{1,8}\))"
    r"\s*[-–]?\s*(?=(?P<name>[^:]{1,60}): (?P<text>.+))"
)
"""What should tell when a cue begins."""
_BLOCKS: Final = re.compile(r"(?:NOTE|STYLE|REGION)(?:\s.*)?")
"""What begins a block of WebVTT that is no cue."""
_VOICE: Final = re.compile(r"<v(?:\.[^ <>]*)?\s+([^<>]+)>")
_TAG: Final = re.compile(r"</?[^<>\s][^<>]*>|\{\\[^{}]*\}")
_SPEAKER: Final = re.compile(r"(?:>> ?|- ?)?([^\W\d_][\w .'’()-]{0,59}): +(.+)", re.DOTALL)
_ANY_SPEAKER: Final = re.compile(r"(?:>> ?|- ?)?([\w+(][^:<>\n]{0,59}): +(.+)", re.DOTALL)
"""The same where nearly each cue begins with a name: one with any characters."""
_MOST: Final = 0.75
_MOST_REPEATED: Final = 4
"""Number of lines of a cue that may be those of the one before."""
_CHANGE: Final = re.compile(r"\s*(?:>>|[-–—](?: |(?=[^\W\d])))")
"""Before the words of another speaker."""
_WORD_TIMES: Final = re.compile(r"<\d{2}:\d{2}:\d{2}\.\d{3}>")
"""In cues that are shown word by word: each repeats the last line of the one before it."""
_END: Final = re.compile(r"[.!?…。！？][\"'”’)\]]*$")
SOUNDS: Final = "descriptions of sounds and songs"
MAX_JOINED: Final = 2_000
"""Length, in characters, after which a new turn starts even in the middle of a sentence."""


@dataclass(slots=True)
class _Cue:
    line: int
    begins: timedelta
    speaker: str
    text: str
    more: list[str] = field(default_factory=list)
    """Further lines of the text, until it is whole."""
    is_of_several: bool = False
    """Whether each of its lines begins with a name."""
    sounds: int = 0
    """Number of lines that were left out."""

    def whole(self) -> _Cue:
        return replace(self, text="\n".join([self.text, *self.more]).strip(), more=[])


def is_captions(text: str) -> bool:
    """Whether the text begins like one with times."""
    if text.lstrip("\ufeff").startswith("WEBVTT"):
        return True
    head = [line for line in text.split("\n")[:30] if line.strip()]
    if any(_TIMING.fullmatch(line) for line in head):
        return True
    # A line of a chat has a date besides, and what is said there may look like a name and a time.
    is_chat = bool(head) and stamp_of(head[0].lstrip("\ufeff\u200e")) is not None
    if not is_chat and _has_heads(text):
        return True
    head = [line for line in head if stamp_of(line) is None]
    named_lines = sum(1 for line in head if _named(line))
    timed = sum(1 for line in head if _named(line) or _BARE.fullmatch(line.lstrip()))
    return named_lines > 0 and timed > len(head) / 2


def _named(line: str) -> re.Match[str] | None:
    """Returns the match of a line with a time, a name and words."""
    return _LINE.fullmatch(line) or _NAME_FIRST.fullmatch(line)


def _has_heads(text: str) -> bool:
    """Whether paragraphs begin with a line of a name and a time, or of a time before names."""
    lines = [line.strip() for line in _with_heads(text.split("\n", 60)[:60])]
    heads = [
        place for place, line in enumerate(lines[:-1]) if _head(line) and any(lines[place + 1 :])
    ]
    times = sum(_is_time(line, after) for line, after in pairwise(lines))
    first = next((place for place, line in enumerate(lines) if line), 0)
    return len(heads) > 1 or heads == [first] or times > 1


def _head(line: str) -> re.Match[str] | None:
    if _PROGRAM.fullmatch(line):
        return None
    return _HEAD.fullmatch(line) or _TIMED_NAME.fullmatch(line)


def _with_heads(lines: list[str]) -> list[str]:
    """Returns the lines with the time behind the name where it stands alone in the line below, and
    the words below that."""
    found = lines.copy()
    for place in range(len(lines) - 2):
        name, time, words = (line.strip() for line in lines[place : place + 3])
        is_first = place == 0 or not lines[place - 1].strip()
        if is_first and words and _ALONE.fullmatch(time) and _NAME.fullmatch(name):
            found[place : place + 2] = [f"{name}\t{time.strip('[]')}", ""]
    return found


def _is_time(line: str, after: str) -> bool:
    return _ALONE.fullmatch(line) is not None and _ANY_SPEAKER.fullmatch(after) is not None


def read_captions(document: Document, options: ReadOptions) -> Iterator[Item]:
    """Yields the utterances in order, each at `options.now` plus its offset. Raises Unreadable if
    there is no cue."""
    if not is_captions(document.text) and is_dialogue(document.text):
        yield from read_dialogue(document, options)
        return
    found = list(_cues(document.text))
    if _WORD_TIMES.search(document.text):
        found = list(_once(found))
    speaker = _speaker_of(cue for cue in found if isinstance(cue, _Cue))
    spoken = _spoken((cue for cue in found if isinstance(cue, _Cue)), speaker)
    parts = list(_joined(map(_without_sounds, spoken), speaker))
    cues = [each for each in parts if isinstance(each, _Cue)]
    if not parts:
        yield from read_dialogue(document, options)
        return
    yield Note(
        f"the transcript tells times from its beginning only; it is taken to begin at"
        f" {options.now:%Y-%m-%d %H:%M:%S} UTC"
    )
    if cues and not any(cue.speaker for cue in cues):
        yield Note("the transcript names no speakers")
    session = options.session or document.stem
    keys = Keys("captions", session)
    told = told_time(options.since) if options.since else ""
    for cue in cues:
        said_now = (str(cue.begins), cue.speaker, cue.text)
        named_so = keys.of_content(*said_now, told=told, is_dated=False)
        naming = replace(named_so, is_relative=True)
        yield Utterance(
            place=f"{document.name}:{cue.line}",
            key=naming.key_as(session),
            naming=naming.fixed() if options.session else naming,
            text=cue.text,
            at=later(options.now, cue.begins),
            session=session[:256],
            speaker=cue.speaker,
        )
    for line, reason in (each for each in found if isinstance(each, tuple)):
        yield Bad(f"{document.name}:{line}", reason)
    silent = sum(isinstance(cue, _Cue) and not _plain(cue.text) for cue in found)
    left_out = [each for each in (*found, *parts) if isinstance(each, LeftOut)]
    yield from said(iter([*left_out, *[LeftOut("cues without words")] * silent]))


_Found: TypeAlias = _Cue | LeftOut | tuple[int, str]


def _cues(text: str) -> Iterator[_Found]:
    """Yields the cues of all formats, in order; what is no cue; and the lines whose time cannot be
    read, with the reason. A paragraph without a time of its own goes on with the cue before it."""
    cue: _Cue | None = None
    block = False  # in one that is no cue
    is_plain = not any(map(_TIMING.fullmatch, text.split("\n")))
    has_heads = is_plain and _has_heads(text)
    lines = text.removeprefix("\ufeff").split("\n")
    lines = _with_heads(lines) if has_heads else lines
    for number, raw in enumerate(lines, 1):
        line = raw.rstrip("\r")
        begins = _beginning(line, lines[number : number + 1] if has_heads else None, is_plain)
        unread = _UNREAD.match(line.lstrip()) if begins is None else None
        if begins is not None or unread is not None:
            block = False
            if cue is not None:
                yield cue.whole()
            if begins is None:
                yield number, f"a time that cannot be read: {line.strip()[:60]}"
                cue = _begun(number, cue.begins if cue else timedelta(), unread)
            else:
                cue = _begun(number, _offset(begins), begins)
        elif block or _is_block(lines, number):
            block = bool(line.strip())
            if block and number > 1:
                yield LeftOut("lines of notes and styles")
        elif has_heads and _PROGRAM.fullmatch(line.strip()):
            yield LeftOut("lines of the program")
        elif line.strip() and not _is_identifier(lines, number):
            if cue is None:
                yield LeftOut("lines before the first time")
            else:
                cue.more.append(line)
    if cue is not None:
        yield cue.whole()


def _begun(number: int, at: timedelta, begins: re.Match[str] | None) -> _Cue:
    """Returns the cue that begins on the line of that number."""
    parts = begins.groupdict() if begins else {}
    speaker = named(parts.get("name") or parts.get("bracketed"))
    is_of_several = begins is not None and begins.re is _ALONE
    return _Cue(number, at, speaker, (parts.get("text") or "").strip(), is_of_several=is_of_several)


def _beginning(line: str, following: list[str] | None, is_plain: bool) -> re.Match[str] | None:
    """Returns the match of a line with which a cue begins. `following` is the line after it, if
    heads are to be found; `is_plain`: no cue has a line of its own for its times."""
    if begins := _TIMING.fullmatch(line) or _LINE.fullmatch(line):
        return begins
    if following is not None and (begins := _head(line.strip())):
        return begins
    if is_plain and (begins := _NAME_FIRST.fullmatch(line)):
        return begins
    if begins := _BARE.fullmatch(line.lstrip()):
        return begins
    if following is None:
        return None
    plain = line.strip()
    if any(_is_time(plain, each.strip()) for each in following):
        return _ALONE.fullmatch(plain)
    return _head(plain)


def _is_block(lines: list[str], number: int) -> bool:
    """Whether the line of that number begins a block of WebVTT that is no cue: its head, a note,
    a style."""
    if not lines[0].startswith("WEBVTT"):
        return False
    return number == 1 or (
        _BLOCKS.fullmatch(lines[number - 1].rstrip("\r")) is not None
        and not lines[number - 2].strip()
    )


def _is_identifier(lines: list[str], number: int) -> bool:
    """Whether the line of that number names the cue that begins with the next one: after a blank
    line, or just a number as those of SubRip."""
    if number == len(lines):
        return False
    following = lines[number].strip()
    if _TIMING.fullmatch(following) is None and _UNREAD.match(following) is None:
        return False
    return number == 1 or not lines[number - 2].strip() or lines[number - 1].strip().isdecimal()


def _offset(begins: re.Match[str]) -> timedelta:
    return timedelta(
        hours=int(begins["hours"] or 0),
        minutes=int(begins["minutes"]),
        seconds=int(begins["seconds"]),
        milliseconds=int((begins["rest"] or "0").ljust(3, "0")),
    )


def _plain(text: str) -> str:
    """Returns the words of a text without tags."""
    return " ".join(html.unescape(_TAG.sub("", text)).split())


def _once(found: list[_Found]) -> Iterator[_Found]:
    """Yields cues that are shown word by word without the lines that they repeat."""
    shown: list[str] = []
    for each in found:
        if not isinstance(each, _Cue):
            yield each
            continue
        lines = [line for line in each.text.split("\n") if _plain(line)]
        plain = [_plain(line) for line in lines]
        most = min(len(shown), len(plain), _MOST_REPEATED)
        again = next((n for n in range(most, 0, -1) if plain[:n] == shown[-n:]), 0)
        shown = plain or shown
        if again:
            yield LeftOut("repeated lines")
        if lines[again:] or not lines:
            yield replace(each, text="\n".join(lines[again:]))


def _spoken(cues: Iterator[_Cue], speaker: re.Pattern[str]) -> Iterator[_Cue]:
    """Yields a cue for each voice in a cue, and for each line that begins with the name of somebody
    who speaks elsewhere, too."""
    listed = list(cues)
    names = {cue.speaker for cue in listed if cue.speaker}
    for cue in listed:
        spoken = speaker.fullmatch(_plain(cue.text)) if not cue.speaker else None
        if spoken is not None:
            names.add(named(spoken[1]))
    for cue in listed:
        rest = _VOICE.split(cue.text)
        yield from _lines(replace(cue, text=rest[0]), names, speaker)
        for name, text in zip(rest[1::2], rest[2::2], strict=True):
            yield _Cue(cue.line, cue.begins, named(name), text)


def _lines(cue: _Cue, names: set[str], speaker: re.Pattern[str]) -> Iterator[_Cue]:
    """Yields a cue for each speaker in a cue without voices."""
    now = _Cue(cue.line, cue.begins, cue.speaker, "")
    for line in cue.text.split("\n"):
        spoken = speaker.fullmatch(_plain(line))
        is_known = spoken is not None and (cue.is_of_several or named(spoken[1]) in names)
        if (now.text or now.more) and spoken is not None and is_known:
            yield now.whole()
            now = _Cue(cue.line, cue.begins, named(spoken[1]), spoken[2])
        elif (now.text or now.more) and not cue.speaker and _CHANGE.match(line):
            yield now.whole()
            now = _Cue(cue.line, cue.begins, "", line)
        elif line.strip():
            now.more.append(line)
    yield now.whole()


def _speaker_of(cues: Iterable[_Cue]) -> re.Pattern[str]:
    """Returns what a name at the beginning of a cue looks like in these."""
    plain = (_plain(cue.text) for cue in cues if not cue.speaker)
    texts = [text for text in plain if text and not is_sound(text)]
    named_cues = sum(_ANY_SPEAKER.fullmatch(text) is not None for text in texts)
    return _ANY_SPEAKER if len(texts) > 1 and named_cues >= _MOST * len(texts) else _SPEAKER


def _without_sounds(cue: _Cue) -> _Cue:
    """Returns a cue without the lines that nobody says."""
    lines = [line for line in cue.text.split("\n") if _plain(line)]
    words = [line for line in lines if not is_sound(_plain(line))]
    if lines and (not words or is_sound(_plain(cue.text))):
        return replace(cue, text="", sounds=1)
    sounds = len(lines) - len(words)
    return replace(cue, text="\n".join(words), sounds=sounds) if sounds else cue


def _joined(cues: Iterator[_Cue], speaker: re.Pattern[str]) -> Iterator[_Cue | LeftOut]:
    """Yields cues with speaker and clean text; joins sentences that continue in the next cue. What
    nobody says is left out."""
    before: _Cue | None = None
    speaking = ""
    for cue in cues:
        yield from [LeftOut(SOUNDS)] * cue.sounds
        text, own, changed = _plain(cue.text), cue.speaker, False
        spoken = speaker.fullmatch(text) if not own else None
        if spoken is not None:
            own, text = named(spoken[1]), spoken[2]
        elif not own and (change := _CHANGE.match(text)):
            # Whoever it is, it is not who spoke before.
            text, speaking, changed = text[change.end() :].strip(), "", True
        if not text:
            continue
        speaking = own or speaking
        if is_sound(text):
            yield LeftOut(SOUNDS)
            continue
        now = _Cue(cue.line, cue.begins, speaking, text)
        if (
            before is not None
            and not changed
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
