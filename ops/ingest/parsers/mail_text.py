"""What the sender of a mail wrote: without what it quotes, and without its signature."""

from __future__ import annotations

import re
from typing import Final

_ATTRIBUTION_LINES: Final = 3
"""Most lines of what stands before a quotation: "On 2 March 2026 Ana wrote:"."""
_MOST_ATTRIBUTION: Final = 300
_SIGNATURE_LINES: Final = 10
"""Most lines after two dashes without a space, which may also part two paragraphs."""
_QUOTED: Final = re.compile(r"[ |]{0,3}>")
_RULED: Final = re.compile(r"_{20,200}|-{3,40} ?[^-\n]{3,60} ?-{3,40}")
"""A line before what is quoted whole: "-----Original Message-----", or before a list's footer."""
_HEAD_FIELD: Final = re.compile(
    r"\*?(?P<name>[^\W\d_][\w \u00a0-]{0,20}?) ?:\*?(?:\s.*|$)", re.DOTALL
)
"""A line of the head of a quoted mail."""
_FROM: Final = frozenset(
    """
    from von de da van fra från od от від kimden lähettäjä feladó expéditeur mittente remitente
    afzender avsändare avsender afsender από מאת من 发件人 寄件者 差出人 送信者 보낸사람
    """.split()
)
_MAIL_ADDRESS: Final = re.compile(r"[^\s@<>]@[^\s@<>]")
_TOLD_TIME: Final = re.compile(r"\d[:.h]\d\d|\b(?:19|20)\d\d\b")
_DEVICE: Final = re.compile(
    r"(?<![A-Za-z])(?:iPhone|iPad|Android|Samsung|Galaxy|Huawei|Xiaomi|BlackBerry|Outlook|Yahoo"
    r"|Proton ?Mail|Thunderbird|Windows)(?![A-Za-z])"
)
_SENT: Final = re.compile(
    r"\b(?:sent|get|gesendet|envoyé|envoy[ée]e?|enviado|inviato|verzonden|sendt|skickat|wysłane"
    r"|wysłano|отправлено|gönderildi|lähetetty|odesláno)\b|から送信|发自|發自|에서 보냄",
    re.I,
)
_MOST_SENT: Final = 80


def own_words(text: str) -> tuple[str, list[str]]:
    """Returns what the sender wrote, and the kinds of what is left out."""
    lines = [line.rstrip("\r") for line in text.split("\n")]
    kept: list[str] = []
    left_out: list[str] = []
    is_quoting = False
    for place, line in enumerate(lines):
        if _QUOTED.match(line):
            if not is_quoting:
                _drop_attribution(kept)
                left_out.append("quotations")
            is_quoting = True
            continue
        is_quoting = is_quoting and not line.strip()
        if _is_rest_quoted(lines, place):
            left_out.append("quotations")
            break
        if not is_quoting:
            kept.append(line)
    if _drop_signature(kept):
        left_out.append("signatures")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in kept)).strip(), left_out


def unflowed(text: str) -> str:
    """Returns a text of the form `flowed` with its paragraphs as lines."""
    lines: list[str] = []
    is_open = False
    for line in text.replace("\r\n", "\n").split("\n"):
        goes_on = is_open and not line.startswith(">") and line != "-- "
        plain = line[1:] if line.startswith(" ") else line
        if goes_on:
            lines.append(plain)
        else:
            lines += ["\n", plain] if lines else [plain]
        is_open = line.endswith(" ") and line != "-- " and not line.startswith(">")
    return "".join(lines)


def _drop_attribution(kept: list[str]) -> None:
    """Removes the lines that say who is quoted from the end of what was read."""
    end = len(kept)
    while end and not kept[end - 1].strip():
        end -= 1
    if not end or not kept[end - 1].rstrip().endswith((":", "：")):
        return
    for begin in range(end - 1, max(end - 1 - _ATTRIBUTION_LINES, -1), -1):
        if not kept[begin].strip():
            return
        if _is_attribution(" ".join(kept[begin:end])):
            del kept[begin:]
            return


def _is_attribution(text: str) -> bool:
    """Whether a text says when somebody wrote what follows."""
    return (
        len(text) <= _MOST_ATTRIBUTION
        and text.rstrip().endswith((":", "："))
        and _TOLD_TIME.search(text) is not None
    )


def _is_rest_quoted(lines: list[str], place: int) -> bool:
    """Whether a line begins what is quoted to the end without a mark a line."""
    line = lines[place].strip()
    following = lines[place + 1 : place + 8]
    if _RULED.fullmatch(line):
        return line.startswith("_") or any(
            _HEAD_FIELD.fullmatch(each.strip()) for each in following
        )
    field = _HEAD_FIELD.fullmatch(line)
    if field is not None and field["name"].casefold().replace(" ", "") in _FROM:
        fields = sum(_HEAD_FIELD.fullmatch(each.strip()) is not None for each in following[:4])
        return fields > 1 and _TOLD_TIME.search(" ".join(following)) is not None
    for count in range(1, _ATTRIBUTION_LINES):
        whole = " ".join(lines[place : place + count])
        if _is_attribution(whole) and _MAIL_ADDRESS.search(whole):
            rest = (each for each in lines[place + count : place + count + 8] if each.strip())
            return _QUOTED.match(next(rest, ">")) is None
    return False


def _drop_signature(kept: list[str]) -> bool:
    """Removes the signature from the end, and says whether there was one."""
    for place, line in enumerate(kept):
        if line == "-- " or (line == "--" and len(kept) - place - 1 <= _SIGNATURE_LINES):
            del kept[place:]
            return True
    end = len(kept)
    while end and not kept[end - 1].strip():
        end -= 1
    last = kept[end - 1].strip() if end else ""
    if len(last) <= _MOST_SENT and _DEVICE.search(last) and _SENT.search(last):
        del kept[end - 1 :]
        return True
    return False
