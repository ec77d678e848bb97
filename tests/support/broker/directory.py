"""Logs and a log directory in memory: a record is one byte that holds its leader epoch.

A slow log keeps its completions until `finish`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tidelog.core.completion import Completion
from tidelog.core.epochs import LeaderEpochs
from tidelog.core.operation_times import OperationCounts
from tidelog.core.ports import VolumePlace, VolumeSize
from tidelog.core.types import TopicPartition
from tidelog.log.append_plan import AppendInfo
from tidelog.log.config import LogConfig
from tidelog.log.producer_state import ProducerState
from tidelog.log.segment_reads import LogSlice


class FakeSpace:
    """The space of a log directory, which a test fills by hand."""

    def __init__(self) -> None:
        self.is_full = False
        self.free = SimpleNamespace(volume=None, reserve_bytes=0)
        self.on_change: Callable[[], None] | None = None
        self.on_still_full: Callable[[], None] | None = None


class FakeSpeed:
    """The speed of a log directory, which a test changes by hand."""

    def __init__(self) -> None:
        self.is_slow = False
        self.is_stuck = False
        self.slow_ms = 7
        self.longest_ms = 1_234
        self.periods = 0
        self.last = OperationCounts(20, 15, 10, 0)
        self.counts = OperationCounts()
        self.threshold_ms = self.window_ms = 0
        self.on_change: Callable[[], None] | None = None
        self.on_still_slow: Callable[[], None] | None = None

    def configure(self, threshold_ms: int, window_ms: int, hang_ms: int) -> None:
        self.threshold_ms, self.window_ms = threshold_ms, window_ms
        self.hang_ms = hang_ms

    def turn(self, *, is_slow: bool) -> None:
        """Turn slow, or fast again."""
        self.is_slow = is_slow
        self.periods += is_slow
        assert self.on_change is not None
        self.on_change()

    def stay_slow(self) -> None:
        """End another slow window."""
        assert self.on_still_slow is not None
        self.on_still_slow()


class FakeLog:
    """One byte a record: its leader epoch."""

    def __init__(self, topic_partition: TopicPartition, topic_id: bytes) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.metadata_unsynced = False
        #: Records below are synced. With a slow sync, flushes end with `finish_syncs` only.
        self.recovery_point = 0
        self.has_slow_sync = False
        self.flush_error: BaseException | None = None
        self.is_closed = False
        self.damage: Any = None
        self.directory = SimpleNamespace(failure=None, space=FakeSpace(), speed=FakeSpeed())
        self.config: Any = LogConfig()
        #: Taken instead of the one segment that holds the records.
        self.log_start_offset = 0
        #: Where segments begin; `roll` begins another one.
        self.base_offsets = [0]
        self.epochs = LeaderEpochs()
        self.producers = ProducerState()
        self.records = bytearray()
        self.is_slow = False
        #: Records below may go with the next retention.
        self.removable = 0
        #: Where an open transaction begins; None without one.
        self.first_unstable: int | None = None
        self.calls: list[tuple[str, Any]] = []
        self.append_error: BaseException | None = None
        self._planned: list[Callable[[], None]] = []
        self._unfinished: list[Callable[[], None]] = []
        self._unsynced: list[Callable[[], None]] = []

    def flush(self) -> Completion[None]:
        """Writes down nothing; what was not written down is from now on."""
        self.calls.append(("flush", self.topic_id))
        self.metadata_unsynced = False
        completion: Completion[None] = Completion()
        target = self.log_end_offset

        def sync() -> None:
            if self.flush_error is not None:
                completion.fail(self.flush_error)
                return
            self.recovery_point = max(self.recovery_point, target)
            completion.resolve(None)

        if self.has_slow_sync:
            self._unsynced.append(sync)
        else:
            sync()
        return completion

    def finish_syncs(self) -> None:
        """The syncs under way are done; those that begin meanwhile are not."""
        unsynced, self._unsynced = self._unsynced, []
        for sync in unsynced:
            sync()

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.records)

    next_offset = log_end_offset

    def last_stable_offset(self, high_watermark: int) -> int:
        first = self.first_unstable
        return high_watermark if first is None else min(first, high_watermark)

    @property
    def size_bytes(self) -> int:
        return len(self.records)

    @property
    def segments(self) -> list[Any]:
        index = SimpleNamespace(floor=lambda offset: offset - self.log_start_offset)
        return [
            SimpleNamespace(
                base_offset=self.log_start_offset,
                size_bytes=self.size_bytes,
                index=index,
                max_timestamp_ms=1_000 * self.log_end_offset if self.records else -1,
            )
        ]

    def fill(self, *epochs: int) -> None:
        """Put records of these epochs into the log."""
        for epoch in epochs:
            self.epochs.assign(epoch, self.log_end_offset)
            self.records.append(epoch)

    def plan_leader_append(
        self, records: Any, leader_epoch: int, now_ms: int, checked: Any = None
    ) -> Completion[Any]:
        return self._plan(bytes([leader_epoch]) * len(records))

    def plan_follower_append(self, records: Any) -> Completion[Any]:
        return self._plan(bytes(records))

    def _plan(self, data: bytes) -> Completion[Any]:
        completion: Completion[Any] = Completion()
        error = self.append_error

        def write() -> None:
            if error is not None:
                completion.fail(error)
                return
            base_offset = self.log_end_offset
            self.fill(*data)
            last_offset, epoch = self.log_end_offset - 1, data[-1] if data else -1
            completion.resolve(
                AppendInfo(base_offset, last_offset, -1, len(data), len(data), epoch)
            )

        self._planned.append(write)
        return completion

    def submit_planned(self) -> None:
        planned, self._planned = self._planned, []
        for write in planned:
            if self.is_slow:
                self._unfinished.append(write)
            else:
                write()

    def finish(self) -> None:
        """The slow disk gets done with everything."""
        unfinished, self._unfinished = self._unfinished, []
        for write in unfinished:
            write()

    def read(self, offset: int, max_bytes: int, end_offset: int, *, min_one_batch: bool) -> Any:
        number = max(bisect_right(self.base_offsets, offset), 1)
        end = min([end_offset, *self.base_offsets[number : number + 1]])
        start = self.log_start_offset
        found = bytes(self.records[offset - start : end - start])
        size = max(max_bytes, 1) if min_one_batch else max_bytes
        return Completion.of(
            LogSlice(
                memoryview(found[:size]),
                is_cut=len(found) > size,
                base_offset=self.base_offsets[number - 1],
            )
        )

    def roll(self) -> None:
        """Begin a new segment at the log's end."""
        self.base_offsets.append(self.log_end_offset)

    @property
    def active_segment(self) -> Any:
        base = max(self.base_offsets[-1], self.log_start_offset)
        return SimpleNamespace(
            base_offset=base,
            size_bytes=self.log_end_offset - base,
            index=SimpleNamespace(floor=lambda offset: offset - base),
        )

    def _change(self, name: str, offset: int, change: Callable[[], None]) -> Completion[None]:
        completion: Completion[None] = Completion()

        def run() -> None:
            self.calls.append((name, offset))
            change()
            completion.resolve(None)

        if self.is_slow:
            self._unfinished.append(run)
        else:
            run()
        return completion

    def truncate_to(self, offset: int) -> Completion[None]:
        def change() -> None:
            del self.records[offset - self.log_start_offset :]
            self.recovery_point = min(self.recovery_point, self.log_end_offset)
            self.epochs.truncate_from_end(offset)
            if self.damage is not None and offset <= self.damage.offset:
                self.damage = None

        return self._change("truncate_to", offset, change)

    def truncate_fully_and_start_at(self, offset: int) -> Completion[None]:
        def change() -> None:
            self.records.clear()
            self.log_start_offset = offset
            self.recovery_point = min(self.recovery_point, offset)
            self.epochs.clear()

        return self._change("truncate_fully_and_start_at", offset, change)

    def configured(self, config: Any) -> None:
        self.config = config

    def advance_log_start(self, offset: int) -> bool:
        self.calls.append(("advance_log_start", offset))
        if offset <= self.log_start_offset:
            return False
        del self.records[: offset - self.log_start_offset]
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        return True

    def max_timestamp(self) -> Completion[Any]:
        return self.offset_for_timestamp(self.log_end_offset - 1, self.log_end_offset)

    def enforce_retention(self, now_ms: int, high_watermark: int) -> Completion[int]:
        if 0 < self.removable <= high_watermark:
            self.advance_log_start(self.removable)
        return Completion.of(0)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        self.epochs.assign(epoch, start_offset)

    def offset_for_timestamp(self, timestamp: int, end_offset: int) -> Completion[Any]:
        """Record N has timestamp N."""
        if self.log_start_offset <= timestamp < end_offset:
            return Completion.of((timestamp, timestamp, self.epochs.epoch_at(timestamp)))
        return Completion.of(None)


