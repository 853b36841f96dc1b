"""documents: adding texts, files and URLs, and what became of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from palimpsest.ops.cli.command_results import carry_out_and_tell
from palimpsest.ops.cli.common import AsJson, Cli, command, echo, print_json, wrong_use
from palimpsest.ops.cli.options import Key, OfScope, Reason, Wait

if TYPE_CHECKING:
    from palimpsest.ops.documents.settings import DocumentSettings
    from palimpsest.schemas.document_commands import AddDocumentCommand

DocumentId = Annotated[
    str, typer.Argument(metavar="ID", help="A document's id, or its first 8 characters.")
]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Documents: add texts, files and URLs, list, show and delete them.",
        no_args_is_help=True,
    )
    command(group)(add)
    command(group, "list", reads=True)(list_)
    command(group, reads=True)(show)
    command(group)(delete)
    app.add_typer(group, name="documents")


def add(
    cli: Cli,
    source: Annotated[
        str, typer.Argument(metavar="FILE|URL|-", help="A file, a URL, or - for standard input.")
    ],
    scope: Annotated[str, typer.Option("--scope", "-s", help="The memory space.")],
    title: Annotated[str, typer.Option(help="Its title; else its own, or its name.")] = "",
    key: Key = None,
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Add a document: its chunks are memories, which recall finds. A worker fetches a URL.

    Example: palimpsest documents add manual.html --scope support --title "The manual"
    """
    if not scope.strip():
        raise wrong_use("the scope is empty")
    order = _given(source, title, cli.settings.documents)
    carry_out_and_tell(cli, scope, order, wait, json, key)


def _given(source: str, title: str, settings: DocumentSettings) -> AddDocumentCommand:
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


def list_(
    cli: Cli,
    scope: OfScope = None,
    status: Annotated[
        str | None, typer.Option(help="Only of this status, as queued, done or failed.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Documents on a page.")] = 20,
    before: Annotated[
        str | None, typer.Option(help="The page after the one whose `next` this is.")
    ] = None,
    json: AsJson = False,
) -> None:
    """List documents, newest first, with how far each has come.

    Example: palimpsest documents list --scope support --status failed
    """
    from palimpsest.ops.queries.requests import DocumentsRequest

    answer = cast("dict[str, object]", cli.ask(DocumentsRequest(scope, status, limit, before)))
    if json:
        print_json(answer)
        return
    from palimpsest.ops.cli.tables import print_listed

    names = ("id", "status", "scope", "kind", "title", "chunks", "created_at", "error")
    print_listed(names, answer["documents"], "there are no documents")
    if answer["next"] is not None:
        echo(f"\nmore: --before '{answer['next']}'")


def show(cli: Cli, document_id: DocumentId, json: AsJson = False) -> None:
    """Show one document with how far it has come, also a deleted one.

    Example: palimpsest documents show 7f21c3d0
    """
    answer = _found(cli, document_id)
    if json:
        print_json(answer)
        return
    for name, value in answer.items():
        echo(f"{name:13} {'' if value is None else value}")


def delete(
    cli: Cli,
    document_id: DocumentId,
    reason: Reason = "deleted by hand",
    key: Key = None,
    wait: Wait = 5.0,
    json: AsJson = False,
) -> None:
    """Forget a document with its chunks, but those that are pinned or confirmed.

    Example: palimpsest documents delete 7f21c3d0 --reason "outdated"
    """
    from palimpsest.schemas.document_commands import DeleteDocumentCommand

    if not reason.strip():
        raise wrong_use("the reason is empty")
    found = _found(cli, document_id)
    order = DeleteDocumentCommand(document_id=str(found["id"]), reason=reason)
    carry_out_and_tell(cli, str(found["scope"]), order, wait, json, key)


def _found(cli: Cli, document_id: str) -> dict[str, object]:
    from palimpsest.ops.queries.requests import DocumentRequest

    return cast("dict[str, object]", cli.ask(DocumentRequest(document_id)))
