"""Shared by all commands: options for settings, one-line errors, JSON and tables.

Heavy modules are imported only when a command needs them: `palimpsest --help` must be instant.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import functools
import inspect
import json
import logging
import re
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, cast, get_args, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from palimpsest.ops.telemetry import logs

if TYPE_CHECKING:
    from palimpsest.ops.operations.operation import Operation, Read
    from palimpsest.ops.service.queries import Queries
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.ops.settings.sources import LoadedSettings

T = TypeVar("T")


def parse_time(text: str) -> datetime:
    """An RFC 3339 time, a date, or a word such as `last_week`; one without a zone is in UTC."""
    from palimpsest.ops.operations.shared import time_of_word

    if (found := time_of_word(text)) is not None:
        return found
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text} is not a time, for example 2026-03-01T10:00:00Z, 2026-03-01 or last_week"
        ) from None
    return found.replace(tzinfo=found.tzinfo or UTC)


def parse_moment(text: str) -> int | datetime:
    """An offset of the log, or a time."""
    try:
        return int(text) if text.isdecimal() else parse_time(text)
    except typer.BadParameter:
        raise typer.BadParameter(
            f"{text}: neither an offset nor a time like 2026-03-01T10:00:00Z"
        ) from None


def parse_object(text: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise typer.BadParameter('it must be a JSON object, as {"attributes": [...]}')
    return found


PANEL = "Settings"
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder of the log and the stores.", rich_help_panel=PANEL),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="Settings file.  [default: palimpsest.toml]",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting, for example llm.provider=ollama; a key rather by"
        " PALIMPSEST_LLM__API_KEY or palimpsest.toml: other users can see this option (ps).",
        rich_help_panel=PANEL,
    ),
]
ReadBranch = Annotated[
    str | None,
    typer.Option(
        "--branch",
        metavar="NAME",
        help="Read this branch instead of the live memory.",
        rich_help_panel=PANEL,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Scope = Annotated[str, typer.Option("--scope", "-s", help="The memory space.")]
Key = Annotated[
    str | None,
    typer.Option("--key", help="Idempotency key: a repetition with the same key has no effect."),
]
Wait = Annotated[
    float | None, typer.Option(min=0, help="Seconds to wait for a running worker's result.")
]


WAIT_SECONDS: Final = 5.0
"""How long a command waits for its result unless --wait says so."""
asked_json: contextvars.ContextVar[bool] = contextvars.ContextVar("asked_json", default=False)
"""Whether the running command prints JSON."""


@dataclass(frozen=True)
class Cli:
    """The options of every command. `branch` is read instead of the live memory."""

    data_dir: Path | None
    config: Path | None
    overrides: tuple[str, ...]
    branch: str | None = None

    def load(self) -> LoadedSettings:
        """The effective settings and the source of each. Raises SettingsError."""
        from palimpsest.ops.settings.sources import load_settings

        return load_settings(self.overrides, self.data_dir, self.config)

    @functools.cached_property
    def settings(self) -> Settings:
        """Those of the branch where one is named; the first use sets up the program's log. Raises
        SettingsError and RequestError."""
        from palimpsest.ops.telemetry.setup import set_up_program

        live = self.load().settings
        set_up_program(live)
        if self.branch is None:
            return live
        from palimpsest.ops.replay.branches import branch_settings, readable_branch

        return branch_settings(live, readable_branch(live, self.branch))

    def execute(self, operation: Operation[Any]) -> Any:
        """The answer as JSON: of a running worker or, without one, of the folder itself. Raises
        RequestError, and NotYetAppliedError for a write that has no result in time."""
        import asyncio
        from functools import partial

        from palimpsest.ops.operations.operation import Write
        from palimpsest.ops.service.executing import Executor, Unrestricted
        from palimpsest.ops.service.queries import queries

        def waiting() -> None:
            typer.echo("the running worker is busy with earlier work; waiting for it", err=True)

        settings, open_queries, commands = self.settings, queries, None
        if operation.surface.routing == "folder":
            return cast("Read[Any]", operation).read_folder(settings)
        if isinstance(operation, Write):  # importing what appends takes as long as a whole recall
            from palimpsest.ops.service.commanding import commands_of

            commands = commands_of(settings)
        if operation.surface.needs_stages and not getattr(operation, "dry_run", False):
            from palimpsest.ops.transport.attached import attached_queries

            open_queries = attached_queries
        executor = Executor(
            settings,
            partial(open_queries, settings),
            commands,
            seconds=WAIT_SECONDS,
            until_erased=True,
            on_waiting=waiting,
        )
        return asyncio.run(executor.execute(operation, Unrestricted()))

    def with_queries(self, use: Callable[[Queries], Coroutine[None, None, T]]) -> T:
        import asyncio

        from palimpsest.ops.service.queries import queries

        async def using() -> T:
            async with queries(self.settings) as found:
                return await use(found)

        return asyncio.run(using())


def command(
    app: typer.Typer, name: str | None = None, reads: bool = False, **options: object
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a command. Its parameter `cli` is filled with a Cli, from options
    that every command has; errors that say what to do are printed as they are. `reads`: it changes
    nothing, so that a branch can be read by it."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        text = as_shown(inspect.getdoc(function) or "")
        joined = _joined(function, reads)
        app.command(name, help=text, **options)(joined)  # type: ignore[arg-type]
        return function

    return register


_MARKUP = re.compile(r"\[[a-z#/@][^\[]*?\]")


def as_shown(text: str) -> str:
    """A help text with escaped brackets, which rich would read as markup, and each paragraph as one
    line, to be wrapped for display."""
    text = "\n\n".join(" ".join(part.split("\n")) for part in text.split("\n\n"))
    return _MARKUP.sub(lambda match: "\\" + match[0], text)


def as_written(text: str) -> str:
    """Reverts the escaping of `as_shown`."""
    return text.replace("\\[", "[")


def _shown(annotation: object) -> object:
    """The annotation of a parameter with its help escaped."""
    metadata = getattr(annotation, "__metadata__", ())
    infos = [
        each
        for each in metadata
        if isinstance(each, OptionInfo | ArgumentInfo) and _MARKUP.search(each.help or "")
    ]
    if not infos:
        return annotation
    info = copy.copy(infos[0])
    info.help = as_shown(info.help or "")
    kind = get_args(annotation)[0]
    return Annotated[kind, info]


def _joined(function: Callable[..., None], reads: bool) -> Callable[..., None]:
    hints = get_type_hints(function, include_extras=True)
    own = [
        parameter.replace(
            annotation=_shown(hints[parameter.name]), kind=inspect.Parameter.KEYWORD_ONLY
        )
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "cli"
    ]
    shared = [
        inspect.Parameter(
            given, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_shown(annotation)
        )
        for given, annotation in (
            ("data_dir", DataDir),
            ("config", ConfigFile),
            ("overrides", Overrides),
            ("read_branch", ReadBranch),
        )
        # Who makes a branch says so by an option of the same name.
        if given != "read_branch" or all(parameter.name != "branch" for parameter in own)
    ]

    @functools.wraps(function)
    def run(
        *,
        data_dir: Path | None = None,
        config: Path | None = None,
        overrides: list[str] | None = None,
        read_branch: str | None = None,
        **given: object,
    ) -> None:
        asked_json.set(bool(given.get("json")))
        if read_branch is not None and not reads:
            raise usage_error(
                "--branch is for commands that only read; this one is for what is live"
            )
        _refuse_blank_scopes(given)
        with explained():
            function(cli=Cli(data_dir, config, tuple(overrides or ()), read_branch), **given)

    del run.__wrapped__  # typer would look through to the function's own parameters
    parameters = [*own, *shared]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Prints expected errors as one line on stderr and exits with code 1."""
    try:
        yield
    except Exception as error:
        text = _text_of(error)
        if text is None:
            raise
        failed(text)
        raise typer.Exit(1) from None


