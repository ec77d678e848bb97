"""A coordinator's partition under one leader epoch: its decisions (shard), timers and appends.

All appends of one turn of the event loop become one batch, in their order, as long as the batch
fits into `message.max.bytes`. Many small commits thus share one write and one wait. The leader
writes these batches with acks=all and only under the leader epoch of the shard (G1). An append is
committed when the high watermark passes its batch, and failed when the log refuses the batch. An
append may time out before its outcome is known: after the coordinator's own timeout, or if the ISR
falls below the minimum. The shard still gets the later outcome of an append that timed out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from tidelog.core.completion import Completion
from tidelog.core.coordinator_shard import CoordinatorAppend, CoordinatorShard, Effects, Now
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.records.batch import HEADER_BYTES
from tidelog.records.builder import NewRecord, build_batch, record_size_bytes
from tidelog.wire.schema import SchemaError

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.replicas.hosting.purgatory import AcksWait
    from tidelog.broker.server.timers import Timeout
    from tidelog.broker.services import Services
    from tidelog.core.ports import Clock
    from tidelog.log.partition_log import AppendInfo

S = TypeVar("S", bound=CoordinatorShard)

#: The longest delay of one timer, in milliseconds; a longer timer is set again when this delay has
#: passed. The step bounds memory: a cancelled timer stays in memory until its time has come, and
#: members that join and leave could set any number of timers.
_TIMER_STEP_MS = 30_000


class TopicSettings(NamedTuple):
    """The settings of a coordinator's internal topic that are currently in force."""

    #: Compression codec of the coordinator's batches.
    codec: int
    #: Milliseconds without replication after which the client request that caused an append gets
    #: REQUEST_TIMED_OUT.
    append_timeout_ms: int
    #: Bytes that a load reads at a time.
    load_buffer_bytes: int


class _Gathered(NamedTuple):
    """A coordinator's append that waits for `flush`; it has no `records` if it is too large for any
    batch.
    """

    number: int
    records: tuple[NewRecord, ...]
    size_bytes: int


def await_replication(partition: Partition, offset: int, wait: AcksWait) -> None:
    """Acknowledge `wait` when all in-sync replicas have every record below `offset`."""
    partition.watchers.wait_for_acks(offset, wait)


def time_of(clock: Clock) -> Now:
    """Return the monotonic and the wall-clock time; coordinators need both to decide."""
    return Now(clock.monotonic_ms(), clock.wall_ms())


