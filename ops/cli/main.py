"""The program `palimpsest`: its commands, by group. Each group is a module of this folder."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import io
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, cast, get_args

# One thread a product: on few cores a second one costs more than it helps, and readers next to a
# writer slow each other down. Set before numpy reads it; a value that is set already stays.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

if gc.isenabled():
    # Objects made before Python looks for cycles, and how many such looks before a wider one. The
    # usual 700 make it go through all resident indexes again and again, a fifth of a worker's time;
    # what stages leave behind is freed without it. Set here, as imports make most objects.
    gc.set_threshold(100_000, 20, 50)
if "httpx._main" not in sys.modules:
    # The command line of httpx is most of what httpx imports, and httpx can do without it.
    sys.modules["httpx._main"] = cast("Any", None)

import typer
from typer.core import TyperGroup
from typer.main import get_command_name
from typer.models import CommandInfo

from palimpsest.ops.operations.operation import Operation, Panel, defined_in
from palimpsest.ops.surfaces import command_line
from palimpsest.ops.terminal.common import command, print_json, warn

PANELS: Final[tuple[Panel, ...]] = get_args(Panel)
PANEL_OF: Final[dict[str, Panel]] = {
    **dict.fromkeys(("demo", "ingest", "run", "serve", "mcp"), "Start"),
    **dict.fromkeys(("sql",), "Ask"),
    **dict.fromkeys(("proposals",), "Explain and review"),
    **dict.fromkeys(
        ("documents", "export", "import", "embeddings", "snapshot", "restore"), "Data in and out"
    ),
}
"""The headings of commands that are no operations, where that is not "Run and operate"."""


HAND_WRITTEN: Final = {
    "demo": ("demo",),
    "publishing": ("ingest",),
    "running": ("run",),
    "serving": ("serve", "mcp"),
    "sql": ("sql",),
    "transfer": ("export", "import", "embeddings", "snapshot", "restore"),
}
"""The modules of this folder with commands that are no operations, and their commands."""
SUBJECTS: Final = {
    "memories": ("recall", "search", "context", "get", "list"),
    "provenance": ("history", "explain"),
    "changing": ("remember", "modify", "correct", "pin", "unpin", "confirm", "recover"),
    "forgetting": ("forget", "erase", "erase-scope"),
    "graph": ("entities", "entity", "alias", "unalias", "merges", "graph"),
    "lifecycle.pipeline": ("status",),
    "scopes": ("stats", "graph-stats", "scopes", "flags"),
    "sessions": (
        *("sessions", "session-memory", "session-timeline", "session-summary", "session-end"),
    ),
}
"""The modules of operations whose commands start most often, and these commands. To import those of
all operations takes as long as a tenth of a recall; a command that is not here is looked for in
them."""


class Program(TyperGroup):
    """All commands, by heading. With --json, incorrect usage is reported as JSON, too."""

    def list_commands(self, ctx: Any) -> list[str]:
        names, commands = super().list_commands(ctx), cast("dict[str, Any]", self.commands)
        for name in names:
            if commands[name].rich_help_panel not in PANELS:
                commands[name].rich_help_panel = PANEL_OF.get(name, "Run and operate")
        return sorted(names, key=lambda each: PANELS.index(commands[each].rich_help_panel))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            # By its form: where the class lies depends on typer's version.
            message = getattr(error, "format_message", None)
            if type(error).__name__ == "NoSuchOption" and not error.option_name.startswith("--"):  # type: ignore[attr-defined]
                error.message += "; put -- before a text that begins with -"  # type: ignore[attr-defined]
            if message is not None:  # words of the library that checks values
                error.message = error.message.replace("Value error, ", "")  # type: ignore[attr-defined]
            if message is not None and "--json" in sys.argv:
                print_json({"error": message()})
            raise


GROUPS: Final = {
    "documents": "Documents: add texts, files and URLs, list, show and delete them.",
    "proposals": "Changes that were held back: look at them, apply or dismiss them.",
    "dead-letters": "Records that could not be processed: look, send again, or discard.",
    "jobs": "Scheduled jobs: run one now.",
    "retention": "How long things are kept: windows, what is past them, what a rule would take.",
    "embedding": "Embedding models: see missing vectors, migrate to another model, switch back.",
    "replay": "Read the log again: rebuild the stores, extract again, compare, promote, roll back.",
}
"""The sub-programs to which operations belong."""


def _version(is_set: bool) -> None:
    if is_set:
        from palimpsest.ops.distribution import program_version

        typer.echo(f"palimpsest {program_version()}")
        raise typer.Exit


def _program(
    _: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


def _empty() -> typer.Typer:
    app = typer.Typer(
        name="palimpsest",
        cls=Program,
        help="Long-term memory for AI agents: turns in, memories out, every decision explained."
        "\n\nStart with: palimpsest demo",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback()(_program)
    return app


def _add_groups(app: typer.Typer, names: Iterable[str]) -> dict[str, typer.Typer]:
    groups = {name: typer.Typer(help=GROUPS[name], no_args_is_help=True) for name in names}
    for name, group in groups.items():
        app.add_typer(group, name=name)
    return groups


@functools.cache
def whole() -> typer.Typer:
    """The program with all commands."""
    from palimpsest.ops.cli import documents, publishing, replay, serving, setup
    from palimpsest.ops.surfaces.catalogue import OPERATIONS

    app = _empty()
    for name in HAND_WRITTEN:
        import_module(f"palimpsest.ops.cli.{name}").register(app)
    groups = _add_groups(app, GROUPS)
    documents.register(groups["documents"])
    replay.register(groups["replay"])
    command(groups["dead-letters"])(publishing.record)
    command_line.register(app, groups, OPERATIONS.values())
    setup.register(app)
    command(app)(serving.gateway)
    if (Path(__file__).parents[1] / "bench").exists():  # in a checkout, not in a wheel
        from palimpsest.ops.bench.commands import group as benchmarks

        app.add_typer(benchmarks, name="bench")
    return app


def asked(words: Sequence[str]) -> typer.Typer:
    """The program with only the command that the words begin with: to prepare all of them takes
    longer than most of them run. The whole program where they name none, as for help."""
    named = [*words[:1]]
    if named == ["--version"]:
        return _empty()
    for module, commands in HAND_WRITTEN.items():
        if named and named[0] in commands:
            app = _empty()
            import_module(f"palimpsest.ops.cli.{module}").register(app)
            app.registered_commands = [e for e in app.registered_commands if [_name_of(e)] == named]
            app.registered_groups = []
            return app
    for kind in _operations(named):
        command_words = (kind.surface.command or "").split()
        if command_words and [*words[: len(command_words)]] == command_words:
            app = _empty()
            command_line.register(app, _add_groups(app, command_words[:-1]), [kind])
            return app
    return whole()


def _operations(named: Sequence[str]) -> Iterable[type[Operation[Any]]]:
    """Those among which the one of this command is, if there is one."""
    for module, commands in SUBJECTS.items():
        if named and named[0] in commands:
            return defined_in(import_module(f"palimpsest.ops.operations.{module}"))
    from palimpsest.ops.surfaces.catalogue import OPERATIONS

    return OPERATIONS.values()


def _name_of(info: CommandInfo) -> str:
    return info.name or get_command_name(getattr(info.callback, "__name__", ""))


def main() -> None:
    """Entry point. Exit code 0 ok, 1 failed, 2 incorrect usage."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets its number, and no traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    os.umask(0o077)  # what it writes is for this user alone
    warnings.showwarning = _show_warning
    codes: list[int] = []
    atexit.register(_end, codes)  # registered first, called last
    try:
        asked(sys.argv[1:])()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            codes.append(end.code or 0)
        raise


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Prints a library's warning on one line: with its place and the source there it would look
    like a crash."""
    warn(" ".join(str(message).split()))


def _end(codes: list[int]) -> None:
    """Ends the process with the code, if any, after all exit handlers. This skips the deallocation
    of each object, which takes half a second."""
    for code in codes:
        with contextlib.suppress(OSError, ValueError):  # the interpreter reports a closed pipe
            for stream in filter(None, (sys.stdout, sys.stderr)):  # None if it was closed
                stream.flush()
            os._exit(code)


if __name__ == "__main__":
    main()
