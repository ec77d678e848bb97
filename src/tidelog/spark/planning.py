"""Planning of tasks: topics, partitions, and their start and end offsets.

Planning runs once per query on the driver. The tasks contain the plan, so a retried task reads the
same offsets of the same incarnation of a topic. Planning queries the cluster through a client and
reads no records. `splitting` makes tasks of ranges, and `pushdown` narrows ranges by filters.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Protocol

from tidelog.client.cluster import ClusterMetadata, TopicMetadata
from tidelog.client.fetching import ListedOffset
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.types import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ZERO_TOPIC_ID,
    TopicId,
    TopicPartition,
    partitions_text,
)
from tidelog.spark.options import EARLIEST, LATEST, Bounds, OptionError, ReadOptions

_log = logging.getLogger("tidelog.spark")


class DataLossError(TidelogError):
    """The error for requested offsets that do not exist, or no longer exist."""


class OffsetsClient(Protocol):
    """The methods of a client that planning calls."""

    def metadata(self, topics: list[str] | None) -> ClusterMetadata: ...
    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], isolation_level: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, ListedOffset]: ...


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `[start, end)` of one partition to read, with the id of the topic that has them."""

    tp: TopicPartition
    start: int
    end: int
    #: Topic id; zero if the id is not known, so that any topic of the name is read.
    topic_id: TopicId = field(default=ZERO_TOPIC_ID, compare=False)

    @property
    def size(self) -> int:
        """Number of offsets in the range, which is at least the number of records."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class _PlannedLog:
    """A partition's log at the time of planning."""

    first: int
    #: End of the readable records by the isolation level: the high watermark or the last stable
    #: offset.
    last: int
    topic_id: TopicId


def plan_ranges(client: OffsetsClient, options: ReadOptions) -> list[OffsetRange]:
    """Return the ranges to read in order, one for each partition with offsets to read.

    Raises OptionError for offsets of partitions that are not read, or for timestamps later than all
    records. Raises KafkaError for an unknown topic or partition, and DataLossError if
    failOnDataLoss is set and offsets are gone.
    """
    ids = select_partitions(client, options)
    partitions = list(ids)
    for bounds in (options.starting, options.ending):
        _same_partitions(bounds, partitions)
    earliest = client.list_offsets(dict.fromkeys(partitions, EARLIEST))
    latest = client.list_offsets(dict.fromkeys(partitions, LATEST), options.isolation_level)
    held = {
        tp: _PlannedLog(earliest[tp].offset, latest[tp].offset, topic_id)
        for tp, topic_id in ids.items()
    }
    starts = _resolve(client, options, options.starting, held)
    ends = _resolve(client, options, options.ending, held)
    ranges: list[OffsetRange] = []
    for tp, log in held.items():
        wanted = OffsetRange(tp, starts[tp], ends[tp], log.topic_id)
        present = _present(client, options, wanted, log)
        if present.size > 0:
            ranges.append(present)
    return ranges


def select_partitions(client: OffsetsClient, options: ReadOptions) -> dict[TopicPartition, TopicId]:
    """Return the partitions that the options select, in order, with their topics' ids.

    A pattern selects no internal topics. Raises KafkaError for an unknown topic or partition.
    """
    if options.pattern is not None:
        return _matching(client, options)
    if options.partitions is not None:
        names = list(dict.fromkeys(tp.topic for tp in options.partitions))
    else:
        names = list(options.topics or ())
    metadata = client.metadata(names)
    every: dict[TopicPartition, TopicId] = {}
    for name in names:
        topic = metadata.topics.get(name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        if topic is None or error is not ErrorCode.NONE:
            raise KafkaError(error, f"topic {name!r} at {options.bootstrap} cannot be read")
        every |= _partitions_of(topic)
    if options.partitions is None:
        return every
    for tp in options.partitions:
        if tp not in every:
            count = sum(each.topic == tp.topic for each in every)
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"option assign names {tp}; topic {tp.topic!r} has {partitions_text(count)}",
            )
    return {tp: every[tp] for tp in sorted(options.partitions)}


def _matching(client: OffsetsClient, options: ReadOptions) -> dict[TopicPartition, TopicId]:
    assert options.pattern is not None
    topics = client.metadata(None).topics
    found = [
        topic
        for name, topic in sorted(topics.items())
        if options.pattern.search(name) and not topic.is_internal
    ]
    if not found:
        _log.warning(
            "subscribePattern %r matches none of the %d topics at %s",
            options.pattern.pattern,
            len(topics),
            options.bootstrap,
        )
    every: dict[TopicPartition, TopicId] = {}
    for topic in found:
        if topic.error is not ErrorCode.NONE:
            raise KafkaError(
                topic.error, f"topic {topic.name!r} at {options.bootstrap} cannot be read"
            )
        every |= _partitions_of(topic)
    return every


