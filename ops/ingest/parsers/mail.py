"""Mail: an mbox, as Thunderbird, Apple Mail and Google Takeout write it, or single mails (.eml).

A mail is known by its Message-ID; a session is a thread, which has the id of its first mail.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email import message_from_bytes
from email.errors import MessageError
from email.header import decode_header
from email.message import Message
from email.utils import parseaddr, parsedate_to_datetime
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import JsonValue

from palimpsest.ops.ingest.parsers.base import (
    Bad,
    Item,
    Keys,
    LeftOut,
    Naming,
    Note,
    ReadOptions,
    Unreadable,
    Utterance,
    named,
    said,
    with_offset,
)
from palimpsest.ops.ingest.parsers.mail_text import own_words, unflowed
from palimpsest.ops.ingest.parsers.markup import text_of_html
from palimpsest.schemas.envelope import derived_id
from palimpsest.streams.text.counts import counted

HEAD_BYTES: Final = 64 * 1024
"""Of a file, by which it is recognised as mail."""
MOST_HEADER: Final = 2_000
"""Characters of a header that are read."""
MOST_REFERENCES: Final = 20_000
MOST_DEPTH: Final = 20
"""How deeply parts may lie in parts."""
_FROM_LINE: Final = re.compile(rb"^From [^\r\n]{0,300}", re.MULTILINE)
_POSTMARK: Final = re.compile(
    rb"From [^\r\n]{0,200}?(?P<date>(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[ ,]+[A-Z0-9][^\r\n]{0,60}?"
    rb"\d\d:\d\d[^\r\n]{0,20}\d{4}[^\r\n]{0,10})[ \t]*"
)
_HEADER_NAME: Final = re.compile(rb"[!-9;-~]{1,200}:")
_ESCAPED: Final = re.compile(rb"^>(>*From )", re.MULTILINE)
_EMPTY_LINE: Final = re.compile(rb"\r?\n[ \t]{0,8}\r?\n")
_MESSAGE_ID: Final = re.compile(r"<([^<>\s]{1,900})>")
_BETWEEN_WORDS: Final = re.compile(r"(\?=)\s+(?==\?)")
_REPLIED: Final = re.compile(r"(?:[A-Za-z]{2,5}|回复|答复|转发|返信)(?:\[\d{1,3}\])?\s?[:：]\s*")
_MALFORMED: Final = (
    *(MessageError, ValueError, LookupError, TypeError, AttributeError, RecursionError),
)
"""What the parser raises for mail that is none."""
_NOT_TEXTS: Final = frozenset({"idna", "punycode", "raw-unicode-escape", "unicode-escape", "utf-7"})
_TEXTS: Final = ("text/plain", "text/html")

File: TypeAlias = tuple[str, Callable[[], bytes]]
"""A file of mail: its name for users, and what reads it."""


@dataclass(slots=True)
class _Mail:
    """A mail as it is said, with the ids of those before it in its thread, the first one first."""

    said: Utterance
    own: str
    before: list[str]


def is_mail_file(name: str) -> bool:
    """Whether a file is called as those of mail are."""
    return f"/{name.lower()}".endswith((".mbox", ".eml", "/mbox"))


def is_mail(data: bytes) -> bool:
    """Whether a file begins like an mbox or a mail."""
    head = _begun(data[:HEAD_BYTES])
    if head.startswith(b"From "):
        line, _, rest = head.partition(b"\n")
        return _POSTMARK.match(line) is not None or _HEADER_NAME.match(rest) is not None
    fields = _fields(_EMPTY_LINE.split(head, maxsplit=1)[0])
    return b"from" in fields and bool(fields & {b"date", b"message-id", b"subject", b"received"})


def read_mail(name: str, files: Sequence[File], options: ReadOptions) -> Iterator[Item]:
    """Yields the mails of files, by their dates. Raises Unreadable if none of them has one."""
    found = list(_mails(files, options))
    if not any(isinstance(each, _Mail | Bad) for each in found):
        raise Unreadable(f"no mail in {name}: no line as `From: Ana <ana@example.org>`")
    mails = [each for each in found if isinstance(each, _Mail)]
    others = [each for each in found if not isinstance(each, _Mail)]
    in_html = sum(isinstance(each, LeftOut) and each.kind == _IN_HTML for each in others)
    yield from said(_threads(mails, others, options))
    if in_html:
        yield Note(f"{counted(in_html, 'mails')} in HTML only: its text is taken")


_IN_HTML: Final = "mails in HTML"


def _threads(
    mails: list[_Mail], others: Sequence[Bad | LeftOut], options: ReadOptions
) -> Iterator[Item | LeftOut]:
    """Yields the mails by their dates, each in the session of its thread, and what is not taken. A
    mail without a date follows the one before it."""
    known: dict[str, tuple[str, datetime | None]] = {}
    sessions: dict[str, str] = {}
    for mail in _in_order(mails):
        at, own = mail.said.at, mail.own
        if known.get(own) == (mail.said.speaker, at):
            yield LeftOut("repeated mails")
            continue
        key = mail.said.key
        if own in known:  # another mail with the same id
            key = derived_id(key, mail.said.speaker, str(at))
        known.setdefault(own, (mail.said.speaker, at))
        parents = [*mail.before, own]
        session = next((sessions[each] for each in parents if each in sessions), parents[0])
        sessions.setdefault(own, session)
        naming = Naming(
            "",
            lambda _, key=key: key,  # type: ignore[misc]
            is_dated=False,
            root_as=_root_as(mail.before),
        )
        yield replace(mail.said, key=key, session=options.session or session[:256], naming=naming)
    yield from (each for each in others if not isinstance(each, LeftOut) or each.kind != _IN_HTML)


def _root_as(before: list[str]) -> Callable[[str], str] | None:
    if not before:
        return None
    answered = _key(before[-1])
    return lambda _: answered


def _in_order(mails: list[_Mail]) -> list[_Mail]:
    last = datetime.min.replace(tzinfo=UTC)
    dated = []
    for mail in mails:
        last = mail.said.at or last
        dated.append((last, mail))
    return [mail for _, mail in sorted(dated, key=lambda each: each[0])]


def _key(own: str) -> str:
    key = f"mail:{own}"
    return key if len(key) <= 256 else derived_id("mail", own)


def _mails(files: Sequence[File], options: ReadOptions) -> Iterator[_Mail | Bad | LeftOut]:
    keys = Keys("mail")
    for name, read in files:
        try:
            data = read()
        except Unreadable as error:
            yield Bad(name, str(error))
            continue
        for number, (postmark, raw) in enumerate(_split(data)):
            place = f"{name}[{number}]"
            try:
                yield from _mail(place, postmark, raw, keys, options)
            except _MALFORMED:
                yield Bad(place, "a mail with headers or parts that cannot be read")


def _split(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the mails of a file, each with the line before it. A line of a text may begin with
    "From " too."""
    data = _begun(data)
    starts = [match for match in _FROM_LINE.finditer(data) if _is_start(data, match)]
    begins = starts[0].start() if starts else len(data)
    if data[:begins].strip():
        yield b"", data[:begins]
    ends = [match.start() for match in starts[1:]] + [len(data)] * bool(starts)
    for match, end in zip(starts, ends, strict=True):
        raw = data[match.end() : end]
        yield match[0], _ESCAPED.sub(rb"\1", raw.lstrip(b"\r\n"))


