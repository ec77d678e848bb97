"""What the tests of the log use: a lane with explicit steps, a clock, batches, crashes.

`StepLane` runs FAST operations at once and SLOW ones when `run` is called (or at once too), on real
files or on the simulated disk, without a loop. `LogHarness` is a log directory on real files,
`SimLogHarness` one on a simulated disk whose process can die at any file call.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from tests.support.ports import FakeTracer, ManualClock

from tidelog.core.completion import Completion
from tidelog.core.errors import NodeDead, StorageError
from tidelog.core.operation_times import OperationTimes
from tidelog.core.ports import Files, Handle, VolumeSize, Work
from tidelog.core.types import TopicPartition
from tidelog.log.config import LogConfig
from tidelog.log.log_directory import LogDirectory
from tidelog.log.partition_log import PartitionLog
from tidelog.records.batch import iter_batches
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.records.reader import Record, iter_records
from tidelog.runtime.files import OsFiles
from tidelog.sim.disk import SimDisk
from tidelog.sim.files import SimFiles

T = TypeVar("T")

TP = TopicPartition("topic", 0)
TOPIC_ID = bytes(range(1, 17))
NOW_MS = 1_700_000_000_000


class FakeClock(ManualClock):
    """Time that begins at NOW_MS."""

    def __init__(self) -> None:
        super().__init__(NOW_MS)


class StepLane:
    """A lane without threads. SLOW operations wait for `run` unless `eager`."""

    def __init__(self, directory: str, files: Files) -> None:
        self._directory = directory
        self.files = files
        #: Counted by tests alone: the operations take no time.
        self.times = OperationTimes()
        self.eager = True
        #: FAST operations wait too.
        self.slow_disk = False
        self.waiting: deque[tuple[Callable[[Files], Any], Completion[Any], str]] = deque()
        self.names: list[str] = []
        self._fast_waiting = 0
        self._running = False
        #: The error of `abandon`.
        self.abandoned: StorageError | None = None

    @property
    def directory(self) -> str:
        return self._directory

    @property
    def is_fast(self) -> bool:
        return not self.slow_disk and not self._fast_waiting

    def submit(self, operation: Callable[[Files], T], work: Work, name: str) -> Completion[T]:
        self.names.append(name)
        if self.abandoned is not None:
            return Completion.failed(self.abandoned)
        if work is Work.NOWAIT or (work is Work.FAST and self.is_fast):
            return self._execute(operation)
        completion: Completion[T] = Completion()
        if work is Work.FAST:
            self._fast_waiting += 1
        self.waiting.append((operation, completion, work.value))
        if self.eager and not self.slow_disk:
            self.run()
        return completion

    def run(self, count: int = -1) -> None:
        """Run what waits, in order, with what it leads to."""
        if self._running:
            return
        self._running = True
        try:
            while self.waiting and count:
                operation, completion, work = self.waiting.popleft()
                if work == Work.FAST.value:
                    self._fast_waiting -= 1
                result = self._execute(operation)
                if result.error is not None:
                    completion.fail(result.error)
                else:
                    completion.resolve(result.result())
                count -= 1
        finally:
            self._running = False

    def abandon(self, error: StorageError) -> None:
        self.abandoned = error
        failed = list(self.waiting)
        self.waiting.clear()
        self._fast_waiting = 0
        for _, completion, _ in failed:
            completion.fail(error)

    async def close(self) -> None:
        self.run()

    def _execute(self, operation: Callable[[Files], T]) -> Completion[T]:
        try:
            return Completion.of(operation(self.files))
        except OSError as error:
            call = str(getattr(error, "call", getattr(self.files, "last_call", "call")))
            name = "fsync" if call.startswith("fsync") else call
            return Completion.failed(
                StorageError(self._directory, name, str(error.filename), error.errno or 0, NOW_MS)
            )
        except Exception as error:
            return Completion.failed(error)


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never has to wait."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return cast(T, stop.value)
    coroutine.close()
    raise AssertionError("the coroutine waits for something")


def open_directory(
    lane: StepLane,
    config: LogConfig | None = None,
    clock: FakeClock | None = None,
    tracer: FakeTracer | None = None,
    cluster_id: str = "cluster",
    broker_id: int = 1,
    max_open_files: int = 100,
) -> LogDirectory:
    """Open the lane's log directory, every topic with the same configuration."""
    settings = config or LogConfig()
    return drive(
        LogDirectory.open(
            lane,
            cluster_id=cluster_id,
            broker_id=broker_id,
            clock=clock or FakeClock(),
            tracer=tracer or FakeTracer(),
            default_config=settings,
            config_of=lambda _: settings,
            max_open_files=max_open_files,
        )
    )


