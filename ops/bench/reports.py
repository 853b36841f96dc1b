"""What the commands `palimpsest bench …` print for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from palimpsest.ops.bench.measures import KS
from palimpsest.ops.cli.tables import console, table, text

Json = dict[str, Any]


def throughput(result: Json) -> None:
    out = console()
    stages = result["stages"]
    steps = tuple(next(iter(stages.values()))["seconds"])
    rows: list[tuple[object, ...]] = [
        (name, stage["records"], stage["batches"], *stage["seconds"].values())
        for name, stage in stages.items()
    ]
    out.print(table(("stage", "records", "batches", *(f"{step} s" for step in steps)), rows))
    out.print(
        f"\n[bold]{result['turns_per_second']} turns/s[/]: {result['turns']} turns over"
        f" {result['scopes']} scopes, {result['stored_before']} stored before, in"
        f" {result['seconds']} s ({result['cpu_seconds']} s of processor),"
        f" {result['memories']} memories\n[dim]Stages run at the same time, so their seconds add up"
        " to more than the total.[/]"
    )


def rebuild(result: Json) -> None:
    out = console()
    rows: list[tuple[object, ...]] = [
        (name, each["records"], each["seconds"]) for name, each in result["stages"].items()
    ]
    out.print(table(("stage", "records", "seconds"), rows))
    same = "the same as" if result["same_state"] else "[red]different from[/]"
    out.print(
        f"\n[bold]{result['turns_per_second']} turns/s[/]: {result['turns']} turns"
        f" ({result['records_per_second']} records/s) over {result['partitions']} partitions in"
        f" {result['seconds']} s ({result['cpu_seconds']} s of processor)\nThe largest process used"
        f" {result['peak_mib']} MiB. The rebuilt content is {same} the live one.\n[dim]The seconds"
        " of a stage are the sum over all processes.[/]"
    )


def latency(result: Json) -> None:
    rows: list[tuple[object, ...]] = []
    for each in result["latency"]:
        rows += _latency_rows(
            each,
            ("first load of a scope", each["first_load_ms"]),
            ("recall", each["recall_ms"]),
            ("by keywords", each["keyword_recall_ms"]),
            ("candidates of 20 facts", each["candidates_ms"]),
            *((f"recall, {n} readers + writer", found) for n, found in each["readers"].items()),
        )
    out = console()
    out.print(table(("memories", "what", "p50 ms", "p95 ms", "p99 ms", "queries/s"), rows))
    for each in result["latency"]:
        out.print(
            f"{each['memories']} memories, {each['scopes']} scopes: {_memory(each)}, disk"
            f" {each['disk_mib']} MiB"
        )


def texts_latency(result: Json) -> None:
    rows: list[tuple[object, ...]] = []
    for each in result["latency"]:
        rows += _latency_rows(
            each,
            ("first recall", each["first_recall_ms"]),
            ("recall, including the query's embedding", each["recall_ms"]),
            ("the embedding alone", each["question_embedding_ms"]),
            ("candidates of 20 facts", each["candidates_ms"]),
        )
    out = console()
    out.print(table(("memories", "what", "p50 ms", "p95 ms", "p99 ms", "queries/s"), rows))
    for each in result["latency"]:
        disk = each["bytes_a_memory"]
        out.print(
            f"{each['memories']} memories of conversations in {each['copies']} copies, embedded by"
            f" {each['embedding']}: {_memory(each)}, {each['recall_processor_ms']} ms of processor"
            f" time per recall, {disk['each']} bytes a memory on disk (DuckDB {disk['duckdb']},"
            f" LanceDB {disk['lancedb']})"
        )


def _latency_rows(result: Json, *found: tuple[str, Json]) -> Iterator[tuple[object, ...]]:
    for name, ms in found:
        quantiles = (ms["p50"], ms["p95"], ms["p99"])
        yield (result["memories"], name, *quantiles, ms.get("queries_per_second"))


def _memory(result: Json) -> str:
    return (
        f"index {result['index_mib']} MiB, resident {result['resident_mib']} MiB (of which"
        f" {result['mapped_mib']} are mapped files that the system may drop)"
    )


def retrieval(result: Json) -> None:
    out = console()
    columns = (
        *("method", "questions of", "number", *(f"R@{k}" for k in KS), "hit@10", "MRR"),
        *("p50 ms", "p95 ms", "bytes a turn"),
    )
    for each in result["sets"]:
        settings, ms, disk = each["settings"], each["query_embedding_ms"], each["bytes_a_turn"]
        out.print(table(columns, [*_retrieval_rows(each)], f"\n{settings['data']}"))
        out.print(
            f"\nconversations {', '.join(settings['conversations'])}; embedding"
            f" {settings['embedding']}, p50 {ms['p50']} and p95 {ms['p95']} ms a question, included"
            f" in each method's time; extraction {settings['extraction']}, captions"
            f" {'on' if settings['captions'] else 'off'}; {each['turns_per_second']} turns/s"
            f" ingested, {each['turns_per_processor_second']} per second of processor time;"
            f" memories: {each['memories']}; bytes on disk: log {disk['log']}, DuckDB"
            f" {disk['duckdb']}, LanceDB {disk['lancedb']}"
        )


def _retrieval_rows(result: Json) -> Iterator[tuple[object, ...]]:
    for name, found in result["methods"].items():
        groups = found["by_category"]
        groups |= {f"{half} half": means for half, means in found["by_half"].items()}
        groups |= {f"evidence by {role}": means for role, means in found["by_role"].items()}
        times = (found["ms"]["p50"], found["ms"]["p95"], result["bytes_a_turn"]["each"])
        yield (name, "all", *_shares(found), *times)
        for group, means in (groups | found["by_type"]).items():
            if means["questions"]:
                yield ("", group, *_shares(means), "", "", "")


def _shares(means: Json) -> tuple[object, ...]:
    names = ("questions", *(f"recall@{k}" for k in KS), "hit@10", "mrr")
    return tuple(means.get(name) for name in names)


def context(result: Json) -> None:
    out = console()
    columns = ("budget", "text", "questions of", "number", "evidence", "answer", "filler", "tokens")
    for each in result["sets"]:
        rows = []
        for budget, texts in each["budgets"].items():
            for name, found in texts.items():
                for group, means in ({"all": found} | found["by_category"]).items():
                    if means["questions"]:
                        shown = (means[key] for key in ("questions", *columns[4:]))
                        rows.append((budget, name, group, *shown))
        out.print(table(columns, rows, f"\n{each['data']}"))


def peers(result: Json) -> None:
    out = console()
    columns = ("", *(f"R@{k}" for k in KS), "p50 ms", "p95 ms", "turns/s", "bytes a turn")
    for each in result["sets"]:
        rows: list[tuple[object, ...]] = []
        failed = []
        for name, found in each["rows"].items():
            if "failed" in found:
                failed.append(f"{name} failed: {text(found['failed'])}")
                continue
            shares = (found[f"recall@{k}"] for k in KS)
            costs = (found["turns_per_second"], found["bytes_a_turn"])
            rows.append((name, *shares, found["ms"]["p50"], found["ms"]["p95"], *costs))
        out.print(table(columns, rows, f"\n{each['data']}"))
        for line in failed:
            out.print(line)
        out.print(
            f"\n{each['turns']} turns, {each['questions']} questions, the best {max(KS)} results;"
            f" embedding {each['embedding']}, for the peers over HTTP on this machine (about 2 ms a"
            " question). palimpsest's turns/s are those of its whole pipeline, including facts and"
            " decisions, and its bytes those of its stores without the log; the peers store turns"
            " alone."
        )


def service(result: Json) -> None:
    out = console()
    analyst, memory = result["analyst"], result["memory_mib"]
    timed = {**result["operations"], "SQL by the analyst": analyst, "health": result["health"]}
    timed["recall over HTTP, idle service"] = result["recall_over_http_ms"]
    timed["recall by the library"] = result["recall_in_library_ms"]
    rows: list[tuple[object, ...]] = [
        (name, found["count"], found["p50"], found["p95"], found["maximum"])
        for name, found in timed.items()
    ]
    out.print(table(("what", "answered", "p50 ms", "p95 ms", "maximum ms"), rows))
    out.print(
        f"writes per second: {analyst['writes_per_second_without']} without the analyst,"
        f" {analyst['writes_per_second_with']} with; memory {memory['first_third']} MiB in the"
        f" first third after the last start, {memory['last_third']} in the last\n"
        f"{result['acknowledged']} memories acknowledged over {result['kills']} kills:"
        f" {result['lost']} lost, {result['other_text']} with a different text; the balance"
        f" {'holds' if result['balance']['holds'] else 'does not hold'};"
        f" starts {', '.join(map(str, result['start_seconds']))} s"
    )
    for kind, answers in result["attacks"].items():
        out.print(f"attack by {kind}: {', '.join(f'{n} times {a}' for a, n in answers.items())}")
    for error, count in result["errors"].items():
        out.print(f"[red]{count} times[/] {text(error)}")
    for sql in analyst["failures"]:
        out.print(f"[red]query failed[/] {text(sql)}")
