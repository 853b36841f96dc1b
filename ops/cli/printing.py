"""What operations print for people. One without a printer here prints its JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from palimpsest.ops.cli.common import Cli, echo, print_json, warn
from palimpsest.ops.cli.provenance import print_provenance
from palimpsest.ops.cli.tables import (
    console,
    print_entity,
    print_events,
    print_listed,
    print_memories,
    print_memory,
    print_recall,
    print_status,
    table,
)
from palimpsest.ops.operations.operation import Json, Operation, Write

if TYPE_CHECKING:
    from collections.abc import Mapping

Printer: TypeAlias = Callable[[Any, Json, Cli], None]
PRINTERS: Final[dict[str, Printer]] = {}

IN_NO_FILE = "no file of the stores has it any more"
STILL_IN_FILES = "files of the stores still have it; a worker that starts begins with erasing that"
RECORD_CHARACTERS = 200
"""Of a dead letter's record; `--json` shows all of it."""


def prints(*slugs: str) -> Callable[[Printer], Printer]:
    def register(printer: Printer) -> Printer:
        PRINTERS.update(dict.fromkeys(slugs, printer))
        return printer

    return register


def print_answer(operation: Operation[Any], answer: Json, cli: Cli) -> None:
    """Print an answer for a person."""
    if answer is None:
        return
    meant = operation.instead() if isinstance(operation, Write) else None
    printer = PRINTERS.get((meant or operation).slug)
    if printer is not None:
        printer(meant or operation, answer, cli)
    elif isinstance(operation, Write):
        _print_change(answer)
    else:
        print_json(answer)


def _print_change(answer: Json) -> None:
    """What a command did to each memory, a line each."""
    about = ("command_id", "applied", "erasure", "left", "changes")
    for each in answer.get("changes", [answer]):
        parts = [f"{name} {value}" for name, value in each.items() if name not in about]
        echo(", ".join(parts))
    if "erasure" in answer:
        echo(IN_NO_FILE if answer["erasure"] == "done" else STILL_IN_FILES)
        for left in answer["left"]:
            echo(f"not reached: {left}")


def _print_next(page: Json) -> None:
    if page["next_cursor"] is not None:
        echo(f"\nmore: --cursor '{page['next_cursor']}'")


@prints("recall", "search")
def _recall(_: Any, answer: Json, __: Cli) -> None:
    print_recall(answer)


@prints("context")
def _context(_: Any, answer: Json, __: Cli) -> None:
    echo("nothing is known about that" if answer["text"] is None else str(answer["text"]))


@prints("get")
def _memory(_: Any, answer: Json, __: Cli) -> None:
    print_memory(answer)


@prints("list")
def _list(_: Any, answer: Json, __: Cli) -> None:
    print_memories(answer["memories"])
    _print_next(answer)


@prints("history")
def _history(_: Any, answer: Json, __: Cli) -> None:
    print_events(answer["events"])


@prints("explain")
def _explain(_: Any, answer: Json, __: Cli) -> None:
    print_provenance(answer)


@prints("weak")
def _weak(asked: Any, answer: Json, _: Cli) -> None:
    columns = ("id", "confidence", "type", "content")
    print_listed(columns, answer["memories"], f"no memory is under {asked.below:g}")


@prints("preview_forget")
def _preview(_: Any, answer: Json, __: Cli) -> None:
    names = ("id", "score", "type", "pinned", "version", "content")
    print_listed(names, answer["candidates"], "nothing matches")
    if answer["cascade"]:
        echo(f"drawn from nothing else, and forgotten with --cascade ({len(answer['cascade'])}):")
        print_listed(("id", "type", "pinned", "version", "content"), answer["cascade"], "")
    for each in answer["hides"]:
        left = each["left"] or "nothing is left of it"
        echo(f"hidden in {str(each['id'])[:8]}: {each['content']!r}: {left}")
    if answer["more"]:
        echo("more match than one command forgets; see --limit")
    if answer["candidates"]:
        echo(f"to confirm: the same with --reason and --confirm {answer['confirm_token']}")


@prints("preview_erase_scope")
def _counted(_: Any, answer: Json, __: Cli) -> None:
    echo(f"the scope {answer['scope']} holds {answer['memories']} memories")
    echo(f"to confirm: the same with --reason and --confirm {answer['confirm_token']}")


@prints("command_result")
def _result(_: Any, answer: Json, __: Cli) -> None:
    if answer["error"] is not None:
        warn(str(answer["error"]))
        return
    result = answer["result"]
    told = {name: answer[name] for name in ("erasure", "left") if name in answer}
    changes = result if isinstance(result, list) else [result]
    _print_change({"changes": changes, **told})


@prints("entities")
def _entities(_: Any, answer: Json, __: Cli) -> None:
    print_listed(("name", "type", "mentions"), answer["entities"], "no entity has such a name")
    _print_next(answer)


@prints("get_entity")
def _entity(_: Any, answer: Json, __: Cli) -> None:
    print_entity(answer)


