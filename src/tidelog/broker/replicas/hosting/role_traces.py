"""The traces and log lines of a replica that takes a role.

Named marks in the trace show the rare states of an election, so the simulator's search can aim at
them. The event and the log line give the role with its epochs and offsets. This module changes
nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.core.ports import Tracer
    from tidelog.replication.follower import FollowerReplica
    from tidelog.replication.leader import LeaderReplica
    from tidelog.wire.messages.leader_and_isr import LeaderAndIsrPartitionState


def mark_election(tracer: Tracer, partition: Partition, state: LeaderAndIsrPartitionState) -> None:
    """Mark the rare states of an election in the trace, before the replica takes its new role."""
    log_end_offset, before = partition.log.log_end_offset, partition.leadership
    if partition.high_watermark < log_end_offset:
        tracer.mark("high_watermark_stale_at_election")
    if partition.log.epochs.latest_start_offset == log_end_offset:
        tracer.mark("empty_epoch_at_election")
    if before is not None:
        tracer.mark("led_on_under_new_epoch")
        committed = before.isr.committed
        joining = any(len(change.isr) > len(committed) for change in before.isr.in_flight)
        if joining and len(state.isr) < len(committed):
            tracer.mark("isr_shrank_while_expand_in_flight")


def role_taken(
    tracer: Tracer,
    partition: Partition,
    core: LeaderReplica | FollowerReplica,
    state: LeaderAndIsrPartitionState,
) -> None:
    """Report a new role of a replica."""
    event = "became_leader" if partition.is_leader else "became_follower"
    tracer.event(
        event,
        partition=str(partition.topic_partition),
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        isr=tuple(state.isr),
        log_end_offset=core.log_end_offset,
        high_watermark=core.high_watermark,
    )
    tracer.log(
        "state_change",
        logging.DEBUG,
        f"{event} of {partition.topic_partition}: leader {state.leader} epoch "
        f"{state.leader_epoch}.{state.partition_epoch}, log end {core.log_end_offset}, "
        f"high watermark {core.high_watermark}",
    )
