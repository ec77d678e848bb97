"""Consumers: positions, records fetched ahead, and groups.

`PartitionConsumer` reads the partitions that its caller names. `GroupConsumer` reads the partitions
that its group assigns, from the committed offsets. Records that `poll` returned count as processed
at the next call of `poll`, `commit` or `close`. No record is lost; records since the last commit
may be delivered twice. Consumers skip control records, and with read_committed also aborted
transactions (KIP-98).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Final, NamedTuple

from tidelog.client.aborted_transactions import AbortedTransactions
from tidelog.client.fetching import (
    EARLIEST,
    LATEST,
    AbortedRange,
    FetchedPartition,
    FetchOptions,
    LogReader,
)
from tidelog.client.groups import FetchedOffset, GroupAdmin
from tidelog.client.heartbeats import Heartbeats
from tidelog.client.membership import GroupMember
from tidelog.client.steps import Operation
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError, ProtocolError
from tidelog.core.limits import MIB
from tidelog.core.types import READ_COMMITTED, READ_UNCOMMITTED, TopicPartition
from tidelog.records.batch import check, iter_batches
from tidelog.records.reader import Record, iter_records

FETCH_BYTES: Final = 8 * MIB
PARTITION_FETCH_BYTES: Final = MIB
#: Minimum time for which a fetch from one of several leaders waits for new records. The wait is
#: short, because the consumer fetches from one leader after the other.
_LEAST_WAIT_MS: Final = 10
_MOST_SHARES: Final = 5
_COMMIT_INTERVAL_MS: Final = 5_000
#: Interval in ms at which a group's leader checks for new partitions.
_METADATA_INTERVAL_MS: Final = 30_000


class ConsumedRecord(NamedTuple):
    """A record with its partition."""

    tp: TopicPartition
    record: Record


class Skip(NamedTuple):
    """Offsets `start` to `end` - 1, deleted before they were read (retention, DeleteRecords).

    If `end` < `start`, no offset was deleted: the log ends before `start`, and the consumer goes
    back to `end`.
    """

    tp: TopicPartition
    start: int
    end: int


@dataclass(slots=True)
class _Progress:
    """The read progress of one partition."""

    #: The next offset to return.
    position: int
    #: The next offset to fetch.
    fetch_from: int
    #: Records that were fetched and that `poll` has not returned.
    ahead: deque[Record] = field(default_factory=deque)
    #: The offset after the records in `ahead` and after skipped records.
    ahead_end: int = 0
    #: The offset after the readable records in the last response; -1 before the first response.
    end: int = -1


class PartitionConsumer:
    """A consumer of partitions that starts at given offsets."""

    def __init__(self, reader: LogReader, isolation_level: int = READ_UNCOMMITTED) -> None:
        self._reader = reader
        self._isolation_level = isolation_level
        self._progress: dict[TopicPartition, _Progress] = {}
        self._is_idle = False
        #: All offset ranges that could not be read; the caller may clear the list.
        self.skips: list[Skip] = []

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record that `poll` returns, by partition."""
        return {tp: each.position for tp, each in self._progress.items()}

    @property
    def is_at_end(self) -> bool:
        """Whether `poll` has returned all records that were readable at the last fetch."""
        return all(0 <= each.end <= each.position for each in self._progress.values())

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Set the position of a partition."""
        self._progress[tp] = _Progress(offset, offset)

    def drop(self, tp: TopicPartition) -> None:
        """Stop reading this partition."""
        self._progress.pop(tp, None)

    def poll(self, max_records: int, max_wait_ms: int) -> Operation[list[ConsumedRecord]]:
        """Return at most `max_records` next records; wait up to `max_wait_ms` for the first.

        Records of a partition are in order. Raises KafkaError, ProtocolError (a damaged batch),
        ConnectionLost, RequestTimeout.
        """
        handed = self._hand_out(max_records)
        if not handed and self._progress:
            yield from self._fetch(max_wait_ms)
            handed = self._hand_out(max_records)
            self._is_idle = not handed
        return handed

    def _hand_out(self, max_records: int) -> list[ConsumedRecord]:
        handed: list[ConsumedRecord] = []
        for tp, progress in self._progress.items():
            ahead = progress.ahead
            while ahead and len(handed) < max_records:
                record = ahead.popleft()
                progress.position = record.offset + 1
                handed.append(ConsumedRecord(tp, record))
            if not ahead and progress.ahead_end > progress.position:
                progress.position = progress.ahead_end
        return handed

    def _fetch(self, max_wait_ms: int) -> Operation[None]:
        wait_ms = 0
        if self._is_idle:
            shares = min(len(self._progress), _MOST_SHARES)
            wait_ms = max(min(_LEAST_WAIT_MS, max_wait_ms), max_wait_ms // shares)
        options = FetchOptions(
            FETCH_BYTES,
            PARTITION_FETCH_BYTES,
            max_wait_ms=wait_ms,
            isolation_level=self._isolation_level,
        )
        offsets = {tp: each.fetch_from for tp, each in self._progress.items()}
        for tp, fetched in (yield from self._reader.fetch(offsets, options)).items():
            if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                yield from self._skip(tp)
            elif fetched.error is not ErrorCode.NONE:
                raise KafkaError(fetched.error, f"fetching {tp} from offset {offsets[tp]}")
            else:
                self._take(tp, self._progress[tp], fetched)

    def _take(self, tp: TopicPartition, progress: _Progress, fetched: FetchedPartition) -> None:
        committed_only = self._isolation_level == READ_COMMITTED
        progress.end = fetched.last_stable_offset if committed_only else fetched.high_watermark
        aborted = fetched.aborted if committed_only else ()
        try:
            records, end = read_records(fetched.records, progress.fetch_from, aborted)
        except ProtocolError as error:
            raise ProtocolError(
                f"{tp}, at or after offset {progress.fetch_from}: {error}"
            ) from error
        assert end >= progress.fetch_from, "a fetch does not go back"
        progress.ahead.extend(records)
        progress.fetch_from = progress.ahead_end = end

    def _skip(self, tp: TopicPartition) -> Operation[None]:
        """Move a position outside the log to the log's start or end."""
        wanted = self._progress[tp].fetch_from
        listed = yield from self._reader.list_offsets({tp: EARLIEST}, self._isolation_level)
        target = listed[tp].offset
        if target <= wanted:
            listed = yield from self._reader.list_offsets({tp: LATEST}, self._isolation_level)
            target = listed[tp].offset
        if target == wanted:
            return  # the log has reached the position in the meantime
        self.skips.append(Skip(tp, wanted, target))
        self.seek(tp, target)