def batch_of(
    values: Sequence[bytes],
    *,
    producer: Producer | None = None,
    timestamp_ms: int = NOW_MS,
    codec: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """A batch with these values, one millisecond apart."""
    records = [NewRecord(b"k", value, timestamp_ms + n) for n, value in enumerate(values)]
    return build_batch(
        records,
        codec=codec,
        producer=producer or Producer(),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def append(log: PartitionLog, values: Sequence[bytes], epoch: int = 0, **batch: Any) -> int:
    """Append as leader and have it written; returns the base offset."""
    completion = log.plan_leader_append(batch_of(values, **batch), epoch, NOW_MS)
    log.submit_planned()
    return completion.result().base_offset


def read_all(log: PartitionLog, max_bytes: int = 1 << 20) -> list[Record]:
    """Every record from the log's start to its end."""
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        slice_ = log.read(offset, max_bytes, log.log_end_offset, min_one_batch=True).result()
        assert len(slice_.data) > 0
        walk = iter_batches(slice_.data)
        for batch in walk:
            found += [record for record in iter_records(batch) if record.offset >= offset]
        assert walk.end_position == len(slice_.data)
        assert slice_.next_offset > offset
        offset = slice_.next_offset
    return found


def values_of(log: PartitionLog) -> list[bytes | None]:
    """Values of all records; their offsets must be without a gap."""
    records = read_all(log)
    assert [record.offset for record in records] == list(
        range(log.log_start_offset, log.log_end_offset)
    )
    return [record.value for record in records]


class Life:
    """Stands in for a simulated node's incarnation: dies at a chosen file call."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.alive = True
        self.died_with_page_cache = False
        self.calls = 0
        self.strike_at = -1

    def check_alive(self) -> None:
        if not self.alive:
            raise NodeDead("dead")

    def port_call(self, name: str) -> None:
        self.check_alive()
        self.calls += 1
        if self.calls == self.strike_at:
            self.alive = False
            raise NodeDead(name)


class SimLogHarness:
    """A log directory on a simulated disk that can be opened again and again."""

    def __init__(self, seed: int = 0, config: LogConfig | None = None) -> None:
        self.draw = random.Random(seed)
        self.disk = SimDisk("/logs")
        self.config = config or LogConfig()
        self.clock = FakeClock()
        self.tracer = FakeTracer()
        self.life = Life()
        self.lane = StepLane("/logs", cast(Files, None))

    def open(self, strike_at: int = -1) -> LogDirectory:
        """A new process opens the directory; it dies at its `strike_at`-th file call."""
        self.life = Life(self.clock)
        self.life.strike_at = strike_at
        files = SimFiles(cast(Any, self.life), self.disk, self.draw)
        self.lane = StepLane("/logs", cast(Files, files))
        return open_directory(self.lane, self.config, self.clock, self.tracer)


class FaultyFiles:
    """Files that refuse chosen calls: `refuse` is asked with (call, path) for an errno or 0."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.refuse: Callable[[str, str], int] = lambda call, path: 0
        #: Bytes that can still be written; the write that meets the limit is short.
        self.room_bytes: int | None = None
        #: The size of the volume; None: as it is.
        self.volume: VolumeSize | None = None
        self.last_call = ""
        self.calls: list[tuple[str, str]] = []

    def _ask(self, call: str, path: str) -> None:
        self.last_call = call
        self.calls.append((call, path))
        number = self.refuse(call, path)
        if number:
            raise OSError(number, "refused", path)

    def __getattr__(self, name: str) -> Any:
        target = getattr(self._files, name)

        def call(first: Any, *rest: Any, **named: Any) -> Any:
            path = first if isinstance(first, str) else first.path
            self._ask(name, path)
            return target(first, *rest, **named)

        return call

    def volume_size(self, path: str) -> VolumeSize:
        self._ask("volume_size", path)
        return self.volume or self._files.volume_size(path)

    def pwritev(self, handle: Handle, buffers: Sequence[Any], position: int) -> int:
        self._ask("pwritev", handle.path)
        if self.room_bytes is None:
            return self._files.pwritev(handle, buffers, position)
        content = b"".join(bytes(buffer) for buffer in buffers)[: self.room_bytes]
        if not content:
            raise OSError(28, "no space", handle.path)
        self.room_bytes -= len(content)
        return self._files.pwritev(handle, [content], position)


class UnsyncedFiles(OsFiles):
    """Real files that nothing waits for: no test here cuts the power, and whoever wants to know
    what would have been synced asks FaultyFiles. A sync takes milliseconds, a test asks for many.
    """

    def fsync(self, handle: Handle) -> None:
        """Leave it to the page cache."""

    def fsync_directory(self, path: str) -> None:
        """Leave it to the page cache."""

    def sync_volume(self, path: str) -> None:
        """Leave it to the page cache."""

    def replace_file(self, path: str, data: bytes, *, sync: bool) -> None:
        """Old or new, as ever."""
        super().replace_file(path, data, sync=False)


def directory_of(log: PartitionLog) -> LogDirectory:
    """Return the open directory that a log lies in."""
    directory = log.directory
    assert isinstance(directory, LogDirectory)
    return directory


class LogHarness:
    """One log directory on real files that can be opened again."""

    def __init__(self, path: Path) -> None:
        self.path = path / "logs"
        self.clock = FakeClock()
        self.tracer = FakeTracer()
        self.config = LogConfig()
        self.files = FaultyFiles(UnsyncedFiles())
        self.lane = StepLane(str(self.path), self.files)
        #: Opened last.
        self.directory: LogDirectory | None = None

    def open(
        self,
        config: LogConfig | None = None,
        max_open_files: int = 100,
        refuse: Callable[[str, str], int] = lambda call, path: 0,
    ) -> LogDirectory:
        """Open it, as after a crash of the process; `refuse` is as of FaultyFiles."""
        self.config = config or self.config
        self.files = FaultyFiles(UnsyncedFiles())
        self.files.refuse = refuse
        self.lane = StepLane(str(self.path), self.files)
        self.directory = open_directory(
            self.lane, self.config, self.clock, self.tracer, max_open_files=max_open_files
        )
        return self.directory

    def log(self, config: LogConfig | None = None) -> PartitionLog:
        """A new log in a new directory."""
        directory = self.open(config)
        return directory.create(TP, TOPIC_ID, self.config).result()

    def again(self, config: LogConfig | None = None) -> PartitionLog:
        """The log after a crash of the process."""
        return self.open(config).logs[TP]

    def space_returns(self) -> None:
        """The disk has room again; the directory notices, and takes records."""
        self.files.room_bytes = None
        self.files.refuse = lambda call, path: 0
        assert self.directory is not None
        self.directory.space.freed()
        assert not self.directory.space.is_full

    @property
    def log_path(self) -> Path:
        return self.path / "topic-0"
