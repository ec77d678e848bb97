"""Rows of log files as Arrow batches, without brokers: tasks planned, files read.

A task has a range of offsets of one replica and the files that hold it, as they were listed.
Partitions are split at file boundaries, and large files by offsets, so that a task reads about 256
MB. Damage stops a task with an error that names file, byte and offset. With `failOnDataLoss=false`
damaged batches are skipped, each with a warning, and so are files that retention deleted meanwhile.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tidelog.client.fetching import READ_UNCOMMITTED
from tidelog.core.limits import MIB
from tidelog.core.types import TopicPartition
from tidelog.spark.decode import CorruptBatchError, PartitionDecoder
from tidelog.spark.options import OptionError, ReadOptions
from tidelog.spark.planning import DataLossError, OffsetRange, plan_ranges
from tidelog.spark.segments.batch_scan import Stop, empty_rows, header_at, scan_rows
from tidelog.spark.segments.listing import SegmentFile
from tidelog.spark.segments.offset_lookup import floor_position
from tidelog.spark.segments.resync import next_batch
from tidelog.spark.segments.segment_client import SegmentClient
from tidelog.spark.splitting import split_ranges

if TYPE_CHECKING:
    from tidelog.spark.pushdown import Narrowing

#: Bytes of log that one task reads, about.
TASK_BYTES: Final = 256 * MIB
_STEP_BYTES: Final = 8 * MIB
_STEP_ROWS: Final = 1 << 16

_log = logging.getLogger("tidelog.spark")


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """Offsets `[start, end)` of a partition, and the files that hold them."""

    topic: str
    partition: int
    start: int
    end: int
    files: tuple[SegmentFile, ...]
    #: Later files follow in the replica, so offsets missing at the end were compacted.
    is_followed: bool


def plan_segments(options: ReadOptions, narrowing: Narrowing | None = None) -> list[SegmentTask]:
    """Return the tasks of a query over log directories; `narrowing` is that of its filters.

    Raises OptionError, ConfigError, KafkaError, DataLossError as planning with brokers does.
    """
    if options.isolation_level != READ_UNCOMMITTED:
        raise OptionError(
            "option kafka.isolation.level is read_committed, which log directories cannot serve:"
            " without a leader the last stable offset is not known; leave it out"
        )
    client = SegmentClient(options.segments, to_log_end=options.segments_to_log_end)
    options = replace(options, bootstrap=", ".join(options.segments))
    if options.topics is None and options.partitions is None and options.pattern is None:
        options = replace(options, topics=client.topics())
    ranges = plan_ranges(client, options)
    if narrowing is not None:
        ranges = narrowing.apply(ranges, client, options.isolation_level)
    if options.min_partitions is None and options.max_records_per_partition is None:
        split = [
            part
            for each in ranges
            for part in split_by_bytes(each, client.logs[each.tp].replica.segments)
        ]
    else:
        split = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
    return [_task(each, client.logs[each.tp].replica.segments) for each in split]


def split_by_bytes(
    wanted: OffsetRange, segments: Sequence[SegmentFile], task_bytes: int = TASK_BYTES
) -> list[OffsetRange]:
    """Return a range in parts of about `task_bytes`, cut where files begin where that is enough."""
    cuts = [wanted.start]
    held = 0
    ends = [*(each.base_offset for each in segments[1:]), wanted.end]
    for segment, end in zip(segments, ends, strict=True):
        low, high = max(segment.base_offset, wanted.start), min(end, wanted.end)
        if high <= low:
            continue
        if held and held + segment.size > task_bytes:
            cuts.append(low)
            held = 0
        parts = max(1, round(segment.size / task_bytes))
        cuts += [low + (high - low) * part // parts for part in range(1, parts)]
        held = segment.size // parts if parts > 1 else held + segment.size
    bounds = [*sorted(set(cuts)), wanted.end]
    return [
        OffsetRange(wanted.tp, start, end, wanted.topic_id)
        for start, end in pairwise(bounds)
        if end > start
    ]


def _task(wanted: OffsetRange, segments: Sequence[SegmentFile]) -> SegmentTask:
    ends = [*(each.base_offset for each in segments[1:]), 2**63 - 1]
    files = tuple(
        segment
        for segment, end in zip(segments, ends, strict=True)
        if segment.base_offset < wanted.end and end > wanted.start
    )
    followed = bool(files) and files[-1] is not segments[-1]
    return SegmentTask(
        wanted.tp.topic, wanted.tp.partition, wanted.start, wanted.end, files, followed
    )


def read_segments(options: ReadOptions, task: SegmentTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, in offset order. Raises CorruptBatchError, DataLossError."""
    tp = TopicPartition(task.topic, task.partition)
    decoder = PartitionDecoder(tp, task.start, task.end, options.columns)
    for file in task.files:
        if decoder.next_offset >= task.end:
            return
        reader = _FileReader(tp, file, task.end, options.fail_on_data_loss)
        try:
            for position, chunk in reader.chunks(decoder.next_offset):
                try:
                    yield from decoder.decode(chunk)
                except CorruptBatchError as error:
                    raise CorruptBatchError(
                        f"{file.path}, in the batches from byte {position} on: {error}"
                    ) from error
                if decoder.next_offset >= task.end:
                    return
        except FileNotFoundError as error:
            _lose(options, f"{file.path} was deleted before it was read", error)
    if decoder.next_offset < task.end and not task.is_followed:
        _lose(
            options,
            f"{tp} should be read up to offset {task.end}, but its files end at"
            f" {decoder.next_offset}",
            None,
        )


