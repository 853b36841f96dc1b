"""Prints the answers of operations for people; one without a printer prints its fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from rich.tree import Tree

from palimpsest.ops.operations.operation import Json, Operation, Write
from palimpsest.ops.terminal.common import echo, warn
from palimpsest.ops.terminal.progress import duration
from palimpsest.ops.terminal.tables import (
    console,
    days,
    indented,
    print_entity,
    print_events,
    print_fields,
    print_graph,
    print_listed,
    print_memories,
    print_memory,
    print_recall,
    print_status,
    table,
    text,
)
from palimpsest.streams.text.counts import counted

PRINTERS: Final[dict[str, Callable[[Json], None]]] = {
    "recall": print_recall,
    "search": print_recall,
    "get": print_memory,
    "history": lambda answer: print_events(answer["events"]),
    "get_entity": print_entity,
    "show_graph": print_graph,
    "status": print_status,
}
_COUNTED: Final = ("proposals", "failed", "same_action", "agrees", "judged", "with_people")
LISTS: Final[dict[str, tuple[str, tuple[str, ...], str]]] = {
    "weak": (
        "memories",
        ("id", "confidence", "fades_at", "type", "content"),
        "no memory is under {0.below:g}, or fades within {0.days} days",
    ),
    "preview_decay": (
        "memories",
        ("id", "confidence", "faded_to", "forgotten", "content"),
        "nothing fades",
    ),
    "entities": ("entities", ("name", "type", "mentions"), "no entity has such a name"),
    "proposed_merges": (
        "merges",
        ("score", "name", "alias", "names_are", "shared"),
        "no two entities look like one",
    ),
    "flags": ("flags", ("flag", "value", "from"), ""),
    "scopes": (
        "scopes",
        ("scope", "turns", "memories", "facts", "last_activity"),
        "no scopes yet; `palimpsest run` makes them from published turns",
    ),
    "sessions": (
        "sessions",
        ("session_id", "turns", "began_at", "last_at", "ended_by"),
        "no sessions yet; they begin with turns that name one",
    ),
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
    "promotions": (
        "promotions",
        (
            *("promotion_id", "branch", "status", "gained", "changed", "lost", "kept"),
            *("recorded_at", "scopes"),
        ),
        "nothing was promoted yet",
    ),
    "embedding_status": (
        "partitions",
        ("partition", "live", "missing", "upcoming", "made", "memories", "seconds_left", "former"),
        "no partition is open",
    ),
    **dict.fromkeys(
        (
            *("migrate_embedding", "switch_embedding", "embedding_back"),
            *("cancel_embedding", "drop_embedding"),
        ),
        (
            "changes",
            ("partition", "action", "live", "to", "state", "bytes", "reason"),
            "nothing to change",
        ),
    ),
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
        print_fields(answer)


def _print_change(answer: Json) -> None:
    """Prints the effect of a command on each memory, one per line."""
    about = ("command_id", "applied", "erasure", "left", "changes")
    for each in answer.get("changes", [answer]):
        parts = [
            f"{name} {_in_words(value)}"
            for name, value in sorted(each.items(), key=lambda item: item[0] != "id")
            if name not in about and value not in (None, [])
        ]
        echo(", ".join(parts))
    if "erasure" in answer:
        echo(IN_NO_FILE if answer["erasure"] == "done" else STILL_IN_FILES)
        for left in answer["left"]:
            echo(f"not reached: {left}")


def _in_words(value: Json) -> Json:
    if isinstance(value, dict):
        return " ".join(f"{name} {each}" for name, each in value.items() if each is not None)
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _print_next(page: Json) -> None:
    if page.get("next_cursor") is not None:
        echo(f"\nmore: --cursor '{page['next_cursor']}'")


@prints("ingest")
def _ingested(answer: Json) -> None:
    count = answer.get("found", answer["published"])
    scopes = ", ".join(f"{scope} ({number})" for scope, number in answer["scopes"].items())
    into = f" into {scopes}" if scopes else ""
    done = "would be published" if "found" in answer else "published"
    line = f"{counted(count, 'turns')} {done}{into}, {len(answer['bad'])} bad"
    conflicts = len(answer["conflicts"])
    if answer["known"] or answer["revised"] or conflicts:
        line += f": {answer['new']} new, {answer['known']} known before"
        line += f", {answer['revised']} edited since" if answer["revised"] else ""
        line += f", {conflicts} in conflict" if conflicts else ""
        line += "" if answer["complete"] else " (of the newest 200,000 published)"
    if answer["erased"]:
        line += f"; {answer['erased']} erased before, which stay erased"
    settled = answer.get("settled", {}).items()
    parts = [f"{number} {kind.replace('_', ' ')}" for kind, number in settled]
    echo(f"{line}; {', '.join(parts)}" if parts else line)


@prints("context")
def _context(answer: Json) -> None:
    if answer["text"] is None:
        echo("nothing is known about that")
    elif answer.get("lines"):
        for line in answer["lines"]:
            shown = " ".join(each[:8] for each in line["memory_ids"])
            echo(f"{line['tokens']:>4}  {shown:<8}  {line['text']}".rstrip())
        echo(f"\n{counted(answer['tokens'], 'tokens')} of at most {answer['budget']}")
    else:
        echo(str(answer["text"]))


@prints("list")
def _list(answer: Json) -> None:
    print_memories(answer["memories"])
    _print_next(answer)


@prints("preview_forget")
def _preview(answer: Json) -> None:
    names = ("id", "score", "type", "pinned", "version", "content")
    print_listed(names, answer["candidates"], "nothing matches")
    gone = [each for each in answer["cascade"] if each["left"] is None]
    if gone:
        echo(f"drawn from nothing else, and forgotten with --cascade ({len(gone)}):")
        print_listed(("id", "type", "pinned", "version", "content"), gone, "")
    for each in answer["cascade"]:
        if each["left"] is not None:
            was = f"with --cascade {str(each['id'])[:8]} no longer says {each['content']!r}"
            echo(f"{was} but, as another text does: {each['left']}")
    for each in answer["hides"]:
        left = each["left"] or "nothing is left of it"
        echo(f"hidden in {str(each['id'])[:8]}: {each['content']!r}: {left}")
    if answer["more"]:
        echo("more match than one command forgets; see --limit")
    if answer["candidates"]:
        echo(f"to confirm: the same with --reason and --confirm {answer['confirm_token']}")


@prints("preview_erase_scope")
def _counted(answer: Json) -> None:
    echo(f"the scope {answer['scope']} holds {counted(answer['memories'], 'memories')}")
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


@prints("session_memory")
def _session_memory(answer: Json) -> None:
    kept = answer["short_term"]
    if kept is not None:
        summary = kept["summary"]
        if summary is not None:
            echo(f"summary by {summary['by']}, until {str(summary['expires_at'])[:19]}:")
            echo(f"  {summary['text']}")
        for turn in kept["turns"]:
            said = indented(str(turn["content"]))
            echo(f"{str(turn['occurred_at'])[:19]} {turn['who'] or '-'}: {said}")
    if answer["memories"]:
        echo("memories of the session:")
        print_memories(answer["memories"])
    _print_next(answer)


@prints("privacy")
def _privacy(answer: Json) -> None:
    rows = [{**row, "person": row["person"] or "(the whole scope)"} for row in answer["levels"]]
    print_listed(("person", "level", "since", "changed_by", "reason"), rows)


@prints("diagnose")
def _diagnose(answer: Json) -> None:
    echo(f"{answer['status']}, score {answer['score']:g}")
    for name, found in answer["domains"].items():
        echo(f"{name}: {found['status']} {found['score']:g}: {found['reason']}")
        if found["recommendation"] is not None:
            echo(f"  mend it: {found['recommendation']}")
        if any(score < 1 for score in found["trend"].values()):
            echo(f"  last days: {days(found['trend'])}")
    if answer["trend"]:
        echo(f"score of the last days: {days(answer['trend'])}")


@prints("repair_domain")
def _repair(answer: Json) -> None:
    for scope, counts in answer["scopes"].items():
        listed = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in counts.items())
        echo(f"{scope}: {listed}")
    if not answer["scopes"]:
        echo(f"{answer['domain']}: nothing to repair")
    elif answer["dry_run"]:
        echo("nothing was changed; without --dry-run it is repaired")
    elif answer["score_after"] is None:
        echo("the worker does the rest; `palimpsest diagnose` shows the score then")
    else:
        echo(f"score {answer['score_before']:g} before, {answer['score_after']:g} now")


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
    memory = answer["memory"]
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


def _branch(tree: Tree, title: str, items: list[Json], show: Callable[[Json], str]) -> None:
    if items:
        branch = tree.add(f"[bold]{title}[/]")
        for item in items:
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
    for candidate in item["candidates"][:SHOWN_CANDIDATES]:
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


# ---- replays ----
MOST_SHOWN: Final = 200
"""Differences of a kind that a table shows."""


@prints("rebuild")
def _rebuilt(done: Json) -> None:
    for each in done["partitions"]:
        echo(f"partition {each['partition']}: {counted(each['rows'], 'rows')}, {_comparison(each)}")
    rate = f", {done['turns_per_second']:,.0f} turns a second" if done["records"] else ""
    echo(f"{counted(done['records'], 'records')} folded in {done['seconds']:.1f} s{rate}")
    if done["swapped"]:
        echo(
            f"the new stores are live; those of before are the branch {done['kept']}, which"
            f" `palimpsest replay drop {done['kept']}` removes"
        )
    elif not done["notes"]:
        echo(f"the new stores are the branch {done['branch']}")


def _comparison(each: Json) -> str:
    if each["not_compared"] is not None:
        return f"not compared with the live store: {each['not_compared']}"
    if not each["differing"]:
        return f"equal to the live store (state hash {each['state_hash'][:16]}…)"
    tables = ", ".join(
        f"{counted(rows, 'rows')} of {table}" for table, rows in each["differing"].items()
    )
    return f"DIFFERS from the live store in {tables}"


@prints("reextract")
def _reextracted(done: Json) -> None:
    if "all_turns" in done:
        basis = "as the live model's calls took" if done["recorded"] else "counted by characters"
        read, written = done["input_tokens"], done["output_tokens"]
        echo(f"{done['turns']:,} of {done['all_turns']:,} turns would be sent to the model")
        echo(f"tokens: about {read:,} read and {written:,} written, {basis}")
        if done["seconds"] is not None:
            echo(f"time: about {duration(done['seconds'])}")
        if done["cost"] is not None:
            echo(f"cost: about {done['cost']:,.4f}")
        echo("nothing was done; run it without --dry-run")
        return
    spent = done["spent"]
    echo(
        f"{done['branch']['name']}: {done['turns']:,} turns and {done['commands']:,} commands about"
        f" facts fed; {spent['calls']:,} calls of the model so far, {spent['input_tokens']:,}"
        f" tokens read and {spent['output_tokens']:,} written"
    )


@prints("diff")
def _diff(found: Json) -> None:
    if "lines" in found:
        totals = ", ".join(f"{number} {kind}" for kind, number in found["totals"].items())
        echo(f"{totals}\nwrote {counted(found['lines'], 'lines')}")
        return
    branch, scopes = found["branch"], found["scopes"]
    kinds = tuple(found["totals"])
    listed = [
        (each["scope"], kind, *(counts[name] for name in kinds))
        for each in scopes
        for kind, counts in each["counts"].items()
    ]
    _print_table(("scope", "type", *kinds), listed, otherwise="no facts on either side")
    facts = [
        (
            *(each["scope"], fact["kind"], fact["keep"], fact["similarity"]),
            *("" if fact[side] is None else fact[side]["content"] for side in ("live", "branch")),
            " | ".join(fact["evidence"]),
        )
        for each in scopes
        for fact in each["facts"]
    ]
    _print_table(
        ("scope", "kind", "keep", "similarity", "live", branch, "evidence"), facts, "facts"
    )
    decisions = [
        (
            *(each["scope"], each["live"]["fact"]),
            *(each[side][name] for side in ("live", "branch") for name in ("action", "target")),
        )
        for scope in scopes
        for each in scope["decisions"]
    ]
    _print_table(("scope", "fact", "live", "about", branch, "about"), decisions, "decisions")
    names = ("scope", "kind", "what", "name")
    graph = [tuple(part[name] for name in names) for each in scopes for part in each["graph"]]
    _print_table(names, graph, "graph")
    columns = ("turns", "facts", "input_tokens", "output_tokens", "cost")
    spent = [
        (name, *(found["spent"][side][column] for column in columns))
        for name, side in (("live", "live"), (branch, "branch"))
    ]
    shown = ("extraction", *(column.replace("_", " ") for column in columns))
    _print_table(shown, spent, "turns extracted again")
    if "recall" in found:
        recall = found["recall"]
        at = [(f"recall@{k}", each["live"], each["branch"]) for k, each in recall["at"].items()]
        _print_table(("", "live", branch), at, f"{len(recall['questions'])} questions")
    for path in found["written"]:
        echo(f"wrote {path}")


def _print_promotion(end: Json, what: str) -> None:
    scopes = end["scopes"]
    if any(each["status"] not in ("planned", "nothing") for each in scopes):
        echo(f"{what} {end['promotion_id']} of branch {end['branch']}")
    rows = [
        (
            *(each["scope"], each["status"]),
            *(_listed(each[name]) for name in ("counts", "kept_because")),
            each["error"],
        )
        for each in scopes
    ]
    names = ("scope", "status", "done", "kept because", "error")
    _print_table(names, rows, otherwise="there is no scope in both memories")
    lost = [(each["scope"], text) for each in scopes for text in each["losses"]]
    _print_table(("scope", "fact"), lost, "would be forgotten, with --allow-loss")
    if end["behind"]:
        echo(
            f"{counted(end['behind'], 'records')} came in since the branch read the log: what was"
            " drawn from them stays as it is"
        )
    if any(each["status"] == "waiting" for each in scopes):
        echo(
            f"the {what.partition(' ')[0]} of some scopes waits for the next `palimpsest run`;"
            " `palimpsest replay promotions` shows what became of it"
        )


PRINTERS["promote"] = partial(_print_promotion, what="promotion")
PRINTERS["rollback"] = partial(_print_promotion, what="rollback of promotion")


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number)


def _print_table(
    columns: tuple[str, ...],
    rows: Sequence[tuple[object, ...]],
    title: str = "",
    otherwise: str | None = None,
) -> None:
    """Prints the first rows of a table, and nothing without rows unless `otherwise` is given."""
    if rows:
        named = f"\n{title}" if title else ""
        console().print(table(columns, [*rows[:MOST_SHOWN]], title=named))
        if len(rows) > MOST_SHOWN:
            echo(f"and {len(rows) - MOST_SHOWN} more; --json or --out gives all")
    elif otherwise is not None:
        echo(otherwise)


@prints("branches")
def _branches(answer: Json) -> None:
    columns = ("name", "kind", "created_at", "settings", "whole", "behind", "erasures")
    found = answer["branches"]
    print_listed(columns, found, "no branches; `palimpsest replay reextract` makes one")
    if any(each["erasures"] for each in found):
        warn(
            "what was erased live is still in a branch. The worker of an embedded log takes it out"
            " as soon as no process works on the branch; else feed it again with `palimpsest replay"
            " reextract --branch NAME`, or remove it with `palimpsest replay drop NAME`"
        )


@prints("curation")
def _curation(answer: Json) -> None:
    rows = answer["curated"]
    columns = ("command", "live_id", "branch_id", "matched_by", "similarity", "status", "detail")
    print_listed(columns, rows, "nothing that people changed is in the branch yet")
    counts = Counter(row["status"] for row in rows)
    if counts:
        echo(", ".join(f"{count:,} {status}" for status, count in counts.most_common()))


@prints("drop_branch")
def _dropped(answer: Json) -> None:
    echo(f"the branch {answer['dropped']} is gone")
