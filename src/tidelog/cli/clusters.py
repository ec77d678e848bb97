"""`tidelog up`, `down`, `status` and `broker`: local clusters and single brokers.

The last line that `up` prints is the bootstrap address, for scripts. `broker` becomes the broker's
process, so that nothing of the command line stays in its memory.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from tidelog.cli.documents import prints
from tidelog.cli.output import OutputFormat, OutputOption, print_json, print_line, print_table, say
from tidelog.cli.target import (
    DEFAULT_DIRECTORY,
    BootstrapOption,
    DirectoryOption,
    OptionalDirectoryOption,
    TimeoutOption,
    choose_target,
    key_values,
)
from tidelog.core.names import is_internal_topic
from tidelog.core.types import NO_LEADER
from tidelog.local import ClusterStatus, LocalCluster, PartitionStatus
from tidelog.local.status import remote_status

_EXIT_NOT_REACHED = 3


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(epilog="Example: tidelog up --dir /tmp/tide -n 3 -c num.partitions=6")(up)
    app.command(epilog="Example: tidelog down --dir /tmp/tide")(down)
    app.command(epilog="Example: tidelog status --dir /tmp/tide -o json")(status)
    app.command(epilog="Example: tidelog broker --config server.properties --override node.id=4")(
        broker
    )


def up(
    directory: DirectoryOption = DEFAULT_DIRECTORY,
    brokers: Annotated[
        int | None, typer.Option("-n", "--brokers", min=1, help="Brokers of a new cluster [3].")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", help="key=value for every broker of a new cluster."),
    ] = None,
    log_dirs: Annotated[
        int, typer.Option(min=1, help="Log directories of each broker of a new cluster.")
    ] = 1,
    store: Annotated[
        str | None,
        typer.Option(
            help="Metadata store of a new cluster: embedded, zookeeper (a server of its own) or"
            " zookeeper://host:port,host:port/chroot [embedded].",
        ),
    ] = None,
    timeout: TimeoutOption = 60.0,
) -> None:
    """Start a cluster of background processes; returns when it can be written to."""
    cluster = LocalCluster(
        directory, brokers, config=key_values(config), log_dirs=log_dirs, store=store
    )
    cluster.up(timeout)
    for warning in cluster.config_warnings():
        say(f"tidelog: {warning}")
    if cluster.zookeeper is not None:
        server = cluster.zookeeper.process
        pid = "?" if server is None else server.pid
        say(f"zookeeper on {cluster.zookeeper.address} runs as process {pid}")
    for place in cluster.places().values():
        process = cluster.process(place.broker_id)
        pid = "?" if process is None else process.pid
        say(f"broker {place.broker_id} runs as process {pid}, log in {place.log_path}")
    print_line(f"bootstrap: {cluster.bootstrap}")


def down(directory: DirectoryOption = DEFAULT_DIRECTORY, timeout: TimeoutOption = 15.0) -> None:
    """Stop all brokers of a local cluster; its data stays."""
    cluster = LocalCluster.existing(directory)
    cluster.down(timeout)
    say(f"all brokers are stopped; the data stays in {cluster.directory}")


@prints(ClusterStatus)
def status(
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    internal: Annotated[
        bool, typer.Option("--internal", help="Every partition of internal topics, too.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 5.0,
) -> None:
    """Show brokers, the controller, and every partition with its high watermark.

    An internal topic takes one line of the table while all its partitions are led and in sync.
    """
    target = choose_target(bootstrap, directory)
    timeout_ms = int(timeout * 1000)
    if target.local is not None:
        now = target.local.status(timeout_ms)
    else:
        now = remote_status(target.bootstrap, timeout_ms)
    if output is OutputFormat.JSON:
        print_json(asdict(now))
    else:
        _print_status(now, internal)
    if not now.reached:
        say("tidelog: no broker answers")
        raise typer.Exit(_EXIT_NOT_REACHED)


def _print_status(now: ClusterStatus, internal: bool) -> None:
    folded = {} if internal else _healthy_internal_topics(now)
    shown = [each for each in now.partitions if each.topic not in folded]
    print_table(
        ("broker", "pid", "address", "state", "controller"),
        (
            (each.id, each.pid, f"{each.host}:{each.port}", each.state, each.controller)
            for each in now.brokers
        ),
    )
    if shown:
        print_table(
            ("topic", "partition", "leader", "epoch", "replicas", "isr", "high watermark"),
            (
                (
                    each.topic,
                    each.partition,
                    each.leader,
                    each.leader_epoch,
                    each.replicas,
                    each.isr,
                    each.high_watermark,
                )
                for each in shown
            ),
        )
    for topic, partitions in folded.items():
        leaders = ", ".join(str(leader) for leader in sorted({each.leader for each in partitions}))
        print_line(
            f"{topic}: {len(partitions)} partitions, all in sync, led by {leaders};"
            " --internal shows each"
        )
    if now.reached:
        print_line(
            f"{len(now.partitions)} partitions, {now.under_replicated} under-replicated, "
            f"{now.leaderless} without leader"
        )


def _healthy_internal_topics(now: ClusterStatus) -> dict[str, list[PartitionStatus]]:
    """Topics of which a person need not see each partition."""
    topics: dict[str, list[PartitionStatus]] = {}
    for each in now.partitions:
        if is_internal_topic(each.topic):
            topics.setdefault(each.topic, []).append(each)
    return {name: each for name, each in topics.items() if all(map(_is_healthy, each))}


def _is_healthy(partition: PartitionStatus) -> bool:
    """Led by a broker that answers, with all replicas in sync."""
    return (
        partition.leader != NO_LEADER
        and len(partition.isr) == len(partition.replicas)
        and partition.high_watermark is not None
    )


def broker(
    config: Annotated[str, typer.Option("--config", help="server.properties, or a .toml file.")],
    override: Annotated[
        list[str] | None, typer.Option("--override", help="key=value that wins over the file.")
    ] = None,
) -> None:
    """Run one broker in the foreground until SIGTERM or SIGINT."""
    key_values(override)
    words = [sys.executable, "-m", "tidelog.runtime.main", "--config", config]
    for each in override or []:
        words += ["--override", each]
    # A process of its own: what the command line loaded stays out of the broker's memory.
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, words)
