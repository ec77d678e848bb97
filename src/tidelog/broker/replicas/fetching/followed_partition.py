"""One partition of a fetcher: the handling of its fetch responses, and its next fetch.

A followed partition runs the effects of `replication.follower` on the log. While the partition has
to wait, the fetcher's requests leave it out (V66). A partition waits for a truncation, a request to
the leader, or a backoff that grows with each failure. With `flush.before.ack` the partition also
waits until its log is synced, because the leader then takes every record below the fetch offset as
synced (V69). All partitions of a fetch response sync together. The next fetch waits for these syncs
in the same way as for slow appends. A followed partition ends with the follower role. An operation
that runs at that time still changes the log, but its completion has no effect on any role (V33).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from tidelog.core import protocol_level
from tidelog.core.completion import Completion
from tidelog.core.errors import (
    ConnectionLost,
    ErrorCode,
    InvariantError,
    KafkaError,
    StorageError,
)
from tidelog.core.ports import Buffer
from tidelog.core.types import EpochEnd, TopicId
from tidelog.replication.effects import (
    APPEND,
    AdvanceLogStart,
    AskLogStart,
    BackOff,
    Effects,
    Flush,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from tidelog.replication.follower import FollowerReplica
from tidelog.wire.messages.fetch import PartitionData
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.wire.registry import LIST_OFFSETS

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.server.timers import Timeout
    from tidelog.broker.services import Services

_EARLIEST_TIMESTAMP = -2
_OFFSETS_PURPOSE = "fetcher-offsets"
#: The first backoff in milliseconds, doubled with each failure up to `replica.fetch.backoff.ms`.
#: The first backoff is short, because a new leader may learn of its leadership a moment after its
#: followers.
_FIRST_BACKOFF_MS = 10
#: The backoff in milliseconds while the log's disk is full, because each fetch would bring records
#: that do not fit.
_FULL_PAUSE_MS = 2_000


class FetchOrder(ABC):
    """The partitions of one fetcher that its next fetch names, and the partitions that it omits.

    Followed partitions report to their `FetchOrder` when they are ready for a fetch. `Fetcher`
    sends the requests.
    """

    def __init__(self) -> None:
        #: Partitions that are not in the session, or whose position the session does not know.
        self._changed: dict[FollowedPartition, None] = {}
        #: Partitions that are ready to be fetched but wait for the throttle (R15).
        self._throttled: dict[FollowedPartition, None] = {}
        #: Partitions that the next fetch removes from the session.
        self._forgotten: dict[tuple[TopicId, int], None] = {}
        #: The number of partitions in the fetch session.
        self._in_session = 0
        #: Partitions whose appends from the last responses are unfinished.
        self._appending: dict[FollowedPartition, None] = {}

    @abstractmethod
    def pump(self) -> None:
        """Send the next fetch if partitions to fetch have changed, or if no fetch is in flight."""

    @abstractmethod
    def append_done(self, followed: FollowedPartition) -> None:
        """Note that a slow append has ended, so the partition may be ready for a fetch."""

    def ready(self, followed: FollowedPartition) -> None:
        """Start to fetch a partition from a position that the session does not know."""
        self._changed[followed] = None

    def not_ready(self, followed: FollowedPartition) -> None:
        """Leave a partition out of the fetches until it is ready again."""
        self._changed.pop(followed, None)
        self._appending.pop(followed, None)
        self._throttled.pop(followed, None)
        if followed.sent_in:
            followed.sent_in = 0
            self._in_session -= 1
            self._forgotten[followed.key] = None

    def append_begun(self, followed: FollowedPartition) -> None:
        """Note that the disk is slow to append the records of the last response."""
        self._appending[followed] = None


class FollowedPartition:
    """One partition of a fetcher, with the follower role of its replica."""

    __slots__ = (
        "_backoff",
        "_ended",
        "_failures",
        "_fetcher",
        "_is_syncing",
        "_services",
        "is_ready",
        "key",
        "partition",
        "read_in",
        "role",
        "sent_in",
        "sent_log_start",
        "sent_ms",
        "sent_position",
    )

    def __init__(
        self,
        services: Services,
        fetcher: FetchOrder,
        key: tuple[TopicId, int],
        partition: Partition,
        role: FollowerReplica,
    ) -> None:
        self._services = services
        self._fetcher = fetcher
        self.key = key
        self.partition = partition
        self.role = role
        #: The position (fetch offset) that the leader's session has.
        self.sent_position = role.position
        #: Number of the request that sent `sent_position`; 0 if the session lacks the partition.
        self.sent_in = 0
        #: Monotonic time at which request number `sent_in` was sent.
        self.sent_ms = 0
        self.sent_log_start = -1
        #: Number of the last request whose response had records; 0 for none.
        self.read_in = 0
        #: Whether the partition can be fetched now.
        self.is_ready = False
        self._backoff: Timeout | None = None
        self._failures = 0
        self._is_syncing = False
        self._ended = False

    @property
    def is_synced(self) -> bool:
        """Whether `flush.before.ack` is set and the log is synced up to the fetch offset (V69)."""
        log = self.partition.log
        return log.config.flush_before_ack and log.recovery_point >= self.role.position.fetch_offset

    def renew(self) -> None:
        """Fetch again after a change of `flush.before.ack`, so the leader learns what is synced."""
        if self.is_ready:
            self._ready()
            self._fetcher.pump()

    def begin(self) -> None:
        """Start fetching."""
        effects = self.role.begin()
        if effects:
            self._run(effects)
        else:
            self._ready()

    def end(self) -> None:
        """Stop fetching, as the role is over."""
        self._ended = True
        self.is_ready = False
        if self._backoff is not None:
            self._backoff.cancel()

    def answered(self, data: PartitionData) -> bool:
        """Handle the response to a fetch; return True if its bytes must stay in memory."""
        diverging = data.diverging_epoch
        high_watermark = self.role.high_watermark
        if not data.error_code:
            self.partition.told_high_watermark = data.high_watermark
        effects = self.role.answered(
            self.sent_position,
            data.error_code,
            EpochEnd(diverging.epoch, diverging.end_offset) if diverging.epoch >= 0 else None,
            self.partition.log.epochs,
            data.high_watermark,
            data.log_start_offset,
            bool(data.records),
        )
        if effects is APPEND:
            assert data.records is not None
            return self._append(data.records)  # type: ignore[arg-type]
        if effects:
            if self.role.high_watermark < high_watermark:
                self._services.tracer.mark("truncated_below_high_watermark")
            self._run(effects)
        if not data.error_code:
            self._failures = 0
            if self.is_ready and self.role.log_start_offset != self.sent_log_start:
                # Retention has advanced this replica's log start; the leader may be waiting for
                # that (KIP-107).
                self._fetcher.ready(self)
        return False

    # effects

    def _append(self, records: Buffer) -> bool:
        log = self.partition.log
        if log.directory.space.is_full:
            # The broker has already logged that the directory is full; a line for each partition
            # and fetch would flood the log.
            self._run(self.role.not_appended(ErrorCode.KAFKA_STORAGE_ERROR))
            return False
        try:
            completion = log.plan_follower_append(records)
        except (KafkaError, StorageError) as error:
            self._append_failed(error)
            return False
        log.submit_planned()
        if completion.done:
            self._appended(completion)
            return False
        self.is_ready = False
        self.partition.track(completion)
        self._fetcher.append_begun(self)
        completion.then(self._appended_late)
        return True

    def _appended(self, completion: Completion[Any]) -> None:
        error = completion.error
        if error is not None:
            self._append_failed(error)
            return
        self._failures = 0
        log = self.partition.log
        effects = self.role.appended(log.log_end_offset, log.epochs.latest_epoch)
        if effects:
            self._run(effects)
        self._ready()

    def _appended_late(self, completion: Completion[Any]) -> None:
        if self._ended:
            self._services.tracer.mark("append_outlived_role")
        else:
            self._appended(completion)
            self._fetcher.append_done(self)

    def _flushed(self, completion: Completion[None]) -> None:
        """Set the fetch offset to the end of the flushed records, and fetch from there."""
        if self._ended:
            return
        if completion.error is None:
            self._services.tracer.mark("append_flushed_again")
        self._appended(completion)
        self._fetcher.pump()

    def _append_failed(self, error: BaseException) -> None:
        """Back off after bad records or a full disk; a later fetch requests the records again."""
        if isinstance(error, KafkaError):
            code = error.code
        elif isinstance(error, StorageError):
            code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            self._services.unexpected(f"append to {self.partition.topic_partition}", error)
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        self._services.tracer.log(
            "server",
            logging.ERROR,
            f"cannot append records of leader {self.role.leader} to"
            f" {self.partition.topic_partition}: {error}",
        )
        self._run(self.role.failed(code))

    def _run(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, BackOff):
                self._back_off(effect.error)
            elif isinstance(effect, Flush):
                self._not_ready()
                self.partition.log.flush().then(self._flushed)
            elif isinstance(effect, TruncateTo):
                is_empty = effect.offset >= self.role.log_end_offset
                self._truncate(
                    self.partition.log.truncate_to(effect.offset), effect.offset, is_empty
                )
            elif isinstance(effect, TruncateFullyAndStartAt):
                is_empty = self.role.log_start_offset == self.role.log_end_offset == effect.offset
                completion = self.partition.log.truncate_fully_and_start_at(effect.offset)
                self._truncate(completion, effect.offset, is_empty)
            elif isinstance(effect, AskLogStart):
                self._ask_log_start()
            elif isinstance(effect, AdvanceLogStart):
                self.partition.log.advance_log_start(effect.offset)
                if self.is_ready:
                    # The next fetch reports the new log start to the leader (V67).
                    self._fetcher.ready(self)
            else:
                raise InvariantError(f"{effect} is not an effect of a follower")

    def _ready(self) -> None:
        log = self.partition.log
        if log.config.flush_before_ack and log.recovery_point < log.log_end_offset:
            self._sync()
            return
        self.is_ready = True
        self._fetcher.ready(self)

    def _sync(self) -> None:
        """Sync the log before the next fetch, because its offset counts as synced (V69)."""
        self.is_ready = False
        self._fetcher.append_begun(self)
        if not self._is_syncing:
            self._is_syncing = True
            self.partition.log.flush().then(self._synced)

    def _synced(self, completion: Completion[None]) -> None:
        self._is_syncing = False
        if self._ended:
            self._services.tracer.mark("sync_outlived_role")
            return
        if self.role.is_busy or self._backoff is not None:
            return  # the running operation syncs the log at its end, if necessary
        if completion.error is not None:
            self._sync_failed(completion.error)
        else:
            self._services.tracer.mark("follower_synced")
            self._ready()
        self._fetcher.append_done(self)

    def _sync_failed(self, error: BaseException) -> None:
        """Back off after a failed sync: a full disk may have room later (D17)."""
        self._services.tracer.log(
            "server",
            logging.ERROR,
            f"partition {self.partition.topic_partition}: cannot sync the log before the next"
            f" fetch (flush.before.ack): {error}",
        )
        self._run(self.role.failed(ErrorCode.KAFKA_STORAGE_ERROR))

    def _not_ready(self) -> None:
        self.is_ready = False
        self._fetcher.not_ready(self)

    def _back_off(self, error: int) -> None:
        self._not_ready()
        limit_ms = self._services.config.replica_fetch_backoff_ms
        delay_ms = min(_FIRST_BACKOFF_MS << min(self._failures, 10), limit_ms)
        if error == ErrorCode.KAFKA_STORAGE_ERROR and self.partition.log.directory.space.is_full:
            delay_ms = max(delay_ms, _FULL_PAUSE_MS)
        self._failures += 1
        if error == ErrorCode.FENCED_LEADER_EPOCH:
            self._services.tracer.mark("follower_behind_leader_epoch")
        elif error == ErrorCode.UNKNOWN_LEADER_EPOCH:
            self._services.tracer.mark("follower_ahead_of_leader_epoch")
            # The backoff counts from the request, because the response may have waited long behind
            # a slow read. By now the leader probably has its role, and needs a fetch soon to keep
            # this follower in the ISR (F7).
            delay_ms -= min(self._services.clock.monotonic_ms() - self.sent_ms, delay_ms)
        self._services.tracer.event(
            "fetch_backoff",
            partition=str(self.partition.topic_partition),
            leader=self.role.leader,
            error=error,
            delay_ms=delay_ms,
        )
        if delay_ms:
            self._backoff = self._services.timers.after(delay_ms, self._backed_off)
        else:
            self._resume()

    def _backed_off(self) -> None:
        self._backoff = None
        if not self._ended:
            self._resume()
            self._fetcher.pump()

    def _resume(self) -> None:
        """Fetch again after an error."""
        log = self.partition.log
        effects = self.role.resumed(
            log.log_start_offset, log.log_end_offset, log.epochs.latest_epoch
        )
        if effects:
            self._run(effects)
        else:
            self._ready()

    def _truncate(self, completion: Completion[None], offset: int, is_empty: bool) -> None:
        self._not_ready()
        # If the histories of leader and follower diverge exactly at the log end, the truncation
        # removes nothing.
        if not is_empty:
            self._report_truncation(offset)
        if completion.done:
            self._truncated(completion)
            return
        self.partition.track(completion)
        completion.then(self._truncated_late)

    def _report_truncation(self, offset: int) -> None:
        self._mark_truncation(offset)
        role = self.role
        log_end_offset = role.log_end_offset
        self._services.tracer.event(
            "truncated",
            partition=str(self.partition.topic_partition),
            leader_epoch=role.leader_epoch,
            log_end_offset=log_end_offset,
            to=offset,
        )
        level, why = logging.INFO, f"to match leader {role.leader} of epoch {role.leader_epoch}"
        if role.damaged_from is not None:
            self._services.tracer.mark("damage_truncated")
            level, damage = logging.WARNING, self.partition.log.damage
            reason = "damaged" if damage is None else damage.reason
            why = f"to refetch the records from leader {role.leader}: {reason}"
        self._services.tracer.log(
            "server",
            level,
            f"truncating {self.partition.topic_partition} from {log_end_offset} to {offset} {why}",
        )

    def _mark_truncation(self, offset: int) -> None:
        tracer = self._services.tracer
        tracer.mark("truncated")
        starts = [start for _, start in self.partition.log.epochs.entries()]
        if any(offset < start < self.role.log_end_offset for start in starts):
            tracer.mark("truncated_over_two_epochs")

    def _truncated(self, completion: Completion[None]) -> None:
        if completion.error is not None:
            self._append_failed(completion.error)
            return
        log = self.partition.log
        self.role.truncated(log.log_start_offset, log.log_end_offset, log.epochs.latest_epoch)
        self._ready()

    def _truncated_late(self, completion: Completion[None]) -> None:
        if self._ended:
            self._services.tracer.mark("truncation_outlived_role")
        else:
            self._truncated(completion)
            self._fetcher.pump()

    # the start of the leader's log

    def _ask_log_start(self) -> None:
        self._not_ready()
        services = self._services
        name, number = self.partition.topic_partition
        question = ListOffsetsPartition(number, self.role.leader_epoch, _EARLIEST_TIMESTAMP)
        try:
            connection = services.peers.connection(self.role.leader, _OFFSETS_PURPOSE)
        except ConnectionLost:
            self._run(self.role.failed(ErrorCode.NETWORK_EXCEPTION))
            return
        connection.send(
            LIST_OFFSETS,
            protocol_level.request_versions(
                services.config.inter_broker_protocol_version
            ).list_offsets,
            ListOffsetsRequest(
                replica_id=services.broker_id, topics=[ListOffsetsTopic(name, [question])]
            ),
            services.config.replica_socket_timeout_ms,
            self._log_start_answered,
        )

    def _log_start_answered(self, answer: Any, error: Exception | None) -> None:
        if self._ended:
            return
        code, offset = ErrorCode.NETWORK_EXCEPTION.value, -1
        if error is None:
            for topic in answer.topics:
                for outcome in topic.partitions:
                    code, offset = outcome.error_code, outcome.offset
        if code or offset < 0:
            self._run(self.role.failed(ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            self._run(self.role.leader_log_starts_at(offset))
        self._fetcher.pump()
