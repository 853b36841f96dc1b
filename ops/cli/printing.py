"""Prints the answers of operations for people; an operation without a printer prints its JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from rich.tree import Tree

from palimpsest.ops.cli.common import echo, print_json, warn
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
    text,
)
from palimpsest.ops.operations.operation import Json, Operation, Write

if TYPE_CHECKING:
    from collections.abc import Mapping

PRINTERS: Final[dict[str, Callable[[Json], None]]] = {
    "recall": print_recall,
    "search": print_recall,
    "get": print_memory,
    "history": lambda answer: print_events(answer["events"]),
    "get_entity": print_entity,
    "status": print_status,
}
_COUNTED: Final = ("proposals", "failed", "same_action", "agrees", "judged", "with_people")
LISTS: Final[dict[str, tuple[str, tuple[str, ...], str]]] = {
    "weak": (
        "memories",
        ("id", "confidence", "type", "content"),
        "no memory is under {0.below:g}",
    ),
    "entities": ("entities", ("name", "type", "mentions"), "no entity has such a name"),
    "documents": (
        "documents",
        ("id", "status", "scope", "kind", "title", "chunks", "created_at", "error"),
        "there are no documents",
    ),
    "document_chunks": ("chunks", ("position", "id", "is_deleted", "content"), "no chunks yet"),
    "proposals": (
        "proposals",
        ("id", "state", "scope", "action", "memory", "fact", "occurred_at"),
        "nothing waits for review",
    ),
    "agreement": ("deciders", ("scope", "decider", *_COUNTED, "earned"), "nothing was decided yet"),
    "dead_letters": (
        "dead_letters",
        ("id", "status", "stage", "scope", "topic", "offset", "reason"),
        "no dead letters",
    ),
}
"""What is printed as a table: the name of the list, its columns, and what an empty one prints."""

IN_NO_FILE = "no file of the stores has it any more"
STILL_IN_FILES = "files of the stores still have it; a worker that starts begins with erasing that"
RECORD_CHARACTERS = 200
"""Of a dead letter's record; `--json` shows all of it."""


def prints(slug: str) -> Callable[[Callable[[Json], None]], Callable[[Json], None]]:
    def register(printer: Callable[[Json], None]) -> Callable[[Json], None]:
        PRINTERS[slug] = printer
        return printer

    return register


def print_answer(operation: Operation[Any], answer: Json) -> None:
    """Print an answer for a person."""
    if answer is None:
        return
    shown = (operation.instead() if isinstance(operation, Write) else None) or operation
    if shown.slug in LISTS:
        name, columns, empty = LISTS[shown.slug]
        print_listed(columns, answer[name], empty.format(shown))
        _print_next(answer)
    elif shown.slug in PRINTERS:
        PRINTERS[shown.slug](answer)
    elif isinstance(operation, Write):
        _print_change(answer)
    else:
        print_json(answer)


def _print_change(answer: Json) -> None:
    """Prints the effect of a command on each memory, one per line."""
    about = ("command_id", "applied", "erasure", "left", "changes")
    for each in answer.get("changes", [answer]):
        parts = [f"{name} {value}" for name, value in each.items() if name not in about]
        echo(", ".join(parts))
    if "erasure" in answer:
        echo(IN_NO_FILE if answer["erasure"] == "done" else STILL_IN_FILES)
        for left in answer["left"]:
            echo(f"not reached: {left}")


def _print_next(page: Json) -> None:
    if page.get("next_cursor") is not None:
        echo(f"\nmore: --cursor '{page['next_cursor']}'")


@prints("context")
def _context(answer: Json) -> None:
    echo("nothing is known about that" if answer["text"] is None else str(answer["text"]))


@prints("list")
def _list(answer: Json) -> None:
    print_memories(answer["memories"])
    _print_next(answer)


@prints("preview_forget")
def _preview(answer: Json) -> None:
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
def _counted(answer: Json) -> None:
    echo(f"the scope {answer['scope']} holds {answer['memories']} memories")
    echo(f"to confirm: the same with --reason and --confirm {answer['confirm_token']}")


@prints("command_result")
def _result(answer: Json) -> None:
    if answer["error"] is not None:
        warn(str(answer["error"]))
        return
    result = answer["result"]
    erasure = {name: answer[name] for name in ("erasure", "left") if name in answer}
    changes = result if isinstance(result, list) else [result]
    _print_change({"changes": changes, **erasure})


@prints("sessions")
def _sessions(answer: Json) -> None:
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
def _session_memory(answer: Json) -> None:
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


@prints("get_document")
def _document(answer: Json) -> None:
    for name, value in answer.items():
        echo(f"{name:13} {'' if value is None else value}")


@prints("privacy")
def _privacy(answer: Json) -> None:
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


