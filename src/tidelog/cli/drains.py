"""`tidelog log-dirs drain`: all replicas leave a log directory for the broker's other directories
(D12).

The broker's setting `draining.log.dirs` stores the drain, so the drain survives this command and
restarts of the broker. The command first reads the moves that the broker plans for the drain. If a
replica fits in no other directory, the command names it and starts no drain, unless forced. A
repeated command changes nothing, and may wait for the drain that is under way. `log-dirs uncordon`
ends the drain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from tidelog.cli.completion import BrokerOption
from tidelog.cli.configs import change_configs
from tidelog.cli.cordons import CORDONED_KEY, DRAINING_KEY, cordoned_after, out_of_use, plain
from tidelog.cli.directory_moves import PATIENCE_S, PLACE_COLUMNS
from tidelog.cli.documents import DirectoryMovePlanned, LogDirDrained, prints
from tidelog.cli.names import NotFoundError, broker_named
from tidelog.cli.output import OutputFormat, print_document, print_rows, say, size_text
from tidelog.cli.target import ClusterOptions, DryRunOption
from tidelog.cli.waiting import wait_for
from tidelog.client.configs import BROKER, ConfigChange, ConfigResource
from tidelog.client.directory_moves import PlannedDirectoryMove
from tidelog.client.upkeep import LogDirDescription
from tidelog.core.dynamic_config import ConfigOperation
from tidelog.core.errors import ErrorCode
from tidelog.runtime.blocking import BlockingClient


@prints(list[LogDirDrained])
def drain(
    cluster: ClusterOptions,
    paths: Annotated[
        list[str], typer.Argument(metavar="DIR...", help="Log directories of the broker.")
    ],
    broker: BrokerOption,
    force: Annotated[
        bool, typer.Option("--force", help="Begin although some replicas fit nowhere now.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the directories are empty.")
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Move all replicas out of log directories, and keep new replicas out.

    The replicas go to the broker's other directories, at most at
    replica.alter.log.dirs.io.max.bytes.per.second. The broker continues a drain by itself, also
    after a restart. `log-dirs uncordon` ends a drain. If replicas fit nowhere, each of them is
    named, the exit code is 1, and nothing begins without --force. Brokers serve this command's
    request only on the inter-broker listener.
    """
    wanted = list(dict.fromkeys(plain(paths)))
    with cluster.client() as client:
        broker_named(client, broker)
        planned = client.plan_drain(broker, wanted)
        lacking = say_lacking(planned)
        is_refused = lacking > 0 and not force and not _is_drained(client, broker, wanted)
        is_begun = not dry_run and not is_refused
        if is_begun:
            _begin(client, broker, wanted)
            if wait:
                _await_empty(client, broker, wanted)
                planned = []
        left = _described(client, broker, wanted)
    _print(broker, left, planned, cluster.output, is_begun=is_begun)
    if is_refused:
        if not dry_run:
            say("tidelog: nothing was begun: make room, or begin with --force")
        raise typer.Exit(1)


def _is_drained(client: BlockingClient, broker: int, paths: Sequence[str]) -> bool:
    """Return whether the directories are already being drained."""
    found = {each.path: each.is_draining for each in client.describe_log_dirs(broker, ())}
    return all(found[path] for path in paths)


def _begin(client: BlockingClient, broker: int, paths: Sequence[str]) -> None:
    """Set the drain and a cordon of the directories in one request."""
    resource = ConfigResource(BROKER, str(broker))
    cordoned, draining = out_of_use(client, broker)
    known = [each.path for each in client.describe_log_dirs(broker, ())]
    changes = [
        ConfigChange(ConfigOperation.SET, key, ",".join(after))
        for key, before, after in (
            (CORDONED_KEY, cordoned, cordoned_after(cordoned, paths, known, is_cordon=True)),
            (DRAINING_KEY, draining, [it for it in known if it in draining or it in paths]),
        )
        if after != before
    ]
    if changes:
        change_configs(client, resource, changes, dry_run=False, output=OutputFormat.TABLE)