def read_records(
    data: memoryview, position: int, aborted: Iterable[AbortedRange] = ()
) -> tuple[list[Record], int]:
    """Return the records of fetched batches from `position` on, and the next offset to fetch.

    Control batches and the transactions in `aborted` are skipped. Bytes of header keys that are not
    UTF-8 become surrogates. Raises CorruptBatch, whose position counts from the start of `data`.
    """
    records: list[Record] = []
    is_aborted = AbortedTransactions(aborted)
    for batch in iter_batches(data):
        check(batch)
        if not is_aborted(batch) and not batch.is_control:
            found = iter_records(batch, keeps_bytes=True)
            records += [each for each in found if each.offset >= position]
        position = max(position, batch.last_offset + 1)
    return records, position


class GroupConsumer:
    """A consumer of the partitions that its group assigns; it commits its progress.

    `start` is a function from partitions without a committed offset to their start offsets.
    """

    def __init__(
        self,
        member: GroupMember,
        groups: GroupAdmin,
        partitions: PartitionConsumer,
        start: Callable[[Iterable[TopicPartition]], Operation[Mapping[TopicPartition, int]]],
        now_ms: Callable[[], int],
        heartbeats: Heartbeats,
    ) -> None:
        self.member = member
        #: The caller must run `heartbeats.beat` beside `poll`; otherwise a busy member loses its
        #: membership.
        self.heartbeats = heartbeats
        self.partitions = partitions
        self._groups = groups
        self._start = start
        self._now_ms = now_ms
        self._commit_due_ms = 0
        self._metadata_due_ms = now_ms() + _METADATA_INTERVAL_MS
        self._committed: dict[TopicPartition, int] = {}

    def poll(self, max_records: int, max_wait_ms: int) -> Operation[list[ConsumedRecord]]:
        """Do the due steps of group membership, then read as PartitionConsumer does."""
        heard = self.heartbeats.poll_begins()
        try:
            if heard is not None:
                self.member.hear(*heard)
            return (yield from self._poll(max_records, max_wait_ms))
        finally:
            self.heartbeats.poll_ended()

    def _poll(self, max_records: int, max_wait_ms: int) -> Operation[list[ConsumedRecord]]:
        while self.member.must_join:
            yield from self._rebalance()
        now_ms = self._now_ms()
        if now_ms >= self._commit_due_ms:
            yield from self.commit()
        if self.heartbeats.is_due:
            yield from self.member.heartbeat()
            self.heartbeats.sent()
        if now_ms >= self._metadata_due_ms:
            yield from self.member.look_for_partitions()
            self._metadata_due_ms = now_ms + _METADATA_INTERVAL_MS
        if self.member.must_join:
            return []
        return (yield from self.partitions.poll(max_records, max_wait_ms))

    def commit(self) -> Operation[bool]:
        """Commit the progress of every partition; return False if the membership was lost."""
        self._commit_due_ms = self._now_ms() + _COMMIT_INTERVAL_MS
        positions = {
            tp: offset
            for tp, offset in self.partitions.positions.items()
            if tp in self.member.assignment and self._committed.get(tp) != offset
        }
        offsets = {tp: FetchedOffset(offset) for tp, offset in positions.items()}
        is_member = yield from self.member.commit(offsets)
        if is_member:
            self._committed.update(positions)
        return is_member

    def close(self) -> Operation[None]:
        """Commit, and leave the group."""
        yield from self.commit()
        yield from self.member.leave()

    def _rebalance(self) -> Operation[None]:
        """Rejoin the group.

        An eager member commits before it rejoins. A cooperative member keeps reading the partitions
        that it still owns. The cooperative member commits the offsets of its revoked partitions in
        the new generation, before other members get these partitions.
        """
        yield from self.commit()
        assignment = yield from self.member.join()
        self.heartbeats.sent()
        is_cooperative = self.member.options.assignor.is_cooperative
        known = self.partitions.positions
        for tp in known:
            # Other members may have read and committed a partition that this member did not keep,
            # so this member's position in the partition is no longer valid.
            if tp not in self.member.kept or not is_cooperative:
                self.partitions.drop(tp)
                self._committed.pop(tp, None)
        gained = [tp for tp in sorted(assignment) if tp not in self.partitions.positions]
        yield from self._begin(gained)

    def _begin(self, gained: list[TopicPartition]) -> Operation[None]:
        if not gained:
            return
        committed = yield from self._groups.committed(self.member.options.group, gained)
        without = [tp for tp in gained if tp not in committed]
        starts = (yield from self._start(without)) if without else {}
        for tp in gained:
            offset = committed[tp].offset if tp in committed else starts[tp]
            self.partitions.seek(tp, offset)
            if tp in committed:
                self._committed[tp] = offset
