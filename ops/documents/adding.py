"""Builds the command that adds a document from a URL, a text or a file."""

from __future__ import annotations

import codecs
import logging
import os
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from palimpsest.ops.distribution import install_hint
from palimpsest.ops.documents.settings import DocumentSettings
from palimpsest.ops.errors import RequestError
from palimpsest.schemas.commands import AddDocumentCommand, DocumentTextCommand, MemoryCommand
from palimpsest.schemas.envelope import Actor, derived_id
from palimpsest.schemas.topics import MEMORY_COMMANDS
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.normalize import BATCH_CHARACTERS, texts_of, why_no_address
from palimpsest.streams.runtime.output import published

HTML: Final = "text/html"
TAKEN: Final = "text/html, text/*, application/json and application/xml"
_OTHERS: Final = frozenset({"application/json", "application/xml"})
_BINARY: Final = (
    (b"%PDF-", "a PDF; convert it to text first, as with `pdftotext`"),
    (b"PK\x03\x04", "an archive or an office document; save it as text or HTML first"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"GIF8", "a picture"),
    (b"\x1f\x8b", "compressed; unpack it first"),
)
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_META = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]{1,40})""", re.I)
_XML = re.compile(rb"""^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([A-Za-z0-9_:.-]{1,40})""")
_DECLARATION = re.compile(r"^\s*<\?xml[^>]*>")
_SPACE = re.compile(r"\s+")
_LOOKED_AT = 4_096
"""Number of leading bytes searched for a page's charset declaration; browsers search 1,024."""
MOST_TITLE = 512


