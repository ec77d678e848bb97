"""`tidelog up`, `down`, `status` and `broker`: local clusters and single brokers.

The last line that `up` prints is the bootstrap address, for scripts; `-o json` also prints the
brokers' processes, addresses and files. `broker` replaces its process image by the broker, so that
no module of the command line stays in memory.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.documents import BrokerStarted, ClusterStarted, ServerStarted, prints
from tidelog.cli.output import (
    DOUBTFUL,
    WRONG,
    Marked,
    OutputFormat,
    OutputOption,
    address_text,
    marked_isr,
    marked_leader,
    marked_out_of_sync,
    print_document,
    print_json,
    print_line,
    print_rows,
    print_text,
    say,
)
from tidelog.cli.systemd import unit
from tidelog.cli.target import (
    DEFAULT_DIRECTORY,
    BootstrapOption,
    DirectoryOption,
    OptionalDirectoryOption,
    TimeoutOption,
    choose_target,
    key_values,
    local_cluster,
)
from tidelog.core.columns import Column
from tidelog.core.names import is_internal_topic
from tidelog.core.types import NO_LEADER
from tidelog.local import BrokerStatus, ClusterStatus, LocalCluster, PartitionStatus
from tidelog.local.console_process import check_installed, start_console, stop_console
from tidelog.local.layout import BrokerPlace
from tidelog.local.status import remote_status
from tidelog.runtime.config_files import load_config

_EXIT_NOT_REACHED = 3


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(epilog="Example: tidelog up --dir /tmp/tide -n 3 -c num.partitions=6")(up)
    app.command(epilog="Example: tidelog down --dir /tmp/tide")(down)
    app.command(epilog="Example: tidelog status --dir /tmp/tide -o json")(status)
    app.command(
        epilog="Example: tidelog broker --config server.properties --override node.id=4\n\n"
        "Example: tidelog broker --config server.properties --print-systemd"
    )(broker)


@prints(ClusterStarted)
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
            " zookeeper://host:port,host:port/chroot [embedded]."
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65_535,
            help="Port of broker 1 of a new cluster; the next brokers count on [free ports].",
        ),
    ] = None,
    console: Annotated[
        bool, typer.Option("--console", help="Start the web console, too; `down` ends it.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 60.0,
) -> None:
    """Start a cluster of background processes; return when it can be written to.

    Listeners in --config are the listeners of broker 1; each further broker listens one port
    higher. A broker's server.properties may be edited between `down` and `up`.
    """
    if console:  # check before the brokers start, so that no error follows their start
        check_installed()
    cluster = LocalCluster(
        directory,
        brokers,
        config=key_values(config),
        log_dirs=log_dirs,
        store=store,
        first_port=port,
    )
    cluster.up(timeout)
    for warning in cluster.config_warnings():
        say(f"tidelog: {warning}")
    if console:
        say(f"console: {start_console(cluster.directory, timeout)}")
    if output is OutputFormat.JSON:
        print_document(_started(cluster))
        return
    if cluster.zookeeper is not None:
        server = cluster.zookeeper.process
        pid = "?" if server is None else server.pid
        say(f"zookeeper on {cluster.zookeeper.address} runs as process {pid}")
    for place in cluster.places().values():
        process = cluster.process(place.broker_id)
        pid = "?" if process is None else process.pid
        say(f"broker {place.broker_id} runs as process {pid}, log in {place.log_path}")
    for place in cluster.places().values():
        if place.admin is not None:
            say(f"broker {place.broker_id} has its metrics on http://{place.admin}/metrics")
    print_line(f"bootstrap: {cluster.bootstrap}")


def _started(cluster: LocalCluster) -> ClusterStarted:
    server = cluster.zookeeper
    process = None if server is None else server.process
    return ClusterStarted(
        bootstrap=cluster.bootstrap,
        directory=cluster.directory,
        zookeeper=None
        if server is None
        else ServerStarted(server.address, None if process is None else process.pid),
        brokers=[_broker_started(cluster, place) for place in cluster.places().values()],
    )


def _broker_started(cluster: LocalCluster, place: BrokerPlace) -> BrokerStarted:
    process = cluster.process(place.broker_id)
    return BrokerStarted(
        id=place.broker_id,
        pid=None if process is None else process.pid,
        address=place.address,
        admin=place.admin,
        directory=place.directory,
        config=place.properties_path,
        log=place.log_path,
    )


def down(directory: DirectoryOption = DEFAULT_DIRECTORY, timeout: TimeoutOption = 15.0) -> None:
    """Stop all brokers of a local cluster; its data stays."""
    cluster = local_cluster(directory)
    try:
        stop_console(cluster.directory, timeout)
    finally:  # a damaged pid file of the console must not keep the brokers running
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

    An internal topic takes one line of the table while all its partitions have a leader and are in
    sync. The column of lagging replicas counts a broker's replicas that are out of the ISR. A
    broker that is not registered is DOWN, even while its process runs.
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

    def known(value: object) -> object:
        return value if now.reached else None

    columns: tuple[Column, ...] = (
        ("broker", "id"),
        "pid",
        ("address", address_text),
        ("state", _state),
        "controller",
        ("leads", "leaders", known),
        ("holds", "replicas", known),
        ("lagging", lambda each: known(marked_out_of_sync(each))),
    )
    print_rows(now.brokers, columns)
    if shown:
        print_rows(
            shown,
            (
                "topic",
                "partition",
                ("leader", marked_leader),
                ("epoch", "leader_epoch"),
                "replicas",
                ("isr", marked_isr),
                "high watermark",
            ),
        )
    for topic, partitions in folded.items():
        leaders = ", ".join(str(leader) for leader in sorted({each.leader for each in partitions}))
        print_line(
            f"{topic}: {len(partitions)} partitions, all in sync, led by {leaders};"
            " --internal shows each"
        )
    if now.reached:
        style = WRONG if now.leaderless else DOUBTFUL if now.under_replicated else ""
        print_text(
            f"{len(now.partitions)} partitions, {now.under_replicated} under-replicated, "
            f"{now.leaderless} without leader",
            style,
        )


def _state(broker: BrokerStatus) -> Marked:
    """Return a broker's state as short text, so that a row fits on 80 columns."""
    if broker.state == "paused":
        return Marked("paused", DOUBTFUL)
    if broker.state == "running" and broker.registered is False:
        return Marked("DOWN (runs)", WRONG)
    if broker.state in ("stopped", "down"):
        return Marked("stopped" if broker.registered is None else "DOWN", WRONG)
    return Marked(broker.state, "")


