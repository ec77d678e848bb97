"""`tidelog health`: the findings about a cluster and their remedies, with exit codes for scripts.

The exit codes are 0 for healthy, 1 degraded, 2 unavailable in part, 3 not reached. `local.health`
judges the cluster. Every error that prevents a judgement gives exit code 3, so that exit code 1
always means a degraded cluster.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence

import typer

from tidelog.cli.documents import prints
from tidelog.cli.output import (
    DOUBTFUL,
    WRONG,
    OutputFormat,
    OutputOption,
    print_document,
    print_text,
    say,
)
from tidelog.cli.target import (
    DEFAULT_DIRECTORY,
    BootstrapOption,
    OptionalDirectoryOption,
    Target,
    TimeoutOption,
    address_of,
    choose_target,
)
from tidelog.cli.throttles import configured_throttles
from tidelog.client.configs import TOPIC, ConfigResource
from tidelog.client.moving import Moves
from tidelog.client.stray_requests import StrayReplica
from tidelog.client.throttles import Throttle, outliving
from tidelog.client.upkeep import LogDirDescription
from tidelog.core.errors import ConnectionLost, ErrorCode, KafkaError, RequestTimeout, TidelogError
from tidelog.core.types import TopicPartition
from tidelog.local.health import (
    HEALTHY,
    UNREACHABLE,
    ClusterPlace,
    Health,
    Surroundings,
    assess,
    unreachable,
)
from tidelog.local.lost_replicas import last_known
from tidelog.local.status import BrokerStatus, ClusterStatus, remote_status
from tidelog.runtime.blocking import BlockingClient

_MINIMUM = "min.insync.replicas"
#: Time limit in seconds for the controller's list of moves, which needs no disk and no store.
_CONTROLLER_S = 5.0
_BLOCKED = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER})
#: Colour of each level on a terminal.
LEVEL_STYLES = {"degraded": DOUBTFUL, "unavailable": WRONG, "unreachable": WRONG}


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(
        epilog="Example: tidelog health\n\nExample: tidelog health -b 127.0.0.1:9092 -o json"
    )(health)


@prints(Health)
def health(
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 10.0,
) -> None:
    """Report whether the cluster is healthy, what is wrong, and what helps.

    Exit code 0 means a healthy cluster. Exit code 1 means a degraded cluster: a partition is
    under-replicated, a broker is down or paused, a log directory has failed, is full or is slow,
    there is no controller, the controller has lost its metadata store, or the store is older than
    the logs. Exit code 2 means that a partition has no leader, or an ISR below min.insync.replicas.
    Exit code 3 means that no broker responds, or that there is no cluster.

    Notices leave the exit code as it is: frozen or queued reassignments, throttles that outlive
    their moves, replicas that brokers have set aside.
    """
    place = place_of(bootstrap, directory)
    try:
        target = choose_target(bootstrap, directory)
        found, _ = read_health(target, place, timeout)
    except TidelogError as error:
        say(f"tidelog: {error}")
        raise typer.Exit(UNREACHABLE) from error
    if output is OutputFormat.JSON:
        print_document(found)
    else:
        _print(found)
    if found.exit_code != HEALTHY:
        raise typer.Exit(found.exit_code)


def place_of(bootstrap: str | None, directory: str | None) -> ClusterPlace:
    """Return the name of the cluster in the commands that findings suggest."""
    address = address_of(bootstrap, directory)
    if address is not None:
        option = "" if bootstrap is None else f" -b {shlex.quote(bootstrap)}"
        return ClusterPlace(option, None)
    if directory is None:
        return ClusterPlace("", DEFAULT_DIRECTORY)
    return ClusterPlace(f" --dir {shlex.quote(directory)}", directory)


def read_health(target: Target, place: ClusterPlace, timeout_s: float) -> tuple[Health, str]:
    """Return the health of a cluster, and the addresses of brokers for further requests."""
    timeout_ms = int(timeout_s * 1000)
    try:
        if target.local is not None:
            now = target.local.status(timeout_ms, high_watermarks=False)
        else:
            now = remote_status(target.bootstrap, timeout_ms, high_watermarks=False)
        if not now.reached:
            return unreachable(target.bootstrap, "no broker answers", place), target.bootstrap
        minimums = _minimums(target, now, timeout_s)
        moves, trouble = _moves(target, now, timeout_s)
        around = _surroundings(target, now, timeout_s, moves)
        found = assess(now, minimums, place, trouble, around)
        return found, _awake(target, now).bootstrap
    except (ConnectionLost, RequestTimeout) as error:
        return unreachable(target.bootstrap, str(error), place), target.bootstrap


def _minimums(target: Target, now: ClusterStatus, timeout_s: float) -> dict[str, int]:
    """Return, by topic, min.insync.replicas of topics that have a replica out of the ISR."""
    topics = dict.fromkeys(
        each.topic for each in now.partitions if len(each.isr) < len(each.replicas)
    )
    if not topics:
        return {}
    found = {}
    with _awake(target, now).client(timeout_s) as client:
        for name in topics:
            try:
                values = client.describe_configs(ConfigResource(TOPIC, name))
            except KafkaError:
                continue  # the topic was deleted after the status was read
            for value in values:
                if value.name == _MINIMUM and value.value is not None:
                    found[name] = int(value.value)
    return found


def _responding(now: ClusterStatus) -> list[BrokerStatus]:
    """Return the brokers, except brokers that are known not to respond."""
    return [each for each in now.brokers if each.registered and each.state != "paused"]


def _awake(target: Target, now: ClusterStatus) -> Target:
    """Return the cluster to ask, without the addresses of brokers that are known not to respond."""
    awake = ",".join(f"{each.host}:{each.port}" for each in _responding(now))
    return Target(awake or target.bootstrap, None)


def _surroundings(
    target: Target, now: ClusterStatus, timeout_s: float, moves: Moves | None
) -> Surroundings:
    """Return the log directories, moves, strays and throttles that responding brokers report.

    A broker that does not respond is a finding of its own.
    """
    log_dirs: list[LogDirDescription] = []
    strays: list[StrayReplica] = []
    throttles: list[Throttle] = []
    lost: dict[tuple[int, str], list[TopicPartition]] = {}
    with _awake(target, now).client(min(timeout_s, _CONTROLLER_S)) as client:
        for each in _responding(now):
            with contextlib.suppress(KafkaError, ConnectionLost, RequestTimeout):
                log_dirs += client.describe_log_dirs(each.id, ())
                strays += client.list_strays(each.id)
        with contextlib.suppress(KafkaError, ConnectionLost, RequestTimeout):
            lost = _lost(client, log_dirs)
            if moves is not None:
                moving = {**moves.under_way, **moves.queued}
                throttles = outliving(configured_throttles(client), moving)
    return Surroundings(log_dirs, lost, moves, strays, throttles)


def _lost(
    client: BlockingClient, log_dirs: Sequence[LogDirDescription]
) -> dict[tuple[int, str], list[TopicPartition]]:
    """Return the replicas that failed log directories held, by broker and directory."""
    failed = {each.broker_id for each in log_dirs if each.error}
    if not failed:
        return {}
    metadata = client.metadata()
    whole = [each for broker_id in failed for each in client.describe_log_dirs(broker_id)]
    return {
        (each.broker_id, each.path): list(last_known(each, whole, metadata))
        for each in whole
        if each.error
    }


def _moves(target: Target, now: ClusterStatus, timeout_s: float) -> tuple[Moves | None, str | None]:
    """Return the moves that the controller lists; if the request fails, return None and the error.

    The controller's response also shows whether the metadata store is older than the logs (E8).
    Brokers that lost the quorum of their store continue to serve, and their Metadata responses do
    not show the loss.
    """
    if now.controller < 0:
        return None, None
    try:
        with _awake(target, now).client(min(timeout_s, _CONTROLLER_S)) as client:
            return client.reassignments(), None
    except KafkaError as error:
        return None, str(error) if error.code in _BLOCKED else None
    except (ConnectionLost, RequestTimeout) as error:
        return None, str(error)


def _print(found: Health) -> None:
    summary = f"{found.level}: {found.bootstrap}"
    if found.level != "unreachable":
        live = found.brokers - found.brokers_down
        summary = (
            f"{found.level}: {live} of {found.brokers} brokers are registered;"
            f" {found.partitions} partitions, {found.under_replicated} under-replicated,"
            f" {found.leaderless} without leader, {found.below_min_isr} below min.insync.replicas"
        )
    print_text(summary, LEVEL_STYLES.get(found.level, ""))
    for each in found.findings:
        print_text(f"- {each.message}", LEVEL_STYLES.get(each.level, ""))
        print_text(f"  next: {each.next}")
