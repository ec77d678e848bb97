"""`tidelog brokers` and `tidelog log-dirs`: the brokers, and the content of their directories.

The commands here only read; `cli/emptying` has those that take partitions off brokers. The metadata
of one broker shows how many partitions each broker leads and holds. Sizes come from each broker
itself.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.completion import broker_ids, topic_names
from tidelog.cli.documents import BrokerListed, LogDirDescribed, Replica, prints
from tidelog.cli.emptying import decommission, drain
from tidelog.cli.help import CommandGroup
from tidelog.cli.names import broker_named, topics_named
from tidelog.cli.output import (
    DOUBTFUL,
    WRONG,
    Marked,
    OutputFormat,
    OutputOption,
    print_document,
    print_line,
    print_table,
    size_text,
)
from tidelog.cli.target import (
    BootstrapOption,
    OptionalDirectoryOption,
    TimeoutOption,
    choose_target,
)
from tidelog.client.cluster import ClusterMetadata
from tidelog.client.upkeep import LogDirectory
from tidelog.core.errors import ErrorCode
from tidelog.local.status import Holding, holdings_of

app = CommandGroup("Show brokers, and take partitions off them.")
log_dirs_app = CommandGroup("Show log directories.")

#: The state of a broker that is not registered.
_DOWN = "down"


@app.command("list", epilog="Example: tidelog brokers list -o json")
@prints(list[BrokerListed])
def list_brokers(
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 30.0,
) -> None:
    """List the brokers, and how many partitions each leads and holds.

    A broker that holds replicas and is not registered is down; its address is not known.
    """
    with choose_target(bootstrap, directory).client(timeout) as client:
        rows = _brokers(client.metadata())
    if output is OutputFormat.JSON:
        print_document(rows)
        return
    print_table(
        ("broker", "address", "state", "rack", "controller", "leads", "replicas", "out of sync"),
        (
            (
                each.id,
                None if each.host is None else f"{each.host}:{each.port}",
                Marked("DOWN", WRONG) if each.state == _DOWN else each.state,
                each.rack,
                each.controller,
                each.leaders,
                each.replicas,
                Marked.where(each.out_of_sync > 0, each.out_of_sync, DOUBTFUL),
            )
            for each in rows
        ),
    )


app.command(epilog="Example: tidelog brokers decommission 3 --wait")(decommission)
app.command(epilog="Example: tidelog brokers drain 3 --wait --save-rollback back.json")(drain)


@log_dirs_app.command(
    "describe", epilog="Example: tidelog log-dirs describe --broker 1 --topic flights --replicas"
)
@prints(list[LogDirDescribed])
def describe_log_dirs(
    broker: Annotated[
        list[int] | None,
        typer.Option("--broker", help="This broker only.", autocompletion=broker_ids),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="Replicas of this topic only.", autocompletion=topic_names),
    ] = None,
    replicas: Annotated[
        bool, typer.Option("--replicas", help="Show a table of every replica, too.")
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


def _brokers(metadata: ClusterMetadata) -> list[BrokerListed]:
    holdings = holdings_of(metadata)
    rows = []
    for broker_id in sorted({*metadata.brokers, *holdings}):
        node = metadata.brokers.get(broker_id)
        holding = holdings.get(broker_id, Holding())
        rows.append(
            BrokerListed(
                id=broker_id,
                host=None if node is None else node.host,
                port=None if node is None else node.port,
                rack=None if node is None else node.rack,
                controller=broker_id == metadata.controller_id,
                leaders=holding.leaders,
                replicas=holding.replicas,
                out_of_sync=holding.out_of_sync,
                state=_DOWN if node is None else "up",
            )
        )
    return rows


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
