"""Generates commands from operations: arguments and options from the fields of a request, help from
its docstring, JSON or text from its answer."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, get_origin

import typer

from palimpsest.ops.operations.operation import Operation, Parameter, Read, Write, parameters
from palimpsest.ops.terminal.common import (
    AsJson,
    Cli,
    command,
    not_done,
    parse_moment,
    parse_object,
    parse_time,
    print_json,
    usage_error,
    warn,
)

if TYPE_CHECKING:
    from palimpsest.ops.operations.operation import Json

AnyOperation = type[Operation[Any]]
Answered: TypeAlias = Callable[[Cli, Any], Any]
"""Executes an operation and returns its answer as JSON."""
LARGEST_SHOWN = 10**9
STDIN: Final = "-"
TEXT_LENGTH: Final = 1_000
"""Maximum length from which on a field is a text, and no name or id."""
SAME_WHEN_EMPTY = ("flags", "stats")
"""Reads whose answers do not show that a scope does not exist."""


def register(
    app: typer.Typer, groups: dict[str, typer.Typer], operations: Iterable[AnyOperation]
) -> None:
    """Adds a command for every operation that has one. `groups` are the sub-programs by name, the
    first word of a two-word command."""
    for kind in operations:
        if kind.surface.command is None:
            continue
        group, _, word = kind.surface.command.rpartition(" ")
        panel = {} if group else {"rich_help_panel": kind.surface.panel}
        reads = issubclass(kind, Read)
        command(groups[group] if group else app, word, reads=reads, **panel)(as_function(kind))


def as_function(kind: AnyOperation, answered: Answered = Cli.execute) -> Callable[..., None]:
    """Returns the command as a function whose signature typer reads; `answered` executes the
    request."""
    taken = [each for each in parameters(kind) if each.on("command")]

    def run(cli: Cli, json: bool = False, **values: Any) -> None:
        read = {each.name: _read(each, values[each.name]) for each in taken}
        execute(cli, kind, read, json, answered)

    options = [inspect.Parameter("cli", inspect.Parameter.KEYWORD_ONLY, annotation=Cli)]
    options += [_option(each) for each in sorted(taken, key=lambda each: not each.doc.argument)]
    options.append(
        inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, annotation=AsJson, default=False)
    )
    run.__name__ = kind.slug
    run.__doc__ = kind.__doc__
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in options}
    return run


def _read(parameter: Parameter, value: Any) -> Any:
    """The value of a parameter; for `-`, where a text is meant, what standard input has."""
    is_text = parameter.plain_type is str and (parameter.doc.max_length or 0) >= TEXT_LENGTH
    if value != STDIN or not is_text or parameter.name == "reason":
        return value
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise usage_error(f"standard input is not UTF-8 at byte {error.start}") from None
    if not text:
        raise usage_error(f"{parameter.name}: standard input is empty; pipe the text to it")
    return text


def execute(
    cli: Cli,
    kind: AnyOperation,
    values: dict[str, Any],
    as_json: bool,
    answered: Answered = Cli.execute,
) -> None:
    """Executes the operation and prints its answer. Raises Exit with code 1 if it was not executed,
    and with 2 for invalid values."""
    from palimpsest.ops.errors import CommandError, RequestError
    from palimpsest.ops.operations.checking import checked
    from palimpsest.ops.service.executing import NotYetAppliedError, refusal

    unset = {each.name for each in parameters(kind) if values.get(each.name) is None}
    try:
        operation = checked(kind, {k: v for k, v in values.items() if k not in unset})
    except RequestError as error:
        raise usage_error(str(error)) from None
    try:
        answer = answered(cli, operation)
    except NotYetAppliedError as pending:
        _print_pending(cli, pending, as_json)
        return
    except CommandError as refused:
        result = {"command_id": refused.command_id, "applied": False, "error": str(refused)}
        if as_json and refused.command_id is not None:
            warn(str(refused))
            print_json(result)
            raise typer.Exit(1) from None
        raise
    if as_json:
        print_json(answer)
    else:
        from palimpsest.ops.terminal.printing import print_answer

        print_answer(operation, answer)
    for notice in answer.get("notices", ()) if isinstance(answer, dict) else ():
        warn(notice)
    scope = getattr(operation, "scope", None)
    meant = operation.instead() if isinstance(operation, Write) else operation
    if scope and meant is not None and (is_empty(answer) or meant.slug in SAME_WHEN_EMPTY):
        warn_if_unknown(cli, scope)
    if answer is None:
        raise not_done("there is no result: it is pending, or unknown")
    if refusal(answer) is not None or not operation.is_done(answer):
        raise typer.Exit(1)


def is_empty(answer: Json) -> bool:
    """Whether the answer is empty: all its lists are, or its text is."""
    if not isinstance(answer, dict):
        return False
    if "text" in answer:
        return answer["text"] is None
    lists = [
        value for name, value in answer.items() if isinstance(value, list) and name != "notices"
    ]
    return bool(lists) and not any(lists)


def warn_if_unknown(cli: Cli, scope: str) -> None:
    """Warns on stderr about an unknown scope, with the nearest name, and what no worker has read
    yet. This is not a failure: a scope exists from its first turn on."""
    import difflib

    from palimpsest.ops.log_folder import worker_is_there
    from palimpsest.ops.operations.lifecycle.pipeline import Status
    from palimpsest.ops.operations.scopes import Scopes

    known = [str(row["scope"]) for row in cli.execute(Scopes())["scopes"]]
    if scope in known:
        return
    near = difflib.get_close_matches(scope, known, n=1, cutoff=0.5)
    meant = f"; did you mean {near[0]}?" if near else "."
    warn(f"there is no scope {scope} yet{meant} `palimpsest scopes` lists them all")
    if worker_is_there(cli.settings):
        return
    stages = cli.execute(Status())["stages"]
    unread = sum(stage["lag"] for stage in stages if stage["stage"] == "normalize")
    if unread:
        warn(f"{unread} published records wait for a worker; `palimpsest run` processes them")


def _print_pending(cli: Cli, pending: Any, as_json: bool) -> None:
    from palimpsest.ops.log_folder import worker_is_there
    from palimpsest.ops.terminal.common import echo

    if as_json:
        print_json({"command_id": pending.command_id, "applied": False, "scope": pending.scope})
        return
    when = "the running worker applies it when its turn comes"
    if not worker_is_there(cli.settings):
        when = "no worker runs, so the next `palimpsest run` applies it"
    echo(f"accepted as command {pending.command_id}; {when}")


# ---- options from fields ----
PARSED: Final[dict[Any, tuple[Callable[[str], object], str]]] = {
    datetime: (parse_time, "TIME"),
    int | datetime: (parse_moment, "OFFSET|TIME"),
}
"""By type: how a text is read, and what the help calls it."""


def _option(parameter: Parameter) -> inspect.Parameter:
    doc = parameter.doc
    about: dict[str, Any] = {"help": f"{doc.text[0].upper()}{doc.text[1:]}.", "show_default": False}
    if not (parameter.required or parameter.default in (None, "", (), False)):
        about["show_default"] = True
    if doc.metavar is not None:
        about["metavar"] = doc.metavar
    kind = _option_type(parameter)
    if parameter.plain_type in (int, float):
        # A bound that nobody reaches only clutters the help.
        about |= {"min": doc.ge, "max": None if (doc.le or 0) > LARGEST_SHOWN else doc.le}
    if parameter.plain_type in PARSED:
        about["parser"], about["metavar"] = PARSED[parameter.plain_type]
    if get_origin(parameter.plain_type) is dict:
        about |= {"parser": parse_object, "metavar": "JSON"}
    option = (
        typer.Argument(**about) if doc.argument else typer.Option(*_spelling(parameter), **about)
    )
    # Nothing given is told from an empty text, which names no scope.
    is_unset = parameter.repeated or parameter.default == ""
    default = None if is_unset else parameter.default
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated.__class_getitem__((kind, option)),  # type: ignore[attr-defined]
        default=inspect.Parameter.empty if parameter.required else default,
    )


def _option_type(parameter: Parameter) -> Any:
    plain = parameter.plain_type
    if parameter.repeated:
        return list[str] if parameter.required else list[str] | None
    if plain in PARSED:
        plain = datetime  # read by a parser; typer knows no unions
        return plain if parameter.required else plain | None
    return plain if plain is parameter.type and parameter.default != "" else plain | None


def _spelling(parameter: Parameter) -> tuple[str, ...]:
    doc = parameter.doc
    if doc.option is None:
        return (f"--{parameter.name.replace('_', '-')}",) if parameter.repeated else ()
    is_flag = parameter.plain_type is bool
    return (doc.option,) if is_flag else tuple(doc.option.split("/"))