def _lose(options: ReadOptions, what: str, error: Exception | None) -> None:
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{what}. Set failOnDataLoss to false to go on without these records"
        ) from error
    _log.warning("%s", what)


class _FileReader:
    """The batches of one log file in chunks, from an offset on."""

    def __init__(self, tp: TopicPartition, file: SegmentFile, end: int, is_strict: bool) -> None:
        self._tp = tp
        self._file = file
        self._end = end
        self._is_strict = is_strict
        self._rows = empty_rows(_STEP_ROWS)

    def chunks(self, offset: int) -> Iterator[tuple[int, memoryview]]:
        """Yield (position, whole batches with right checksums). Raises OSError."""
        file = self._file
        at = floor_position(file.path, file.base_offset, file.size, offset)
        wanted = _STEP_BYTES
        with open(file.path, "rb", buffering=0) as log:
            descriptor = log.fileno()
            while at < file.size:
                data = os.pread(descriptor, min(wanted, file.size - at), at)
                wanted = _STEP_BYTES
                count, after, stop = scan_rows(data, 0, len(data), at, self._rows, True)
                rows = self._rows[:count]
                wrong = (rows["crc"] != rows["computed_crc"]) & (rows["base"] < self._end)
                if wrong.any():
                    place = int(wrong.argmax())
                    good = int(rows["position"][place]) - at
                    if good:
                        yield at, memoryview(data)[:good]
                    reason = (
                        f"its checksum is {int(rows['crc'][place]):#010x}, its bytes give"
                        f" {int(rows['computed_crc'][place]):#010x}"
                    )
                    at = self._damaged(descriptor, at + good, int(rows["base"][place]), reason)
                    continue
                if count:
                    yield at, memoryview(data)[:after]
                    at += after
                    if rows["base"][-1] >= self._end:
                        return
                    offset = int(rows["last"][-1]) + 1
                    continue
                claimed = header_at(data, 0)[1] if len(data) >= 17 else 0
                if stop is Stop.SHORT and len(data) < claimed <= file.size - at:
                    wanted = claimed
                    continue
                if offset >= self._end:
                    return
                reason = "no whole batch is there"
                at = self._damaged(descriptor, at, offset, reason)

    def _damaged(self, descriptor: int, at: int, offset: int, reason: str) -> int:
        """Return where the file goes on behind damage, or raise CorruptBatchError."""
        what = f"{self._file.path}: the batch at byte {at} of {self._tp}, offset {offset}: {reason}"
        if self._is_strict:
            raise CorruptBatchError(
                f"{what}. Read another replica, or set failOnDataLoss to false to skip it"
            )
        found = next_batch(descriptor, at + 1, self._file.size, self._file.size, offset)
        end = self._file.size if found is None else found.position
        _log.warning("%s; %d bytes are skipped", what, end - at)
        return end