class FakeLane:
    """The lane of a log directory in memory, on a volume with some usable bytes."""

    def __init__(self) -> None:
        self.usable_bytes = 1 << 40
        self.device = 1
        #: What looks at the volume fail with.
        self.error: BaseException | None = None
        #: Completions of operations that hang.
        self.hanging: list[Completion[Any]] = []

    def abandon(self, error: BaseException) -> None:
        """Fail what hangs, and everything from now on."""
        self.error = error
        hanging, self.hanging = self.hanging, []
        for completion in hanging:
            completion.fail(error)

    def submit(self, operation: Callable[[Any], Any], work: Any, name: str) -> Completion[Any]:
        if self.error is not None:
            return Completion.failed(self.error)
        files = SimpleNamespace(
            volume_size=lambda path: VolumeSize(2 * self.usable_bytes, self.usable_bytes),
            volume_place=lambda path: VolumePlace(self.device, "/"),
        )
        return Completion.of(operation(files))


class FakeDirectory:
    """A log directory in memory."""

    def __init__(self) -> None:
        self.path = "/data"
        self.lane = FakeLane()
        self.is_marked = False
        self.marked_why = ""
        self.on_marked: Callable[[], None] = lambda: None
        #: Errors that the directory was to judge.
        self.judged: list[BaseException] = []
        self.space = FakeSpace()
        self.speed = FakeSpeed()
        self.logs: dict[TopicPartition, Any] = {}
        self.strays: dict[str, Any] = {}
        self.future_logs: Any = SimpleNamespace(found={})
        self.moved_from: dict[TopicPartition, Any] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.deleted: list[TopicPartition] = []
        self.set_aside_logs: list[TopicPartition] = []
        self.calls: list[tuple[str, Any]] = []
        self.error: BaseException | None = None
        self.wall_ms: Callable[[], int] = lambda: 0
        #: What new replicas keep their records in.
        self.log_type: type[FakeLog] = FakeLog

    def _done(self, value: Any = None) -> Completion[Any]:
        return Completion.failed(self.error) if self.error else Completion.of(value)

    def create_many(self, replicas: list[tuple[TopicPartition, bytes, Any]]) -> Completion[Any]:
        if self.error is not None:
            return Completion.failed(self.error)
        self.calls.append(("create_many", len(replicas)))
        logs = []
        for topic_partition, topic_id, config in replicas:
            log = self.logs[topic_partition] = self.log_type(topic_partition, topic_id)
            log.config = config
            log.directory.space, log.directory.speed = self.space, self.speed
            logs.append(log)
        return Completion.of(logs)

    def failed(self, error: BaseException) -> None:
        self.judged.append(error)

    def mark_bad(self, why: str = "") -> None:
        self.is_marked, self.marked_why = True, why
        self.on_marked()

    def delete(self, topic_partition: TopicPartition) -> Completion[None]:
        self.deleted.append(topic_partition)
        del self.logs[topic_partition]
        return self._done()

    def set_aside(
        self, topic_partition: TopicPartition, high_watermark: int = 0
    ) -> Completion[None]:
        self.set_aside_logs.append(topic_partition)
        del self.logs[topic_partition]
        name = str(topic_partition)
        self.strays[name] = SimpleNamespace(name=name, since_ms=self.wall_ms(), is_held=False)
        return self._done()

    def hold_strays(self, held: list[str]) -> Completion[None]:
        for name in held:
            self.strays[name].is_held = True
        return self._done()

    def purge_strays(self, now_ms: int, delay_ms: int) -> Completion[int]:
        old = [
            name
            for name, stray in self.strays.items()
            if not stray.is_held and now_ms - stray.since_ms >= delay_ms
        ]
        for name in old:
            del self.strays[name]
        return self._done(len(old))

    def write_high_watermarks(
        self, offsets: dict[TopicPartition, int], at_least_every_ms: int = 0
    ) -> Completion[None]:
        if self.error is None:
            self.high_watermarks = dict(offsets)
        return self._done()

    def checkpoint(self) -> Completion[None]:
        self.calls.append(("checkpoint", None))
        return self._done()

    def flush_due(self, now_ms: int) -> Completion[None]:
        self.calls.append(("flush_due", now_ms))
        return self._done()
