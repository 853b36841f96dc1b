"""Prints answers as tables and text for people."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from io import StringIO
from typing import Any, Final, TypeAlias

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from palimpsest.ops.terminal.common import echo, visible
from palimpsest.streams.text.counts import counted

Json: TypeAlias = dict[str, Any]

PIPED_WIDTH = 160
TEXT_WIDTH = 30
"""Least width of a column of texts, which are wrapped; ids, without spaces, are not."""
REFUSED_SHOWN: Final = 10
"""Refused commands that `run` names."""
REASON_WIDTH: Final = 300


class _Console(Console):
    """Prints texts as they are stored: control sequences escaped, except those that rich itself
    adds, and no emoji in the place of a word between colons."""

    def __init__(self, **given: Any) -> None:
        super().__init__(highlight=False, emoji=False, **given)

    def print(self, *objects: Any, **given: Any) -> None:
        shown = [visible(each) if isinstance(each, str) else each for each in objects]
        super().print(*shown, **given)


def console() -> Console:
    """Standard output; wide enough that piped text is not cut."""
    found = _Console()
    if found.is_terminal:
        return found
    return _Console(width=int(os.environ.get("COLUMNS") or PIPED_WIDTH))


_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*")


def text(value: object) -> str:
    """A value in a cell."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, list | tuple):
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


def print_listed(
    columns: tuple[str, ...], rows: Iterable[Json], otherwise: str = "", title: str = ""
) -> None:
    """Prints rows as a table; `otherwise` if there are none. Ids are shortened to what commands
    take, times to seconds."""
    cells = [tuple(_cell(name, row[name]) for name in columns) for row in rows]
    console().print(table(columns, cells, title) if cells else otherwise)


def _cell(name: str, value: object) -> object:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return len(value)
    if isinstance(value, datetime) or (isinstance(value, str) and _TIME.fullmatch(value)):
        return str(value)[:19]
    if isinstance(value, str) and name != "session_id" and (f"_{name}").endswith("_id"):
        return value[:8]
    return value


def print_fields(answer: dict[str, Any]) -> None:
    """An answer field by field: values in a line each, counts in one line, lists as tables of what
    their items have in a line, long names and times cut."""
    for name, value in answer.items():
        label = name.replace("_", " ")
        if isinstance(value, list) and value and isinstance(value[0], dict):
            columns = tuple(key for key in value[0] if not isinstance(value[0][key], dict))
            print_listed(columns, value, title=f"\n{label}")
        elif isinstance(value, dict):
            parts = [f"{count} {key}" for key, count in value.items()]
            console().print(f"{label}: {text(parts)}")
        elif name != "next_cursor":
            console().print(f"{label}: {text(_cell(name, value))}")
    if answer.get("next_cursor") is not None:
        console().print(f"\nmore: --cursor '{answer['next_cursor']}'")


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
    out.print(f"({counted(len(rows), 'rows')})")


def printed_rows(columns: tuple[str, ...], rows: Sequence[Mapping[str, object]]) -> str:
    """The same as text for a file."""
    file = StringIO()
    print_rows(columns, rows, _Console(file=file, width=PIPED_WIDTH))
    return file.getvalue()


def print_run(result: Json) -> None:
    """The work done by `run`."""
    out = console()
    stages = result["stages"]
    names = ("records", "skipped", "emitted", "dead", "batches", "seconds")
    out.print(
        table(
            ("stage", *names),
            [(stage, *(counts[name] for name in names)) for stage, counts in stages.items()],
        )
    )
    out.print(f"\n{result['seconds']} s in all")
    if result["balance"]:  # a worker on Kafka has closed its stores by now, unless it was --once
        print_balance(out, result["balance"])
    refused = result["refused"]
    if refused:
        out.print(f"{counted(len(refused), 'commands were refused')}:")
    for each in refused[:REFUSED_SHOWN]:
        look = f"see `palimpsest result {each['command_id']}`"
        out.print(
            text(f"- {each['command']}: {each['why'][:REASON_WIDTH]}; {look}"), soft_wrap=True
        )
    if len(refused) > REFUSED_SHOWN:
        out.print(f"- and {len(refused) - REFUSED_SHOWN:,} more; `--json` names them all")


