"""The start of a new query: `startingOffsets` and the timestamp forms, resolved once.

The start "latest" depends on the time at which it is resolved. If the query died before the commit
of its first batch, a restart would resolve "latest" again and lose the records that came in
between. The connector stores the resolved offsets beside the checkpoint, but Spark does not give a
Python source the checkpoint's path. The first batch therefore reads no records of partitions that
start at "latest" (`pinned`). A partition that starts at "latest" starts at the end of the first
batch, which Spark stores before the batch runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from tidelog.client.fetching import ListedOffset
from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.spark.options import EARLIEST, LATEST, Bounds, OptionError
from tidelog.spark.planning import DataLossError
from tidelog.spark.streaming.offset_json import Offsets

_log = logging.getLogger("tidelog.spark")

#: A client's function that looks up offsets. The function takes the timestamp to look up in each
#: partition, and an isolation level.
ListOffsets = Callable[[Mapping[TopicPartition, int], int], dict[TopicPartition, ListedOffset]]


@dataclass(frozen=True, slots=True)
class Starts:
    """The offsets where a new query starts."""

    offsets: Offsets
    #: Partitions that start at "latest", the log end at the time when the start was resolved.
    pinned: frozenset[TopicPartition]


def resolve_starts(
    list_offsets: ListOffsets,
    partitions: Sequence[TopicPartition],
    bounds: Bounds,
    isolation_level: int,
    *,
    fail_on_data_loss: bool,
) -> Starts:
    """Return the first offset of each partition. Raises OptionError, DataLossError."""
    earliest = _listed(list_offsets, partitions, EARLIEST, isolation_level)
    latest = _listed(list_offsets, partitions, LATEST, isolation_level)
    if bounds.timestamp is not None or bounds.timestamps is not None:
        return _by_time(list_offsets, partitions, bounds, isolation_level, latest)
    _check_named(bounds, partitions)
    offsets: Offsets = {}
    pinned: set[TopicPartition] = set()
    for tp in partitions:
        wanted = bounds.everywhere if bounds.by_partition is None else bounds.by_partition[tp]
        if wanted == EARLIEST:
            offsets[tp] = earliest[tp]
        elif wanted == LATEST or wanted is None:
            offsets[tp] = latest[tp]
            pinned.add(tp)
        else:
            offsets[tp] = _in_range(
                tp, wanted, earliest[tp], latest[tp], fail_on_data_loss=fail_on_data_loss
            )
    return Starts(offsets, frozenset(pinned))


def _listed(
    list_offsets: ListOffsets,
    partitions: Sequence[TopicPartition],
    which: int,
    isolation_level: int,
) -> Offsets:
    listed = list_offsets(dict.fromkeys(partitions, which), isolation_level)
    return {tp: each.offset for tp, each in listed.items()}


def _by_time(
    list_offsets: ListOffsets,
    partitions: Sequence[TopicPartition],
    bounds: Bounds,
    isolation_level: int,
    latest: Offsets,
) -> Starts:
    _check_named(bounds, partitions)
    wanted: dict[TopicPartition, int] = {}
    for tp in partitions:
        each = bounds.timestamp if bounds.timestamps is None else bounds.timestamps[tp]
        wanted[tp] = 0 if each is None else each
    listed = list_offsets(wanted, isolation_level)
    offsets: Offsets = {}
    pinned: set[TopicPartition] = set()
    for tp in partitions:
        offsets[tp] = listed[tp].offset
        if offsets[tp] >= 0:
            continue
        if not bounds.latest_if_none:
            raise OptionError(
                f"option {bounds.option} is {wanted[tp]} for {tp}, which has no record from then"
                " on; set startingOffsetsByTimestampStrategy to latest to start at the end of the"
                " log where that is so"
            )
        offsets[tp] = latest[tp]
        pinned.add(tp)
    return Starts(offsets, frozenset(pinned))


def _check_named(bounds: Bounds, partitions: Sequence[TopicPartition]) -> None:
    named = bounds.by_partition if bounds.timestamps is None else bounds.timestamps
    if named is None:
        return
    missing = [str(tp) for tp in partitions if tp not in named]
    surplus = [str(tp) for tp in named if tp not in partitions]
    if missing or surplus:
        raise OptionError(
            f"option {bounds.option} must name each partition that is read, and no other: missing"
            f" are {', '.join(missing) or 'none'}, too many are {', '.join(surplus) or 'none'};"
            " as an offset, -1 is latest and -2 earliest"
        )


def _in_range(
    tp: TopicPartition, wanted: int, first: int, last: int, *, fail_on_data_loss: bool
) -> int:
    """Return `wanted` if the log has this offset, else the nearest offset if loss is allowed."""
    if first <= wanted <= last:
        return wanted
    nearest = first if wanted < first else last
    sentence = f"option startingOffsets is {wanted} for {tp}, whose log holds {first} to {last}"
    if fail_on_data_loss:
        raise DataLossError(
            f"{sentence}: records were deleted, or the topic was recreated. Set failOnDataLoss to"
            f" false to start at {nearest}"
        )
    _log.warning("%s; the stream starts at %d", sentence, nearest)
    return nearest
