"""One hosted replica: its log, its role, and the requests that wait on it.

A partition connects the pure decisions of `tidelog.replication` with the log and with waiting
requests (`purgatory`). Callers use the partition or its role (`role`), and never ask which role it
is. `role_changes` gives a replica a new role only while no operation runs on its log (`quiet`), so
a role never begins with an outdated log end offset. This module implements V36 to V38 and V61 for
one replica.

`PlannedAppends` has the appends of one broker that were planned in the current read event of a
connection. A leader plans an append at once: it assigns the offsets or refuses the batch. The log
writes the batches when the read event ends, so all requests of the event share one write per log.
An append whose batch a thread must first check waits in `late_appends`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidelog.broker.replicas.hosting.purgatory import PartitionWatchers
from tidelog.broker.replicas.hosting.role import NoRole, Role
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_EPOCH, EpochEnd, TopicId
from tidelog.replication import commands, truncation, watermark
from tidelog.replication.leader import epoch_error

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.reassignment_meters import ReassignmentMeters
    from tidelog.broker.services import Services
    from tidelog.log.config import LogConfig
    from tidelog.log.log_directory import LogDirectory
    from tidelog.log.partition_log import AppendInfo, PartitionLog
    from tidelog.replication.follower import FollowerReplica
    from tidelog.replication.leader import LeaderReplica


class Partition:
    """A replica on this broker, without a role until the controller assigns a role (V44)."""

    __slots__ = (
        "_appends",
        "_pending",
        "_reassignments",
        "_services",
        "directory",
        "fetched_bytes",
        "is_closing",
        "is_given_up",
        "leader_epoch",
        "log",
        "produced_bytes",
        "role",
        "told_high_watermark",
        "topic_partition",
        "watchers",
    )

    def __init__(
        self,
        services: Services,
        appends: PlannedAppends,
        reassignments: ReassignmentMeters,
        directory: LogDirectory,
        log: PartitionLog,
        high_watermark: int,
    ) -> None:
        self._services = services
        self._appends = appends
        self._reassignments = reassignments
        self.directory = directory
        self.log = log
        self.topic_partition = log.topic_partition
        known = watermark.on_follower(high_watermark, log.log_start_offset, log.log_end_offset)
        #: The current role; a new role is always a new object.
        self.role: Role = NoRole(services, log, NO_EPOCH, known)
        #: The leader epoch of the last executed command; it stays when the role ends (V30).
        self.leader_epoch = NO_EPOCH
        #: Whether the partition is about to be removed, so that the leader accepts no more records
        #: (V71).
        self.is_closing = False
        #: Whether this replica is damaged and reported as offline, until the controller has removed
        #: it from the ISR (V68).
        self.is_given_up = False
        #: The high watermark that a leader (perhaps this replica) last reported since this broker
        #: started; -1 for none.
        self.told_high_watermark = -1
        #: Bytes of the records that clients produced to this replica, and that consumers fetched
        #: from it.
        self.produced_bytes = self.fetched_bytes = 0
        self.watchers = PartitionWatchers()
        #: Operations on the log that may be in progress.
        self._pending: list[Completion[Any]] = []

    # state

    @property
    def topic_id(self) -> TopicId:
        """The id of the topic to which the log belongs."""
        return self.log.topic_id

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads."""
        return self.role.is_leader

    @property
    def leadership(self) -> LeaderReplica | None:
        """The object that decides for the current leadership; None unless this replica leads."""
        return self.role.leadership

    @property
    def followership(self) -> FollowerReplica | None:
        """The object that decides for the follower role; None unless this replica follows."""
        return self.role.followership

    @property
    def high_watermark(self) -> int:
        """The offset after the last record that is known to be committed."""
        return self.role.core.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which read_committed consumers read."""
        return self.log.last_stable_offset(self.role.core.high_watermark)

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of all live replicas; -1 if this broker cannot know it."""
        return self.role.low_watermark

    @property
    def partition_epoch(self) -> int:
        """The newest known partition epoch, from a command or a response of the controller."""
        return self.role.partition_epoch

    def has_topic_id(self, topic_id: TopicId) -> bool:
        """Whether a request with `topic_id` means this replica's topic (V23, G4)."""
        return commands.topic_id_matches(self.log.topic_id, topic_id)

    @property
    def has_role(self) -> bool:
        """Whether the controller assigned this replica a role that has not ended."""
        return self.role.is_assigned

    def has_role_of(self, leader_epoch: int) -> bool:
        """Whether this replica has a role under this leader epoch."""
        return self.role.is_assigned and self.leader_epoch == leader_epoch

    def check_leader_epoch(self, asked_epoch: int) -> ErrorCode:
        """Return the error for a request with leader epoch `asked_epoch` (V37), or NONE."""
        own_epoch = self.leader_epoch
        if asked_epoch != own_epoch and (error := epoch_error(own_epoch, asked_epoch)):
            return error
        return ErrorCode.NONE if self.role.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int) -> EpochEnd | None:
        """Return where a follower's log diverges from this log (V32); None if it does not.

        Raises OFFSET_OUT_OF_RANGE if this leader does not know the follower's last epoch, or has
        none of the follower's records.
        """
        log = self.log
        return truncation.diverging_epoch(
            log.epochs, log.log_end_offset, last_fetched_epoch, fetch_offset
        )

    # changes of the log

    def flush_appends(self) -> bool:
        """Submit the planned appends; return True if every append of this partition is written."""
        return self.submit(self._appends.take(self))

    def submit(self, planned: Sequence[Completion[AppendInfo]]) -> bool:
        """Submit these planned appends; return True if every append of this partition is written.

        The planned batches become readable together, and the high watermark is computed once.
        """
        self.log.submit_planned()
        # The bytes of an append that waits for a check must stay valid, because the log does not
        # have the append yet.
        is_all_written = not self.role.waiting_appends
        for completion in planned:
            if not completion.done:
                # The last append alone does not show the log's end: if it repeats an earlier batch,
                # it completes together with that batch. So each append's completion reports the
                # growth.
                completion.then(self._log_grew)
                self.track(completion)
                is_all_written = False
        if planned:
            self.role.log_grew()
        return is_all_written

    def _log_grew(self, _: Completion[AppendInfo]) -> None:
        self.role.log_grew()

    def awaits_sync(self, next_offset: int) -> bool:
        """Whether acks=1 must wait until the log is synced up to `next_offset` (V69)."""
        log = self.log
        return log.config.flush_before_ack and log.recovery_point < next_offset

    def log_start_moved(self) -> None:
        """Note that the log start has advanced, by retention or a client's DeleteRecords."""
        self.role.log_start_moved()
        self.watchers.isr_or_log_start_changed()

    def configured(
        self, config: LogConfig, min_insync_replicas: int, counts_pending_reads: bool = False
    ) -> None:
        """Apply the topic's configuration, which may have changed (V60, V64, V69, F5)."""
        self.log.configured(config)
        self.role.minimum_changed(min_insync_replicas)
        self.role.flush_policy_changed()
        self.role.pending_reads_changed(counts_pending_reads)

    def is_quiet(self) -> bool:
        """Whether all planned appends are written and no other operation runs on the log."""
        self.flush_appends()
        return all(completion.done for completion in self._pending)

    async def quiet(self) -> None:
        """Wait until no operation is in progress on the log."""
        while self._pending:
            completion = self._pending.pop()
            if not completion.done:
                self._services.tracer.mark("log_busy_at_role_change")
                waiter: Completion[None] = Completion()
                completion.then(lambda _, waiter=waiter: waiter.resolve(None))  # type: ignore[misc]
                await waiter

    def track(self, completion: Completion[Any]) -> None:
        """Track an operation on the log; the replica takes no new role before its end."""
        if not completion.done:
            if len(self._pending) > 8:
                self._pending = [pending for pending in self._pending if not pending.done]
            self._pending.append(completion)

    def received(self, count_bytes: int) -> None:
        """Count the bytes of a fetch response.

        If a reassignment adds this replica, the reassignment metric counts the bytes, too (R16).
        """
        self._reassignments.received(self.topic_partition, count_bytes)

    def relocated(self, directory: LogDirectory, log: PartitionLog) -> None:
        """Use another log directory, with a log that has the same records (D11)."""
        self.directory, self.log = directory, log
        self.role.log_replaced(log)
        self.watchers.look_again()

    # changing roles

    def rest(self, *, leads_on: bool = False) -> None:
        """End the role: serve nothing, follow no leader; respond to all waiting requests (V38).

        With `leads_on`, the command that ends the role makes this broker lead again under a new
        leader epoch.
        """
        ended = self.role
        if ended.is_assigned:
            known = ended.core.high_watermark
            self.role = role = NoRole(self._services, self.log, ended.partition_epoch, known)
            if leads_on:
                role.former = ended.leadership
            self._reassignments.role_ended(self.topic_partition)
            ended.end()
        elif isinstance(ended, NoRole) and not leads_on:
            ended.former = None


class PlannedAppends:
    """The planned appends of one broker by partition, in the order of their first appends."""

    __slots__ = ("_planned",)

    def __init__(self) -> None:
        self._planned: dict[Partition, list[Completion[AppendInfo]]] = {}

    def add(self, partition: Partition, completion: Completion[AppendInfo]) -> None:
        """Note a planned append."""
        planned = self._planned.get(partition)
        if planned is None:
            self._planned[partition] = [completion]
        else:
            planned.append(completion)

    def add_late(self, partition: Partition) -> None:
        """Note that an append of the partition waits for a check, so its bytes must stay valid."""
        self._planned.setdefault(partition, [])

    def take(self, partition: Partition) -> list[Completion[AppendInfo]]:
        """Return the planned appends of one partition, which the caller submits."""
        return self._planned.pop(partition, [])

    def submit(self) -> bool:
        """Submit all appends; return whether all are written, so that their bytes may be reused."""
        if not self._planned:
            return True
        planned, self._planned = self._planned, {}
        is_all_written = True
        for partition, completions in planned.items():
            is_all_written = partition.submit(completions) and is_all_written
        return is_all_written