def print_balance(out: Console, balance: Json) -> None:
    """The conservation law with its numbers."""
    for kind, first in (("turns", "accepted"), ("facts", "extracted")):
        numbers = balance[kind]
        parts = [f"{count} {name}" for name, count in numbers.items() if name != first and count]
        out.print(f"{kind}: {numbers.get(first, 0)} {first} = {' + '.join(parts) or '0'}")
    without, turns = balance.get("without_facts", [0, 0])
    if without:
        out.print(
            f"{without} of {turns} turns of people gave no fact; they are found as they were said"
        )
    if balance.get("failed_turns"):
        failed = counted(balance["failed_turns"], "turns")
        out.print(f"{failed} failed; see `palimpsest dead-letters list`")
    if balance.get("facts_over_limit"):
        from palimpsest.streams.prompting.prompts import MAX_FACTS

        out.print(
            f"{counted(balance['facts_over_limit'], 'facts were left out')}: of one turn at most"
            f" {MAX_FACTS} are kept; shorter turns lose none"
        )
    if balance.get("holds") is False:
        out.print("[bold red]the balance does not hold: items are lost[/]; please report this")


def days(trend: Mapping[str, float]) -> str:
    """The scores of the last seven days, as `1 (03-01), 0.98 (03-02)`."""
    return ", ".join(f"{score:g} ({day[5:]})" for day, score in [*trend.items()][-7:])


def print_status(report: Json) -> None:
    """The answer of `status`."""
    out = console()
    stages = report["stages"]
    names = ("stage", "partition", "cursor", "end", "lag", "state")
    rows = [
        (*(stage[name] for name in names), str(stage["waiting_since"] or "")[:19])
        for stage in stages
    ]
    out.print(table((*names, "waiting since"), rows))
    out.print()
    print_balance(out, report["balance"])
    out.print(f"dead letters: {report['dead_letters']}")
    held = report["pending"]
    if held:
        scopes = counted(len(held), "scopes")
        out.print(
            f"pending: {counted(sum(held.values()), 'changes')} in {scopes} to review; see"
            " `palimpsest proposals list`"
        )
    if report["health"]:
        out.print(f"health of the last days: {days(report['health'])}")
    for name, provider in report["providers"].items():
        reason = f": {text(provider['reason'])}" if provider["reason"] else ""
        out.print(
            f"{name}: {text(provider['provider'])} {text(provider['model'])},"
            f" {provider['state']}{reason}"
        )
    for job in report["jobs"]:
        out.print(text(_job(job)))
    for each in report["embeddings"]:
        for line in _embedding_lines(each):
            out.print(text(line))
    for waiting in report["waiting"]:
        out.print(text(waiting))


def _job(job: Json) -> str:
    """A scheduled job on one line."""
    last, after = job["last_run"], job["next_run"]
    ran = "has not run yet"
    if isinstance(last, dict):
        said = f": {last['detail']}" if last["detail"] else ""
        ran = f"{last['outcome']} at {str(last['ended_at'])[:19]}{said}"
    coming = "" if after is None else f"; next at {str(after)[:19]}"
    return f"job {job['job']} (partition {job['partition']}, {job['schedule']}): {ran}{coming}"


def _embedding_lines(state: Json) -> Iterator[str]:
    """What is not as usual with the vectors of a partition."""
    where, failure = f"partition {state['partition']}", state["failure"]
    why = f", {state['failed']} failed: {failure}" if failure else ""
    if state["missing"]:
        lacking = counted(state["missing"], "memories lack")
        yield f"{where}: {lacking} a vector of {state['live']}{why}"
    if state["upcoming"]:
        left, made = state["seconds_left"], f"{state['made']} of {state['memories']}"
        soon = "" if left is None else f", about {left:.0f} s left"
        yield f"{where}: migration to {state['upcoming']}, {made} vectors made{soon}{why}"


def print_recall(recalled: Json) -> None:
    """Results of a recall, the best first, with the parts of each score."""
    out = console()
    results = recalled["results"]
    out.print(f"{counted(len(results), 'results')} by {text(recalled['method'])}")
    for number, result in enumerate(results, 1):
        out.print()
        print_result(out, number, result)
    for each in recalled.get("related") or []:
        said = indented(text(marked(each)))
        out.print(f"\n[bold]+[/] {said}  [dim]({text(each['reason'])})[/]")
    for each in recalled.get("why_not") or []:
        failed = each["filters"]
        filters = f" by {', '.join(failed)}" if failed else ""
        rank = "" if each["rank"] is None else f", no. {each['rank']} with {each['score']:.3f}"
        shown_by = f", shown by {text(each['shown_by'])}" if each["shown_by"] else ""
        out.print(f"\n[dim]{each['id']}[/]: {each['reason']}{filters}{rank}{shown_by}")
        if each["explanation"] is not None:
            out.print(f"   [dim]made of {reasons(each['explanation'])}[/]")


