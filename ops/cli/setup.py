"""settings, doctor: the effective settings, and a check of the set-up; topics: those on Kafka."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from palimpsest.ops.terminal.common import (
    AsJson,
    Cli,
    command,
    print_json,
    show,
    usage_error,
    warn,
)

if TYPE_CHECKING:
    from palimpsest.ops.kafka.topics import TopicState
    from palimpsest.streams.kafka.cluster import Cluster


def register(app: typer.Typer) -> None:
    command(app)(settings)
    command(app)(doctor)
    group = typer.Typer(help="Topics on Kafka.", no_args_is_help=True)
    app.add_typer(group, name="topics", help="Create and inspect the topics on Kafka.")
    command(group)(create)
    command(group)(describe)
    command(group, "delete-records")(delete_records)


def settings(
    cli: Cli,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only settings that differ from their defaults.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Print the effective settings and the source of each; secrets are masked.

    Flags override the environment (PALIMPSEST_LLM__PROVIDER), which overrides palimpsest.toml,
    which overrides the defaults.

    Example: palimpsest settings --changed
    """
    effective = [
        (key, value, source)
        for key, value, source in cli.load().effective()
        if not changed or source != "default"
    ]
    if json:
        print_json({key: {"value": value, "source": source} for key, value, source in effective})
        return
    from palimpsest.ops.terminal.tables import console, table

    console().print(table(("setting", "value", "from"), list(effective)))


def doctor(cli: Cli, json: AsJson = False) -> None:
    """Check the set-up, and explain how to fix each problem.

    Checks the data folder, disk, log, stores, graph, language model, embedding model and versions.

    Example: palimpsest doctor
    """
    import asyncio

    from palimpsest.ops.cli.doctor import examine

    findings = asyncio.run(examine(cli.settings))
    if json:
        print_json([asdict(each) for each in findings])
    else:
        from palimpsest.ops.terminal.tables import console, text

        out = console()
        for finding in findings:
            mark = "[green]ok[/]  " if finding.ok else "[red]bad[/] "
            out.print(f"{mark}{finding.check:<16} {text(finding.found)}", soft_wrap=True)
            if finding.advice:
                out.print(f"    [bold]{text(finding.advice)}[/]")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


# ---- topics ----
def create(cli: Cli, json: AsJson = False) -> None:
    """Create the missing topics with the required partitions, retention and compaction.

    Existing topics stay unchanged; a topic that differs from its definition is reported, with exit
    code 1. The number of partitions (log.partitions) never changes.

    Example: palimpsest topics create --set log.kind=kafka
    """
    from palimpsest.ops.kafka.topics import create_topics

    settings = cli.settings
    _print(create_topics(_options(cli), settings.kafka.replication_factor), json)


def describe(cli: Cli, json: AsJson = False) -> None:
    """Show the topics and how they differ from their definitions.

    Example: palimpsest topics describe --set log.kind=kafka
    """
    from palimpsest.ops.kafka.topics import describe_topics

    _print(describe_topics(_options(cli)), json)


def delete_records(
    cli: Cli,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete; by default only show what would be deleted.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Delete the records that every stage has processed, of all scopes: the only way on Kafka to
    remove erased texts from the topics before their retention ends.

    The stores keep their data, but can no longer be rebuilt from the log, and a snapshot older than
    the last deleted record can no longer be restored.

    Example: palimpsest topics delete-records --set log.kind=kafka
    """
    from palimpsest.ops.kafka.topics import delete_records as delete
    from palimpsest.ops.kafka.topics import processed
    from palimpsest.streams.kafka.log import KafkaLog

    cluster = _options(cli)
    with KafkaLog.open(cluster) as log:
        places = processed(log)
    if yes:
        delete(cluster, places)
    done = "deleted" if yes else "would be deleted"
    lines = [f"{p.topic}[{p.partition}]: records before {p.offset} {done}" for p in places]
    lines += [] if yes else ["of all scopes, and for good: with --yes it is done"]
    show(json, {"deleted": yes, "before": [asdict(place) for place in places]}, *lines)


def _options(cli: Cli) -> Cluster:
    settings = cli.settings
    if settings.log.kind != "kafka":
        raise usage_error(
            "the embedded log makes its topics by itself; for Kafka add --set log.kind=kafka"
        )
    return settings.cluster


def _print(states: list[TopicState], json: bool) -> None:
    lines = [
        f"{state.topic}: {state.partitions or 'no'} partitions, {state.replicas or 'no'} copies"
        + (", just made" if state.created else "")
        for state in states
    ]
    show(json, [asdict(state) for state in states], *lines)
    for state in states:
        for difference in state.differences:
            warn(f"{state.topic} {difference}")
    if any(state.differences for state in states):
        raise typer.Exit(1)