def _is_start(data: bytes, match: re.Match[bytes]) -> bool:
    """Whether a line that begins with "From " begins a mail: it has a date, and stands after a
    blank line or before headers; or both, and a number of four digits."""
    begin, end = match.span()
    before = data[max(begin - 4, 0) : begin].replace(b"\r", b"")
    is_apart = begin == 0 or before.endswith(b"\n\n")
    following = data[end : end + 220].lstrip(b"\r\n")
    is_headed = _HEADER_NAME.match(following) is not None
    if _POSTMARK.fullmatch(match[0]):
        return is_apart or is_headed
    return is_apart and is_headed and (begin == 0 or re.search(rb"\d{4}", match[0]) is not None)


def _begun(data: bytes) -> bytes:
    """Returns a file without what may stand before the first mail."""
    return data.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")


def _fields(head: bytes) -> set[bytes]:
    """Returns the names of the headers."""
    lines = head.split(b"\n")
    return {line.partition(b":")[0].lower() for line in lines if _HEADER_NAME.match(line)}


def _mail(
    place: str, postmark: bytes, raw: bytes, keys: Keys, options: ReadOptions
) -> Iterator[_Mail | Bad | LeftOut]:
    parts = _EMPTY_LINE.split(raw, maxsplit=1)
    lines = parts[0].split(b"\n")
    sound = [line for line in lines if line[:1] in (b" ", b"\t") or _HEADER_NAME.match(line)]
    yield from [LeftOut("headers that cannot be read")] * (len(lines) - len(sound))
    if not any(_HEADER_NAME.match(line) for line in sound):
        yield Bad(place, "a mail without headers")
        return
    body = parts[1] if len(parts) > 1 else b""
    head = b"\n".join(line.rstrip(b"\r") for line in sound).lstrip(b" \t")
    message = message_from_bytes(head + b"\n\n" + body)
    headers = _headers(message)
    text, left_out = _words(message)
    words, quoted = own_words(text)
    left_out += quoted
    before = _references(headers)
    subject = named(_plain_header(headers.get("subject", "")))
    if not before and not _REPLIED.match(subject):
        words = f"{subject}\n\n{words}".strip()
    yield from map(LeftOut, left_out)
    if not words:
        yield LeftOut("mails without words of their own")
        return
    at, unread = _date(headers, postmark, options.zone)
    speaker = _speaker(headers)
    own = next(iter(_MESSAGE_ID.findall(headers.get("message-id", ""))), "") or named(
        headers.get("message-id", "")
    )
    own = own or keys.key(speaker, str(at), subject, words)
    metadata: dict[str, JsonValue] = {"subject": subject} if subject else {}
    yield _Mail(
        Utterance(
            place=place,
            key=_key(own),
            text=words,
            at=at,
            session="",
            speaker=speaker,
            source_id=own[:256],
            metadata=metadata,
            unread=unread,
        ),
        own,
        [each for each in before if each != own],
    )


