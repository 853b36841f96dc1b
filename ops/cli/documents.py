"""documents add: texts, files and URLs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from palimpsest.ops.cli.common import AsJson, Cli, Key, Scope, Wait, command
from palimpsest.ops.surfaces.command_line import execute

if TYPE_CHECKING:
    from palimpsest.ops.documents.settings import DocumentSettings
    from palimpsest.schemas.commands import AddDocumentCommand


def register(group: typer.Typer) -> None:
    command(group)(add)


def add(
    cli: Cli,
    source: Annotated[
        str, typer.Argument(metavar="FILE|URL|-", help="A file, a URL, or - for standard input.")
    ],
    scope: Scope = "default",
    title: Annotated[
        str, typer.Option(help="Its title; by default that of the content, else its name.")
    ] = "",
    key: Key = None,
    wait: Wait = None,
    json: AsJson = False,
) -> None:
    """Add a document: its chunks become memories. The worker fetches a URL.

    Example: palimpsest documents add manual.html --scope support --title "The manual"
    """
    from palimpsest.ops.documents.adding import as_operation
    from palimpsest.ops.operations.documents import AddDocument

    fields = as_operation(_read(source, title, cli.settings.documents))
    execute(cli, AddDocument, {**fields, "scope": scope, "key": key, "wait": wait}, json)


def _read(source: str, title: str, settings: DocumentSettings) -> AddDocumentCommand:
    from palimpsest.ops.documents.adding import (
        file_document,
        is_url,
        text_document,
        url_document,
    )

    if source == "-":
        data = sys.stdin.buffer.read(settings.max_bytes + 1)
        return text_document(data, settings, title=title)
    if is_url(source):
        return url_document(source, title, settings)
    return file_document(Path(source), title, settings)
