"""documents add: texts, files and URLs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from palimpsest.ops.surfaces.command_line import execute
from palimpsest.ops.terminal.common import AsJson, Cli, Key, Scope, Wait, command


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
    from palimpsest.ops.documents.adding import file_fields, is_url, text_fields
    from palimpsest.ops.operations.documents import AddDocument

    settings = cli.settings.documents
    if is_url(source):
        fields = {"url": source, "title": title}
    elif source == "-":
        fields = text_fields(sys.stdin.buffer.read(settings.max_bytes + 1), settings, title=title)
    else:
        fields = file_fields(Path(source), title, settings)
    others = {"is_read": "text" in fields, "scope": scope, "key": key, "wait": wait}
    execute(cli, AddDocument, fields | others, json)
