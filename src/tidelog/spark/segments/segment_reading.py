"""Rows of log files as Arrow batches, without brokers: planning of tasks, and reading of files.

A task has a range of offsets of one replica, and the files with these offsets as they were listed.
Partitions are split at file boundaries, and large files by offsets, so that a task reads about 256
MB. Damage stops a task with an error that names file, byte and offset. Missing offsets are such an
error, too, unless the topic is compacted. With `failOnDataLoss=false` the task skips damaged
batches, each with a warning, and files that retention deleted since the listing. Files that
compaction replaces while a task runs are listed again: the offsets of a log stay, so the task
continues at its next offset.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.core.limits import MIB
from tidelog.core.types import READ_UNCOMMITTED, TopicPartition
from tidelog.spark.decode import CorruptBatchError, PartitionDecoder
from tidelog.spark.options import OptionError, ReadOptions
from tidelog.spark.planning import DataLossError, OffsetRange, plan_ranges
from tidelog.spark.segments.batch_scan import Rows, ScanEnd, empty_rows, header_at, scan_rows
from tidelog.spark.segments.directory_files import TOPIC_ID, read_topic_id
from tidelog.spark.segments.listing import ListedSegment, list_segments
from tidelog.spark.segments.offset_lookup import floor_position
from tidelog.spark.segments.replica_choice import ChosenLog
from tidelog.spark.segments.resync import next_batch
from tidelog.spark.segments.segment_client import SegmentClient
from tidelog.spark.splitting import split_ranges

if TYPE_CHECKING:
    from tidelog.spark.pushdown import Narrowing

#: Approximate number of bytes of log that one task reads.
TASK_BYTES: Final = 256 * MIB
_STEP_BYTES: Final = 8 * MIB
_STEP_ROWS: Final = 1 << 16

#: Maximum number of listings of a replica whose files change during the read.
_LISTINGS: Final = 8

_log = logging.getLogger("tidelog.spark")


class UnreadableFileError(TidelogError):
    """The error for a file that the operating system refuses to read, or that is replaced again and
    again.
    """


class _ReplacedFileError(Exception):
    """The error for a file that was replaced since its directory was listed."""


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """Offsets `[start, end)` of a partition, and the files that have these offsets."""

    topic: str
    partition: int
    start: int
    end: int
    files: tuple[ListedSegment, ...]
    #: Whether the replica has later files; only then can compaction explain offsets missing at the
    #: end of these files.
    is_followed: bool
    #: Whether offsets may be missing without loss, because of compaction.
    is_compacted: bool
    #: The replica's directory; `topic_id` is the topic id in its partition.metadata.
    directory: str
    topic_id: str | None


def plan_segments(options: ReadOptions, narrowing: Narrowing | None = None) -> list[SegmentTask]:
    """Return the tasks of a query over log directories; `narrowing` comes from the query's filters.

    Raises OptionError, ConfigError, KafkaError and DataLossError like planning with brokers, and
    UnreadableFileError.
    """
    for _ in range(_LISTINGS - 1):
        with contextlib.suppress(FileNotFoundError):  # the file was deleted since it was listed
            return _planned(options, narrowing)
    with _in_a_sentence():
        return _planned(options, narrowing)


def _planned(options: ReadOptions, narrowing: Narrowing | None) -> list[SegmentTask]:
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
    return [_task(each, client.logs[each.tp]) for each in split]


def split_by_bytes(
    wanted: OffsetRange, segments: Sequence[ListedSegment], task_bytes: int = TASK_BYTES
) -> list[OffsetRange]:
    """Return a range in parts of about `task_bytes`, split at file boundaries where possible."""
    cuts = [wanted.start]
    held = 0
    ends = [*(each.base_offset for each in segments[1:]), wanted.end]
    for segment, end in zip(segments, ends, strict=False):  # a replica may have lost all files
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


def _task(wanted: OffsetRange, log: ChosenLog) -> SegmentTask:
    files, is_followed = _files_of(wanted.start, wanted.end, log.replica.segments)
    return SegmentTask(
        wanted.tp.topic,
        wanted.tp.partition,
        wanted.start,
        wanted.end,
        files,
        is_followed,
        log.is_compacted,
        log.replica.path,
        log.replica.topic_id,
    )


def _files_of(
    start: int, end: int, segments: Sequence[ListedSegment]
) -> tuple[tuple[ListedSegment, ...], bool]:
    """Return the files that have the offsets, and whether later files follow in the replica."""
    nexts = [*(each.base_offset for each in segments[1:]), 2**63 - 1]
    files = tuple(
        segment
        for segment, following in zip(segments, nexts, strict=False)
        if segment.base_offset < end and following > start
    )
    return files, bool(files) and files[-1] is not segments[-1]


def read_segments(options: ReadOptions, task: SegmentTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, in offset order.

    Raises CorruptBatchError, DataLossError, UnreadableFileError.
    """
    tp = TopicPartition(task.topic, task.partition)
    decoder = PartitionDecoder(tp, task.start, task.end, options.columns)
    with _in_a_sentence():
        for _ in range(_LISTINGS):
            try:
                yield from _read_files(options, task, decoder)
            except (FileNotFoundError, _ReplacedFileError) as error:
                task = _listed_again(options, task, decoder, error)
            else:
                return
    raise UnreadableFileError(
        f"{task.directory}: files of {tp} were replaced {_LISTINGS} times while offset"
        f" {decoder.next_offset} was read; run the query again when its broker compacts less"
    )