@prints("flags")
def _flags(answer: Json) -> None:
    flags = answer["flags"]
    rows: list[tuple[object, ...]] = [(row["flag"], row["value"], row["from"]) for row in flags]
    console().print(table(("flag", "value", "from"), rows))


@prints("diagnostics")
def _diagnostics(answer: Json) -> None:
    for name, found in answer["domains"].items():
        counts = ", ".join(f"{label} {count}" for label, count in found["counts"].items())
        echo(f"{name}: {found['status']} {found['score']} ({counts})")


@prints("stats")
def _stats(answer: Json) -> None:
    types = cast("Mapping[str, int]", answer["types"])
    shown = {**answer, "types": ", ".join(f"{name} {types[name]}" for name in types)}
    for name, value in shown.items():
        if name != "scope":
            echo(f"{name}: {value}")


@prints("scopes")
def _scopes(answer: Json) -> None:
    if not answer["scopes"]:
        echo("no scopes yet; `palimpsest run` makes them from published turns")
        return
    names = ("scope", "turns", "memories", "facts", "last_activity")
    rows: list[tuple[object, ...]] = [
        (*(row[name] for name in names[:-1]), str(row["last_activity"] or "")[:19])
        for row in answer["scopes"]
    ]
    console().print(table(tuple(name.replace("_", " ") for name in names), rows))


@prints("get_dead_letter")
def _dead_letter(answer: Json) -> None:
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
def _redrive(answer: Json) -> None:
    echo(f"{len(answer.get('redriven', ()))} sent again")
    for refused in answer.get("refused", ()):
        warn(f"{refused['id']} cannot be sent again: {refused['reason']}")


@prints("discard")
def _discard(answer: Json) -> None:
    echo(f"{len(answer['discarded'])} discarded")


# The provenance of a memory as a tree: the memory, then where it came from.

SHOWN_CANDIDATES = 3


@prints("explain")
def _provenance(answer: Json) -> None:
    console().print(provenance(answer))


def provenance(answer: Json) -> Tree:
    """The tree: the memory, then its sources, its earlier states, the decisions, the entities."""
    memory = cast("Json", answer["memory"])
    gone = " [red]forgotten[/]" if memory["is_deleted"] else ""
    tree = Tree(
        f"[bold]{text(memory['content'])}[/]{gone}\n[dim]{text(memory['type'])},"
        f" version {memory['version']}, id {memory['id']}, scope {text(memory['scope'])}[/]"
    )
    _branch(tree, "drawn from", answer["derived_from"], _turn)
    _branch(tree, "facts drawn from it", answer["facts"], _turn)
    _branch(tree, "before", answer["before"], _state)
    _branch(tree, "decisions", answer["decisions"], decision)
    _branch(tree, "names", answer["entities"], lambda e: f"{text(e['name'])} ({text(e['type'])})")
    _branch(tree, "history", answer["history"], _event)
    return tree


def _branch(tree: Tree, title: str, items: object, show: object) -> None:
    found = cast("list[Json]", items)
    if not found or not callable(show):
        return
    branch = tree.add(f"[bold]{title}[/]")
    for item in found:
        branch.add(show(item))


def _turn(turn: Json) -> str:
    source = f", {text(turn['source_id'])}" if turn["source_id"] else ""
    return (
        f"{text(turn['who'])}: {text(turn['content'])}\n[dim]{str(turn['occurred_at'])[:16]},"
        f" session {text(turn['session_id'])}{source}, id {str(turn['id'])[:8]}[/]"
    )


def _state(state: Json) -> str:
    return (
        f"version {state['version']}: {text(state['content'])}"
        f" [dim]({text(state['reason'])}, {str(state['archived_at'])[:16]})[/]"
    )


def decision(item: Json) -> str:
    """One decision: the fact, the proposal and its reason, the outcome, and the candidates."""
    lines = [
        f"{text(item['fact'])}",
        f"[dim]proposed[/] {text(item['action'])} [dim]because[/] {text(item['reason'])}"
        f" [dim]→[/] {text(item['outcome'])}"
        + (
            f" ({text(item['outcome_reason'])})"
            if item["outcome_reason"] not in (None, "", item["reason"])
            else ""
        ),
    ]
    for candidate in cast("list[Json]", item["candidates"])[:SHOWN_CANDIDATES]:
        cosine = candidate.get("cosine")
        keyword = candidate.get("keyword")
        lines.append(
            f"[dim]  saw {str(candidate.get('memory_id', candidate.get('id')))[:8]}"
            f" (cosine {text(cosine)}, keyword {text(keyword)}):"
            f" {text(candidate.get('content'))}[/]"
        )
    return "\n".join(lines)


def _event(event: Json) -> str:
    return (
        f"{str(event['created_at'])[:19]} {text(event['event'])} by {text(event['changed_by'])}"
        f" [dim]{text(event['reason'])}[/]"
    )
