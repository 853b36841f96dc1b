"""What the demo prints at its end."""

from __future__ import annotations

from typing import cast

from rich.console import Console

from palimpsest.ops.cli.tables import Json, console, marked, print_balance, reasons, text, whose

MEANING = {
    "updated": "updated: the new statement contradicts the known one, which went to the archive",
    "blocked": "held back: changing memory is only proposed as the flags are set",
    "none": "known already: nothing to do",
    "deduped": "known already: the same words",
    "deleted": "forgotten: the state before went to the archive",
    "dropped": "dropped: the decision could not be used",
    "shadowed": "recorded only: shadow mode",
}


def print_demo(result: Json) -> None:
    """Memories, recalls, decisions, the balance, and what to try next."""
    out = console()
    memories = cast("dict[str, int]", result["memories"])
    kinds = ", ".join(f"{count} {kind}" for kind, count in memories.items())
    out.print(
        f"\n[bold]{result['turns']} turns became memory[/] in {result['processed_seconds']} s:"
        f" {kinds}"
    )
    for recall in cast("list[Json]", result["recalls"]):
        _recall(out, recall)
    out.rule("[bold]What was decided, and why", align="left")
    for decision in cast("list[Json]", result["decisions"]):
        _decision(out, decision)
    out.rule("[bold]Nothing got lost", align="left")
    print_balance(out, cast("Json", result["balance"]))
    _next(out, result)


def _recall(out: Console, recall: Json) -> None:
    out.rule(f"[bold]{text(recall['query'])}", align="left")
    for number, found in enumerate(cast("list[Json]", recall["results"]), 1):
        scores = cast("Json", found["scores"])
        parts = ", ".join(f"{n} {text(v)}" for n, v in scores.items() if v is not None)
        out.print(f"{number}. {text(marked(found))}")
        out.print(
            f"   [dim]{text(found['type'])}, {text(whose(found))},"
            f" {str(found['occurred_at'])[:10]}; score {text(found['score'])} from {parts}[/]"
        )
        explanation = cast("Json | None", found.get("explanation"))
        if explanation is not None:
            out.print(f"   [dim]made of {reasons(explanation)}[/]")


def _decision(out: Console, decision: Json) -> None:
    outcome = str(decision["outcome"])
    out.print(f"[bold]{text(decision['said'])}[/]")
    out.print(f"   [dim]{text(decision['speaker'])}, {text(decision['session'])}[/]")
    if decision["known"] not in (None, decision["said"]):
        out.print(f"   known before: {text(decision['known'])}")
    out.print(
        f"   proposed {text(decision['action'])} because: {text(decision['reason'])}"
        f" → {MEANING.get(outcome, outcome)}"
    )


def _next(out: Console, result: Json) -> None:
    folder = result["folder"]
    known = [d for d in cast("list[Json]", result["decisions"]) if d["memory_id"]]
    example = str(known[0]["memory_id"])[:8] if known else "ID"
    out.rule("[bold]Try next", align="left")
    for line in (
        f'palimpsest recall "where does Tom live?" --scope demo --data-dir {folder}',
        f"palimpsest explain {example} --data-dir {folder}",
        f'palimpsest sql "SELECT type, count(*) FROM memories GROUP BY type" --data-dir {folder}',
        f"palimpsest status --data-dir {folder}",
        f'palimpsest remember "Maya plays the harp" --scope demo --data-dir {folder}',
        f"palimpsest run --data-dir {folder}",
    ):
        out.print(f"  {line}", soft_wrap=True)
    out.print(f"[dim]Done in {result['seconds']} s. All of it lies in {folder}.[/]")
