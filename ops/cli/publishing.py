"""ingest: publish turns from files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ops.cli.common import AsJson, Cli, command, complain, on_terminal, print_json, wrong_use

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from ops.ingest import Bad, Reading
    from streams.logs.base import Outgoing

MAX_TOLD = 100
"""Bad lines told one by one; the rest is counted."""


class Format(StrEnum):
    turns = "turns"
    locomo = "locomo"


def register(app: typer.Typer) -> None:
    command(app)(ingest)


def ingest(
    cli: Cli,
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Files; - is stdin.")],
    format: Annotated[Format, typer.Option(help="turns: a JSON object a line.")] = Format.turns,  # noqa: A002
    scope: Annotated[
        str | None,
        typer.Option(help="The memory space; else the line's own, or the LoCoMo file's name."),
    ] = None,
    captions: Annotated[
        bool, typer.Option("--captions", help="LoCoMo: append captions of images to the text.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Publish conversation turns from files to the log.

    Turns are durable when the command ends; `palimpsest run` makes memories of them. A bad line
    is told with its number and the rest goes on. Publishing a file again doubles nothing.

    Example: palimpsest ingest conversation.jsonl --scope support
    """
    from ops.bootstrap import publisher, utc_now
    from ops.ingest import Reading, in_batches

    settings = cli.settings
    if scope is not None and not scope.strip():
        raise wrong_use("--scope is empty; name the memory space that the turns belong to")
    if scope is not None and len(scope) > 256:
        raise wrong_use("--scope is longer than 256 characters")
    missing = [name for name in files if name != "-" and not Path(name).is_file()]
    if missing:
        raise wrong_use(f"there is no file {', '.join(missing)}")
    reading = Reading(scope, settings.log.max_record_bytes, utc_now(), captions)
    tally = Tally()
    with publisher(settings) as append, shown_progress(files) as progress:
        for batch in in_batches(tally.good(_items(files, format, reading, progress))):
            append(batch)
            tally.published += len(batch)
    tally.tell(json)


class Tally:
    """What was published and what was not."""

    def __init__(self) -> None:
        self.published = 0
        self.bad: list[Bad] = []
        self.scopes: Counter[str] = Counter()

    def good(self, items: Iterator[Outgoing | Bad]) -> Iterator[Outgoing]:
        from ops.ingest import Bad

        for item in items:
            if isinstance(item, Bad):
                self.bad.append(item)
                if len(self.bad) <= MAX_TOLD:
                    complain(f"{item.place}: {item.reason}")
            else:
                self.scopes[item.scope] += 1
                yield item

    def tell(self, as_json: bool) -> None:
        if len(self.bad) > MAX_TOLD:
            complain(f"… and {len(self.bad) - MAX_TOLD} more bad lines")
        if as_json:
            told = [{"place": bad.place, "reason": bad.reason} for bad in self.bad]
            print_json({"published": self.published, "bad": told, "scopes": dict(self.scopes)})
        else:
            scopes = ", ".join(f"{scope} ({count})" for scope, count in self.scopes.items())
            into = f" into {scopes}" if scopes else ""
            typer.echo(f"{self.published} turns published{into}, {len(self.bad)} bad")
        if self.bad:
            raise typer.Exit(1)


class shown_progress:  # noqa: N801 - reads as a statement
    """A bar over the bytes of all files, when someone watches."""

    def __init__(self, files: Sequence[str]) -> None:
        self._sizes = [Path(name).stat().st_size for name in files if name != "-"]
        self._total = sum(self._sizes) if "-" not in files else None
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> shown_progress:
        if on_terminal():
            from rich.console import Console
            from rich.progress import Progress

            self._progress = Progress(console=Console(stderr=True), transient=True)
            self._progress.start()
            self._task = self._progress.add_task("publishing", total=self._total)
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def advance(self, size: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, size)


def _items(
    files: Sequence[str], form: Format, reading: Reading, progress: shown_progress
) -> Iterator[Outgoing | Bad]:
    from ops.ingest import read_locomo, read_turns

    for name in files:
        file = sys.stdin.buffer if name == "-" else Path(name).open("rb")  # noqa: SIM115
        with file:
            if form is Format.locomo:
                stem = "stdin" if name == "-" else Path(name).stem
                yield from read_locomo(file, name, stem, reading)
                if name != "-":
                    progress.advance(Path(name).stat().st_size)
            else:
                for item, size in read_turns(file, name, reading):
                    progress.advance(size)
                    yield item
