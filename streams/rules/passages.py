"""What of a turn is prose, by its lines: code, tables and others' mail go, lists hold together.

Pure. Works on the text as it was published; where its lines are gone already, the marks of lists
and code fences that are left in it still serve.
"""

from __future__ import annotations

import re
from typing import Final

MIN_WRAPPED_CHARACTERS: Final = 40
"""A line shorter than this was ended on purpose, not by an editor's margin."""

_FENCED: Final = re.compile(r"(?P<fence>```+|~~~+).*?(?:(?P=fence)|\Z)", re.DOTALL)
_CODE: Final = re.compile(
    r"(?:import \w+(?: as \w+|[,;].*)?$|from [\w.]+ import |def \w+\(|class \w+[(:]|@\w+(?:\(|$)"
    r"|#include|#!"
    r"|(?:const|let|var) \w+ ?=|function\b.*\(|(?:public|private|protected) (?:static|class|void)\b"
    r"|SELECT .+ FROM |INSERT INTO |UPDATE \w+ SET |DELETE FROM |CREATE TABLE |\$ \w|>>> "
    r"|diff --git"
    r"|Traceback \(|File \"|at [\w.$]+\(|@@ |[+-]{3} \w|</?[a-z][\w-]*(?: [^<>]*)?>|\w*(?:Error"
    r"|Exception): "
    r"|[a-z_][\w.\[\]]* ?[:+-]?= ?[^= ]|\[\w+ [0-9a-f]{5,}\] |\d+ files? changed|[{}\[\]();]+$"
    r"|(?:\w+\.)*\w+\([^()]*\)+;?$"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S* .*\b(?:DEBUG|INFO|WARN|WARNING|ERROR)\b)"
    r"|.*(?:[{}]|\);|\(\);|=> ?\S+;)$"
)
# Without one of these a line is neither code nor a table; most lines have none.
_SIGNS: Final = frozenset('=(){}[]<>$#@|>"_:+;*')
_KEYWORDS: Final = (
    "import ",
    "from ",
    "SELECT ",
    "INSERT ",
    "UPDATE ",
    "DELETE ",
    "CREATE ",
    "diff ",
)
_MARKS: Final = (*_KEYWORDS, *"-*+#•‣–0123456789 ")
_TABLE: Final = re.compile(r"\|.*\|$|[-=_*|: +]{3,}$")
_ITEM: Final = re.compile(r"(?:[-*+•‣–]|\d{1,2}[.)])\s+(?:\[[ xX]\] )?(?=\S)")
_TASK: Final = re.compile(r"(?:[-*+] )?\[[ xX]\] ")
_HEADING: Final = re.compile(r"#{1,6} ")
_EMPHASIS: Final = re.compile(r"(\*\*|__)(?=\S)([^*_\n]{1,200}?)(?<=\S)\1")
_CLAUSE: Final = re.compile(
    r"(?:I|We|i|we)(?:'\w+)? \w|(?:[Mm]y|[Oo]ur|The|[^\W\d_a-z]\w+)(?: \w+){1,4}? (?:is|are|was"
    r"|were|has|have|had"
    r"|lives?|works?|likes?|loves?|hates?|got|went|moved|stayed|runs?|uses?)\b"
)
_FOLDED_ITEMS: Final = re.compile(r"(?:^|:)\s+?(?:[-*•]|1[.)]) |^(?:[-*•]|1[.)]) ")
_FOLDED_MARK: Final = re.compile(r"\s(?=(?:[-*•]|\d{1,2}[.)]) )")


def passages(text: str) -> list[str]:
    """The paragraphs and list items of `text` that are prose, each on one line, in order.

    Items that are no clauses stand after the line that leads to them: "My allergies: nuts; milk".
    """
    if "```" in text or "~~~" in text:
        text = _FENCED.sub("\n", text)
    if "\n" not in text and _may_list(text) and _FOLDED_ITEMS.search(text):
        text = _FOLDED_MARK.sub("\n", text)
    if "\n" not in text and _SIGNS.isdisjoint(text) and not text.startswith(_MARKS):
        return [text.strip()] if text.strip() else []  # one line of prose, as most turns are
    found: list[str] = []
    lead = False  # whether the last passage still takes items
    wrapped = ""
    for raw in text.split("\n"):
        line = raw.strip()
        item = _ITEM.match(line)
        body = _plain(line[item.end() :] if item else line)
        if not body or _noise(line, body):
            lead, wrapped = False if body else lead, ""
        elif item is not None and lead and _CLAUSE.match(body) is None:
            found[-1] += (" " if found[-1].endswith(":") else "; ") + body
        elif item is None and wrapped and body[0].islower():
            found[-1] += " " + body
        else:
            found.append(body)
            lead = lead if item is not None else body.endswith(":")
        wrapped = line if body and len(line) >= MIN_WRAPPED_CHARACTERS and _open(line) else ""
    return found


def _may_list(text: str) -> bool:
    return "- " in text or "* " in text or "• " in text or "1." in text or "1)" in text


def _plain(line: str) -> str:
    """`line` without the marks of a heading or of emphasis."""
    if line.startswith("#"):
        line = _HEADING.sub("", line)
    return _EMPHASIS.sub(r"\2", line) if "**" in line or "__" in line else line


def _noise(line: str, body: str) -> bool:
    """Whether a line is code, a table's, a task to be ticked off, or quoted from another mail."""
    if _SIGNS.isdisjoint(line) and not line.startswith(_MARKS):
        return False
    if line[0] == ">" or _TASK.match(line) is not None:
        return True
    return _CODE.match(body) is not None or _TABLE.match(line) is not None


def _open(line: str) -> bool:
    return line[-1] not in ".!?:;…。"
