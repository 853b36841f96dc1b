"""The marks around what is printed for a prompt, and a text without what it echoes of that.

A block that `context` printed comes back in the next prompt, in a transcript or in a system
message. What stands between the marks is known already, so no stage reads it as said by the
speaker; the turn itself is stored whole. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

OPEN: Final = "<recalled>"
CLOSE: Final = "</recalled>"
CONTINUED: Final = " " * 6
"""Before each line of an entry but its first: in Markdown a line of the same paragraph, whatever it
begins with."""
_NAME: Final = "recalled"
_LESS: Final = r"(?:[<\uff1c\u2039\u3008]|&(?:amp;)*+(?:lt|#0{0,6}60|#x0{0,6}3c);|\\u003c|%3c)"
_GREATER: Final = r"(?:[>\uff1e\u203a\u3009]|&(?:amp;)*+(?:gt|#0{0,6}62|#x0{0,6}3e);|\\u003e|%3e)"
_MARK: Final = re.compile(
    rf"\\?{_LESS}[ \t]{{0,3}}(\\?/|%2f)?[ \t]{{0,3}}{_NAME}"
    rf"(?:[\s:._-][^<>\n]{{0,40}}?|/)?\\?{_GREATER}",
    re.I,
)
"""Either mark, also with attributes or a version, and as HTML, JSON, a URL or Markdown escape it.
The group holds the sign of the closing one."""
_BREAK: Final = re.compile(r"(?:\\r)?\\n|\r\n?|[\n\v\f\x85\u2028\u2029]|<br\s{0,3}/?>", re.I)
_QUOTED: Final = r"(?:[\s>|]|&gt;)*+"
"""What quoting and indenting put before a line."""
_INDENT: Final = re.compile(_QUOTED)
_HEADING: Final = re.compile(rf"{_QUOTED}(?:#{{1,6}}\s|<h[1-6]\b)", re.I)
_BLOCK_LINE: Final = re.compile(rf"{_QUOTED}(?:[-*\u2022]\s|Summary:\s|<[uo]l\b|<li\b)", re.I)
_BLANK: Final = re.compile(rf"{_QUOTED}$")
_HEADINGS: Final = ("Profil", "Perfil", "This conversation")
"""One of them is in each block whose end can be told without marks."""
_SECTION: Final = re.compile(
    rf"{_QUOTED}(?:#{{2,6}}\s{{1,3}}+(?:\*\*)?|\*\*)(?:(?P<profile>Profil(?:e|o)?|Profiel|Perfil)"
    r"|(?P<session>This conversation)|(?P<day>\d{1,2}\.? (?:de )?[^\W\d_]{3,10} (?:de )?\d{4}))"
    r":?(?:\*\*)?:?\s*$"
)
"""A heading that the block has, or what a program that renders or translates it makes of one."""
_SUMMARY: Final = re.compile(rf"{_QUOTED}Summary: \S")
_SPOKEN_ENTRY: Final = re.compile(rf"{_QUOTED}[-*\u2022]\s[^\s:][^:\n]{{0,60}}: \S")
_OF_ONESELF: Final = re.compile(rf"{_QUOTED}[-*\u2022]\s(?:I|[Mm]y|[Ww]e|[Oo]ur)\b")
_NOTE: Final = re.compile(
    r"\((?:a newer statement waits for review: "
    r"|no longer so(?: since \d{4}-\d\d-\d\d\b|: )"
    r"|no longer: [^;\n]{1,400}; (?:since \d{4}-\d\d-\d\d\b|now: |taken back\))"
    r"|until \d{4}-\d\d-\d\d; over now\b)"
)
"""What an entry has behind its text that no longer holds, or may not."""
_NOTED: Final = ("(a newer statement waits", "(no longer", "over now")
_WORD: Final = re.compile(r"\w")


def marked(text: str) -> str:
    """Returns the block between its marks, a line each; marks inside it are made harmless, so that
    a remembered text cannot end the block."""
    return f"{OPEN}\n{without_marks(text)}\n{CLOSE}"


def without_marks(text: str) -> str:
    """Returns the text, of as many lines, with brackets that are no marks."""
    if not _may_have_marks(text):
        return text

    def harmless(mark: re.Match[str]) -> str:
        # Attributes may stand on the next line.
        return f"[{'/' if mark[1] else ''}{_NAME}]" + "\n" * mark[0].count("\n")

    return _MARK.sub(harmless, text)


def spoken(text: str) -> str:
    """Returns the text without echoed blocks; empty if no word is left, and the text itself if it
    echoes none.

    A block ends with its closing mark. If that is cut off, it ends before the first line that no
    block has; if the opening one is, it begins after the last such line. A single mark without a
    heading or list next to it is only a word, and hides nothing. Of a block without marks see
    `_unmarked`. Of a line with a note on what no longer holds nothing is read up to its end.
    """
    echoes = [*_echoes(text)] if _may_have_marks(text) else []
    if not echoes and any(map(text.__contains__, _HEADINGS)):
        echoes = [*_unmarked(text)]
    echoes = _with_notes(text, echoes)
    parts, done = [], 0
    for start, end in echoes:
        # What quotes a mark's own line is no part of what is said.
        parts.append(text[done:start].rstrip(" \t>|"))
        done = end
    if not done:
        return text
    left = "\n".join((*parts, text[done:].lstrip(" \t>|"))).strip()
    return left if _WORD.search(left) else ""


def _with_notes(text: str, echoes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the echoed places with those of entries that stand alone and have a note: what they
    say is known not to hold, and must not be taken for said anew."""
    if not any(map(text.__contains__, _NOTED)):
        return echoes
    found: list[tuple[int, int]] = []
    alone: list[tuple[int, int]] = []
    entry: int | None = None
    for first, last in _lines(text, 0, len(text)):
        said = text[first:last]
        if entry is None or not _is_continued(said):
            entry = first
        note = _NOTE.search(said)
        if note is not None:
            found.append((entry, first + max(said.rfind(")") + 1, note.end())))
    ends = [end for _, end in echoes]
    for start, end in found:
        place = bisect_right(ends, start)
        if place == len(ends) or echoes[place][0] >= end:
            alone.append((start, end))
    return sorted((*echoes, *alone))


