"""The changes of a replica's role: a new leader role, a new follower role, a repeated command.

Roles change only while no operation runs on the log (`Partition.quiet`). The decisions of a role
start from the log's end and the high watermark that the replica knows (V31, V33). `commands`
decides which commands the broker executes. `Partition.rest` ends a role without a new role.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.replicas.hosting import role_traces
from tidelog.broker.replicas.hosting.leader_effects import count_change
from tidelog.broker.replicas.hosting.leader_role import LeaderRole, may_join
from tidelog.broker.replicas.hosting.role import FollowerRole, NoRole
from tidelog.core.types import NO_LEADER
from tidelog.replication import truncation, watermark
from tidelog.replication.follower import FollowerReplica
from tidelog.replication.isr import IsrState
from tidelog.replication.leader import LeaderReplica

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.context import PartitionContext
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.wire.messages.leader_and_isr import LeaderAndIsrPartitionState


class RoleChanges:
    """The roles that the controller gives to the replicas of one broker."""

    def __init__(self, context: PartitionContext) -> None:
        self._context = context
        self._services = context.services

    def become_leader(self, partition: Partition, state: LeaderAndIsrPartitionState) -> None:
        """Lead under a new leader epoch (V31); no operation may run on the log."""
        services, log, before = self._services, partition.log, partition.role
        log_end_offset = log.log_end_offset
        role_traces.mark_election(services.tracer, partition, state)
        latest_epoch = log.epochs.latest_epoch
        if latest_epoch != state.leader_epoch:
            # Followers compare their logs with the start offset of this epoch, even if the leader
            # never appends a record in this epoch.
            log.assign_epoch(state.leader_epoch, log_end_offset)
        topic_config = self._context.topic_config(partition.topic_partition.topic)
        idle = tuple(state.idle)
        core = LeaderReplica(
            broker_id=services.broker_id,
            broker_epoch=services.broker_epoch,
            leader_epoch=state.leader_epoch,
            isr=IsrState(tuple(state.isr), state.partition_epoch),
            replicas=tuple(state.replicas),
            epoch_start_offset=log_end_offset,
            log_end_offset=log_end_offset,
            high_watermark=_starting_high_watermark(partition),
            min_insync_replicas=topic_config.min_insync_replicas,
            max_lag_ms=services.config.replica_lag_time_max_ms,
            max_lag_bytes=services.config.replica_lag_max_bytes,
            is_eligible=may_join(services, idle),
            now_ms=services.clock.monotonic_ms(),
            recovery_state=state.leader_recovery_state,
            has_eligible=bool(state.eligible),
            flush_before_ack=log.config.flush_before_ack,
            synced_offset=min(log.recovery_point, log_end_offset),
            counts_pending_reads=topic_config.follower_fetch_pending_reads_insync_enable,
        )
        former = before.former if isinstance(before, NoRole) else before.leadership
        if former is not None:
            core.continues(former, services.clock.monotonic_ms())
            count_change(services.metrics, former.isr.committed, core.isr.committed)
        late = before.late if isinstance(before, LeaderRole) else None
        role = LeaderRole(partition, self._context, core, late, idle)
        self._take_role(partition, role, state)
        role.begin(state, latest_epoch)

    def become_follower(self, partition: Partition, state: LeaderAndIsrPartitionState) -> None:
        """Follow under a new leader epoch (V32, V33); no operation may run on the log.

        Without a leader (-1) the replica waits for the next command. A replica with a damaged log
        that is outside the ISR first truncates its log before the damage (V68).
        """
        log = partition.log
        damaged_from = None
        if log.damage is not None:
            members = (*state.isr, *state.eligible)
            damaged_from = truncation.before_damage(
                log.damage.offset, self._services.broker_id, members
            )
        if state.leader == NO_LEADER:
            self._services.tracer.mark("follower_without_leader")
        else:
            now_ms = self._services.clock.monotonic_ms()
            partition.watchers.another_leads(now_ms)
            log.producers.refused.another_leads(now_ms)
        core = FollowerReplica(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            latest_epoch=log.epochs.latest_epoch,
            high_watermark=_starting_high_watermark(partition),
            damaged_from=damaged_from,
        )
        self._take_role(partition, FollowerRole(self._services, log, core), state)

    def recommanded(self, partition: Partition, state: LeaderAndIsrPartitionState) -> None:
        """Execute another command of the role's leader epoch; a repetition changes nothing."""
        partition.is_closing = state.is_closing
        self._context.throttles.role_repeated(partition.topic_partition, state)
        partition.role.commanded(state)

    def _take_role(
        self,
        partition: Partition,
        role: LeaderRole | FollowerRole,
        state: LeaderAndIsrPartitionState,
    ) -> None:
        partition.role = role
        self._context.throttles.role_taken(partition.topic_partition, state)
        self._context.reassignments.role_taken(partition.topic_partition, state)
        partition.leader_epoch = state.leader_epoch
        partition.is_closing = state.is_closing
        partition.is_given_up = False
        role_traces.role_taken(self._services.tracer, partition, role.core, state)


def _starting_high_watermark(partition: Partition) -> int:
    log = partition.log
    return watermark.on_follower(partition.high_watermark, log.log_start_offset, log.log_end_offset)
