"""ingest: publish turns from files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from palimpsest.ops.cli.common import AsJson, Cli, command, echo, print_json, usage_error, warn

if TYPE_CHECKING:
    from palimpsest.ops.awaited_turns import TurnKey
    from palimpsest.ops.cli.progress import IngestProgress
    from palimpsest.ops.ingest.base import Choices
    from palimpsest.ops.ingest.known import Published, Standing
    from palimpsest.ops.ingest.opening import Found, IngestOptions
    from palimpsest.ops.requests import JsonObject
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.streams.logs.base import Outgoing

    Append: TypeAlias = Callable[[Sequence[Outgoing]], object]

STOPPED = 130
"""Exit code after Ctrl-C, as shells have it."""


Format: TypeAlias = Literal[
    "turns", "messages", "chatgpt", "claude", "slack", "whatsapp", "captions", "locomo"
]
DateOrder: TypeAlias = Literal["dmy", "mdy", "ymd"]


def register(app: typer.Typer) -> None:
    command(app)(ingest)


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


Sources = Annotated[
    list[str], typer.Argument(metavar="FILE…", help="Files, zip archives or folders; - is stdin.")
]
FromFormat = Annotated[
    Format | None,
    typer.Option("--from", "--format", help="The format, if it is not recognised."),
]
IntoScope = Annotated[
    str | None,
    typer.Option(
        "--scope",
        "-s",
        help="The memory space; by default the line's, the LoCoMo file's name, or default.",
    ),
]
Me = Annotated[str, typer.Option(help="Your name, for exports that call you only user or human.")]
SaidSince = Annotated[
    datetime | None,
    typer.Option(help="Time of messages without one (UTC); default: the file's time."),
]
Zone = Annotated[str, typer.Option(help="Zone of times that name none or are in UTC.")]
Order = Annotated[
    DateOrder | None, typer.Option(help="Order of day, month and year in a WhatsApp chat.")
]
SessionId = Annotated[
    str | None, typer.Option(help="Name of the conversation; by default the source's.")
]
Captions = Annotated[
    bool, typer.Option("--captions", help="LoCoMo: append captions of images to the text.")
]
Wait = Annotated[
    float,
    typer.Option(min=0, max=3600, help="Seconds to wait until the turns are stored or refused."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be published.")]


def ingest(
    cli: Cli,
    files: Sources,
    form: FromFormat = None,
    scope: IntoScope = None,
    me: Me = "",
    since: SaidSince = None,
    timezone: Zone = "UTC",
    date_order: Order = None,
    session_id: SessionId = None,
    captions: Captions = False,
    dry_run: DryRun = False,
    wait: Wait = 0.0,
    json: AsJson = False,
) -> None:
    """Publish conversation turns from files to the log.

    Reads turns as JSON lines; messages with role and content; exports of ChatGPT, Claude, Slack
    (zip or folder) and WhatsApp; SRT and VTT transcripts; LoCoMo files. The format is detected.
    Turns are durable when the command ends; `palimpsest run` turns them into memories, which
    `--wait` waits for. Invalid lines are reported by number and skipped. Publishing a file again,
    or a longer version of it, creates no duplicates.

    Example: palimpsest ingest conversation.jsonl --scope support
    """
    settings = cli.settings
    _check(files, scope)
    choices = _choices(me, timezone, date_order, session_id)
    options = _options(settings, form, scope, since, captions, choices)
    tally = Tally(json, dry_run, keeps_keys=wait > 0 and not dry_run)
    before = _publish(settings, files, options, tally, dry_run)
    if tally.keys:
        _settle(cli, tally, wait)
    tally.report(before)


def _publish(
    settings: Settings, files: list[str], options: IngestOptions, tally: Tally, dry_run: bool
) -> Published:
    """Appends the content of the files in batches; returns what was published before. Raises
    Exit."""
    from palimpsest.ops.cli.progress import IngestProgress, Stoppable

    with ExitStack() as undo:
        stop = undo.enter_context(Stoppable())
        append = _appender(settings, undo, dry_run)
        before = _published(settings, undo)
        progress = undo.enter_context(IngestProgress(_total(files)))
        try:
            for batch in _batches(files, options, tally, progress):
                standings = [before.standing(record) for record in batch]
                with stop.whole():
                    append(batch)
                    tally.add(batch, standings)
                progress.advance(0, len(batch))
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
    from palimpsest.ops.awaited_turns import settled
    from palimpsest.ops.commanding import worker_is_there
    from palimpsest.ops.errors import RequestError

    if not worker_is_there(cli.settings):
        warn("no worker runs; the next `palimpsest run` makes memories of the turns")
        return
    try:
        found = cli.with_queries(lambda queries: settled(queries, tally.keys, seconds))
    except RequestError as error:
        warn(f"what becomes of the turns is not known: {error}")
        return
    tally.settle(found)


def _check(files: list[str], scope: str | None) -> None:
    if scope is not None and not scope.strip():
        raise usage_error("--scope is empty; name the memory space that the turns belong to")
    if scope is not None and len(scope) > 256:
        raise usage_error("--scope is longer than 256 characters")
    missing = [name for name in files if name != "-" and not Path(name).exists()]
    if missing:
        raise usage_error(f"there is no file {', '.join(missing)}")


def _choices(
    me: str, timezone: str, date_order: DateOrder | None, session_id: str | None
) -> Choices:
    from zoneinfo import ZoneInfo

    from palimpsest.ops.ingest.base import Choices
    from palimpsest.ops.parts import utc_now

    try:
        zone = ZoneInfo(timezone)
    except (ValueError, OSError, LookupError):
        raise usage_error(
            f"there is no time zone {timezone!r}; write it as Europe/Lisbon or UTC"
        ) from None
    return Choices(utc_now(), " ".join(me.split()), zone, date_order, session_id)


def _options(
    settings: Settings,
    form: Format | None,
    scope: str | None,
    since: datetime | None,
    captions: bool,
    choices: Choices,
) -> IngestOptions:
    from datetime import UTC

    from palimpsest.ops.ingest.opening import IngestOptions
    from palimpsest.ops.ingest.records import RecordOptions
    from palimpsest.streams.sensitive.policy import Policy

    begin = None if since is None else since.replace(tzinfo=since.tzinfo or UTC)
    policy = Policy.of(settings.pii)
    limit = settings.log.max_record_bytes
    records = RecordOptions(scope, limit, begin or choices.since, captions, policy, choices.zone)
    return IngestOptions(records, form, begin, choices)


def _appender(settings: Settings, undo: ExitStack, dry_run: bool) -> Append:
    from palimpsest.ops.opening import publisher

    return (lambda _: None) if dry_run else undo.enter_context(publisher(settings))


def _published(settings: Settings, undo: ExitStack) -> Published:
    """The turns already in the log; not looked up on Kafka."""
    from palimpsest.ops.ingest.known import Published
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
    files: Sequence[str], options: IngestOptions, tally: Tally, progress: IngestProgress
) -> Iterator[Sequence[Outgoing]]:
    from palimpsest.ops.ingest.base import Unreadable
    from palimpsest.ops.ingest.opening import open_source
    from palimpsest.ops.ingest.records import in_batches

    for name in files:
        try:
            with open_source(name, options) as source:
                tally.took(source.source.name, source.format)
                yield from in_batches(_good(source.items, tally, progress))
        except Unreadable as error:
            tally.refuse("standard input" if name == "-" else name, str(error))


def _good(items: Iterator[Found], tally: Tally, progress: IngestProgress) -> Iterator[Outgoing]:
    from palimpsest.ops.ingest.base import Bad, Note

    for item, size in items:
        progress.advance(size)
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

    def __init__(self, as_json: bool, dry_run: bool, keeps_keys: bool = False) -> None:
        self._as_json = as_json
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
        """A batch is on the log."""
        for record, standing in zip(batch, standings, strict=True):
            self._standings[standing] += 1
            self._scopes[record.scope] += 1
            if standing == "conflict":
                self._conflict(record)
            if self._dry_run and self.published < SHOWN_TURNS and not self._as_json:
                echo(_shown(record))
            self.published += 1
        if self._keeps_keys:
            from palimpsest.ops.awaited_turns import key_of

            self.keys += [key_of(record)[0] for record in batch]

    def settle(self, found: Mapping[TurnKey, JsonObject]) -> None:
        """Counts the outcomes of the published turns so far; reports each reason once."""
        standings = [found.get(key, {"status": "pending"}) for key in self.keys]
        counts = Counter(str(each["status"]) for each in standings)
        self._settled = {name: counts[name] for name in STANDINGS}
        refused = (each for each in standings if each["status"] in ("rejected", "dead_letter"))
        for reason in [*dict.fromkeys(str(each["reason"]) for each in refused)][:MAX_REPORTED]:
            warn(reason)

    def _conflict(self, record: Outgoing) -> None:
        turn_id = str(_body(record)["turn_id"])
        self._conflicts.append({"scope": record.scope, "turn_id": turn_id})
        if len(self._conflicts) <= MAX_REPORTED:
            warn(
                f"turn_id {turn_id} of scope {record.scope} was published before with another"
                " content; the pipeline keeps the first and refuses this one: give it an id of its"
                " own"
            )

    def stopped(self) -> None:
        """Ctrl-C: report how many turns are durable."""
        warn(f"stopped: {self._durable()}")

    def failed(self) -> None:
        """Report how many turns are durable; the error itself follows."""
        warn(self._durable())

    def _durable(self) -> str:
        return (
            f"{self.published} turns were published before it stopped; publish the same again to go"
            " on, nothing is doubled"
        )

    def report(self, before: Published) -> None:
        """The result. Raises Exit with code 1 when anything was bad."""
        for kind, problems in (("bad lines", self._bad), ("conflicts", self._conflicts)):
            if len(problems) > MAX_REPORTED:
                warn(f"… and {len(problems) - MAX_REPORTED} more {kind}")
        if self._as_json:
            print_json(self._json())
        else:
            echo(self._line(before))
        if self._bad or self._conflicts or self._settled.get("dead_letter"):
            raise typer.Exit(1)

    def _line(self, before: Published) -> str:
        scopes = ", ".join(f"{scope} ({count})" for scope, count in self._scopes.items())
        into = f" into {scopes}" if scopes else ""
        done = "would be published" if self._dry_run else "published"
        line = f"{self.published} turns {done}{into}, {len(self._bad)} bad"
        known, conflicts = self._standings["known"], self._standings["conflict"]
        if known or conflicts:
            line += f": {self._standings['new']} new, {known} known before"
            line += f", {conflicts} in conflict" if conflicts else ""
            line += "" if before.complete else " (of the newest 200,000 published)"
        counts = (f"{count} {name.replace('_', ' ')}" for name, count in self._settled.items())
        return f"{line}; {', '.join(counts)}" if self._settled else line

    def _json(self) -> dict[str, object]:
        return {
            "published": 0 if self._dry_run else self.published,
            **({"dry_run": True, "found": self.published} if self._dry_run else {}),
            **{name: self._standings[name] for name in ("new", "known")},
            "conflicts": self._conflicts,
            "bad": self._bad,
            "scopes": dict(self._scopes),
            "files": self._files,
            "notes": self._notes,
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


def _shown(record: Outgoing) -> str:
    message, body = _message(record), _body(record)
    who = body.get("speaker") or body.get("role") or ""
    text = " ".join(str(body["content"]).split())
    at = str(message["occurred_at"])[:16].replace("T", " ")
    return f"  {at}  {who}: {text[:100]}{'…' if len(text) > 100 else ''}"
