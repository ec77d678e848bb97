"""One fetch that this broker serves: its reads and its wait.

The fetch examines the changed partitions of its session, and `fetch_checks` decides whether they
may be read. A fetch reads each log up to the log end for a follower, and up to the high watermark
for a consumer. The fetch responds when it has enough data, or at its timeout. The response budget
limits the bytes of all responses that clients have not received yet. If the budget has no room for
a fetch, the fetch waits for its turn. The leader notes the follower's fetch offset before the read,
so the response carries the high watermark that results from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.broker.cluster_view import CommandedLeader
from tidelog.broker.replicas.fetching.fetch_checks import Refusal, readable
from tidelog.broker.replicas.fetching.fetch_growth import FoundBytes, growth_bytes, note_seen
from tidelog.broker.replicas.fetching.fetch_reads import DiskRead, FetchReads
from tidelog.broker.replicas.fetching.fetch_sessions import FetchSession, SessionPartition
from tidelog.broker.replicas.fetching.throttled_reads import ThrottledReads
from tidelog.broker.server.requests import Pending, RequestConnection
from tidelog.core.completion import Completion
from tidelog.core.disk_reads import HUNG_MS
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.response_budget import WaitingRead
from tidelog.core.types import TopicPartition
from tidelog.log.segment_reads import NotCached
from tidelog.replication.pending_reads import NO_READ, PendingRead
from tidelog.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.hosted_partitions import HostedPartitions
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.server.timers import Timeout
    from tidelog.broker.services import Services
    from tidelog.log.partition_log import LogSlice

#: Partitions that the handler of the Fetch request has already checked, so the fetch may read them
#: without another check.
Checked = Mapping[SessionPartition, "Partition"]
_NONE_CHECKED: Checked = {}
#: Errors with which the response also names the leader (KIP-951); otherwise librdkafka would back
#: off for half a second.
_LEADER_HINT_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_LEADER_HINT_VERSION = 16
#: Clients with a lower Fetch version do not know KAFKA_STORAGE_ERROR (KIP-112, D4).
_STORAGE_ERROR_VERSION = 6


class DelayedFetch:
    """A fetch in progress, which reads, waits, and responds once."""

    __slots__ = (
        "_all_partitions",
        "_answered",
        "_answers",
        "_connection",
        "_held",
        "_max_bytes",
        "_min_bytes",
        "_missing_bytes",
        "_overdue",
        "_read_number",
        "_reads",
        "_received_ms",
        "_replicas",
        "_room",
        "_services",
        "_session",
        "_throttled",
        "_timeout",
        "_turn",
        "_unthrottling",
        "_version",
        "pending",
    )

    def __init__(
        self,
        services: Services,
        replicas: HostedPartitions,
        session: FetchSession,
        version: int,
        min_bytes: int,
        max_bytes: int,
        all_partitions: bool,
        connection: RequestConnection,
        received_ms: int = 0,
    ) -> None:
        """`connection` sent the request, and leader hints name endpoints of its listener.

        `received_ms` is the monotonic time at which the request arrived.
        """
        self._services = services
        self._replicas = replicas
        self._connection = connection
        self._session = session
        self._version = version
        responses = services.responses
        self._room = responses.brokers if connection.is_broker else responses.clients
        self._reads = FetchReads(self._room)
        #: Directories with records for this fetch that it must not read now, because too many reads
        #: of the directory are pending.
        self._held: dict[str, None] = {}
        #: This fetch's place among the fetches that wait for their turn to read; else None.
        self._turn: WaitingRead | None = None
        # As in Kafka, the fetch never waits for more than max_bytes, because its response cannot be
        # larger.
        self._min_bytes = min(min_bytes, max_bytes)
        self._max_bytes = max_bytes
        #: Whether the response names every partition, even one whose records do not fit. A full
        #: fetch needs every partition, because Java clients discard a response that omits a
        #: partition. The response to an incremental fetch names only changed partitions.
        self._all_partitions = all_partitions
        self._missing_bytes = 0
        self._received_ms = received_ms
        #: The number that identifies this fetch among the pending reads of a follower (F5).
        self._read_number = NO_READ
        #: The response for each partition, kept during a wait so that the fetch examines only
        #: changed partitions again.
        self._answers: dict[SessionPartition, PartitionData] = {}
        self._timeout: Timeout | None = None
        #: A timer that fires if reads from disk do not end in time.
        self._overdue: Timeout | None = None
        self._throttled = ThrottledReads(replicas.throttles, session)
        #: A timer that fires when the throttle no longer holds a waiting follower back.
        self._unthrottling: Timeout | None = None
        self._answered = False
        self.pending: Pending | None = None

    def start(self, max_wait_ms: int, checked: Checked = _NONE_CHECKED) -> FetchResponse | Pending:
        """Respond at once if data suffice, a partition has an error, or no wait is left; else wait.

        `checked` has the partitions that the caller has just checked; later examinations check
        every partition again.
        """
        if self._session.waiting is not None:
            self._session.waiting.abandoned()
        self._read(max_wait_ms <= 0 or not self._session.partitions, checked)
        if self._answered:
            return self._response()
        self.pending = Pending()
        self.pending.on_cancel(self._cancelled)
        if not self._reads.under_way:
            self._wait(max_wait_ms)
        return self.pending

    def partition_readable(self, partition: SessionPartition) -> None:
        """Examine a partition of the session that has changed during the wait."""
        watched = partition.watched
        if self._reads.under_way or self._turn is not None:
            return
        if watched is not None and watched.is_leader:
            growth = growth_bytes(partition, watched)
            if growth >= 0:
                self._missing_bytes -= growth
                # A throttled follower still lacks bytes that were in the log before the wait, so
                # growth during the wait does not count for it (R15).
                if self._missing_bytes > 0 and partition not in self._session.throttled:
                    return
        self._read(final=False)
        if self._answered:
            self._complete()
        else:
            self._await_throttle()

    def abandoned(self) -> None:
        """Respond without data, because a later fetch of the session has arrived.

        The partitions that this fetch examined stay marked as changed for the next fetch (V61).
        """
        session = self._session
        for item in self._answers:
            if session.partitions.get(item.key) is item:
                session.dirty[item] = None
        self._answers.clear()
        self._answered = True
        self._drop_read()  # a fetch without a response must end its pending read itself (F7)
        self._complete()

    def _cancelled(self) -> None:
        self._answered = True
        self._drop_read()  # the follower's connection is closed (F7)
        self._close()

    def _wait(self, max_wait_ms: int) -> None:
        self._session.waiting = self
        self._timeout = self._services.serving_timers.after(max_wait_ms, self._timed_out)
        self._await_throttle()

    # the response budget

    def _defer(self, final: bool) -> None:
        """Wait for this fetch's turn to read; `final` means that the maximum wait is over."""
        self._turn = WaitingRead(self._resume, lambda: self._connection.unread_bytes, is_due=final)
        self._services.tracer.mark("fetch_waits_for_turn")
        self._room.wait(self._turn)

    def _resume(self, granted_bytes: int) -> None:
        """Read the granted number of bytes, or respond without records."""
        turn, self._turn = self._turn, None
        assert turn is not None, "only a fetch that waits has its turn"
        self._read(turn.is_due, granted_bytes=granted_bytes)
        if self._answered:
            self._complete()
        elif not self._reads.under_way:
            self._await_throttle()

    def _await_throttle(self) -> None:
        """Set a timer for the time when the throttle allows this follower to read again (R15)."""
        if self._throttled.waits and self._unthrottling is None:
            delay_ms = self._throttled.recover_in_ms()
            timers = self._services.serving_timers
            self._unthrottling = timers.after(delay_ms, self._throttle_recovered)

    def _throttle_recovered(self) -> None:
        self._unthrottling = None
        if self._look_again():
            self._services.tracer.mark("throttled_fetch_resumed")

    def _look_again(self) -> bool:
        """Examine the changed partitions during a wait; return whether the fetch responds."""
        if self._answered or self._reads.under_way or self._turn is not None:
            return False
        self._read(final=False)
        if self._answered:
            self._complete()
        else:
            self._await_throttle()
        return self._answered

    def _timed_out(self) -> None:
        if self._turn is not None:
            self._turn.is_due = True
        elif not self._answered and not self._reads.under_way:
            self._read(final=True)
            if self._answered:
                self._complete()

    def _complete(self) -> None:
        pending = self.pending
        self._close()
        if pending is not None:
            pending.complete(self._response())

    def _close(self) -> None:
        session = self._session
        self._reads.release()
        self._leave_held()
        if self._turn is not None:
            self._room.leave(self._turn)
            self._turn = None
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
        if session.waiting is self:
            session.waiting = None
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        if self._unthrottling is not None:
            self._unthrottling.cancel()
            self._unthrottling = None
        if not session.session_id:
            for partition in session.partitions.values():
                partition.unwatch()

    # reading

    def _read(
        self, final: bool, checked: Checked = _NONE_CHECKED, granted_bytes: int | None = None
    ) -> None:
        """Examine the changed partitions; set `_answered` when the response is complete.

        `final` means that the maximum wait is over. `granted_bytes` limits the read; None means as
        much as the budget of unread responses grants.
        """
        if granted_bytes is None:
            granted_bytes = self._room.grant_bytes
            if granted_bytes == 0:
                self._defer(final)
                return
        session = self._session
        self._throttled.begin_look()
        self._leave_held()
        remaining = self._max_bytes
        least = self._min_bytes
        if granted_bytes < remaining:
            remaining = granted_bytes
            least = min(least, granted_bytes)
        total = 0
        urgent = False
        answers = self._answers
        found = FoundBytes()
        reads: list[DiskRead] = []
        for item in list(session.dirty):
            is_full = total > 0 and remaining <= 0
            if is_full and not self._all_partitions:
                break
            min_one = total == 0 and granted_bytes > 0
            answer, read = self._look(item, checked.get(item), remaining, min_one)
            if answer is None:
                del session.dirty[item]
                answers.pop(item, None)
                continue
            if read is not None:
                room = min(item.max_bytes, remaining)
                if read.done:
                    if isinstance(read.error, NotCached):
                        answers[item] = answer  # no records yet: the directory must not be read now
                        continue
                    size = _take(self._services, answer, read)
                    urgent = urgent or answer.error_code != 0
                    if read.error is None:
                        self._found(found, item, read.result(), room)
                else:
                    size = room
                    reads.append(DiskRead(item, answer, read, size))
                self._throttled.read(item, size)
                total += size
                remaining -= size
                # The partition moves to the end of the session's list of changed partitions, so
                # that other partitions come first next time.
                del session.dirty[item]
                session.dirty[item] = None
            elif answer.error_code or answer.diverging_epoch.epoch >= 0:
                urgent = True
            elif not is_full and granted_bytes:
                del session.dirty[item]
            answers[item] = answer
        if total:
            self._room.read(total)
        if reads:
            self._await_reads(reads, total)
        elif final or urgent or found.bytes >= least or not found.can_grow(len(session.partitions)):
            self._answered = True
            self._reads_done()
        else:
            self._wait_for_bytes(least - found.bytes)

    def _wait_for_bytes(self, missing_bytes: int) -> None:
        """Wait until `missing_bytes` have arrived, or until a directory in `_held` may be read.

        A waiting fetch holds no records: partitions with records stay marked as changed and are
        read again.
        """
        self._missing_bytes = missing_bytes
        for directory in self._held:
            self._services.tracer.mark("fetch_waits_for_directory")
            self._room.reads.wait(directory, self._look_again)
        for item, answer in self._answers.items():
            answer.records = b""
            if item.watched is not None:
                note_seen(item, item.watched)

    def _found(self, found: FoundBytes, item: SessionPartition, part: LogSlice, room: int) -> None:
        """Note a completed read, for which the response had `room` bytes."""
        partition = item.watched
        if partition is not None:
            found.read(partition.log, part, self._session.end_offset(partition), room)

    def _await_reads(self, reads: list[DiskRead], size_bytes: int) -> None:
        """Respond when these reads, which return at most `size_bytes`, are done."""
        pending = self._session.reads
        if pending is not None:
            self._read_number = pending.begin(self._pending_read())
        if self._services.config.leader_relinquish_on_slow_reads_enable:
            for read in reads:
                read.begin(self._services.clock.monotonic_ms())
        if not self._counts_pending_reads:
            timers = self._services.serving_timers
            self._overdue = timers.after(HUNG_MS, self._reads_overdue)
        self._reads.begin(reads, size_bytes, self._one_read)

    def _one_read(self, read: DiskRead) -> None:
        """Handle the outcome of one read from disk."""
        read.end()
        is_last = not self._reads.under_way
        if self._answered:
            if is_last and self._session.reads is not None:
                self._session.reads.ended(self._read_number)
            return
        if read.is_over:
            # The leadership has ended since the read began. The log may have been truncated, or the
            # reader may not know the leader epoch of the bytes.
            refusal = Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._answers[read.item] = self._refused(read.item, refusal)
        else:
            _take(self._services, read.answer, read.completion)
        if is_last:
            self._answered = True
            self._reads_done()
            if self.pending is not None:
                self._complete()

    @property
    def _counts_pending_reads(self) -> bool:
        """Whether the reads of this fetch keep its follower in the ISR while they run (F5)."""
        reads = self._session.reads
        return reads is not None and reads.is_watched

    def _reads_overdue(self) -> None:
        """Respond with the records read so far, because the disk may never deliver the others."""
        self._overdue = None
        if not self._answered and self._reads.under_way:
            self._services.tracer.mark("fetch_answered_without_slow_read")
            self._answered = True
            self._drop_read()
            self._complete()

    def _drop_read(self) -> None:
        """Let the reads continue, but stop keeping the follower in the ISR because of them (F7)."""
        reads = self._session.reads
        if reads is not None:
            reads.drop(self._read_number)

    def _leave_held(self) -> None:
        """Stop waiting for directories."""
        held, self._held = self._held, {}
        for directory in held:
            self._room.reads.leave(directory, self._look_again)

    def _pending_read(self) -> PendingRead:
        return PendingRead(self._session.broker_epoch, self._received_ms)

    def _reads_done(self) -> None:
        """Note that the reads of this fetch have ended, because the response is sent now (F6)."""
        reads = self._session.reads
        if reads is not None and (reads.is_watched or self._read_number != NO_READ):
            now_ms = self._services.clock.monotonic_ms()
            reads.done(self._read_number, self._pending_read(), now_ms)

    def _look(
        self, item: SessionPartition, partition: Partition | None, max_bytes: int, min_one: bool
    ) -> tuple[PartitionData | None, Completion[LogSlice] | None]:
        """Return the response for one partition, and the disk read of its records, if any.

        The response is None if an incremental fetch has no change to report. `partition` is None
        unless the request has already checked that the partition may be read. `min_one` allows a
        first batch larger than `max_bytes`.
        """
        if partition is None:
            found = readable(self._replicas, self._session, item)
            if isinstance(found, Refusal):
                return self._refused(item, found), None
            partition = found
            item.watch(partition)
        log = partition.log
        high_watermark = partition.high_watermark
        offset = item.fetch_offset
        end = self._session.end_offset(partition)
        has_all = offset >= end
        if has_all:
            self._throttled.has_all(item)
        if has_all or self._throttled.leaves_out(item, partition):
            if (
                high_watermark == item.sent_high_watermark
                and log.log_start_offset == item.sent_log_start_offset
                and not self._all_partitions
            ):
                note_seen(item, partition)
                return None, None
            return _answer(item, partition), None
        answer = _answer(item, partition)
        if max_bytes <= 0 and not min_one:
            return answer, None  # an empty answer; the next fetch reads the records
        size, directory = min(item.max_bytes, max_bytes), partition.directory.path
        try:
            if self._counts_pending_reads or self._room.reads.may_begin(directory):
                read = log.read(offset, size, end, min_one_batch=min_one)
            else:
                read = log.read(offset, size, end, min_one_batch=min_one, may_wait=False)
                if isinstance(read.error, NotCached):
                    self._held[directory] = None
        except KafkaError as failure:
            answer.error_code = failure.code
            return answer, None
        return answer, read

    def _refused(self, item: SessionPartition, refusal: Refusal) -> PartitionData:
        answer = _answer(item, refusal.partition)
        answer.error_code = refusal.error
        if refusal.diverging is not None:
            answer.diverging_epoch = EpochEndOffset(*refusal.diverging)
        if (
            refusal.error in _LEADER_HINT_ERRORS
            and item.topic_partition is not None
            and self._version >= _LEADER_HINT_VERSION
        ):
            self._hint(item.topic_partition, answer)
        return answer

    def _hint(self, topic_partition: TopicPartition, answer: PartitionData) -> None:
        """Put the latest leader that this broker knows into the response (KIP-951)."""
        services = self._services
        latest = services.view.latest_leader(topic_partition)
        own = self._replicas.get(topic_partition)
        if own is not None and own.role.is_leader:
            # The view may not show yet that this broker continues to lead under a new leader epoch.
            latest = CommandedLeader(services.broker_id, own.leader_epoch)
        if latest is not None:
            answer.current_leader = LeaderIdAndEpoch(*latest)

    # responding

    def _response(self) -> FetchResponse:
        session = self._session
        self._throttled.sent(self._answers)
        self._replicas.reassignments.sent(
            session.replica_id,
            (
                (item.topic_partition, len(answer.records or b""))
                for item, answer in self._answers.items()
            ),
        )
        self._count_traffic()
        topics: dict[object, FetchableTopicResponse] = {}
        hinted: dict[int, None] = {}
        for item, answer in self._answers.items():
            if not self._all_partitions and not _is_news(item, answer):
                continue
            # A reader ignores the offsets in an error response, so the next response must repeat
            # them (KIP-227).
            item.sent_high_watermark = -1 if answer.error_code else answer.high_watermark
            item.sent_log_start_offset = answer.log_start_offset
            if (
                answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                and self._version < _STORAGE_ERROR_VERSION
            ):
                answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            topic = topics.get(item.key[0])
            if topic is None:
                topic = topics[item.key[0]] = _topic_response(item)
            topic.partitions.append(answer)
            if answer.current_leader.leader_id >= 0:
                hinted[answer.current_leader.leader_id] = None
        response = FetchResponse(session_id=session.session_id, responses=list(topics.values()))
        if self._version >= _LEADER_HINT_VERSION:
            for leader in hinted:
                endpoint = self._services.view.endpoint(leader, self._connection.listener)
                if endpoint is not None:
                    response.node_endpoints.append(
                        NodeEndpoint(leader, endpoint.host, endpoint.port)
                    )
        if not session.session_id:
            self._close()
        return response

    def _count_traffic(self) -> None:
        meters, answers = self._replicas.topic_meters, self._answers
        if self._session.replica_id < 0:
            for item, answer in answers.items():
                size, tp = len(answer.records) if answer.records else 0, item.topic_partition
                partition = None if tp is None else self._replicas.get(tp)
                if partition is not None:
                    partition.fetched_bytes += size
                meters.fetched(tp, size, answer.error_code)
            return
        for answer in answers.values():
            if answer.records:
                meters.replication_bytes_out.value += len(answer.records)


