"""Documents in normalize: a command with its text becomes the document and its chunks."""

from __future__ import annotations

import hashlib

from pydantic_core import Url

from palimpsest.schemas.commands import AddDocumentCommand, DocumentTextCommand
from palimpsest.schemas.identity import document_id
from palimpsest.schemas.normal_forms import storage_content
from palimpsest.streams.text.chunks import batches, chunks

BATCH_CHARACTERS = 20_000
"""Of chunks that are stored together, about ten: a record of them and of what became of them is far
smaller than what a log takes, and others' records need not wait long."""


def why_not_added(command: AddDocumentCommand) -> str | None:
    """Why a well-formed command to add a document cannot be executed."""
    if command.chunk_overlap * 2 > command.chunk_characters:
        return "invalid_request: chunk_overlap is more than half of chunk_characters"
    if command.kind == "url":
        return why_no_address(command.source or "")
    if command.text is None and None in (command.digest, command.chunks, command.characters):
        return f"invalid_request: a document of the kind {command.kind} needs its text"
    return None


def why_no_address(url: str) -> str | None:
    """Why nothing is fetched from the address."""
    if not url.lower().startswith(("http://", "https://")):
        return "invalid_request: an address begins with http:// or https://"
    if any(ord(character) <= 32 for character in url):
        return "invalid_request: an address has no spaces in it"
    try:
        parts = Url(url)
    except ValueError as error:
        return f"invalid_request: this is no address: {error}"
    if parts.username is not None or parts.password is not None:
        return "invalid_request: an address may not have a user name or a password in it"
    return None


def why_not_taken(text: DocumentTextCommand) -> str | None:
    """Why these are no chunks of a text."""
    if text.error is not None:
        return None
    if None in (text.digest, text.total, text.characters) or not text.chunks:
        return "invalid_request: a document's text needs digest, total, characters and chunks"
    if text.total is not None and text.first + len(text.chunks) > text.total:
        return f"invalid_request: there are more chunks than the {text.total} in all"
    if any(not storage_content(chunk) for chunk in text.chunks):
        return "invalid_request: a chunk is empty"
    if len(text.chunks) > 1 and sum(map(len, text.chunks)) > BATCH_CHARACTERS:
        return f"invalid_request: chunks of more than {BATCH_CHARACTERS} characters at once"
    return None


def with_text(
    scope: str, command_id: str, command: AddDocumentCommand
) -> tuple[AddDocumentCommand, list[DocumentTextCommand], str | None]:
    """The command without its text, the chunks of that by the batch, and why it is not executed
    after all."""
    if command.text is None:
        return command, [], None
    texts = texts_of(document_id(scope, command_id), command.text, command)
    if not texts:
        return command, [], "invalid_request: the document has no text"
    first = texts[0]
    facts = {"digest": first.digest, "chunks": first.total, "characters": first.characters}
    return command.model_copy(update={"text": None, **facts}), texts, None


def texts_of(
    document: str,
    text: str,
    command: AddDocumentCommand,
    title: str = "",
    batch_characters: int = BATCH_CHARACTERS,
) -> list[DocumentTextCommand]:
    """The chunks of a document's text by the batch; none where there is nothing in it."""
    found = chunks(text, command.chunk_characters, command.chunk_overlap)
    digest = hashlib.sha256("\n".join(found).encode(errors="surrogatepass")).hexdigest()
    return [
        DocumentTextCommand(
            document_id=document,
            digest=digest,
            first=first,
            total=len(found),
            characters=len(text),
            chunks=batch,
            title=title,
            content_type=command.content_type,
        )
        for first, batch in batches(found, batch_characters)
    ]
