"""`tidelog reassign queue|freeze|unfreeze`: queued moves, and a freeze of all moves (R8).

The controller starts queued moves as other moves end. Two limits keep the effect on producers
small: `reassignment.max.concurrent.partitions` and
`reassignment.max.concurrent.partitions.per.broker`. During a freeze no move begins.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.documents import MoveBegun, MoveInQueue, prints
from tidelog.cli.move_execution import FROZEN, await_targets, say_failed
from tidelog.cli.move_files import (
    FileArgument,
    JsonOption,
    ThrottleOption,
    foreseen,
    print_asked,
    replicas_of,
)
from tidelog.cli.output import OutputFormat, or_none, print_rows, say
from tidelog.cli.reassignment_files import ReassignmentFileError, check_expected, ids, read
from tidelog.cli.target import ClusterAddress, ClusterOptions, DryRunOption
from tidelog.client.moving import MoveAsked, Moves
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition


@prints(list[MoveBegun] | list[MoveInQueue])
def queue(
    cluster: ClusterOptions,
    file: FileArgument = None,
    text: JsonOption = None,
    throttle: ThrottleOption = None,
    dry_run: DryRunOption = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until every queued move is done.")
    ] = False,
) -> None:
    """Queue the moves that a file names; without a file, show the queue and why each move waits.

    If a queued partition is on the move to other brokers, it first returns to its former replicas.
    There is one queue: the moves of a second file are refused until the queue is empty. `tidelog
    reassign cancel` takes moves out of the queue. The exit code is 1 if a move was refused, or with
    --wait did not reach its target.
    """
    with cluster.client() as client:
        if file is None and text is None:
            _show(client.reassignments(), cluster.output)
            return
        where, targets, expected, directories = read(file, text)
        if directories:
            raise ReassignmentFileError(
                f"{where} names log directories, which queued moves cannot: execute it, or move the"
                " replicas afterwards (tidelog log-dirs move)"
            )
        before = replicas_of(client, targets, where)
        check_expected(where, expected, before)
        if dry_run:
            results = foreseen(client, targets, is_queued=True)
        else:
            results = client.reassign(targets, expected, queued=True, throttle=throttle)
        accepted = [tp for tp in targets if results[tp].error is ErrorCode.NONE]
        lost: dict[TopicPartition, MoveAsked] = {}
        if wait and accepted and not dry_run:
            lost = await_targets(client, {tp: targets[tp] for tp in accepted})
            results |= lost
    word = "would_queue" if dry_run else "queued"
    print_asked(targets, results, before, word, cluster.output)
    say_failed(len(targets) - len(accepted), len(lost), len(targets))
    if len(accepted) < len(targets) or lost:
        raise typer.Exit(1)


def _show(moves: Moves, output: OutputFormat) -> None:
    rows = [MoveInQueue(*tp, queued.target, queued.reason) for tp, queued in moves.queued.items()]
    target, reason = ("replicas", "target", ids), ("waits because", "reason", or_none)
    print_rows(rows, ("topic", "partition", target, reason), output, "no move is queued")
    say_frozen(moves)


def say_waiting(moves: Moves) -> None:
    """Report the number of queued moves, and a freeze if one is in force."""
    if moves.queued:
        say(f"{len(moves.queued)} moves are queued: tidelog reassign queue shows why each waits")
    say_frozen(moves)


def say_frozen(moves: Moves) -> None:
    """Report that moves are frozen, if they are."""
    if moves.is_frozen:
        say(FROZEN)


def freeze(cluster: ClusterAddress) -> None:
    """Let no move begin from now on. Moves under way go on, and can be cancelled.

    The freeze lasts until `tidelog reassign unfreeze`, also under another controller.
    """
    with cluster.client() as client:
        client.freeze_reassignments(True)
        under_way = len(client.reassignments().under_way)
    say(f"reassignments are frozen: none begins; {under_way} are under way and go on")


def unfreeze(cluster: ClusterAddress) -> None:
    """Let moves begin again; moves that are queued, or that store nodes request, begin at once."""
    with cluster.client() as client:
        client.freeze_reassignments(False)
        queued = len(client.reassignments().queued)
    say(f"reassignments are not frozen; {queued} moves are queued")
