"""Planning of tasks: partitions, offsets from and to, splits.

Runs once per query on the driver. The plan is fixed in the tasks, so that a retried task reads the
same offsets. Queries the cluster through a client, reads no records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tidelog.client.cluster import ClusterMetadata
from tidelog.client.fetching import ListedOffset
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.types import TopicPartition
from tidelog.spark.options import EARLIEST, LATEST, Bounds, OptionError, ReadOptions


class DataLossError(TidelogError):
    """Requested offsets that do not exist (any more)."""


class OffsetsClient(Protocol):
    """The client calls that planning needs."""

    def metadata(self, topics: list[str] | None) -> ClusterMetadata: ...
    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ListedOffset]: ...


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `[start, end)` of one partition."""

    tp: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets; at least the number of records."""
        return self.end - self.start


def plan_ranges(client: OffsetsClient, options: ReadOptions) -> list[OffsetRange]:
    """Return the ranges to read, one per partition that has something to read, in order.

    Raises OptionError (offsets given for other partitions than are read), KafkaError (unknown topic
    or partition), DataLossError where failOnDataLoss is set and offsets are gone.
    """
    if options.pattern or options.isolation_level or options.segments:
        raise OptionError(
            "subscribePattern, read_committed and segments are not supported in a batch yet"
        )
    for bounds in (options.starting, options.ending):
        if bounds.timestamp is not None or bounds.timestamps is not None:
            raise OptionError(f"option {bounds.option} is not supported in a batch yet")
    partitions = _partitions(client, options)
    earliest = client.list_offsets(dict.fromkeys(partitions, EARLIEST))
    latest = client.list_offsets(dict.fromkeys(partitions, LATEST))
    _same_partitions("startingOffsets", options.starting, partitions)
    _same_partitions("endingOffsets", options.ending, partitions)
    ranges: list[OffsetRange] = []
    for tp in partitions:
        first, last = earliest[tp].offset, latest[tp].offset
        start = _resolve(options.starting, tp, first, last)
        end = _resolve(options.ending, tp, first, last)
        wanted = OffsetRange(tp, start, end)
        if end < start and not (options.ending.everywhere == LATEST or end == last):
            raise OptionError(f"{tp} would be read from {start} to {end}, which is backwards")
        present = OffsetRange(tp, max(start, first), min(end, last))
        if start > last or (wanted.size > 0 and present != wanted):
            _report_loss(wanted, first, last, options)
        if present.size > 0:
            ranges.append(present)
    return ranges


def split_ranges(ranges: Iterable[OffsetRange], min_partitions: int | None) -> list[OffsetRange]:
    """Return at least `min_partitions` ranges where there are that many offsets.

    Large ranges are split into parts of similar size. None: one task for each partition.
    """
    ranges = list(ranges)
    if min_partitions is None or min_partitions <= len(ranges):
        return ranges
    parts = [1] * len(ranges)
    for _ in range(min_partitions - len(ranges)):
        largest = max(range(len(ranges)), key=lambda i: (ranges[i].size / parts[i], -i))
        if ranges[largest].size <= parts[largest]:
            break
        parts[largest] += 1
    split: list[OffsetRange] = []
    for each, count in zip(ranges, parts, strict=True):
        cuts = [each.start + each.size * i // count for i in range(count + 1)]
        split += [OffsetRange(each.tp, cuts[i], cuts[i + 1]) for i in range(count)]
    return split


def _partitions(client: OffsetsClient, options: ReadOptions) -> list[TopicPartition]:
    if options.partitions is not None:
        names = list(dict.fromkeys(tp.topic for tp in options.partitions))
    else:
        names = list(options.topics or ())
    metadata = client.metadata(names)
    every: list[TopicPartition] = []
    for name in names:
        topic = metadata.topics.get(name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        if topic is None or error is not ErrorCode.NONE:
            raise KafkaError(error, f"topic {name!r} at {options.bootstrap} cannot be read")
        every += [TopicPartition(name, number) for number in topic.partitions]
    if options.partitions is None:
        return every
    for tp in options.partitions:
        if tp not in every:
            count = sum(each.topic == tp.topic for each in every)
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"option assign names {tp}; topic {tp.topic!r} has partitions 0 to {count - 1}",
            )
    return sorted(options.partitions)


def _same_partitions(name: str, bounds: Bounds, partitions: list[TopicPartition]) -> None:
    if bounds.by_partition is None:
        return
    missing = [str(tp) for tp in partitions if tp not in bounds.by_partition]
    surplus = [str(tp) for tp in bounds.by_partition if tp not in partitions]
    if missing or surplus:
        raise OptionError(
            f"option {name} must give an offset for each partition that is read, and for no other:"
            f" missing are {', '.join(missing) or 'none'}, too many are"
            f" {', '.join(surplus) or 'none'}; -1 is latest, -2 earliest"
        )


def _resolve(bounds: Bounds, tp: TopicPartition, first: int, last: int) -> int:
    chosen = bounds.everywhere
    if bounds.by_partition is not None:
        chosen = bounds.by_partition[tp]
    if chosen == EARLIEST:
        return first
    if chosen == LATEST or chosen is None:
        return last
    return chosen


def _report_loss(wanted: OffsetRange, first: int, last: int, options: ReadOptions) -> None:
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{wanted.tp} should be read from {wanted.start} to {wanted.end}, but it holds"
            f" {first} to {last}: records were deleted, or the topic was recreated. Set"
            " failOnDataLoss to false to read what there is"
        )
