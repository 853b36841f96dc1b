"""Splits a document's text that is too large for one record of the log."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from palimpsest.schemas.commands import (
    Actor,
    AddDocumentCommand,
    DocumentTextCommand,
    MemoryCommand,
)
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.topics import MEMORY_COMMANDS
from palimpsest.streams.document_intents import BATCH_CHARACTERS, texts_of
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.runtime.output import published

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
