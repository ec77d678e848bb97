"""The appends of one coordinator to its partition's log, and their outcomes.

The writer gathers the appends of one turn of the loop into one batch (as many as fit
`message.max.bytes`), in their order. So many small commits cost one write and one wait. They are
written with acks=all and only under the leader epoch of the coordinator (G1). An append is
committed when the high watermark has passed the batch, and failed when the log refused it. It may
time out before that (`offsets.commit.timeout.ms`, or an ISR below the minimum); the writer still
waits for the outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.broker.coordinators import offset_records
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.group.effects import Append
from tidelog.records.batch import HEADER_BYTES
from tidelog.records.builder import NewRecord, build_batch, record_size_bytes
from tidelog.wire.schema import SchemaError

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosted_replica import HostedReplica
    from tidelog.broker.replicas.purgatory import AcksWait
    from tidelog.broker.services import Services
    from tidelog.group.partition import GroupPartition
    from tidelog.log.partition_log import AppendInfo


class _Gathered(NamedTuple):
    """A gathered append that is not written yet; without records it cannot be."""

    number: int
    records: tuple[NewRecord, ...]
    size_bytes: int


def await_replication(partition: HostedReplica, offset: int, wait: AcksWait) -> None:
    """Acknowledge `wait` when all in-sync replicas have everything below `offset`."""
    partition.watchers.wait_for_acks(offset, wait)


class Coordination(Protocol):
    """The leadership whose appends are written, and which learns their outcomes."""

    partition: HostedReplica
    core: GroupPartition
    name: str
    is_over: bool

    def committed(self, numbers: Sequence[int]) -> None:
        """Note that the high watermark has passed these appends."""

    def failed(self, numbers: Sequence[int], error: ErrorCode) -> None:
        """Note that these appends are not in the log."""

    def timed_out(self, numbers: Sequence[int], error: ErrorCode) -> None:
        """Note that these appends take too long."""


class RecordWriter:
    """The appends of one coordinator."""

    def __init__(self, services: Services, coordination: Coordination) -> None:
        self._services = services
        self._coordination = coordination
        self._gathered: list[_Gathered] = []

    def gather(self, append: Append) -> None:
        """Take an append; the next `flush` writes it."""
        size_bytes, limit_bytes = 0, self._limit_bytes()
        now_ms = self._services.clock.wall_ms()
        records: list[NewRecord] = []
        for record in append.records:
            try:
                encoded = offset_records.encode(record, now_ms)
            except SchemaError:
                size_bytes = limit_bytes + 1
            else:
                records.append(encoded)
                size_bytes += record_size_bytes(encoded)
            if size_bytes > limit_bytes:
                # No batch can hold it: the rest of it need not be looked at.
                records.clear()
                break
        self._gathered.append(_Gathered(append.number, tuple(records), size_bytes))

    def flush(self) -> None:
        """Plan everything gathered as appends of the partition."""
        gathered, self._gathered = self._gathered, []
        limit_bytes = self._limit_bytes()
        batch: list[_Gathered] = []
        size_bytes = 0
        for entry in gathered:
            if batch and size_bytes + entry.size_bytes > limit_bytes:
                self._append(batch)
                batch, size_bytes = [], 0
            if entry.records:
                batch.append(entry)
                size_bytes += entry.size_bytes
            else:
                self._coordination.failed((entry.number,), ErrorCode.MESSAGE_TOO_LARGE)
        if batch:
            self._append(batch)

    def _limit_bytes(self) -> int:
        return self._coordination.partition.log.config.max_message_bytes - HEADER_BYTES

    def _append(self, gathered: list[_Gathered]) -> None:
        services, coordination = self._services, self._coordination
        partition = coordination.partition
        numbers = tuple(entry.number for entry in gathered)
        if not partition.is_leader or partition.leader_epoch != coordination.core.leader_epoch:
            coordination.failed(numbers, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        batch = build_batch(
            [record for entry in gathered for record in entry.records],
            codec=services.config.offsets_topic_compression_codec,
        )
        try:
            completion = partition.append(memoryview(batch), -1, services.clock.wall_ms())
        except KafkaError as error:
            coordination.failed(numbers, error.code)
            return
        except StorageError:
            coordination.failed(numbers, ErrorCode.KAFKA_STORAGE_ERROR)
            return
        completion.then(_Outcome(services, coordination, numbers).appended)


class _Outcome:
    """The wait for the outcome of one batch; an AcksWait."""

    __slots__ = (
        "_coordination",
        "_is_overdue",
        "_next_offset",
        "_numbers",
        "_services",
        "_timeout",
    )

    def __init__(
        self, services: Services, coordination: Coordination, numbers: tuple[int, ...]
    ) -> None:
        self._services = services
        self._coordination = coordination
        self._numbers = numbers
        self._next_offset = -1
        self._is_overdue = False
        self._timeout = services.serving_timers.after(
            services.config.offsets_commit_timeout_ms, self._timed_out
        )

    def appended(self, completion: Completion[AppendInfo]) -> None:
        """Take over the leader's write of the batch, or its failure."""
        error = completion.error
        coordination = self._coordination
        if error is not None:
            self._timeout.cancel()
            code = ErrorCode.KAFKA_STORAGE_ERROR
            if isinstance(error, KafkaError):
                code = error.code
            elif not isinstance(error, StorageError):
                self._services.unexpected(f"append to {coordination.name}", error)
            coordination.failed(self._numbers, code)
            return
        self._next_offset = completion.result().last_offset + 1
        partition = coordination.partition
        if partition.high_watermark >= self._next_offset:
            self.acknowledged()
        elif not coordination.is_over:
            await_replication(partition, self._next_offset, self)

    def acknowledged(self) -> None:
        """Report that the high watermark has passed the batch."""
        self._timeout.cancel()
        self._coordination.committed(self._numbers)

    def refused(self, error: ErrorCode, message: str) -> None:
        """Report a delay: the ISR fell below the minimum, and the batch may yet be committed.

        A lost leadership is no outcome; the coordinator ends with it.
        """
        if self._coordination.is_over or error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._timeout.cancel()
            return
        self._overdue(error)
        await_replication(self._coordination.partition, self._next_offset, self)

    def _timed_out(self) -> None:
        self._overdue(ErrorCode.REQUEST_TIMED_OUT)

    def _overdue(self, error: ErrorCode) -> None:
        self._timeout.cancel()
        if not self._is_overdue:
            self._is_overdue = True
            self._services.tracer.mark("offsets_overdue")
            self._coordination.timed_out(self._numbers, error)
