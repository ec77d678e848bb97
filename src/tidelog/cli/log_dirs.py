"""`tidelog log-dirs`: the log directories of brokers, and the replicas in them.

Each broker reports its own directories: bytes of replicas, size and free space of the volume, and
how far a replica lags. A future replica is on its way into the directory; its lag is that behind
the current one (D11).
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.completion import broker_ids, topic_names
from tidelog.cli.documents import LogDirDescribed, Replica, prints
from tidelog.cli.help import CommandGroup
from tidelog.cli.names import broker_named, topics_named
from tidelog.cli.output import (
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
from tidelog.client.upkeep import LogDirectory
from tidelog.core.errors import ErrorCode

app = CommandGroup("Show log directories.")


@app.command(
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
        ("broker", "log directory", "state", "replicas", "size", "free", "of"),
        (
            (
                each.broker,
                each.log_dir,
                each.error or "ok",
                len(each.replicas),
                size_text(each.size_bytes),
                size_text(each.usable_bytes),
                size_text(each.total_bytes),
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
