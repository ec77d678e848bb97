"""`tidelog brokers` and `tidelog log-dirs`: who is live, and what lies in their directories.

Both read only. How many partitions a broker leads and holds comes from one broker's metadata, sizes
come from each broker itself.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.completion import broker_ids, topic_names
from tidelog.cli.documents import BrokerListed, LogDirDescribed, Replica, prints
from tidelog.cli.names import broker_named, topics_named
from tidelog.cli.output import OutputFormat, OutputOption, print_document, print_line, print_table
from tidelog.cli.target import (
    BootstrapOption,
    OptionalDirectoryOption,
    TimeoutOption,
    choose_target,
)
from tidelog.client.cluster import ClusterMetadata
from tidelog.client.upkeep import LogDirectory
from tidelog.core.errors import ErrorCode

app = typer.Typer(help="Show brokers.", no_args_is_help=True)
log_dirs_app = typer.Typer(help="Show log directories.", no_args_is_help=True)

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@app.command("list", epilog="Example: tidelog brokers list -o json")
@prints(list[BrokerListed])
def list_brokers(
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 30.0,
) -> None:
    """List the live brokers, and how many partitions each leads and holds."""
    with choose_target(bootstrap, directory).client(timeout) as client:
        rows = _brokers(client.metadata())
    if output is OutputFormat.JSON:
        print_document(rows)
        return
    print_table(
        ("broker", "address", "rack", "controller", "leads", "replicas", "out of sync"),
        (
            (
                each.id,
                f"{each.host}:{each.port}",
                each.rack,
                each.controller,
                each.leaders,
                each.replicas,
                each.out_of_sync,
            )
            for each in rows
        ),
    )


@log_dirs_app.command(
    "describe", epilog="Example: tidelog log-dirs describe --broker 1 --topic flights --replicas"
)
@prints(list[LogDirDescribed])
def describe_log_dirs(
    broker: Annotated[
        list[int] | None,
        typer.Option("--broker", help="Of this broker only.", autocompletion=broker_ids),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="Replicas of this topic only.", autocompletion=topic_names),
    ] = None,
    replicas: Annotated[
        bool, typer.Option("--replicas", help="A table of every replica as well.")
    ] = False,
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 30.0,
) -> None:
    """Show the log directories of the brokers: errors, sizes, free space, replicas."""
    with choose_target(bootstrap, directory).client(timeout) as client:
        for each in broker or []:
            broker_named(client, each)
        if topic:
            topics_named(client, topic)
        found = [
            _log_dir(directory, topic)
            for broker_id in (broker or client.metadata([]).brokers)
            for directory in client.describe_log_dirs(broker_id)
        ]
    if output is OutputFormat.JSON:
        print_document(found)
        return
    print_table(
        ("broker", "log directory", "state", "replicas", "size", "free"),
        (
            (
                each.broker,
                each.log_dir,
                each.error or "ok",
                len(each.replicas),
                size_text(each.size_bytes),
                size_text(each.usable_bytes),
            )
            for each in found
        ),
    )
    if replicas:
        print_line("")
        print_table(
            ("broker", "log directory", "topic", "partition", "bytes", "offset lag", "future"),
            (
                (
                    each.broker,
                    each.log_dir,
                    replica.topic,
                    replica.partition,
                    replica.size_bytes,
                    replica.offset_lag,
                    replica.future,
                )
                for each in found
                for replica in each.replicas
            ),
        )


def size_text(size_bytes: int | None) -> str:
    """A size for people: three digits and a unit."""
    if size_bytes is None:
        return "-"
    value, unit = float(size_bytes), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    digits = 0 if unit == 0 or value >= 100 else 1
    return f"{value:.{digits}f} {_UNITS[unit]}"


def _brokers(metadata: ClusterMetadata) -> list[BrokerListed]:
    partitions = [partition for _, partition in metadata.all_partitions()]
    return [
        BrokerListed(
            id=node.broker_id,
            host=node.host,
            port=node.port,
            rack=node.rack,
            controller=node.broker_id == metadata.controller_id,
            leaders=sum(each.leader == node.broker_id for each in partitions),
            replicas=sum(node.broker_id in each.replicas for each in partitions),
            out_of_sync=sum(
                node.broker_id in each.replicas and node.broker_id not in each.isr
                for each in partitions
            ),
        )
        for node in metadata.brokers.values()
    ]


def _log_dir(found: LogDirectory, topics: list[str] | None) -> LogDirDescribed:
    replicas = [
        Replica(each.tp.topic, each.tp.partition, each.size_bytes, each.offset_lag, each.is_future)
        for each in found.replicas
        if not topics or each.tp.topic in topics
    ]
    return LogDirDescribed(
        broker=found.broker_id,
        log_dir=found.path,
        error=None if found.error is ErrorCode.NONE else found.error.name,
        size_bytes=sum(each.size_bytes for each in replicas),
        usable_bytes=found.usable_bytes if found.usable_bytes >= 0 else None,
        total_bytes=found.total_bytes if found.total_bytes >= 0 else None,
        replicas=replicas,
    )
