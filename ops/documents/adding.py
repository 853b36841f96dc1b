"""Builds the command that adds a document from a URL, a text or a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from palimpsest.ops.documents.reading import HTML, NotReadError, read
from palimpsest.ops.documents.settings import DocumentSettings
from palimpsest.schemas.commands import AddDocumentCommand
from palimpsest.streams.document_intents import why_no_address

if TYPE_CHECKING:
    pass

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


def text_document(
    data: bytes,
    settings: DocumentSettings,
    name: str | None = None,
    title: str = "",
    content_type: str | None = None,
    charset: str | None = None,
) -> AddDocumentCommand:
    """Adds a text, or a file called `name`. HTML loses its boilerplate and supplies its own title;
    a file without a title takes its name. Raises NotReadError for data that is not text."""
    if len(data) > settings.max_bytes:
        raise NotReadError(f"it is larger than {settings.max_bytes} bytes (documents.max_bytes)")
    ending = os.path.splitext(name or "")[1].lower()
    kind = content_type or _BY_ENDING.get(ending, PLAIN)
    found = read(data, kind, charset)
    return _command(
        settings,
        kind="text" if name is None else "file",
        source=name,
        title=title or found.title or name or "",
        text=found.text,
        content_type=kind,
    )


def file_document(path: Path, title: str, settings: DocumentSettings) -> AddDocumentCommand:
    """Adds a local file. Raises NotReadError, and OSError if it cannot be read."""
    with path.open("rb") as file:
        data = file.read(settings.max_bytes + 1)
    try:
        return text_document(data, settings, path.name, title)
    except NotReadError as error:
        raise NotReadError(f"{path}: {error}") from None


def read_document(
    text: str | None,
    settings: DocumentSettings,
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


def as_operation(command: AddDocumentCommand) -> dict[str, Any]:
    """Returns the fields of the operation that adds a document whose text is already extracted."""
    if command.kind == "url":
        return {"url": command.source, "title": command.title}
    given = {"text": command.text, "name": command.source, "title": command.title}
    return {**given, "content_type": command.content_type, "is_read": True}


def _command(settings: DocumentSettings, **given: Any) -> AddDocumentCommand:
    for name, most in (("title", 512), ("source", 2_048)):
        if len(given.get(name) or "") > most:
            raise NotReadError(f"the {name} is longer than {most} characters")
    return AddDocumentCommand(
        chunk_characters=settings.chunk_characters, chunk_overlap=settings.chunk_overlap, **given
    )