def _healthy_internal_topics(now: ClusterStatus) -> dict[str, list[PartitionStatus]]:
    """Return the internal topics that need only one row, because all partitions are healthy."""
    topics: dict[str, list[PartitionStatus]] = {}
    for each in now.partitions:
        if is_internal_topic(each.topic):
            topics.setdefault(each.topic, []).append(each)
    return {name: each for name, each in topics.items() if all(map(_is_healthy, each))}


def _is_healthy(partition: PartitionStatus) -> bool:
    """Return whether a responding broker leads the partition and all replicas are in sync."""
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
    print_systemd: Annotated[
        bool,
        typer.Option("--print-systemd", help="Print a systemd unit for this broker; start none."),
    ] = False,
    user: Annotated[
        str, typer.Option("--user", help="User of the printed unit.", show_default=True)
    ] = "tidelog",
) -> None:
    """Run one broker in the foreground until a signal stops it, such as Ctrl-C or SIGTERM.

    After the first signal, the broker waits until other brokers lead its partitions; a second
    signal ends that wait. SIGHUP reopens the log file and reads the configuration again, but stops
    a broker whose terminal hangs up.

    With --print-systemd the command prints the unit of a service for this broker, with absolute
    paths and the directories that the broker may write to. The user must own these directories.
    """
    key_values(override)
    if print_systemd:
        overrides = override or []
        print_line(unit(load_config(config, overrides), Path(config), overrides, user).rstrip())
        return
    words = [sys.executable, "-m", "tidelog.runtime.main", "--config", config]
    for each in override or []:
        words += ["--override", each]
    # The broker gets a new process image, so that no module of the command line stays in memory.
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, words)
