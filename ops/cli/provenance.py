"""Prints the provenance of a memory as a tree: the memory, then where it came from."""

from __future__ import annotations

from typing import cast

from rich.tree import Tree

from palimpsest.ops.cli.tables import Json, console, text

SHOWN_CANDIDATES = 3


def print_provenance(answer: object) -> None:
    """The answer of `explain`."""
    console().print(provenance(cast("Json", answer)))


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