def say_lacking(planned: Sequence[PlannedDirectoryMove]) -> int:
    """Print the replicas that fit nowhere; return how many there are."""
    lacking = [each for each in planned if each.target is None]
    for each in lacking:
        say(
            f"tidelog: {each.tp} of {size_text(each.size_bytes)} cannot leave {each.source}:"
            f" {each.reason}"
        )
    return len(lacking)


def _described(
    client: BlockingClient, broker: int, paths: Sequence[str]
) -> list[LogDirDescription]:
    return [each for each in client.describe_log_dirs(broker) if each.path in paths]


def _await_empty(client: BlockingClient, broker: int, paths: Sequence[str]) -> None:
    """Wait until the directories have no replica; report each replica that fits nowhere else.

    Raises NotFoundError if a directory fails during the wait, or if its drain is cancelled.
    """
    total = sum(len(each.replicas) for each in _described(client, broker, paths))
    said: dict[object, None] = {}
    text = ""

    def count() -> int:
        nonlocal text, total
        found = _described(client, broker, paths)
        for each in found:
            if each.error is not ErrorCode.NONE:
                raise NotFoundError(f"{each.path} of broker {broker} has failed meanwhile")
        left = sum(len(each.replicas) for each in found)
        size_bytes = sum(each.size_bytes for each in found)
        text = f"{left} replicas, {size_text(size_bytes)} left"
        if left:
            _check_goes_on(client, broker, found)
            lacking = [each for each in client.plan_drain(broker, paths) if each.target is None]
            say_lacking([each for each in lacking if each.tp not in said])
            said.update(dict.fromkeys(each.tp for each in lacking))
        return max(0, total - left)

    wait_for("drain", total, count, PATIENCE_S, lambda: text)


def _check_goes_on(client: BlockingClient, broker: int, found: Sequence[LogDirDescription]) -> None:
    """Raise NotFoundError if the broker's settings no longer have the drain of a directory.

    The settings are compared, because the broker itself may not know of a new drain yet.
    """
    _, draining = out_of_use(client, broker)
    for each in found:
        if each.path not in draining:
            raise NotFoundError(f"the drain of {each.path} of broker {broker} was cancelled")


def _print(
    broker: int,
    left: Sequence[LogDirDescription],
    planned: Sequence[PlannedDirectoryMove],
    output: OutputFormat,
    *,
    is_begun: bool,
) -> None:
    if output is OutputFormat.JSON:
        print_document(
            [
                LogDirDrained(
                    broker,
                    each.path,
                    is_begun,
                    len(each.replicas),
                    each.size_bytes,
                    [
                        planned_document(broker, move, is_begun=is_begun)
                        for move in planned
                        if move.source == each.path
                    ],
                )
                for each in left
            ]
        )
        return
    fitting = [each for each in planned if each.target is not None]
    if fitting:  # replicas that fit nowhere have been printed already
        print_planned([planned_document(broker, each, is_begun=is_begun) for each in fitting])
    for each in left:
        if is_begun and not each.replicas:
            say(
                f"{each.path} of broker {broker} has no replica any more. To take it out of use,"
                f" stop the broker, take {each.path} out of log.dirs, start the broker, and type"
                f" `tidelog log-dirs uncordon --broker {broker} {each.path}`"
            )


def planned_document(
    broker: int, move: PlannedDirectoryMove, *, is_begun: bool
) -> DirectoryMovePlanned:
    """Return the document of a planned move."""
    result = "waits" if move.target is None else "accepted" if is_begun else "would_move"
    return DirectoryMovePlanned(
        broker, *move.tp, result, move.source, move.target, move.size_bytes, move.reason
    )


def print_planned(
    rows: Sequence[DirectoryMovePlanned], output: OutputFormat = OutputFormat.TABLE, empty: str = ""
) -> None:
    """Print a table of planned moves, each with its reason."""
    print_rows(rows, (*PLACE_COLUMNS, "reason"), output, empty)