def _headers(message: Message) -> dict[str, str]:
    """Returns the first header of each name, in lower case, as a line."""
    found: dict[str, str] = {}
    for name, value in message.raw_items():
        data = str(value).encode("utf-8", "surrogateescape")
        most = MOST_REFERENCES if name.lower() == "references" else MOST_HEADER
        found.setdefault(name.lower(), " ".join(_decoded(data, None).split())[:most])
    return found


def _plain_header(value: str) -> str:
    """Returns a header with its encoded words decoded; as it is written if they are damaged."""
    try:
        parts = decode_header(_BETWEEN_WORDS.sub(r"\1", value))
        return "".join(
            part if isinstance(part, str) else _decoded(part, charset) for part, charset in parts
        )
    except _MALFORMED:
        return value


def _speaker(headers: dict[str, str]) -> str:
    value = headers.get("from") or headers.get("sender") or headers.get("reply-to") or ""
    name, address = parseaddr(value)
    return named(_plain_header(name)) or named(address) or named(_plain_header(value))


def _references(headers: dict[str, str]) -> list[str]:
    """Returns the ids of the mails before one in its thread, the first one first; the last one is
    the mail that it answers."""
    references = _MESSAGE_ID.findall(headers.get("references", ""))
    answered = _MESSAGE_ID.findall(headers.get("in-reply-to", ""))[:1]
    return [*(each for each in references if each not in answered), *answered]


def _date(headers: dict[str, str], postmark: bytes, zone: ZoneInfo) -> tuple[datetime | None, str]:
    """Returns when a mail was sent, else when it arrived; and its date if it cannot be read and
    nothing else tells it."""
    told = headers.get("date", "")
    arrived = headers.get("received", "").rpartition(";")[2]
    match = _POSTMARK.match(postmark)
    marked = match["date"].decode("ascii", "replace") if match else ""
    for value in (told, arrived, marked):
        try:
            at = with_offset(parsedate_to_datetime(value), zone) if value.strip() else None
        except (ValueError, TypeError, IndexError, OverflowError):
            at = None
        if at is not None:
            return at, ""
    return None, told


def _words(message: Message) -> tuple[str, list[str]]:
    """Returns the text of a mail, and the kinds of what is left out of it."""
    texts, left_out = _parts(message, 0)
    plain = [text for form, text in texts if form == "text/plain"]
    if texts and not plain:
        left_out.append(_IN_HTML)
    return "\n".join(text for _, text in texts), left_out


def _parts(part: Message, depth: int) -> tuple[list[tuple[str, str]], list[str]]:
    """Returns the texts of a part with their types; of alternatives the plain one."""
    form = part.get_content_type()
    if depth and (part.get_content_disposition() == "attachment" or part.get_filename()):
        return [], ["attachments"]
    payload = part.get_payload()
    if form == "message/rfc822":
        return [], ["attached mails"]
    if isinstance(payload, list) and form.startswith("multipart/"):
        texts: list[tuple[str, str]] = []
        left_out: list[str] = []
        for each in payload if depth < MOST_DEPTH else []:
            inner, others = _parts(each, depth + 1) if isinstance(each, Message) else ([], [])
            texts += inner
            left_out += others
        if form == "multipart/alternative" and any(each[0] == "text/plain" for each in texts):
            texts = [each for each in texts if each[0] == "text/plain"]
        return texts, left_out
    if form not in _TEXTS:
        kind = "attachments" if form == "application/pgp-signature" else f"parts of type {form}"
        return [], [kind]
    data = part.get_payload(decode=True)
    text = _decoded(data if isinstance(data, bytes) else b"", part.get_content_charset())
    if form == "text/html":
        text, left_out = text_of_html(text)
        return ([(form, text)] if text else []), left_out
    if str(part.get_param("format", "")).lower() == "flowed":
        text = unflowed(text)
    return ([(form, text)] if text.strip() else []), []


def _decoded(data: bytes, charset: str | None) -> str:
    """Decodes by the given charset, else as UTF-8, else as Windows-1252, without NULs."""
    for name in (charset, "utf-8"):
        try:
            if name and codecs.lookup(name).name.replace("_", "-") not in _NOT_TEXTS:
                return data.decode(name).replace("\0", "").replace("\r\n", "\n")
        except (UnicodeError, LookupError, ValueError):
            continue
    return data.decode("windows-1252", "replace").replace("\0", "").replace("\r\n", "\n")