def _text_of(error: Exception) -> str | None:
    """The text of an error that a user can fix; None for a bug."""
    # By module name: a module that was never imported need not be imported to find out.
    for module, names in (
        ("palimpsest.streams.logs.base", ("LogError",)),
        ("palimpsest.stores.shard", ("StoreError",)),
        ("palimpsest.stores.database.snapshot", ("SnapshotError",)),
        ("palimpsest.stores.database.cursors", ("StoreDamaged",)),
        ("palimpsest.stores.lock", ("FolderInUse",)),
        ("palimpsest.ops.settings.sources", ("SettingsError",)),
        ("palimpsest.ops.parts", ("SetupError",)),
        ("palimpsest.ops.errors", ("RequestError",)),
        ("palimpsest.ops.service.client", ("NotThereError",)),
    ):
        loaded = sys.modules.get(module)
        if loaded is not None and any(isinstance(error, getattr(loaded, n)) for n in names):
            return str(error)
    from palimpsest.ops.maintenance.full_disk import full_disk

    full = full_disk(error)
    if full is not None:
        return full
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    duckdb = sys.modules.get("duckdb")
    if duckdb is not None and isinstance(error, duckdb.IOException):
        return f"the store cannot be read or written: {error}"
    return None


def warn(text: str) -> None:
    """Print an error or a warning to stderr."""
    if logs.is_json():
        logging.getLogger("palimpsest").warning("%s", visible(text))
        return
    typer.echo(f"palimpsest: {visible(text)}", err=True)