@prints("sessions")
def _sessions(_: Any, answer: Json, __: Cli) -> None:
    if not answer["sessions"]:
        echo("no sessions yet; they begin with turns that name one")
        return
    rows: list[tuple[object, ...]] = [
        (
            row["session_id"],
            row["turns"],
            str(row["began_at"])[:19],
            str(row["last_at"])[:19],
            row["ended_by"] or "(open)",
        )
        for row in answer["sessions"]
    ]
    console().print(table(("session", "turns", "began at", "last at", "ended by"), rows))
    _print_next(answer)


@prints("session_memory")
def _session_memory(_: Any, answer: Json, __: Cli) -> None:
    kept = answer["short_term"]
    if kept is not None:
        summary = kept["summary"]
        if summary is not None:
            echo(f"summary by {summary['by']}, until {str(summary['expires_at'])[:19]}:")
            echo(f"  {summary['text']}")
        for turn in kept["turns"]:
            echo(f"{str(turn['occurred_at'])[:19]} {turn['who'] or '-'}: {turn['content']}")
    if answer["memories"]:
        echo("memories of the session:")
        print_memories(answer["memories"])
    _print_next(answer)


@prints("documents")
def _documents(_: Any, answer: Json, __: Cli) -> None:
    names = ("id", "status", "scope", "kind", "title", "chunks", "created_at", "error")
    print_listed(names, answer["documents"], "there are no documents")
    _print_next(answer)


@prints("get_document")
def _document(_: Any, answer: Json, __: Cli) -> None:
    for name, value in answer.items():
        echo(f"{name:13} {'' if value is None else value}")


@prints("document_chunks")
def _chunks(_: Any, answer: Json, __: Cli) -> None:
    print_listed(("position", "id", "is_deleted", "content"), answer["chunks"], "no chunks yet")
    _print_next(answer)


@prints("privacy")
def _privacy(_: Any, answer: Json, __: Cli) -> None:
    rows: list[tuple[object, ...]] = [
        (
            row["person"] or "(the whole scope)",
            row["level"],
            str(row["since"])[:19],
            row["changed_by"],
            row["reason"],
        )
        for row in answer["levels"]
    ]
    console().print(table(("person", "level", "since", "by", "reason"), rows))


@prints("proposals")
def _proposals(_: Any, answer: Json, __: Cli) -> None:
    names = ("id", "state", "scope", "action", "memory", "fact", "occurred_at")
    print_listed(names, answer["proposals"], "nothing waits for review")


@prints("flags")
def _flags(_: Any, answer: Json, __: Cli) -> None:
    flags = answer["flags"]
    rows: list[tuple[object, ...]] = [(row["flag"], row["value"], row["from"]) for row in flags]
    console().print(table(("flag", "value", "from"), rows))


@prints("status")
def _status(_: Any, answer: Json, __: Cli) -> None:
    print_status(answer)


@prints("diagnostics")
def _diagnostics(_: Any, answer: Json, __: Cli) -> None:
    for name, found in answer["domains"].items():
        counts = ", ".join(f"{label} {count}" for label, count in found["counts"].items())
        echo(f"{name}: {found['status']} {found['score']} ({counts})")


@prints("stats")
def _stats(_: Any, answer: Json, __: Cli) -> None:
    types = cast("Mapping[str, int]", answer["types"])
    shown = {**answer, "types": ", ".join(f"{name} {types[name]}" for name in types)}
    for name, value in shown.items():
        if name != "scope":
            echo(f"{name}: {value}")


@prints("scopes")
def _scopes(_: Any, answer: Json, __: Cli) -> None:
    if not answer["scopes"]:
        echo("no scopes yet; `palimpsest run` makes them from published turns")
        return
    names = ("scope", "turns", "memories", "facts", "last_activity")
    rows: list[tuple[object, ...]] = [
        (*(row[name] for name in names[:-1]), str(row["last_activity"] or "")[:19])
        for row in answer["scopes"]
    ]
    console().print(table(tuple(name.replace("_", " ") for name in names), rows))


@prints("agreement")
def _agreement(_: Any, answer: Json, __: Cli) -> None:
    measured = ("proposals", "failed", "same_action", "agrees", "judged", "with_people", "earned")
    print_listed(("scope", "decider", *measured), answer["deciders"], "nothing was decided yet")


@prints("dead_letters")
def _dead_letters(_: Any, answer: Json, __: Cli) -> None:
    names = ("id", "status", "stage", "scope", "topic", "offset", "reason")
    print_listed(names, answer["dead_letters"], "no dead letters")


@prints("get_dead_letter")
def _dead_letter(_: Any, answer: Json, __: Cli) -> None:
    short = {
        name: value
        for name, value in answer.items()
        if name not in ("headers", "key", "raw_output", "item_ids") and value not in (None, "", [])
    }
    record = " ".join(str(answer["record"]).split())
    if len(record) > RECORD_CHARACTERS:
        record = f"{record[:RECORD_CHARACTERS]}… (--json shows all of it)"
    print_memory({**short, "record": record})


@prints("redrive")
def _redrive(_: Any, answer: Json, __: Cli) -> None:
    echo(f"{len(answer.get('redriven', ()))} sent again")
    for refused in answer.get("refused", ()):
        warn(f"{refused['id']} cannot be sent again: {refused['reason']}")


@prints("discard")
def _discard(_: Any, answer: Json, __: Cli) -> None:
    echo(f"{len(answer['discarded'])} discarded")