def _partitions_of(topic: TopicMetadata) -> dict[TopicPartition, TopicId]:
    return {TopicPartition(topic.name, number): topic.topic_id for number in topic.partitions}


def _same_partitions(bounds: Bounds, partitions: Sequence[TopicPartition]) -> None:
    if bounds.named is None:
        return
    missing = [str(tp) for tp in partitions if tp not in bounds.named]
    surplus = [str(tp) for tp in bounds.named if tp not in partitions]
    if missing or surplus:
        what = "an offset" if bounds.timestamps is None else "a timestamp"
        hint = "; -1 is latest, -2 earliest" if bounds.timestamps is None else ""
        raise OptionError(
            f"option {bounds.option} must give {what} for each partition that is read, and for no"
            f" other: missing are {', '.join(missing) or 'none'}, too many are"
            f" {', '.join(surplus) or 'none'}{hint}"
        )


def _resolve(
    client: OffsetsClient,
    options: ReadOptions,
    bounds: Bounds,
    held: Mapping[TopicPartition, _PlannedLog],
) -> dict[TopicPartition, int]:
    """Return the offsets that a read's bounds (offsets or timestamps) mean, by partition."""
    timestamps = bounds.timestamps
    if bounds.timestamp is not None:
        timestamps = dict.fromkeys(held, bounds.timestamp)
    if timestamps is not None:
        return _resolve_timestamps(client, options, bounds, timestamps, held)
    resolved: dict[TopicPartition, int] = {}
    for tp, log in held.items():
        chosen = bounds.everywhere if bounds.by_partition is None else bounds.by_partition[tp]
        if chosen == EARLIEST:
            resolved[tp] = log.first
        elif chosen == LATEST or chosen is None:
            resolved[tp] = log.last
        else:
            resolved[tp] = chosen
    return resolved


def _resolve_timestamps(
    client: OffsetsClient,
    options: ReadOptions,
    bounds: Bounds,
    timestamps: Mapping[TopicPartition, int],
    held: Mapping[TopicPartition, _PlannedLog],
) -> dict[TopicPartition, int]:
    resolved: dict[TopicPartition, int] = {}
    listed = client.list_offsets(timestamps, options.isolation_level)
    for tp, log in held.items():
        offset = listed[tp].offset
        if offset < 0 and not bounds.latest_if_none:
            raise OptionError(
                f"option {bounds.option}: {tp} has no record from {timestamps[tp]} on (milliseconds"
                " since 1970); give an earlier timestamp, or set startingOffsetsByTimestampStrategy"
                " to latest to start at the end of such a partition"
            )
        # The query does not include records appended after planning read the log's end.
        resolved[tp] = log.last if offset < 0 else min(offset, log.last)
    return resolved


def _present(
    client: OffsetsClient, options: ReadOptions, wanted: OffsetRange, log: _PlannedLog
) -> OffsetRange:
    """Return the part of a range whose offsets the log still has, or an empty range."""
    # A start option may have been moved up to the log start. A requested end below the log start
    # then means that the requested records were deleted, and not that the options are wrong.
    is_deleted = wanted.end < wanted.start == log.first
    if wanted.end < wanted.start and wanted.end < log.last and not is_deleted:
        raise OptionError(
            f"{wanted.tp} would be read from {wanted.start} to {wanted.end}, which is backwards"
        )
    end = min(wanted.end, log.last)
    present = OffsetRange(wanted.tp, max(wanted.start, log.first), end, wanted.topic_id)
    is_whole = wanted.start <= log.last and (wanted.size <= 0 or present == wanted)
    if is_whole and not is_deleted:
        return present
    if options.isolation_level == READ_COMMITTED and _is_unstable(client, wanted, log):
        return present
    asked = f"to {wanted.end}" if is_deleted else f"from {wanted.start} to {wanted.end}"
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{wanted.tp} should be read {asked}, but it holds {log.first} to {log.last}: records"
            " were deleted, or the topic was recreated. Set failOnDataLoss to false to read what"
            " there is"
        )
    _log.warning(
        "%s should be read %s, but it holds %d to %d: the rest is lost",
        wanted.tp,
        asked,
        log.first,
        log.last,
    )
    return present


def _is_unstable(client: OffsetsClient, wanted: OffsetRange, log: _PlannedLog) -> bool:
    """Return whether a range begins in an open transaction, so that it has no readable records yet.

    Raises KafkaError if an open transaction keeps the end of the range from being read.
    """
    if max(wanted.start, wanted.end) <= log.last or wanted.start < log.first:
        return False
    high_watermark = client.list_offsets({wanted.tp: LATEST})[wanted.tp].offset
    if log.last < wanted.end <= high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{wanted.tp} should be read from {wanted.start} to {wanted.end} with read_committed,"
            f" but a transaction is open at {log.last} (the log goes on to {high_watermark}); read"
            " it when the transaction has ended, or up to latest",
        )
    return log.last < wanted.start <= high_watermark