def usage_error(text: str) -> typer.Exit:
    """Report incorrect usage and return the Exit to raise."""
    failed(text)
    return typer.Exit(2)


def _refuse_blank_scopes(given: Mapping[str, object]) -> None:
    """Raises Exit for a scope of nothing or of spaces: where a variable of a shell is not set, no
    other scope is meant."""
    for name in ("scope", "scopes", "personal_scope"):
        asked = given.get(name)
        scopes = asked if isinstance(asked, list | tuple) else [asked]
        if any(isinstance(each, str) and not each.strip() for each in scopes):
            shown = name.removesuffix("s")
            raise usage_error(f"{shown}: must not be blank; name a memory space")


def not_done(text: str) -> typer.Exit:
    """Report why there is no answer and return the Exit to raise."""
    failed(text)
    return typer.Exit(1)


def failed(text: str) -> None:
    """Print why the command failed to stderr; with --json also to stdout, as `{"error": …}`."""
    warn(text)
    if asked_json.get():
        print_json({"error": text})


_UNSEEN: Final = r"\x7f-\x9f\u200b\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f"
_CONTROL: Final = re.compile(rf"[\x00-\x08\x0b-\x1f{_UNSEEN}]")
"""What a terminal obeys instead of showing it: all control characters but tab and line feed, what
turns the direction of writing around, and what no one sees."""


def visible(text: str) -> str:
    """Escapes terminal control sequences: a memory may contain anything."""
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


_LEFT_IN_JSON: Final = re.compile(f"[{_UNSEEN}]")


def visible_json(text: str) -> str:
    """The same for JSON, without changing its meaning."""
    return _LEFT_IN_JSON.sub(lambda found: json.dumps(found.group())[1:-1], text)


def print_json(value: object) -> None:
    """JSON for scripts, on stdout."""
    typer.echo(visible_json(json.dumps(value, indent=2, ensure_ascii=False)))


def show(as_json: bool, value: object, *lines: str) -> None:
    """Prints a result as JSON for scripts, or else as lines for people."""
    if as_json:
        print_json(value)
    else:
        for line in lines:
            echo(line)


def echo(text: str) -> None:
    """Prints a line on stdout with control sequences escaped."""
    typer.echo(visible(text))


def on_terminal() -> bool:
    """Whether stderr is a terminal, where progress is shown."""
    return sys.stderr.isatty()
