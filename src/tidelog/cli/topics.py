"""`tidelog topics`: create, list, describe and delete.

All through the Kafka client, so that they work against any cluster that can be reached. Errors are
the brokers' own, with their reasons.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tidelog.cli.output import OutputFormat, OutputOption, print_json, print_line, print_table, say
from tidelog.cli.target import (
    BootstrapOption,
    OptionalDirectoryOption,
    TimeoutOption,
    choose_target,
    key_values,
)
from tidelog.client.cluster import ClusterMetadata, TopicMetadata
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import topic_id_to_text
from tidelog.local.status import PartitionStatus, describe_partitions

app = typer.Typer(help="Create, list, describe and delete topics.", no_args_is_help=True)

_NameArgument = Annotated[str, typer.Argument(help="The topic.", show_default=False)]


@app.command()
def create(
    name: _NameArgument,
    partitions: Annotated[int, typer.Option(help="Partitions; the broker's default.")] = -1,
    replication_factor: Annotated[
        int, typer.Option(help="Replicas of each partition; the broker's default.")
    ] = -1,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", help="key=value, for example retention.ms")
    ] = None,
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 30.0,
) -> None:
    """Create a topic; returns when every partition has a leader."""
    configs = key_values(config)
    with choose_target(bootstrap, directory).client(timeout) as client:
        topic_id = client.create_topic(name, partitions, replication_factor, configs)
        topic = client.await_topic(name)
    if output is OutputFormat.JSON:
        print_json(
            {
                "topic": name,
                "topic_id": topic_id_to_text(topic_id),
                "partitions": len(topic.partitions),
            }
        )
    else:
        say(f"topic {name} created with {len(topic.partitions)} partitions")


@app.command("list")
def list_topics(
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 30.0,
) -> None:
    """List the topics."""
    with choose_target(bootstrap, directory).client(timeout) as client:
        metadata = client.metadata()
    if output is OutputFormat.JSON:
        print_json(list(metadata.topics))
        return
    for name in metadata.topics:
        print_line(name)


@app.command()
def describe(
    name: Annotated[str | None, typer.Argument(help="The topic; all without.")] = None,
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 30.0,
) -> None:
    """Show the partitions of a topic: leader, epoch, replicas, ISR, high watermark."""
    with choose_target(bootstrap, directory).client(timeout) as client:
        metadata = client.metadata(None if name is None else [name])
        topics = _existing(metadata, name)
        partitions = describe_partitions(client, metadata, [topic.name for topic in topics])
    if output is OutputFormat.JSON:
        print_json([_document(topic, partitions) for topic in topics])
        return
    for topic in topics:
        print_table(
            ("partition", "leader", "epoch", "replicas", "isr", "offline", "high watermark"),
            (
                (
                    each.partition,
                    each.leader,
                    each.leader_epoch,
                    each.replicas,
                    each.isr,
                    each.offline,
                    each.high_watermark,
                )
                for each in partitions
                if each.topic == topic.name
            ),
            title=f"{topic.name}  id {topic_id_to_text(topic.topic_id)}",
        )


@app.command()
def delete(
    name: _NameArgument,
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    timeout: TimeoutOption = 30.0,
) -> None:
    """Delete a topic and its records."""
    with choose_target(bootstrap, directory).client(timeout) as client:
        client.delete_topic(name)
    say(f"topic {name} deleted")


def _existing(metadata: ClusterMetadata, name: str | None) -> list[TopicMetadata]:
    """The topics of an answer; raises KafkaError for one that was asked for and is not there."""
    topics = list(metadata.topics.values())
    if name is not None:
        error = topics[0].error if topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if error is not ErrorCode.NONE:
            raise KafkaError(error, f"topic {name!r}")
    return [topic for topic in topics if topic.error is ErrorCode.NONE]


def _document(topic: TopicMetadata, partitions: tuple[PartitionStatus, ...]) -> dict[str, object]:
    return {
        "topic": topic.name,
        "topic_id": topic_id_to_text(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": [asdict(each) for each in partitions if each.topic == topic.name],
    }
