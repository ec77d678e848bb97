"""A partition of an internal topic as a coordinator sees it: two replicas whose logs are lists.

A `ListedReplica` stands for the partition, its role and its log at one broker. `PartitionRegister`
stands for the controller: it has the leader, the leader epoch and the ISR. The follower copies
batches one by one. A batch is committed when the high watermark of the registered leader passes it;
such a batch stays in the log of every broker that may become leader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.broker.replicas.hosting.purgatory import PartitionWatchers
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.ports import Buffer
from tidelog.core.types import TopicPartition
from tidelog.records.batch import BatchView, assign
from tidelog.records.reader import read_columns

#: The largest batch of the internal topic.
_MAX_MESSAGE_BYTES: Final = 1_048_588
_EIO: Final = 5


class ListedRecord(NamedTuple):
    """A record in the log: its offset, key, value and headers."""

    offset: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class ListedBatch(NamedTuple):
    """A batch in the log of one or both replicas."""

    leader_epoch: int
    base_offset: int
    last_offset: int
    data: bytes
    records: tuple[ListedRecord, ...]


class ListedRead(NamedTuple):
    """The result of a read: whole batches, and the offset after them; -1 if nothing was read."""

    data: bytes
    next_offset: int


class ListedAppend(NamedTuple):
    """The offsets of a batch that was appended."""

    base_offset: int
    last_offset: int


class ListedLogConfig(NamedTuple):
    """The only log setting that a coordinator reads."""

    max_message_bytes: int = _MAX_MESSAGE_BYTES


class PartitionRegister:
    """The controller's state of the partition, and its committed batches."""

    __slots__ = ("committed", "isr", "leader", "leader_epoch", "minimum")

    def __init__(self, minimum: int) -> None:
        self.leader = 1
        self.leader_epoch = 0
        self.isr: tuple[int, ...] = (1, 2)
        self.minimum = minimum
        #: All batches that are committed, whether compaction has removed them or not.
        self.committed: list[ListedBatch] = []

    @property
    def committed_end(self) -> int:
        """The offset after the last committed batch."""
        return self.committed[-1].last_offset + 1 if self.committed else 0


class _UnwrittenAppend(NamedTuple):
    batch: ListedBatch
    completion: Completion[ListedAppend]


class _SlowRead(NamedTuple):
    result: ListedRead
    completion: Completion[ListedRead]


