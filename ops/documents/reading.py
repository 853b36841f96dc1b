"""Extracts the text of a document from bytes: detects type and charset, removes boilerplate."""

from __future__ import annotations

import codecs
import logging
import re
from dataclasses import dataclass
from typing import Final

from palimpsest.ops.distribution import install_hint
from palimpsest.ops.errors import RequestError

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
class Read:
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


def read(data: bytes, media_type: str, charset: str | None = None) -> Read:
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
    return Read(text, title)


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
