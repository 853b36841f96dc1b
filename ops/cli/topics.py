"""topics: the topics on Kafka."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from palimpsest.ops.cli.common import AsJson, Cli, command, echo, print_json, usage_error, warn

if TYPE_CHECKING:
    from palimpsest.ops.kafka.topics import TopicState
    from palimpsest.streams.kafka.cluster import Cluster

group = typer.Typer(help="Topics on Kafka.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="topics", help="Create and inspect the topics on Kafka.")
    command(group)(create)
    command(group)(describe)
    command(group, "delete-records")(delete_records)


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
    if json:
        print_json({"deleted": yes, "before": [asdict(place) for place in places]})
        return
    for place in places:
        done = "deleted" if yes else "would be deleted"
        echo(f"{place.topic}[{place.partition}]: records before {place.offset} {done}")
    if not yes:
        echo("of all scopes, and for good: with --yes it is done")


def _options(cli: Cli) -> Cluster:

    settings = cli.settings
    if settings.log.kind != "kafka":
        raise usage_error(
            "the embedded log makes its topics by itself; for Kafka add --set log.kind=kafka"
        )
    return settings.cluster


def _print(states: list[TopicState], json: bool) -> None:
    if json:
        print_json(
            [
                {
                    "topic": state.name,
                    "partitions": state.partitions,
                    "replicas": state.replicas,
                    "settings": dict(state.settings),
                    "differences": list(state.differences),
                    "created": state.created,
                }
                for state in states
            ]
        )
    else:
        for state in states:
            made = ", just made" if state.created else ""
            echo(
                f"{state.name}: {state.partitions or 'no'} partitions,"
                f" {state.replicas or 'no'} copies{made}"
            )
    for state in states:
        for difference in state.differences:
            warn(f"{state.name} {difference}")
    if any(state.differences for state in states):
        raise typer.Exit(1)