def _may_have_marks(text: str) -> bool:
    return _NAME in text.lower()


def _echoes(text: str) -> Iterator[tuple[int, int]]:
    """The places of the echoed blocks, in order."""
    marks = list(_MARK.finditer(text))
    done = 0
    for number, mark in enumerate(marks):
        following = marks[number + 1] if number + 1 < len(marks) else None
        start, end = mark.span()
        if mark[1]:
            if start < done:
                continue
            start = _begin(text, done, start)
            if start == mark.start():
                continue
        elif following is not None and following[1]:
            end = following.end()
        else:
            before = marks[number - 1].end() if number else 0
            most = len(text) if following is None else following.start()
            end = _end(text, before, mark, most)
        if end > start and end > done:
            yield start, end
            done = end


def _unmarked(text: str) -> Iterator[tuple[int, int]]:
    """The places of blocks of which both marks were taken off. Notes have headings and lists as
    well: a block has what somebody said on a day, and beside it a profile, which speaks of nobody
    as "I", or this conversation. With days alone it cannot be told from minutes."""
    start, end, section = 0, 0, ""
    is_near, is_loose, after_heading = False, False, False
    parts: set[str] = set()
    for first, last in (*_lines(text, 0, len(text)), (len(text), len(text))):
        said = text[first:last]
        heading = _SECTION.match(said)
        is_entry = _BLOCK_LINE.match(said) is not None or _is_continued(said)
        is_blank = _BLANK.match(said) is not None
        is_free = section == "session" and not is_loose
        if heading is not None:
            start, section = start if section else first, heading.lastgroup or ""
            after_heading = True
        elif is_near and (is_entry or (is_free and not is_blank)):
            after_heading = False
            is_summary = section == "session" and _SUMMARY.match(said)
            if section == "profile" or is_summary or _SPOKEN_ENTRY.match(said):
                parts.add("own" if section == "profile" and _OF_ONESELF.match(said) else section)
        elif section and is_blank and last < len(text):
            # Where lines are set apart, there is one behind the heading, too.
            is_loose = is_loose or after_heading
            is_near = is_near and is_loose
            continue
        else:
            if "day" in parts and parts & {"profile", "session"} and "own" not in parts:
                yield start, end
            section, is_near, is_loose = "", False, False
            parts.clear()
            continue
        end, is_near = last, True


def _end(text: str, before: int, mark: re.Match[str], most: int) -> int:
    """Where a block without its closing mark ends, at `most` or earlier; the start of the mark if
    there is no block. `before` is the end of the mark before it."""
    prefix = _prefix(text, before, mark.start())
    end, has_begun, after_gap = mark.start(), False, False
    lines = _lines(text, mark.end(), most)
    for number, (first, last) in enumerate(lines):
        said = text[first:last]
        if _BLANK.match(said) and not (has_begun and _is_continued(said)):
            after_gap = has_begun
            continue
        goes_on = _HEADING.match(said) is not None
        if has_begun and not goes_on:
            # The session's part ends with a line without a sign, before the next heading.
            near = lines[number + 1 : number + 3]
            is_last = any(_HEADING.match(text[one:other]) for one, other in near)
            is_block = _BLOCK_LINE.match(said) is not None or _is_continued(said)
            follows = not after_gap and (is_last or is_block)
            goes_on = follows or bool(prefix and said.startswith(prefix))
        if not goes_on:
            break
        end, has_begun, after_gap = last, True, False
    return end


def _prefix(text: str, before: int, start: int) -> str:
    """What quotes or indents the line on which a mark begins; nothing if that has other text."""
    begin = max(text.rfind("\n", before, start), text.rfind("\r", before, start)) + 1
    if not begin and before:
        return ""
    prefix = text[begin:start]
    return (prefix.rstrip(" ") or prefix) if _BLANK.match(prefix) else ""


def _begin(text: str, least: int, end: int) -> int:
    """Where a block without its opening mark begins; its end if there is no block."""
    start = end
    for first, last in reversed(_lines(text, least, end)):
        said = text[first:last]
        if _HEADING.match(said) or _BLOCK_LINE.match(said):
            start = first
        elif not _BLANK.match(said) and not _is_continued(said):
            break
    return start


def _is_continued(line: str) -> bool:
    """Whether a line goes on with an entry of the block."""
    indent = _INDENT.match(line)
    return indent is not None and CONTINUED in indent.group()


def _lines(text: str, first: int, last: int) -> list[tuple[int, int]]:
    """The places of the lines between two places, in order."""
    places = []
    for each in _BREAK.finditer(text, first, last):
        places.append((first, each.start()))
        first = each.end()
    return [*places, (first, last)]
