"""Transcripts without times: lines as "Ana: Hello", each with the lines that continue it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from palimpsest.ops.ingest.parsers.base import (
    Document,
    Item,
    Keys,
    LeftOut,
    ReadOptions,
    Unreadable,
    Utterance,
    named,
    said,
)

_SAID: Final = re.compile(
    r"(?P<time>[\[(]\d{1,2}:\d[\d:., APMapm]{1,12}[\])] ?)?(?P<bold>\*\*)?"
    r"(?P<name>[^\W\d_][^:：*\n\t]{0,59}|\+\d[\d ]{5,18})"
    r"(?(bold)(?:\*\*[:：]|[:：]\*\*)|[:：])(?:\s|(?<=：)|$)(?P<text>.*)"
)
"""A line that somebody begins to say; French has a space before the colon."""
_MOST_WORDS: Final = 6
"""Of a name."""
_LOOKED_AT: Final = 5_000
"""Number of lines by which a transcript is recognised."""
_LEAST_SHARE: Final = 0.25
"""Of the lines, or of the paragraphs, that begin with a name."""
_LEAST_OF_LONG: Final = 0.03
"""The same where two names are there again: what people say may have many lines."""
_FIELDS: Final = frozenset(
    """
    attendees author bcc cc commit content-type date description duration email file from host
    language location meeting message-id name notes participants place phone project re received
    recording reply-to sent source status subject tags time title to topic type url version when
    author-email classifier copyright depends download-url files home-page keywords license
    license-expression license-file maintainer maintainer-email metadata-version package platform
    priority project-url provides-extra requires-dist requires-python section summary upstream-name
    where anwesende betreff datum dauer ort teilnehmer thema titel uhrzeit von an zeit
    asunto asistentes duración fecha hora lugar participantes tema título assunto data duração
    horário local tempo titolo argomento partecipanti luogo oggetto durata objet sujet lieu titre
    heure durée deelnemers onderwerp plaats temat uczestnicy miejsce czas konu tarih saat
    дата время тема участники место название 日期 时间 主题 参会人 地点 日時 件名 参加者 場所
    """.split()
)
"""What stands before a colon in the head of a transcript, of a mail and of other files."""
_MARKS: Final = frozenset(
    """
    critical debug error fatal hint info notice todo trace warn warning fixme
    note remember reminder ps p.s update edit important example agenda action actions decision
    decisions summary next first second third also but and so then yes no ok because plus
    hinweis wichtig nachtrag beispiel ergänzung nota importante ejemplo exemple exemplo remarque
    uwaga важно например p.s. ps. п.с зы 注 例 備考
    """.split()
)
"""What stands before a colon in a program's log, in code, and in what people say."""


@dataclass(slots=True)
class _Line:
    """A line, by its number; with `name` if it begins with what may be one, and the words after
    it."""

    number: int
    text: str
    is_first: bool
    """Whether it begins a paragraph."""
    name: str = ""
    words: str = ""
    has_time: bool = False


@dataclass(slots=True)
class _Turn:
    number: int
    speaker: str
    lines: list[str]


def is_dialogue(text: str) -> bool:
    """Whether several people speak in a text, one of them more than once."""
    lines = _lines("\n".join(text.split("\n", _LOOKED_AT)[:_LOOKED_AT]))
    counts = _counts(lines)
    if len(counts) < 2 or max(counts.values()) < 2:
        return False
    spoken = [line for line in lines if line.name in counts]
    paragraphs = [line for line in lines if line.is_first]
    begun = sum(line.name in counts for line in paragraphs)
    often = sum(counts[name] > 1 and _is_like_a_name(name) for name in counts)
    least = _LEAST_SHARE if often < 2 else _LEAST_OF_LONG
    return len(spoken) >= least * len(lines) or begun > len(paragraphs) / 2


def read_dialogue(document: Document, options: ReadOptions) -> Iterator[Item]:
    """Yields what is said, in order, without times. Raises Unreadable if no line begins with a
    name."""
    lines = _lines(document.text)
    speakers = _speakers(lines)
    if not any(line.name in speakers for line in lines):
        raise Unreadable(
            "no transcript: no line with a time (00:01:02,000 --> 00:01:04,000), none as"
            ' "Ana: Hello"'
        )
    yield from said(_found(document, lines, speakers, options))


def _found(
    document: Document, lines: list[_Line], speakers: set[str], options: ReadOptions
) -> Iterator[Item | LeftOut]:
    session = options.session or document.stem
    keys = Keys("captions", session)
    for turn in _turns(lines, speakers):
        if isinstance(turn, LeftOut):
            yield turn
            continue
        text = "\n".join(turn.lines).strip()
        if not text:
            yield LeftOut("lines without words")
            continue
        naming = keys.of_content("", turn.speaker, text, told="", is_dated=False)
        yield Utterance(
            place=f"{document.name}:{turn.number}",
            key=naming.key_as(session),
            naming=naming.fixed() if options.session else naming,
            text=text,
            at=None,
            session=session[:256],
            speaker=turn.speaker,
        )


def _turns(lines: list[_Line], speakers: set[str]) -> Iterator[_Turn | LeftOut]:
    turn: _Turn | None = None
    for line in lines:
        if line.name in speakers:
            if turn is not None:
                yield turn
            turn = _Turn(line.number, line.name, [line.words])
            if line.has_time:
                yield LeftOut("times before a name")
        elif turn is None:
            yield LeftOut("lines before the first speaker")
        else:
            turn.lines += ["", line.text] if line.is_first else [line.text]
    if turn is not None:
        yield turn


def _lines(text: str) -> list[_Line]:
    """Returns the lines with words; the text of one with a name is what follows it."""
    found = []
    is_first = True
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = raw.rstrip()
        if line:
            match = _SAID.fullmatch(line)
            name = named(match["name"]) if match else ""
            found.append(_Line(number, line, is_first))
            if match is not None and _is_name(name):
                told = bool(match["time"])
                found[-1] = _Line(number, line, is_first, name, match["text"], told)
        is_first = not line
    return found


def _is_name(name: str) -> bool:
    return len(name.split()) <= _MOST_WORDS and name.casefold() not in _FIELDS | _MARKS


def _counts(lines: list[_Line]) -> Counter[str]:
    return Counter(line.name for line in lines if line.name)


def _speakers(lines: list[_Line]) -> set[str]:
    """Returns the names that are those of speakers. What stands before a colon once only may be
    part of what somebody says: it is a name where all lines, or all paragraphs, begin with one, or
    else if it looks like one and stands where those of the others do."""
    counts = _counts(lines)
    often = {name for name, count in counts.items() if count > 1}
    begins = next((place for place, line in enumerate(lines) if line.name), 0)
    spoken = lines[begins:]
    by_paragraph = all(line.is_first for line in spoken if line.name in often)
    alone = not any(line.words.strip() for line in spoken if line.name in often)
    units = [line for line in spoken if line.is_first or not by_paragraph]
    if not often or all(line.name for line in units):
        return set(counts)
    return often | {
        line.name
        for line in units
        if _is_like_a_name(line.name) and (alone != bool(line.words) or " " in line.name)
    }


def _is_like_a_name(name: str) -> bool:
    """Whether each word of a text begins with a capital, a digit, or a character of a script
    without capitals."""
    words = name.split()
    return bool(words) and not any(word[0].islower() for word in words)