class NotReadError(RequestError):
    """A document that is refused; the text says why and what to do."""

    code = "not_read"


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The non-empty text of a document, and its own title."""

    text: str
    title: str


def media_type_of(content_type: str) -> str:
    """Returns `text/html` for `text/HTML; charset=utf-8`. Raises NotReadError for an unsupported
    type."""
    found = content_type.partition(";")[0].strip().lower()
    if found.startswith("text/") or found in _OTHERS:
        return found
    if found == "application/pdf":
        raise NotReadError(f"it is {_BINARY[0][1]}")
    told = found or "of no type that is told"
    raise NotReadError(f"it is {told}, and taken are {TAKEN}")


def charset_of(content_type: str) -> str | None:
    """Returns the charset that a content type names, None if it names none."""
    found = re.search(r"charset\s*=\s*[\"']?([^\s;\"']{1,40})", content_type, re.I)
    return None if found is None else found[1]


def read(data: bytes, media_type: str, charset: str | None = None) -> DocumentText:
    """Extracts the text of a document; removes scripts, styles and boilerplate from HTML. Raises
    NotReadError if there is no text."""
    for beginning, what in _BINARY:
        if data.startswith(beginning):
            raise NotReadError(f"it is {what}")
    text = _decoded(data, charset)
    if text.count("\0"):
        raise NotReadError("it is no text: there are zero bytes in it")
    title = ""
    if media_type == HTML:
        text, title = _read_page(text)
    if not text.strip():
        raise NotReadError("there is no text in it")
    return DocumentText(text, title)


def _decoded(data: bytes, charset: str | None) -> str:
    """Decodes by, in order, a byte order mark, the given charset, the document's own declaration
    and UTF-8; else as Windows-1252, which reads any other Western European text."""
    told = [encoding for mark, encoding in _MARKS if data.startswith(mark)][:1]
    told += [charset] if charset else []
    told += [found[1].decode() for found in (_said(_XML, data), _said(_META, data)) if found]
    for encoding in (*told, "utf-8"):
        try:
            return data.decode(encoding)
        except (UnicodeError, LookupError, ValueError):
            continue
    return data.decode("windows-1252", errors="replace")


def _said(pattern: re.Pattern[bytes], data: bytes) -> re.Match[bytes] | None:
    return pattern.search(data[:_LOOKED_AT])


def _read_page(page: str) -> tuple[str, str]:
    """Returns the main text of a page (all of its text if no part stands out) and its title."""
    try:
        from lxml.html import document_fromstring
        from trafilatura import extract, html2txt
    except ImportError:
        raise NotReadError(f"HTML is read with an extra: {install_hint('documents')}") from None
    if not page.strip():
        return "", ""
    # trafilatura logs pages without text; they are already reported here.
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    try:
        # HTML may omit structural tags: the parser adds them.
        tree = document_fromstring(_DECLARATION.sub("", page, count=1))
        title = _SPACE.sub(" ", tree.findtext(".//title") or "").strip()[:MOST_TITLE]
        main = extract(tree, include_comments=False, include_tables=True, favor_recall=True)
        return main or html2txt(tree) or "", title
    except Exception as error:  # parsers raise many types for malformed pages
        raise NotReadError(f"its HTML cannot be read: {type(error).__name__}") from error


PLAIN: Final = "text/plain"
_BY_ENDING: Final = {
    **dict.fromkeys((".html", ".htm", ".xhtml"), HTML),
    **dict.fromkeys((".md", ".markdown"), "text/markdown"),
    ".json": "application/json",
    ".xml": "application/xml",
}


def is_url(source: str) -> bool:
    return source.lower().startswith(("http://", "https://"))


def url_document(url: str, title: str, settings: DocumentSettings) -> AddDocumentCommand:
    """Adds a page that a worker will fetch. Raises NotReadError for an invalid URL."""
    wrong = why_no_address(url)
    if wrong is not None:
        raise NotReadError(wrong.partition(": ")[2])
    return _command(settings, kind="url", source=url, title=title)


def text_fields(
    data: bytes,
    settings: DocumentSettings,
    name: str | None = None,
    title: str = "",
    content_type: str | None = None,
    charset: str | None = None,
) -> dict[str, Any]:
    """Reads a text, or a file called `name`: returns the fields of `AddDocument` for it. HTML loses
    its boilerplate and supplies its own title; a file without a title takes its name. Raises
    NotReadError for data that is not text."""
    if len(data) > settings.max_bytes:
        raise NotReadError(f"it is larger than {settings.max_bytes} bytes (documents.max_bytes)")
    ending = os.path.splitext(name or "")[1].lower()
    kind = content_type or _BY_ENDING.get(ending, PLAIN)
    found = read(data, kind, charset)
    title = title or found.title or name or ""
    return {"text": found.text, "name": name, "title": title, "content_type": kind}


def file_fields(path: Path, title: str, settings: DocumentSettings) -> dict[str, Any]:
    """The same for a local file. Raises NotReadError, and OSError if it cannot be read."""
    with path.open("rb") as file:
        data = file.read(settings.max_bytes + 1)
    try:
        return text_fields(data, settings, path.name, title)
    except NotReadError as error:
        raise NotReadError(f"{path}: {error}") from None


def text_document(
    settings: DocumentSettings,
    text: str | None,
    name: str | None,
    title: str,
    content_type: str | None,
) -> AddDocumentCommand:
    """Adds a text whose markup is already removed. Raises NotReadError."""
    return _command(
        settings,
        kind="text" if name is None else "file",
        source=name,
        title=title,
        text=text,
        content_type=content_type or PLAIN,
    )


def _command(settings: DocumentSettings, **given: Any) -> AddDocumentCommand:
    for name, most in (("title", 512), ("source", 2_048)):
        if len(given.get(name) or "") > most:
            raise NotReadError(f"the {name} is longer than {most} characters")
    return AddDocumentCommand(
        chunk_characters=settings.chunk_characters, chunk_overlap=settings.chunk_overlap, **given
    )


BYTES_A_CHARACTER: Final = 8
"""Maximum bytes of a record per character of text, including its other fields."""


def texts_that_fit(
    document: str, text: str, command: AddDocumentCommand, max_bytes: int, title: str = ""
) -> list[DocumentTextCommand]:
    """Returns the chunks of a text as commands that each fit into a record of `max_bytes`."""
    most = min(BATCH_CHARACTERS, max_bytes // BYTES_A_CHARACTER)
    return texts_of(document, text, command, title, most)


def fitted(
    command: AddDocumentCommand, max_bytes: int
) -> tuple[AddDocumentCommand, list[DocumentTextCommand]]:
    """Returns the command with its text if both fit into a record; else the command without it, and
    the text as commands that follow it, whose document id is still to be set."""
    if command.text is None or len(command.text) * BYTES_A_CHARACTER <= max_bytes:
        return command, []
    texts = texts_that_fit("-", command.text, command, max_bytes)
    if not texts:
        return command.model_copy(update={"text": ""}), []
    told = {"digest": texts[0].digest, "chunks": texts[0].total, "characters": len(command.text)}
    return command.model_copy(update={"text": None, **told}), texts


def text_record(scope: str, text: DocumentTextCommand, at: datetime, actor: Actor) -> Outgoing:
    """Returns a part of a document's text as a record; the same part has the same message id."""
    identity = (text.document_id, text.digest or "", text.first, text.error or "")
    command_id = derived_id("document-text", *identity)
    return published(
        MEMORY_COMMANDS, command_id, scope, at, MemoryCommand(command=text, actor=actor)
    )
