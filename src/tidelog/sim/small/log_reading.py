"""The content of one log that a starting process finds: batches, epochs, producers, offsets.

A process opens the log directories of the world on their disks, as a broker does. If it finds the
replica in two directories, it keeps one of them by the broker's own code (D6, D11). The reading is
a plain value, so that it can be kept and compared after its process has ended.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from tidelog.broker.replicas.directories import duplicate_replicas
from tidelog.core.ports import Handle
from tidelog.core.types import CleanEpochs, TopicId, TopicPartition
from tidelog.log.config import LogConfig
from tidelog.log.log_directory import LogDirectory
from tidelog.log.partition_log import PartitionLog
from tidelog.records.batch import iter_batches
from tidelog.records.builder import NewRecord, build_batch
from tidelog.sim.disk import File, SimDisk
from tidelog.sim.files import SimFiles, SimHandle
from tidelog.sim.small.small_process import SmallProcess, SmallTracer, completed
from tidelog.sim.small.stepped_lane import SteppedLane

TP = TopicPartition("small", 0)
TOPIC_ID: TopicId = bytes(range(1, 17))
CLUSTER_ID, BROKER_ID = "small-world", 1
_READ_BYTES = 1 << 20

#: Producer epoch, and for each remembered batch its last sequence number and last offset.
ProducerReading = tuple[int, tuple[tuple[int, int], ...]]


class BatchReading(NamedTuple):
    """A batch in a log."""

    base_offset: int
    next_offset: int
    data: bytes


class LogReading(NamedTuple):
    """One log as a process sees it."""

    start: int
    end: int
    batches: tuple[BatchReading, ...]
    #: Leader epochs with their start offsets.
    epochs: tuple[tuple[int, int], ...]
    producers: dict[int, ProducerReading]
    #: The high watermark from the checkpoint; -1 if the checkpoint has none.
    high_watermark: int
    topic_id: TopicId


class StartReading(NamedTuple):
    """The log that a starting process finds on its disks, or why the process cannot start."""

    #: The log; None if no directory has it.
    log: LogReading | None
    #: Whether every directory proved a clean shutdown (E3).
    was_clean: bool
    #: Why the process refused to start; empty if it started.
    refusal: str


class PartialWrite(NamedTuple):
    """A write that a port call is about to carry out."""

    disk: SimDisk
    file: File
    path: str
    content: bytes
    position: int


class WatchedFiles(SimFiles):
    """File calls that record each write before it happens, so that a crash can do a part of it."""

    next_write: PartialWrite | None = None

    def pwritev(self, handle: Handle, buffers: Sequence[Any], position: int) -> int:
        """Write at a position; return the number of bytes written."""
        opened = cast(SimHandle, handle)
        content = b"".join(buffers)
        self.next_write = PartialWrite(self.disk, opened.file, opened.path, content, position)
        try:
            return super().pwritev(handle, buffers, position)
        finally:
            self.next_write = None


class OpenDirectories:
    """The log directories of one process."""

    def __init__(
        self,
        process: SmallProcess,
        disks: Sequence[SimDisk],
        draw: random.Random,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """Nothing is read before `open`; `say` gets the lines of the broker's log."""
        self.process = process
        self.tracer = SmallTracer(say)
        self.files = [WatchedFiles(process, disk, draw) for disk in disks]
        self.lanes = [SteppedLane(each, process.clock.wall_ms) for each in self.files]
        self.directories: list[LogDirectory] = []

    def open(self, config: LogConfig) -> None:
        """Open the directories; raise StorageError or ConfigError if the process cannot start."""
        self.directories = [
            completed(
                LogDirectory.open(
                    lane,
                    cluster_id=CLUSTER_ID,
                    broker_id=BROKER_ID,
                    clock=self.process.clock,
                    tracer=self.tracer,
                    default_config=config,
                    config_of=lambda _: config,
                )
            )
            for lane in self.lanes
        ]
        if len(self.directories) > 1:
            store = SimpleNamespace(get_many=_no_nodes)
            services = SimpleNamespace(tracer=self.tracer, store=store, tasks=None)
            completed(duplicate_replicas.set_aside(cast(Any, services), self.directories))

    @property
    def next_write(self) -> PartialWrite | None:
        """The write that the current port call is about to carry out."""
        return next((each.next_write for each in self.files if each.next_write), None)

    def home(self) -> LogDirectory | None:
        """Return the directory that has the log, or None."""
        return next((each for each in self.directories if TP in each.logs), None)

    def log(self) -> PartitionLog:
        """Return the log, which must exist."""
        home = self.home()
        assert home is not None, "no directory has the log"
        return home.logs[TP]

    def high_watermark(self) -> int:
        """Return the high watermark of the checkpoint, or -1."""
        home = self.home()
        return -1 if home is None else home.high_watermarks.get(TP, -1)


async def _no_nodes(paths: list[str]) -> list[None]:
    """Answer reads of the metadata store, which has no topics."""
    return [None] * len(paths)


def read_log(log: PartitionLog, high_watermark: int) -> LogReading:
    """Return everything that a log holds; all its records must be readable.

    Raises StorageError or KafkaError if they are not.
    """
    batches: list[BatchReading] = []
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        part = log.read(offset, _READ_BYTES, end, min_one_batch=True).result()
        if not part.data:
            break
        data = bytes(part.data)
        batches += [
            BatchReading(
                batch.base_offset,
                batch.next_offset,
                data[batch.position : batch.position + batch.size_bytes],
            )
            for batch in iter_batches(data)
        ]
        offset = part.next_offset
    producers = {
        producer_id: (
            entry.producer_epoch,
            tuple((batch.last_sequence, batch.last_offset) for batch in entry.batches),
        )
        for producer_id, entry in log.producers.entries().items()
    }
    epochs = tuple(log.epochs.entries())
    start = log.log_start_offset
    return LogReading(start, end, tuple(batches), epochs, producers, high_watermark, log.topic_id)


def read_start(opened: OpenDirectories, config: LogConfig) -> StartReading:
    """Open the directories of a process, and return what it finds there.

    The error of a process that cannot start is part of the result, also if it is a fault of the
    code.
    """
    try:
        opened.open(config)
        if opened.home() is None:
            return StartReading(None, _was_clean(opened), "")
        reading = read_log(opened.log(), opened.high_watermark())
    except Exception as error:
        return StartReading(None, False, f"{type(error).__name__}: {error}")
    return StartReading(reading, _was_clean(opened), "")


def _was_clean(opened: OpenDirectories) -> bool:
    return all(each.clean_shutdown is not None for each in opened.directories)


def append_and_shut_down(opened: OpenDirectories, epoch: int) -> BatchReading:
    """Append a batch under a new leader epoch, shut the process down, and return the batch."""
    log = opened.log()
    log.assign_epoch(epoch, log.log_end_offset)
    records = [NewRecord(b"k0", b"last", opened.process.clock.wall_ms())]
    data = build_batch(records)
    info = log.plan_leader_append(data, epoch, opened.process.clock.wall_ms())
    log.submit_planned()
    found = BatchReading(info.result().base_offset, info.result().last_offset + 1, bytes(data))
    for directory in opened.directories:
        completed(directory.close(CleanEpochs(7)))
    return found