def print_result(out: Console, number: int, result: Json) -> None:
    """A result of a recall, with the parts of its score."""
    out.print(
        f"[bold]{number}.[/] {indented(text(marked(result)))}"
        f"  [dim]({text(result['type'])}, {text(whose(result))},"
        f" {str(result['occurred_at'])[:10]}{_until(result)})[/]"
        f"{'  [yellow]unlikely[/]' if result['unlikely'] else ''}"
    )
    scores = {name: score for name, score in result["scores"].items() if score is not None}
    parts = ", ".join(f"{name} {text(score)}" for name, score in scores.items())
    out.print(f"   score {text(result['score'])} [dim]from {parts}[/]")
    if result.get("explanation") is not None:
        out.print(f"   [dim]made of {reasons(result['explanation'])}[/]")
    out.print(f"   [dim]id {result['id']}[/]")


def indented(said: str) -> str:
    """A text of several lines, so that none of them looks like the next item of a list."""
    return said.replace("\n", "\n   ")


def marked(memory: Json) -> str:
    """The text of a memory, with marks for what no longer holds."""
    from pydantic import TypeAdapter

    from palimpsest.stores.recall.query import Mark, with_marks

    marks = TypeAdapter(tuple[Mark, ...]).validate_python(memory.get("marks") or ())
    return with_marks(str(memory["content"]), marks)


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
        return ", ".join(result["tags"])
    who, role = str(result["who"]), str(result["role"])
    named = role and role != "user" and role.casefold() != who.casefold()
    return (f"{who} ({role})" if who else role) if named else who


def reasons(explanation: Json) -> str:
    """The parts that a score adds up to, and its place in each leg."""
    parts = explanation["parts"]
    ranks = explanation["ranks"]
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
    recalls = shown.pop("recalls", [])
    out.print(table(("field", "value"), list(shown.items())))
    columns = ("asked_at", "kind", "rank", "score", "question")
    if recalls:
        out.print(table(columns, [tuple(each[name] for name in columns) for each in recalls]))


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
    shown = [{**each, "content": each["new_content"] or each["old_content"]} for each in events]
    print_listed(("created_at", "event", "changed_by", "reason", "content"), shown)


def print_entity(found: Json) -> None:
    """An entity with its relations, and the memories that name it."""
    out = console()
    aliases = found["aliases"]
    also = f", also {text(aliases)}" if aliases else ""
    also += "".join(f", {name}" for name in ("pinned", "archived") if found[name])
    named = f"named in {counted(found['mentions'], 'memories')}"
    out.print(f"[bold]{text(found['name'])}[/] ({text(found['type'])}{also}), {named}")
    if found["summary"]:
        out.print(text(found["summary"]))
    for each in found["relations"]:
        names = (found["name"], each["name"])
        source, target = names if each["direction"] == "out" else reversed(names)
        relation = str(each["relation"]).replace("_", " ")
        out.print(f"- {text(source)} {text(relation)} {text(target)}")
    for each in found["attributes"]:
        kind = " (constraint)" if each["kind"] == "constraint" else ""
        out.print(f"- {text(each['aspect'])}{kind}: {text(each['content'])}")
    print_memories(found["memories"])


def print_graph(found: Json) -> None:
    """The document; else a tree from the first entity: each relation once, where it is nearest."""
    if found["document"] is not None:
        echo(str(found["document"]))
        return
    out = console()
    names = {node["id"]: str(node["name"]) for node in found["nodes"]}
    edges = found["edges"]
    around: dict[object, list[int]] = {}
    for number, edge in enumerate(edges):
        for end in {str(edge["source"]), str(edge["target"])}:
            around.setdefault(end, []).append(number)
    left = set(range(len(edges)))
    entered: set[object] = set()
    for first, name in names.items():
        if first in entered:
            continue
        entered.add(first)
        tree = Tree(f"[bold]{text(name)}[/]")
        waiting = [(first, tree)]
        for entity_id, branch in waiting:
            for number in around.get(entity_id, ()):
                if number not in left:
                    continue
                left.discard(number)
                edge = edges[number]
                relation = text(str(edge["relation"]).replace("_", " "))
                goes_out = edge["source"] == entity_id
                other = edge["target"] if goes_out else edge["source"]
                arrow = f"{relation} →" if goes_out else f"← {relation}"
                child = branch.add(f"{arrow} {text(names[other])}")
                if other not in entered:
                    entered.add(other)
                    waiting.append((other, child))
        out.print(tree)
    if not found["complete"]:
        out.print(f"the first {counted(len(names), 'entities')}; --limit for more")