class LedPartition(Generic[S]):
    """A coordinator's partition under one leader epoch."""

    __slots__ = (
        "_carry_out", "_encode", "_gathered", "_services", "_settings", "is_over",
        "name", "partition", "shard", "timers",
    )  # fmt: skip

    def __init__(
        self,
        services: Services,
        shard: S,
        partition: Partition,
        encode: Callable[[Any, int], NewRecord],
        settings: Callable[[], TopicSettings],
        carry_out: Callable[[LedPartition[S], Effects], None],
    ) -> None:
        """`encode` returns the bytes of a record, given the wall-clock time, or raises SchemaError.

        `carry_out` runs the effects of the shard.
        """
        self._services = services
        self.shard = shard
        self.partition = partition
        self._encode = encode
        self._settings = settings
        self._carry_out = carry_out
        self.name = str(partition.topic_partition)
        self.timers: dict[Any, Timeout] = {}
        self._gathered: list[_Gathered] = []
        self.is_over = False

    def end(self) -> None:
        """End all timers, as the leadership is over."""
        self.is_over = True
        for timeout in self.timers.values():
            timeout.cancel()
        self.timers.clear()

    # Timers.

    def set_timer(self, name: Hashable, deadline_ms: int) -> None:
        """Set the timer of this name; an earlier timer of the same name no longer fires."""
        self.cancel_timer(name)
        left_ms = deadline_ms - self._services.clock.monotonic_ms()
        self.timers[name] = self._services.serving_timers.after(
            min(left_ms, _TIMER_STEP_MS), partial(self._fired, name, deadline_ms)
        )

    def cancel_timer(self, name: Hashable) -> None:
        """Cancel the timer of this name, if there is one."""
        timeout = self.timers.pop(name, None)
        if timeout is not None:
            timeout.cancel()

    def _fired(self, name: Hashable, deadline_ms: int) -> None:
        now = time_of(self._services.clock)
        if now.monotonic_ms < deadline_ms:
            self.set_timer(name, deadline_ms)
        else:
            del self.timers[name]
            self._carry_out(self, self.shard.timer_fired(name, deadline_ms, now))

    # Appends.

    def gather(self, append: CoordinatorAppend) -> None:
        """Encode an append, which the next `flush` writes in one batch with other appends."""
        size_bytes, limit_bytes = 0, self._limit_bytes()
        now_ms = self._services.clock.wall_ms()
        records: list[NewRecord] = []
        for record in append.records:
            try:
                encoded = self._encode(record, now_ms)
            except SchemaError:
                size_bytes = limit_bytes + 1
            else:
                records.append(encoded)
                size_bytes += record_size_bytes(encoded)
            if size_bytes > limit_bytes:
                # The append is too large for any batch, so the rest of it need not be encoded.
                records.clear()
                break
        self._gathered.append(_Gathered(append.number, tuple(records), size_bytes))

    def flush(self) -> None:
        """Write the gathered appends to the partition's log, combined into batches.

        An append that is too large for any batch fails with MESSAGE_TOO_LARGE.
        """
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
                self.failed((entry.number,), ErrorCode.MESSAGE_TOO_LARGE)
        if batch:
            self._append(batch)

    def _limit_bytes(self) -> int:
        return self.partition.log.config.max_message_bytes - HEADER_BYTES

    def _append(self, gathered: list[_Gathered]) -> None:
        partition, settings = self.partition, self._settings()
        numbers = tuple(entry.number for entry in gathered)
        if not partition.is_leader or partition.leader_epoch != self.shard.leader_epoch:
            self.failed(numbers, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        batch = build_batch(
            [record for entry in gathered for record in entry.records], codec=settings.codec
        )
        try:
            now_ms = self._services.clock.wall_ms()
            completion = partition.role.append(memoryview(batch), -1, now_ms)
        except KafkaError as error:
            self.failed(numbers, error.code)
            return
        except StorageError:
            self.failed(numbers, ErrorCode.KAFKA_STORAGE_ERROR)
            return
        outcome = _Outcome(self._services, self, numbers, settings.append_timeout_ms)
        completion.then(outcome.appended)

    # Outcomes of appends.

    def committed(self, numbers: Sequence[int]) -> None:
        """Report to the coordinator's shard that the high watermark has passed these appends."""
        for number in numbers:
            now = time_of(self._services.clock)
            self._carry_out(self, self.shard.committed(number, now))

    def failed(self, numbers: Sequence[int], error: ErrorCode) -> None:
        """Report to the coordinator's shard that these appends are not in the log."""
        for number in numbers:
            now = time_of(self._services.clock)
            self._carry_out(self, self.shard.failed(number, error, now))

    def timed_out(self, numbers: Sequence[int], error: ErrorCode) -> None:
        """Report to the coordinator that these appends timed out; outcomes may still come."""
        for number in numbers:
            now = time_of(self._services.clock)
            self._carry_out(self, self.shard.timed_out(number, error, now))


class _Outcome:
    """The wait for the outcome of one batch (`AcksWait`)."""

    __slots__ = ("_is_overdue", "_led", "_next_offset", "_numbers", "_services", "_timeout")

    def __init__(
        self,
        services: Services,
        led: LedPartition[Any],
        numbers: tuple[int, ...],
        timeout_ms: int,
    ) -> None:
        self._services = services
        self._led = led
        self._numbers = numbers
        self._next_offset = -1
        self._is_overdue = False
        self._timeout = services.serving_timers.after(timeout_ms, self._timed_out)

    def appended(self, completion: Completion[AppendInfo]) -> None:
        """Handle the outcome of the write to the leader's log."""
        error = completion.error
        led = self._led
        if error is not None:
            self._timeout.cancel()
            code = ErrorCode.KAFKA_STORAGE_ERROR
            if isinstance(error, KafkaError):
                code = error.code
            elif not isinstance(error, StorageError):
                self._services.unexpected(f"append to {led.name}", error)
            led.failed(self._numbers, code)
            return
        self._next_offset = completion.result().last_offset + 1
        if led.partition.high_watermark >= self._next_offset:
            self.acknowledged()
        elif not led.is_over:
            await_replication(led.partition, self._next_offset, self)

    def acknowledged(self) -> None:
        """Report that the high watermark has passed the batch."""
        self._timeout.cancel()
        self._led.committed(self._numbers)

    def refused(self, error: ErrorCode, message: str) -> None:
        """Report a delay: the ISR fell below the minimum, but the batch may still be committed.

        When the leadership ends, the batch gets no outcome, because its coordinator ends, too.
        """
        if self._led.is_over or error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._timeout.cancel()
            return
        self._overdue(error)
        await_replication(self._led.partition, self._next_offset, self)

    def _timed_out(self) -> None:
        self._overdue(ErrorCode.REQUEST_TIMED_OUT)

    def _overdue(self, error: ErrorCode) -> None:
        self._timeout.cancel()
        if not self._is_overdue:
            self._is_overdue = True
            self._services.tracer.mark("coordinator_append_overdue")
            self._led.timed_out(self._numbers, error)