def _read_files(
    options: ReadOptions, task: SegmentTask, decoder: PartitionDecoder
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task's files from the decoder's offset on."""
    for file in task.files:
        if decoder.next_offset >= task.end:
            return
        reader = _FileReader(task, file, options.fail_on_data_loss)
        for position, chunk in reader.chunks(decoder.next_offset):
            try:
                yield from decoder.decode(chunk)
            except CorruptBatchError as error:
                raise CorruptBatchError(
                    f"{file.path}, in the batches from byte {position} on: {error}"
                ) from error
            if decoder.next_offset >= task.end:
                return
    if decoder.next_offset < task.end and not (task.is_followed and task.is_compacted):
        _lose(
            options,
            f"{task.topic}-{task.partition} should be read up to offset {task.end}, but its files"
            f" in {task.directory} end at {decoder.next_offset}",
            None,
        )


def _listed_again(
    options: ReadOptions, task: SegmentTask, decoder: PartitionDecoder, error: Exception
) -> SegmentTask:
    """Return the task with the present files of its replica."""
    path = f"{task.directory}/{TOPIC_ID}"
    segments: tuple[ListedSegment, ...] = ()
    with contextlib.suppress(FileNotFoundError):
        segments = list_segments(task.directory)
        if task.topic_id is not None:
            with open(path, "rb") as file:
                found = read_topic_id(file.read())
            if found != task.topic_id:
                raise DataLossError(
                    f"{task.directory}: the topic was deleted and recreated while it was read: its"
                    f" id was {task.topic_id} and is {found}. Run the query again"
                ) from error
    first = segments[0].base_offset if segments else task.end
    if first > decoder.next_offset:
        _lose(
            options,
            f"{task.directory}: offset {decoder.next_offset} was deleted before it was read"
            + (f"; the log begins at {first} now" if segments else ""),
            error,
        )
        decoder.next_offset = min(first, task.end)
    files, is_followed = _files_of(decoder.next_offset, task.end, segments)
    return replace(task, files=files, is_followed=is_followed)


@contextlib.contextmanager
def _in_a_sentence() -> Iterator[None]:
    """Convert an OSError to an error that names the unreadable file."""
    try:
        yield
    except OSError as error:
        raise UnreadableFileError(
            f"{error.filename or 'a log directory'} cannot be read: {error.strerror}"
        ) from error


def _lose(options: ReadOptions, what: str, error: Exception | None) -> None:
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{what}. Set failOnDataLoss to false to go on without these records"
        ) from error
    _log.warning("%s", what)


class _FileReader:
    """The batches of one log file in chunks, starting at an offset."""

    def __init__(self, task: SegmentTask, file: ListedSegment, is_strict: bool) -> None:
        self._tp = TopicPartition(task.topic, task.partition)
        self._file = file
        self._end = task.end
        self._is_compacted = task.is_compacted
        self._is_strict = is_strict
        self._rows = empty_rows(_STEP_ROWS)
        #: Whether damage was skipped, so that the next batch does not begin where the last batch
        #: ended.
        self._is_behind_damage = False

    def chunks(self, offset: int) -> Iterator[tuple[int, memoryview]]:
        """Yield (position, whole batches with correct checksums).

        Raises OSError, and _ReplacedFileError if the file is not the listed file.
        """
        file = self._file
        at = floor_position(file.path, file.base_offset, file.size, offset)
        wanted = _STEP_BYTES
        with open(file.path, "rb", buffering=0) as log:
            descriptor = log.fileno()
            if os.fstat(descriptor).st_ino != file.inode:
                raise _ReplacedFileError
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
                        self._check_gaps(rows[:place], offset)
                        yield at, memoryview(data)[:good]
                    reason = (
                        f"its checksum is {int(rows['crc'][place]):#010x}, its bytes give"
                        f" {int(rows['computed_crc'][place]):#010x}"
                    )
                    at = self._damaged(descriptor, at + good, int(rows["base"][place]), reason)
                    continue
                if count:
                    self._check_gaps(rows, offset)
                    yield at, memoryview(data)[:after]
                    at += after
                    if rows["base"][-1] >= self._end:
                        return
                    offset = int(rows["last"][-1]) + 1
                    continue
                claimed = header_at(data, 0)[1] if len(data) >= 17 else 0
                if stop is ScanEnd.SHORT and len(data) < claimed <= file.size - at:
                    wanted = claimed
                    continue
                if offset >= self._end:
                    return
                reason = "no whole batch is there"
                at = self._damaged(descriptor, at, offset, reason)

    def _check_gaps(self, rows: Rows, offset: int) -> None:
        """Raise or log an error for offsets missing before the first batch or between batches.

        In a log that was never compacted, each batch begins at the offset where the previous batch
        ends.
        """
        is_explained, self._is_behind_damage = self._is_behind_damage, False
        if self._is_compacted:
            return
        bases = rows["base"]
        expected = np.maximum(np.concatenate(([offset], rows["last"][:-1] + 1)), offset)
        missing = np.flatnonzero((bases > expected) & (expected < self._end))
        if is_explained and missing.size and missing[0] == 0:
            missing = missing[1:]
        for place in missing.tolist():
            sentence = (
                f"{self._file.path}: offsets {expected[place]} to {bases[place] - 1} of {self._tp}"
                f" are missing before byte {rows['position'][place]}, and no cleaner's checkpoint"
                " says that the topic is compacted"
            )
            if self._is_strict:
                raise DataLossError(
                    f"{sentence}. Read another replica, or set failOnDataLoss to false to read what"
                    " there is"
                )
            _log.warning("%s", sentence)

    def _damaged(self, descriptor: int, at: int, offset: int, reason: str) -> int:
        """Return the next batch's position after damage; raise CorruptBatchError in strict mode."""
        what = f"{self._file.path}: the batch at byte {at} of {self._tp}, offset {offset}: {reason}"
        if self._is_strict:
            raise CorruptBatchError(
                f"{what}. Read another replica, or set failOnDataLoss to false to skip it"
            )
        found = next_batch(descriptor, at + 1, self._file.size, self._file.size, offset)
        end = self._file.size if found is None else found.position
        self._is_behind_damage = True
        _log.warning("%s; %d bytes are skipped", what, end - at)
        return end
