"""The effects of a leader's decisions: responses to waiting requests, and ISR changes to send.

The effects of a decision run in order, on the watchers of one partition and the queue of ISR
changes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.broker.replicas.metrics import LEADER_ISR_EXPANDS, LEADER_ISR_SHRINKS
from tidelog.core.errors import ErrorCode, InvariantError
from tidelog.replication import shrinks
from tidelog.replication.effects import (
    Effects,
    HighWatermarkMoved,
    IsrBelowMinimum,
    IsrCommitted,
    RetryAlterPartition,
    SendAlterPartition,
    WithdrawAlterPartition,
)
from tidelog.replication.isr import maximal_isr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.broker.replicas.hosting.context import PartitionContext
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.core.metrics import Metrics
    from tidelog.core.ports import Tracer
    from tidelog.replication.isr import IsrChange
    from tidelog.replication.leader import LeaderReplica


def run(
    context: PartitionContext, partition: Partition, core: LeaderReplica, effects: Effects
) -> None:
    """Run the effects of one decision of `core`; raise InvariantError for a follower's effect."""
    watchers, tracer = partition.watchers, context.services.tracer
    for effect in effects:
        kind = type(effect)
        if kind is HighWatermarkMoved:
            if context.takeovers.watched:
                context.takeovers.committed(partition)
            watchers.high_watermark_moved(core.high_watermark)
        elif kind is IsrCommitted:
            _isr_committed(context, partition, core)
        elif kind is IsrBelowMinimum:
            if watchers.acks_waiting:
                tracer.mark("acks_waiting_at_small_isr")
            watchers.isr_below_minimum(below_minimum(partition, core))
        elif isinstance(effect, SendAlterPartition):
            context.alter_partition_manager.submit(partition, effect.change)
        elif isinstance(effect, WithdrawAlterPartition):
            tracer.mark("isr_change_withdrawn")
            context.alter_partition_manager.withdraw(partition)
        elif isinstance(effect, RetryAlterPartition):
            manager = context.alter_partition_manager
            manager.retry(partition, effect.change, effect.after_ms)
        else:
            raise InvariantError(f"{effect} is not an effect of a leader")


def _isr_committed(context: PartitionContext, partition: Partition, core: LeaderReplica) -> None:
    context.services.tracer.event(
        "isr_committed",
        partition=str(partition.topic_partition),
        isr=core.isr.committed,
        partition_epoch=core.isr.partition_epoch,
    )
    partition.watchers.isr_or_log_start_changed()
    if context.throttles.leader.is_active:
        # The throttle may have delayed the fetch of a follower that now joined the ISR; it never
        # delays ISR members, so wake the fetch (R15).
        partition.watchers.log_end_moved()


def below_minimum(partition: Partition, core: LeaderReplica) -> str:
    """Return the error message for an acks=all request while the ISR is too small (V64)."""
    isr = core.isr.committed
    return (
        f"the ISR of {partition.topic_partition} is {list(isr)}: {len(isr)} in-sync replicas, "
        f"{core.minimum} are needed (min.insync.replicas={core.min_insync_replicas})"
    )


def note_supersession(tracer: Tracer, partition: Partition, core: LeaderReplica) -> None:
    """Log that a newer ISR change supersedes an earlier change whose outcome is unknown (A8)."""
    state = core.isr
    newer = state.queued
    assert newer is not None and state.in_flight, "a newer change supersedes one in flight (A8)"
    tracer.mark("isr_change_superseded")
    tracer.log(
        "state_change",
        logging.INFO,
        f"partition {partition.topic_partition}: requesting ISR {list(newer.isr)} instead of "
        f"{list(state.in_flight[-1].isr)}, whose request got no response; until the controller "
        f"settles it, records wait for {list(maximal_isr(state))}",
    )


def count_change(metrics: Metrics, before: Sequence[int], after: Sequence[int]) -> None:
    """Count an ISR change in the metrics, when the leader learns that the change is durable."""
    if any(member not in after for member in before):
        metrics.add(LEADER_ISR_SHRINKS)
    if any(member not in before for member in after):
        metrics.add(LEADER_ISR_EXPANDS)


def log_shrinks(
    tracer: Tracer, partition: Partition, core: LeaderReplica, change: IsrChange
) -> None:
    """Log the followers that left the ISR with a change, and why (V62)."""
    for shrink in change.shrinks:
        if shrink.replica_id not in core.isr.committed:
            tracer.log(
                "state_change",
                logging.INFO,
                f"partition {partition.topic_partition}: follower {shrink.replica_id} left the ISR:"
                f" {shrinks.describe(shrink, core.max_lag_ms)}; ISR is now"
                f" {list(core.isr.committed)}",
            )


def mark_refusal(tracer: Tracer, partition: Partition, change: IsrChange, error: ErrorCode) -> None:
    """Record in the trace that the controller refused an ISR change."""
    tracer.event(
        "isr_change_refused",
        partition=str(partition.topic_partition),
        isr=change.isr,
        error=error.name,
    )
    if error is ErrorCode.INELIGIBLE_REPLICA:
        tracer.mark("isr_change_refused_ineligible")
    elif error is ErrorCode.FENCED_LEADER_EPOCH:
        tracer.mark("isr_change_refused_fenced")
    elif error is ErrorCode.INVALID_UPDATE_VERSION:
        tracer.mark("isr_change_refused_old_state")
