"""ingest: publish turns from files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from palimpsest.ops.ingest.requests import Ingest
from palimpsest.ops.operations.operation import Json
from palimpsest.ops.surfaces.command_line import as_function
from palimpsest.ops.terminal.common import Cli, asked_json, command, echo, usage_error, warn
from palimpsest.streams.text.counts import counted

if TYPE_CHECKING:
    from palimpsest.ops.ingest.opening import Found
    from palimpsest.ops.ingest.parsers.base import ReadOptions
    from palimpsest.ops.ingest.records import Published, Standing
    from palimpsest.ops.operations.awaited_results import TurnKey
    from palimpsest.ops.requests import JsonObject
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.streams.logs.base import Outgoing

    Advance: TypeAlias = Callable[[int, int], None]
    Append: TypeAlias = Callable[[Sequence[Outgoing]], object]

STOPPED = 130
"""Exit code after Ctrl-C, as shells have it."""


def register(app: typer.Typer) -> None:
    command(app)(as_function(Ingest, execute))


def record(
    cli: Cli,
    dead_letter_id: Annotated[
        str, typer.Argument(metavar="ID", help="Its id, or the first 8 characters.")
    ],
) -> None:
    """Print the record of a dead letter, to publish it again with `palimpsest ingest -`.

    Example: palimpsest dead-letters record 5b1f22aa
    """
    from palimpsest.ops.operations.dead_letters import GetDeadLetter

    echo(str(cli.execute(GetDeadLetter(dead_letter_id))["record"]))


def execute(cli: Cli, asked: Ingest) -> Json:
    """Publishes the turns of the files. Raises Exit, and RequestError."""
    from palimpsest.ops.ingest.opening import options_of
    from palimpsest.ops.parts import utc_now

    settings = cli.settings
    missing = [name for name in asked.files if name != "-" and not Path(name).exists()]
    if missing:
        raise usage_error(f"there is no file {', '.join(missing)}")
    options = options_of(settings, asked, utc_now(), asked.since, asked.captions)
    tally = Tally(asked.dry_run, keeps_keys=asked.wait > 0 and not asked.dry_run)
    before = _publish(settings, asked.files, options, tally, asked.dry_run)
    if tally.keys:
        _settle(cli, tally, asked.wait)
    return tally.report(before)


def _publish(
    settings: Settings, files: Sequence[str], options: ReadOptions, tally: Tally, dry_run: bool
) -> Published:
    """Appends the content of the files in batches; returns what was published before. Raises
    Exit."""
    from palimpsest.ops.ingest.records import not_erased
    from palimpsest.ops.opening import publisher
    from palimpsest.ops.terminal.progress import Stoppable, ingesting

    with ExitStack() as undo:
        stop = undo.enter_context(Stoppable())
        append: Append = lambda _: None  # noqa: E731
        if not dry_run:
            append = undo.enter_context(publisher(settings))
        before = _published(settings, undo)
        advance = undo.enter_context(ingesting(_total(files)))
        try:
            for batch in _batches(files, options, tally, advance, before):
                standings = [before.standing(record) for record in batch]
                with stop.whole():
                    append(not_erased(batch, standings))
                    tally.add(batch, standings)
                advance(0, len(batch))
        except KeyboardInterrupt:
            undo.close()
            tally.stopped()
            raise typer.Exit(STOPPED) from None
        except Exception:
            tally.failed()
            raise
    return before


def _settle(cli: Cli, tally: Tally, seconds: float) -> None:
    """Waits until the published turns are settled, if a worker is running."""
    from palimpsest.ops.errors import RequestError
    from palimpsest.ops.log_folder import worker_is_there
    from palimpsest.ops.operations.awaited_results import awaited_turns

    if not worker_is_there(cli.settings):
        warn("no worker runs; the next `palimpsest run` makes memories of the turns")
        return
    try:
        found = cli.with_queries(
            lambda asked: awaited_turns(asked.answer).within(tally.keys, seconds)
        )
    except RequestError as error:
        warn(f"what becomes of the turns is not known: {error}")
        return
    tally.settle(found)


def _published(settings: Settings, undo: ExitStack) -> Published:
    """The turns already in the log; not looked up on Kafka."""
    from palimpsest.ops.ingest.records import Published
    from palimpsest.ops.log_folder import has_log
    from palimpsest.ops.opening import open_log

    if settings.log.kind == "kafka" or not has_log(settings):
        return Published(None)
    return Published(undo.enter_context(open_log(settings, "read")))


def _total(files: Sequence[str]) -> int | None:
    """The size of all files; None if it is unknown beforehand."""
    paths = [Path(name) for name in files]
    if not all(path.is_file() for path in paths):
        return None
    return sum(path.stat().st_size for path in paths)


def _batches(
    files: Sequence[str],
    options: ReadOptions,
    tally: Tally,
    advance: Advance,
    before: Published,
) -> Iterator[Sequence[Outgoing]]:
    from palimpsest.ops.ingest.opening import open_source
    from palimpsest.ops.ingest.parsers.base import Unreadable
    from palimpsest.ops.ingest.recognising import recognised
    from palimpsest.ops.ingest.records import in_batches
    from palimpsest.ops.parts import utc_now

    for name in files:
        try:
            with open_source(name, options) as source:
                tally.took(source.source.name, source.format)
                good = _good(source.items, tally, advance)
                yield from in_batches(recognised(good, before, utc_now(), tally.note))
        except Unreadable as error:
            tally.refuse("standard input" if name == "-" else name, str(error))


def _good(items: Iterator[Found], tally: Tally, advance: Advance) -> Iterator[Outgoing]:
    from palimpsest.ops.ingest.parsers.base import Bad, Note

    for item, size in items:
        advance(size, 0)
        if isinstance(item, Bad):
            tally.refuse(item.place, item.reason)
        elif isinstance(item, Note):
            tally.note(item.text)
        else:
            yield item


# Counts and reports what `ingest` published and what it refused.

MAX_REPORTED = 100
"""Maximum number of bad lines reported individually; the rest is counted."""
STANDINGS = ("stored", "rejected", "dead_letter", "pending")
SHOWN_TURNS = 3
"""Turns shown of a dry run."""


class Tally:
    """Counts turns as they become durable; reports bad lines and notes at once."""

    def __init__(self, dry_run: bool, keeps_keys: bool = False) -> None:
        self._dry_run = dry_run
        self._keeps_keys = keeps_keys
        self.keys: list[TurnKey] = []
        """What the published turns are waited for by."""
        self._settled: dict[str, int] = {}
        self.published = 0
        self._standings: Counter[Standing] = Counter()
        self._scopes: Counter[str] = Counter()
        self._bad: list[dict[str, str]] = []
        self._conflicts: list[dict[str, str]] = []
        self._notes: list[str] = []
        self._files: list[dict[str, str]] = []
        self._file = ""

    def took(self, name: str, form: str) -> None:
        """A source is read as `form`."""
        from palimpsest.ops.ingest.formats import FORMATS

        self._file = name
        self._files.append({"file": name, "format": form})
        if form != "turns" or self._dry_run:
            typer.echo(f"{name}: taken for {FORMATS[form]}", err=True)

    def note(self, text: str) -> None:
        """Something to know about the source being read."""
        message = text if text.startswith(self._file) else f"{self._file}: {text}"
        self._notes.append(message)
        typer.echo(message, err=True)

    def refuse(self, place: str, reason: str) -> None:
        """The item at `place` is refused."""
        self._bad.append({"place": place, "reason": reason})
        if len(self._bad) <= MAX_REPORTED:
            warn(f"{place}: {reason}")

    def add(self, batch: Sequence[Outgoing], standings: Sequence[Standing]) -> None:
        """A batch is on the log, without what was erased before."""
        for record, standing in zip(batch, standings, strict=True):
            self._standings[standing] += 1
            if standing == "erased":
                continue
            self._scopes[record.scope] += 1
            if standing == "conflict":
                turn_id = str(_body(record)["turn_id"])
                self._conflicts.append({"scope": record.scope, "turn_id": turn_id})
                if len(self._conflicts) <= MAX_REPORTED:
                    warn(
                        f"turn_id {turn_id} of scope {record.scope} was published before with"
                        " another content; the pipeline keeps the first and refuses this one: give"
                        " it an id of its own"
                    )
            if self._dry_run and self.published < SHOWN_TURNS and not asked_json.get():
                message, body = _message(record), _body(record)
                who = body.get("speaker") or body.get("role") or ""
                text = " ".join(str(body["content"]).split())
                at = str(message["occurred_at"])[:16].replace("T", " ")
                echo(f"  {at}  {who}: {text[:100]}{'…' if len(text) > 100 else ''}")
            self.published += 1
        if self._keeps_keys:
            from palimpsest.ops.ingest.records import not_erased
            from palimpsest.ops.operations.awaited_results import key_of

            self.keys += [key_of(record)[0] for record in not_erased(batch, standings)]

    def settle(self, found: Mapping[TurnKey, JsonObject]) -> None:
        """Counts the outcomes of the published turns so far; reports each reason once."""
        standings = [found.get(key, {"status": "pending"}) for key in self.keys]
        counts = Counter(str(each["status"]) for each in standings)
        self._settled = {name: counts[name] for name in STANDINGS}
        refused = (each for each in standings if each["status"] in ("rejected", "dead_letter"))
        for reason in [*dict.fromkeys(str(each["reason"]) for each in refused)][:MAX_REPORTED]:
            warn(reason)

    def stopped(self) -> None:
        """Ctrl-C: report how many turns are durable."""
        warn(f"stopped: {self._durable()}")

    def failed(self) -> None:
        """Report how many turns are durable; the error itself follows."""
        warn(self._durable())

    def _durable(self) -> str:
        return (
            f"{counted(self.published, 'turns were published')} before it stopped; publish the same"
            " again to go on, nothing is doubled"
        )

    def report(self, before: Published) -> Json:
        """The result."""
        for kind, problems in (("bad lines", self._bad), ("conflicts", self._conflicts)):
            if len(problems) > MAX_REPORTED:
                warn(f"… and {len(problems) - MAX_REPORTED} more {kind}")
        return {
            "published": 0 if self._dry_run else self.published,
            **({"dry_run": True, "found": self.published} if self._dry_run else {}),
            **{name: self._standings[name] for name in ("new", "known", "revised", "erased")},
            "conflicts": self._conflicts,
            "bad": self._bad,
            "scopes": dict(self._scopes),
            "files": self._files,
            "notes": self._notes,
            "complete": before.complete,
            **({"settled": self._settled} if self._settled else {}),
        }


def _message(record: Outgoing) -> dict[str, object]:
    from pydantic_core import from_json

    found: dict[str, object] = from_json(record.value or b"")
    return found


def _body(record: Outgoing) -> dict[str, object]:
    body = _message(record)["body"]
    assert isinstance(body, dict)
    return body
