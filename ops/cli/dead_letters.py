"""dead-letters: records that could not be processed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, cast

import typer

from palimpsest.ops.cli.common import AsJson, Cli, command, complain, echo, print_json, wrong_use
from palimpsest.ops.cli.options import Rows

BEGINNING = 200
"""Characters of a record that are shown unless all are asked for."""
SHORT = (
    *("id", "status", "stage", "failure", "reason", "scope", "topic", "partition", "offset"),
    *("attempts", "first_failed_at", "last_failed_at", "record_bytes", "redrivable"),
)

DeadLetterId = Annotated[str, typer.Argument(metavar="ID", help="Its id, or the first 8.")]
_Ids = typer.Argument(metavar="ID…", help="Which ones.")
DeadLetterIds = Annotated[list[str], _Ids]
SomeDeadLetterIds = Annotated[list[str] | None, _Ids]


class Status(StrEnum):
    dead = "dead"
    redriven = "redriven"
    dropped = "dropped"
    all = "all"


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Records that could not be processed: look, send again, or discard.",
        no_args_is_help=True,
    )
    command(group, "list", reads=True)(list_)
    command(group, reads=True)(show)
    command(group)(redrive)
    command(group)(discard)
    command(group, hidden=True)(drop)
    app.add_typer(group, name="dead-letters")


def list_(
    cli: Cli,
    status: Annotated[Status, typer.Option(help="Which ones.")] = Status.dead,
    stage: Annotated[str | None, typer.Option(help="Only of this stage.")] = None,
    limit: Rows = 50,
    json: AsJson = False,
) -> None:
    """List dead letters with their reasons, newest first.

    Example: palimpsest dead-letters list
    """
    from palimpsest.ops.queries.requests import DeadLettersRequest

    wanted = None if status is Status.all else status.value
    answer = cast("dict[str, object]", cli.ask(DeadLettersRequest(wanted, stage, limit)))
    if json:
        print_json(answer)
        return
    from palimpsest.ops.cli.tables import print_listed

    names = ("id", "status", "stage", "scope", "topic", "offset", "reason")
    print_listed(names, answer["dead_letters"], "no dead letters")


def show(
    cli: Cli,
    dead_letter_id: DeadLetterId,
    record: Annotated[
        bool, typer.Option("--record", help="Only the record, to be published again.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="All fields, with the whole record.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show a dead letter: why, where, and how its record begins; --full and --json show all of it.

    Example: palimpsest dead-letters show 5b1f22aa
    """
    from palimpsest.ops.queries.requests import DeadLetterRequest

    answer = cast("dict[str, object]", cli.ask(DeadLetterRequest(dead_letter_id)))
    if record:
        echo(str(answer["record"]))
    elif json:
        print_json(answer)
    else:
        from palimpsest.ops.cli.tables import print_memory

        print_memory(answer if full else in_short(answer))


def in_short(row: dict[str, object]) -> dict[str, object]:
    """The most important fields of a dead letter, without the empty ones."""
    record = " ".join(str(row["record"]).split())
    begins = record if len(record) <= BEGINNING else f"{record[:BEGINNING]}… (--full shows all)"
    short = {name: row[name] for name in SHORT if row.get(name) not in (None, "", [])}
    return {**short, "record": begins}


def redrive(
    cli: Cli,
    dead_letter_ids: SomeDeadLetterIds = None,
    all_: Annotated[bool, typer.Option("--all", help="All that are dead.")] = False,
    json: AsJson = False,
) -> None:
    """Send the records again, to where they were; `palimpsest run` then processes them.

    Example: palimpsest dead-letters redrive --all
    """
    from palimpsest.ops.queries.requests import RedriveRequest

    if bool(dead_letter_ids) == all_:
        raise wrong_use("name the dead letters, or say --all")
    answer = cast("dict[str, list[object]]", cli.ask(RedriveRequest(tuple(dead_letter_ids or ()))))
    if json:
        print_json(answer)
    else:
        echo(f"{len(answer['redriven'])} sent again")
        for refused in cast("list[dict[str, str]]", answer["refused"]):
            complain(f"{refused['id']} cannot be redriven: {refused['reason']}")
    if answer["refused"]:
        raise typer.Exit(1)


def discard(cli: Cli, dead_letter_ids: DeadLetterIds, json: AsJson = False) -> None:
    """Discard dead letters for good; what they held stays counted as dead.

    Example: palimpsest dead-letters discard 5b1f22aa
    """
    _discard(cli, dead_letter_ids, json, "discarded")


def drop(cli: Cli, dead_letter_ids: DeadLetterIds, json: AsJson = False) -> None:
    """The former name of `dead-letters discard`; its answer keeps the former word, too.

    Example: palimpsest dead-letters drop 5b1f22aa
    """
    _discard(cli, dead_letter_ids, json, "dropped")


def _discard(cli: Cli, dead_letter_ids: list[str], as_json: bool, done: str) -> None:
    from palimpsest.ops.queries.requests import DiscardRequest

    answer = cast("dict[str, list[object]]", cli.ask(DiscardRequest(tuple(dead_letter_ids))))
    if as_json:
        print_json({done: answer["discarded"]})
    else:
        echo(f"{len(answer['discarded'])} {done}")