def _answer(item: SessionPartition, partition: Partition | None) -> PartitionData:
    # Records are empty, not null, if there are none, as in Kafka: librdkafka takes null as damage.
    answer = PartitionData(partition_index=item.key[1], high_watermark=-1, records=b"")
    if partition is not None:
        answer.high_watermark = partition.high_watermark
        answer.last_stable_offset = partition.last_stable_offset
        answer.log_start_offset = partition.log.log_start_offset
        answer.aborted_transactions = None
    return answer


def _take(services: Services, answer: PartitionData, read: Completion[LogSlice]) -> int:
    """Put the records of a read into the response; return their size in bytes."""
    error = read.error
    if error is None:
        data = read.result()
        answer.records = data.data
        return len(data.data)
    if isinstance(error, KafkaError):
        answer.error_code = error.code
    elif isinstance(error, StorageError):
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        services.unexpected("read for a fetch", error)
        answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
    return 0


def _is_news(item: SessionPartition, answer: PartitionData) -> bool:
    return bool(
        answer.records
        or answer.error_code
        or answer.diverging_epoch.epoch >= 0
        or answer.high_watermark != item.sent_high_watermark
        or answer.log_start_offset != item.sent_log_start_offset
    )


def _topic_response(item: SessionPartition) -> FetchableTopicResponse:
    name_or_id = item.key[0]
    if isinstance(name_or_id, bytes):
        return FetchableTopicResponse(topic_id=name_or_id)
    return FetchableTopicResponse(topic=name_or_id)