class ListedReplica:
    """One broker's replica: what coordinators use of a partition, of its role and of its log."""

    def __init__(
        self,
        broker_id: int,
        topic_partition: TopicPartition,
        register: PartitionRegister,
        on_append: Callable[[ListedBatch], None],
        on_commit: Callable[[ListedBatch], None],
    ) -> None:
        self.broker_id = broker_id
        self.topic_partition = topic_partition
        self._register = register
        self._on_append = on_append
        self._on_commit = on_commit
        self.config = ListedLogConfig()
        self.batches: list[ListedBatch] = []
        #: Base offsets of batches that compaction has removed.
        self.compacted: set[int] = set()
        self.log_start_offset = 0
        self.is_leader = False
        self.leader_epoch = -1
        self.high_watermark = 0
        #: The log end of the other replica, as its last fetch shows; -1 before its first fetch of
        #: this leader epoch.
        self.fetched_end = -1
        self.watchers = PartitionWatchers()
        #: The error of the next append; None if it succeeds.
        self.append_error: KafkaError | StorageError | None = None
        #: Whether appends and reads wait until a step ends them.
        self.is_slow = False
        self.fails_reads = False
        #: Number of appends that failed or were refused.
        self.refusals = 0
        self.unwritten: list[_UnwrittenAppend] = []
        self.slow_reads: list[_SlowRead] = []

    @property
    def role(self) -> ListedReplica:
        """The role of the replica, which takes appends."""
        return self

    @property
    def log(self) -> ListedReplica:
        """The log of the replica."""
        return self

    @property
    def log_end_offset(self) -> int:
        """The offset after the last batch that is written."""
        return self.batches[-1].last_offset + 1 if self.batches else 0

    # Methods that the coordinator calls.

    def append(self, records: Buffer, _acks: int, _now_ms: int) -> Completion[ListedAppend]:
        """Append a batch as the leader; raises KafkaError or StorageError if the log refuses it."""
        error, self.append_error = self.append_error, None
        if error is not None:
            self.refusals += 1
            raise error
        register = self._register
        if len(register.isr) < register.minimum and register.leader == self.broker_id:
            self.refusals += 1
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        data = bytearray(records)
        view = BatchView(data)
        base = self.unwritten[-1].batch.last_offset + 1 if self.unwritten else self.log_end_offset
        assign(view, base, self.leader_epoch)
        batch = ListedBatch(
            self.leader_epoch, base, view.last_offset, bytes(data), tuple(_records_of(view))
        )
        self._on_append(batch)
        completion: Completion[ListedAppend] = Completion()
        self.unwritten.append(_UnwrittenAppend(batch, completion))
        if not self.is_slow:
            self.write()
        return completion

    def read(
        self, position: int, max_bytes: int, end: int, *, min_one_batch: bool
    ) -> Completion[ListedRead]:
        """Read whole batches from `position` up to `end`."""
        if self.fails_reads:
            self.fails_reads = False
            return Completion.failed(self.storage_error("pread"))
        assert min_one_batch, "a load reads at least one batch"
        data, next_offset = b"", -1
        for batch in self.batches:
            if not position <= batch.last_offset < end or batch.base_offset in self.compacted:
                continue
            if data and len(data) + len(batch.data) > max_bytes:
                break
            data += batch.data
            next_offset = batch.last_offset + 1
        result = ListedRead(data, next_offset)
        if not self.is_slow:
            return Completion.of(result)
        completion: Completion[ListedRead] = Completion()
        self.slow_reads.append(_SlowRead(result, completion))
        return completion

    def storage_error(self, operation: str) -> StorageError:
        """Return the error of a file operation that failed."""
        return StorageError("/data", operation, "/data/0.log", _EIO, 0)

    # Methods that the world calls.

    def write(self) -> None:
        """End the oldest append that waits; its batch is in the log, unless the role has ended."""
        batch, completion = self.unwritten.pop(0)
        if not self.is_leader or batch.leader_epoch != self.leader_epoch:
            completion.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        self.batches.append(batch)
        completion.resolve(ListedAppend(batch.base_offset, batch.last_offset))
        self.advance()

    def fail_writes(self) -> None:
        """Let all appends that wait fail on the disk; their batches are not in the log."""
        failed, self.unwritten = self.unwritten, []
        self.refusals += 1
        for each in failed:
            each.completion.fail(self.storage_error("pwrite"))

    def end_read(self) -> None:
        """End the oldest read that waits."""
        result, completion = self.slow_reads.pop(0)
        completion.resolve(result)

    def hurry(self) -> None:
        """End everything that waits for the disk; the disk is fast from now on."""
        self.is_slow = self.fails_reads = False
        self.append_error = None
        while self.unwritten:
            self.write()
        while self.slow_reads:
            self.end_read()

    def advance(self) -> None:
        """Advance the high watermark of a leader as far as the ISR allows."""
        register = self._register
        is_registered = (
            register.leader == self.broker_id and register.leader_epoch == self.leader_epoch
        )
        if not self.is_leader or not is_registered or len(register.isr) < register.minimum:
            # The other broker of an ISR follows another leader, and no longer fetches from this
            # one.
            return
        end = self.log_end_offset
        if len(register.isr) > 1:
            end = min(end, self.fetched_end)
        if end <= self.high_watermark:
            return
        self.high_watermark = end
        for batch in self.batches:
            if register.committed_end <= batch.last_offset < end:
                register.committed.append(batch)
                self._on_commit(batch)
        self.watchers.high_watermark_moved(end)

    def copy_from(self, leader: ListedReplica) -> None:
        """Fetch once from the leader: truncate what the leader does not have, or copy a batch."""
        theirs, mine = leader.batches, self.batches
        common = 0
        while (
            common < len(mine) and common < len(theirs) and mine[common][:2] == theirs[common][:2]
        ):
            common += 1
        if common < len(mine):
            self.compacted -= {batch.base_offset for batch in mine[common:]}
            del mine[common:]
        elif common < len(theirs):
            batch = theirs[common]
            mine.append(batch)
            if batch.base_offset in leader.compacted:
                self.compacted.add(batch.base_offset)
        self.high_watermark = min(leader.high_watermark, self.log_end_offset)
        leader.fetched_end = self.log_end_offset
        leader.advance()

    def compact(self, end: int, drops_tombstones: bool) -> None:
        """Remove committed batches below `end` all of whose records have a later one of their key.

        With `drops_tombstones`, also batches of tombstones that are the last of their key.
        """
        last = {
            record.key: record.offset
            for batch in self.batches
            for record in batch.records
            if record.offset < end
        }
        for batch in self.batches:
            if batch.last_offset < end and all(
                last[record.key] > record.offset or (drops_tombstones and record.value is None)
                for record in batch.records
            ):
                self.compacted.add(batch.base_offset)


def _records_of(batch: BatchView) -> list[ListedRecord]:
    columns = read_columns(batch)
    rows = zip(columns.offsets, columns.keys, columns.values, columns.headers, strict=True)
    return [
        ListedRecord(offset, key or b"", value, tuple(headers))
        for offset, key, value, headers in rows
    ]
