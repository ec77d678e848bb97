"""`tidelog brokers decommission` and `drain`: take replicas and leaderships off brokers (R17).

`decommission` prepares the permanent removal of a broker. The command fails if the remaining
brokers are too few, and reports when the broker may be stopped. `drain` prepares maintenance: the
command moves as many replicas as it can, and the broker stays in the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated

import typer

from tidelog.cli.completion import broker_ids
from tidelog.cli.documents import MovePlanned, prints
from tidelog.cli.move_execution import (
    Execution,
    await_moves,
    carry_out,
    elect_preferred,
    say_stalled,
    some,
)
from tidelog.cli.output import say
from tidelog.cli.planned_moves import check_named_once
from tidelog.cli.target import ClusterOptions
from tidelog.cli.waiting import NotYetError, wait_for
from tidelog.client.planning.emptying import decommissioned, drained
from tidelog.core.types import TopicPartition
from tidelog.core.wording import brokers_text, counted
from tidelog.local.cluster_reading import read_state
from tidelog.runtime.blocking import BlockingClient

BrokersArgument = Annotated[
    list[int],
    typer.Argument(
        metavar="ID", min=0, help="Brokers.", show_default=False, autocompletion=broker_ids
    ),
]


@prints(list[MovePlanned])
def decommission(how: Execution, cluster: ClusterOptions, brokers: BrokersArgument) -> None:
    """Move all replicas off brokers, alive or dead, so that they may be stopped for good.

    Partitions keep their number of replicas: where the other brokers are too few, nothing is moved
    and the error names the topics. Without --wait, run the command again to see whether the brokers
    may be stopped. The exit code is 1 if a move was refused.
    """
    check_named_once(tuple(brokers), "ID")
    leaving = frozenset(brokers)
    with cluster.client() as client:
        plan = decommissioned(read_state(client, how.racks), leaving)
        carry_out(client, plan, how, cluster.output)
        if how.dry_run:
            return
        moving = _moving_off(client, leaving)
        if moving and not how.wait:
            say_stalled(client, client.reassignments(moving), {})
            say(
                f"{counted(len(moving), 'partition', 'is', 'are')} on the move: the same command"
                f" says later whether {brokers_text(brokers)} may be stopped, and --wait waits for"
                " that"
            )
            return
        await_moves(client, moving)
        _await_none(
            "brokers without replicas",
            lambda: _held_by(client, leaving),
            cluster.timeout,
            f"broker {_ids(leaving)} still holds {{}}: do not stop it, and run the command again",
        )
    say(f"{brokers_text(brokers, 'holds', 'hold')} no replica and may be stopped")


@prints(list[MovePlanned])
def drain(
    how: Execution,
    cluster: ClusterOptions,
    brokers: BrokersArgument,
    leaders_only: Annotated[
        bool, typer.Option("--leaders-only", help="Leave replicas where they are; copy nothing.")
    ] = False,
) -> None:
    """Move leaderships off brokers, and replicas as far as other brokers can take them.

    If the other brokers are too few for a replica, the replica stays as a follower. The brokers
    stay in the cluster: new topics may use them, and the file of --save-rollback reverts the moves.
    Partitions that also have a replica on a dead broker do not move. The exit code is 1 if a
    partition has a replica on a dead broker, or if a move or an election was refused.
    """
    check_named_once(tuple(brokers), "ID")
    leaving = frozenset(brokers)
    with cluster.client() as client:
        plan = drained(read_state(client, how.racks), leaving, leaders_only)
        carry_out(client, plan, how, cluster.output)
        if plan.staying and not leaders_only:
            names = some(list(plan.staying))
            stay = "stay, as followers" if len(plan.staying) > 1 else "stays, as a follower"
            say(f"{names} {stay}: the other brokers are too few for the replicas")
        if plan.blocked:
            say(
                f"tidelog: {some(list(plan.blocked))} cannot be moved, as a replica is on a dead"
                " broker: start it, or decommission it, and drain again"
            )
        refused = 0
        if not how.dry_run:
            moving = client.list_reassignments()
            foreign = _led_for_others(client, leaving, plan.blocked)
            refused = elect_preferred(client, [tp for tp in foreign if tp not in moving])
            if how.wait:
                _await_none(
                    "brokers without leaderships",
                    lambda: _led_for_others(client, leaving, plan.blocked),
                    cluster.timeout,
                    f"broker {_ids(leaving)} still leads {{}}",
                )
        if plan.blocked or refused:
            raise typer.Exit(1)
        if how.wait and not how.dry_run:
            led = brokers_text(brokers, "leads", "lead")
            say(f"{led} no partition that another broker can lead")


def _moving_off(client: BlockingClient, leaving: frozenset[int]) -> list[TopicPartition]:
    """Return the partitions whose moves, under way or queued, remove replicas from `leaving`."""
    moves, metadata = client.reassignments(), client.metadata()
    targets = {tp: each.target for tp, each in moves.queued.items()}
    targets |= {tp: each.target for tp, each in moves.under_way.items()}
    found = []
    for tp, target in sorted(targets.items()):
        partition = metadata.partition(tp)
        if partition is not None and leaving.intersection(partition.replicas) - set(target):
            found.append(tp)
    return found


def _await_none(
    what: str, look: Callable[[], list[TopicPartition]], timeout_s: float, sentence: str
) -> None:
    """Poll `look` until it returns no partition; raise NotYetError with `sentence` after a timeout.

    `what` is the title of the progress bar. `sentence` has a placeholder for the remaining
    partitions. Brokers learn the end of a move one after the other, so `look` may return partitions
    whose moves have ended.
    """
    left: list[TopicPartition] = []

    def is_empty() -> int:
        left[:] = look()
        return not left

    try:
        wait_for(what, 1, is_empty, timeout_s)
    except NotYetError as error:
        raise NotYetError(sentence.format(some(left))) from error


def _ids(brokers: Collection[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))


def _held_by(client: BlockingClient, brokers: frozenset[int]) -> list[TopicPartition]:
    """Return partitions assigned to `brokers`, or on disks of live brokers in `brokers`."""
    metadata = client.metadata()
    found = {
        tp: None
        for tp, partition in metadata.all_partitions()
        if not brokers.isdisjoint(partition.replicas)
    }
    for broker in sorted(brokers & metadata.brokers.keys()):
        for directory in client.describe_log_dirs(broker):
            found |= dict.fromkeys(each.tp for each in directory.replicas)
    return sorted(found)


def _led_for_others(
    client: BlockingClient, leaving: frozenset[int], blocked: Collection[TopicPartition]
) -> list[TopicPartition]:
    """Return the partitions whose leader is in `leaving` and whose preferred leader is not.

    Partitions of `blocked`, which the plan could not move, are excluded: their preferred leader may
    be dead.
    """
    return [
        tp
        for tp, each in client.metadata().all_partitions()
        if each.leader in leaving and each.replicas[0] not in leaving and tp not in blocked
    ]
