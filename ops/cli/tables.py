"""Prints answers as tables and text for people."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any, TypeAlias, cast

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from palimpsest.ops.cli.common import visible

Json: TypeAlias = dict[str, object]

PIPED_WIDTH = 160
TEXT_WIDTH = 30
"""Least width of a column of texts, which are wrapped; ids, without spaces, are not."""


class _Console(Console):
    """Escapes control sequences, except those that rich itself adds."""

    def print(self, *objects: Any, **given: Any) -> None:
        shown = [visible(each) if isinstance(each, str) else each for each in objects]
        super().print(*shown, **given)


def console() -> Console:
    """Standard output; wide enough that piped text is not cut."""
    found = _Console(highlight=False)
    if found.is_terminal:
        return found
    return _Console(highlight=False, width=int(os.environ.get("COLUMNS") or PIPED_WIDTH))


def text(value: object) -> str:
    """A value in a cell."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, list):
        return escape(visible(", ".join(map(str, value)))) or "-"
    return escape(visible(str(value)))


def table(columns: tuple[str, ...], rows: list[tuple[object, ...]], title: str = "") -> Table:
    """A plain table; numbers to the right."""
    made = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        numeric = bool(rows) and all(
            isinstance(row[number], int | float) and not isinstance(row[number], bool)
            for row in rows
        )
        made.add_column(text(column), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        made.add_row(*map(text, row))
    return made


def print_listed(columns: tuple[str, ...], rows: object, otherwise: str) -> None:
    """Rows as a table, their ids shortened to what commands take; `otherwise` where none is."""
    found = cast("list[Json]", rows)
    cells = [tuple(str(row[n])[:8] if n == "id" else row[n] for n in columns) for row in found]
    console().print(table(columns, cells) if found else otherwise)


def print_rows(
    columns: tuple[str, ...], rows: Sequence[Mapping[str, object]], out: Console | None = None
) -> None:
    """Rows as a table if they fit; otherwise one line per column, so that ids stay whole."""
    out = out or console()
    made = table(columns, [tuple(row[name] for name in columns) for row in rows])
    needed = 0
    for column in made.columns:
        cells = [str(cell) for cell in (column.header, *column.cells)]
        widest = max(map(len, cells))
        column.no_wrap = widest <= TEXT_WIDTH or not any(" " in cell for cell in cells)
        needed += 2 + (widest if column.no_wrap else TEXT_WIDTH)
    if needed <= out.width + 2:
        out.print(made)
    else:
        width = max(map(len, columns))
        for number, row in enumerate(rows, 1):
            out.print(f"[dim]{f'-- {number} --':-<{width + 3}}[/]")
            for name in columns:
                out.print(f"[bold]{text(f'{name:<{width}}')}[/] {text(row[name])}", soft_wrap=True)
    out.print(f"({len(rows)} row{'' if len(rows) == 1 else 's'})")


def printed_rows(columns: tuple[str, ...], rows: Sequence[Mapping[str, object]]) -> str:
    """The same as text for a file."""
    file = StringIO()
    print_rows(columns, rows, Console(file=file, highlight=False, width=PIPED_WIDTH))
    return file.getvalue()


def print_run(answer: object) -> None:
    """The work done by `run`."""
    result = cast("Json", answer)
    out = console()
    stages = cast("dict[str, Json]", result["stages"])
    names = ("records", "skipped", "emitted", "dead", "batches", "seconds")
    out.print(
        table(
            ("stage", *names),
            [(stage, *(counts[name] for name in names)) for stage, counts in stages.items()],
        )
    )
    out.print(f"\n{result['seconds']} s in all")
    if result["balance"]:  # a worker on Kafka has closed its stores by now, unless it was --once
        print_balance(out, cast("Json", result["balance"]))


def print_balance(out: Console, balance: Json) -> None:
    """The conservation law with its numbers."""
    for kind, first in (("turns", "accepted"), ("facts", "extracted")):
        numbers = cast("dict[str, int]", balance[kind])
        parts = [f"{count} {name}" for name, count in numbers.items() if name != first and count]
        out.print(f"{kind}: {numbers.get(first, 0)} {first} = {' + '.join(parts) or '0'}")
    without, turns = cast("list[int]", balance.get("without_facts", [0, 0]))
    if without:
        out.print(
            f"{without} of {turns} turns of people gave no fact; they are found as they were said"
        )
    if balance.get("facts_over_limit"):
        from palimpsest.streams.prompting.prompts import MAX_FACTS

        out.print(
            f"{balance['facts_over_limit']} facts were left out: of one turn at most {MAX_FACTS}"
            " are kept; shorter turns lose none"
        )
    if balance.get("holds") is False:
        out.print("[bold red]the balance does not hold: items are lost[/]; please report this")


def print_status(answer: object) -> None:
    """The answer of `status`."""
    report = cast("Json", answer)
    out = console()
    stages = cast("list[Json]", report["stages"])
    names = ("stage", "partition", "cursor", "end", "lag", "state")
    out.print(table(names, [tuple(stage[name] for name in names) for stage in stages]))
    out.print()
    print_balance(out, cast("Json", report["balance"]))
    out.print(f"dead letters: {report['dead_letters']}")
    held = cast("dict[str, int]", report["pending"])
    if held:
        scopes = f"{len(held)} scope{'' if len(held) == 1 else 's'}"
        out.print(
            f"pending: {sum(held.values())} changes in {scopes} wait for review; see"
            " `palimpsest proposals list`"
        )
    for name, provider in cast("dict[str, Json]", report["providers"]).items():
        reason = f": {text(provider['reason'])}" if provider["reason"] else ""
        out.print(
            f"{name}: {text(provider['provider'])} {text(provider['model'])},"
            f" {provider['state']}{reason}"
        )
    for waiting in cast("list[str]", report["waiting"]):
        out.print(text(waiting))


def print_recall(answer: object) -> None:
    """Results of a recall, the best first, with the parts of each score."""
    recalled = cast("Json", answer)
    out = console()
    results = cast("list[Json]", recalled["results"])
    out.print(f"{len(results)} results by {text(recalled['method'])}")
    for number, result in enumerate(results, 1):
        out.print()
        out.print(
            f"[bold]{number}.[/] {text(marked(result))}"
            f"  [dim]({text(result['type'])}, {text(whose(result))},"
            f" {str(result['occurred_at'])[:10]}{_until(result)})[/]"
            f"{'  [yellow]unlikely[/]' if result['unlikely'] else ''}"
        )
        scores = cast("Json", result["scores"])
        parts = ", ".join(
            f"{name} {text(score)}" for name, score in scores.items() if score is not None
        )
        out.print(f"   score {text(result['score'])} [dim]from {parts}[/]")
        explanation = cast("Json | None", result.get("explanation"))
        if explanation is not None:
            out.print(f"   [dim]made of {reasons(explanation)}[/]")
        out.print(f"   [dim]id {result['id']}[/]")
    for each in cast("list[Json]", recalled.get("related") or []):
        out.print(f"\n[bold]+[/] {text(marked(each))}  [dim]({text(each['reason'])})[/]")


def marked(memory: Json) -> str:
    """The text of a memory, with marks for what no longer holds."""
    from palimpsest.stores.recall.marks import marks_from, with_marks

    return with_marks(str(memory["content"]), marks_from(memory.get("marks")))


def _until(result: Json) -> str:
    """The end of its validity, if it has one."""
    if result["valid_until"] is None:
        return ""
    over = "; over" if result["expired"] else ""
    return f", until {str(result['valid_until'])[:10]}{over}"


def whose(result: Json) -> object:
    """The speaker, with the role if the name does not show it; for a chunk of a document, its
    title."""
    if result["type"] == "document_chunk":
        return ", ".join(cast("list[str]", result["tags"]))
    who, role = str(result["who"]), str(result["role"])
    named = role and role != "user" and role.casefold() != who.casefold()
    return (f"{who} ({role})" if who else role) if named else who


def reasons(explanation: Json) -> str:
    """The parts that a score adds up to, and its place in each leg."""
    parts = cast("dict[str, float]", explanation["parts"])
    ranks = cast("dict[str, int | None]", explanation["ranks"])
    made = " ".join(
        f"{'+' if part >= 0 else '-'} {name} {abs(part):.3f}"
        for name, part in parts.items()
        if part
    )
    places = ", ".join(f"{name} no. {rank}" for name, rank in ranks.items() if rank is not None)
    return f"{made.removeprefix('+ ')}; {places or 'no hit of its own'}"


def print_memory(memory: Json) -> None:
    """All fields of a memory, one per line."""
    out = console()
    shown = {**memory, "content": marked(memory)} if "content" in memory else {**memory}
    shown.pop("marks", None)
    out.print(table(("field", "value"), list(shown.items())))


def print_memories(memories: list[Json]) -> None:
    """Memories, one per line."""
    console().print(
        table(
            ("id", "scope", "type", "who", "occurred", "content"),
            [
                (
                    str(row["id"])[:8],
                    row["scope"],
                    row["type"],
                    whose(row),
                    str(row["occurred_at"])[:16],
                    marked(row),
                )
                for row in memories
            ],
        )
    )


def print_events(events: list[Json]) -> None:
    """Audit events in order."""
    console().print(
        table(
            ("at", "event", "by", "reason", "content"),
            [
                (
                    str(event["created_at"])[:19],
                    event["event"],
                    event["changed_by"],
                    event["reason"],
                    event["new_content"] or event["old_content"],
                )
                for event in events
            ],
        )
    )


def print_entity(found: Json) -> None:
    """An entity with its relations, and the memories that name it."""
    out = console()
    aliases = cast("list[str]", found["aliases"])
    also = f", also {text(aliases)}" if aliases else ""
    named = f"named in {found['mentions']} memories"
    out.print(f"[bold]{text(found['name'])}[/] ({text(found['type'])}{also}), {named}")
    if found["summary"]:
        out.print(text(found["summary"]))
    for each in cast("list[Json]", found["relations"]):
        names = (found["name"], each["name"])
        source, target = names if each["direction"] == "out" else reversed(names)
        relation = str(each["relation"]).replace("_", " ")
        out.print(f"- {text(source)} {text(relation)} {text(target)}")
    print_memories(cast("list[Json]", found["memories"]))
