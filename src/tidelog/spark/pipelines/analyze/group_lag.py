"""The lag of consumer groups in records and in time, now and at the ends of time windows.

Current lags are exact: the end of the log is read after the committed offset, and the age of the
lag is the age of the first unread record. Past committed offsets are exact unless compaction has
removed a commit. The end of a log at a past time is the first offset with a later timestamp; with
CreateTime, producers set these timestamps.

A group without a commit for a partition has no lag in this partition.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tidelog.client.consuming import read_records
from tidelog.client.fetching import LATEST
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.data.consumer_offsets import (
    OFFSET_COMMIT_VALUE,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
)
from tidelog.wire.versioned import UnknownVersion

_READ_BYTES: Final = 1 << 20
_SCANS: Final = 50
#: Maximum number of partitions of one request, which keeps its response small.
_PARTITIONS_A_REQUEST: Final = 500


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of one group in one partition; `age_ms` is None without an unread record."""

    group: str
    tp: TopicPartition
    committed: int
    end: int
    age_ms: int | None

    @property
    def records(self) -> int:
        """Offsets from the committed offset to the end, an upper bound of the unread records."""
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class LagPoint:
    """The lag of one group at the end of a window, summed over the group's partitions."""

    group: str
    time_ms: int
    records: int
    #: Largest lag of a partition in ms. A partition's lag is the time from the last window end at
    #: which the log did not yet reach beyond the committed offset, to the end of this window.
    behind_ms: int


@dataclass(frozen=True, slots=True)
class PresentLags:
    """Current lags, and the partitions whose end is unknown because they have no leader."""

    lags: tuple[PartitionLag, ...]
    without_leader: tuple[TopicPartition, ...]


def present_lags(client: BlockingClient) -> PresentLags:
    """Return the lag of every group in every partition with a committed offset.

    Committed offsets in deleted topics are skipped. Raises KafkaError.
    """
    metadata = client.metadata()
    committed: dict[tuple[str, TopicPartition], int] = {}
    without_leader: set[TopicPartition] = set()
    for listing in client.list_groups():
        for tp, each in client.committed(listing.group).items():
            if metadata.partition(tp) is None:
                continue
            if metadata.leader_of(tp) is None:
                without_leader.add(tp)
            else:
                committed[listing.group, tp] = each.offset
    ends = client.list_offsets(dict.fromkeys({tp for _, tp in committed}, LATEST))
    now_ms = time.time_ns() // 1_000_000
    unread = {(tp, offset) for (_, tp), offset in committed.items() if offset < ends[tp].offset}
    times = {each: _first_time(client, *each) for each in sorted(unread)}
    lags = []
    for (group, tp), offset in sorted(committed.items()):
        first_ms = times.get((tp, offset))
        age_ms = None if first_ms is None else max(0, now_ms - first_ms)
        lags.append(PartitionLag(group, tp, offset, ends[tp].offset, age_ms))
    return PresentLags(tuple(lags), tuple(sorted(without_leader)))


def _first_time(client: BlockingClient, tp: TopicPartition, offset: int) -> int | None:
    """Return the timestamp of the first record from an offset on; None if there is no record.

    The search starts at the log start offset if that is above `offset`, because records may have
    been deleted.
    """
    position = offset
    for _ in range(_SCANS):
        try:
            fetched = client.fetch(tp, position, _READ_BYTES, max_wait_ms=10)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            start = client.list_offsets({tp: -2})[tp].offset
            if start <= position:
                return None
            position = start
            continue
        records, following = read_records(fetched.records, position, fetched.aborted)
        if records:
            return records[0].timestamp_ms
        if following == position:
            return None
        position = following
    return None


def commit_of(key: bytes | None, value: bytes | None) -> tuple[OffsetCommitKey, int, int] | None:
    """Return (key, offset, time) of a commit in `__consumer_offsets`; None for other records.

    A tombstone, which deletes a commit, gives offset -1 and its own timestamp. Raises ProtocolError
    for an illegible record.
    """
    if key is None:
        return None
    try:
        decoded = decode_key(key)
    except UnknownVersion:
        return None
    if not isinstance(decoded, OffsetCommitKey):
        return None
    if value is None:
        return decoded, -1, -1
    commit: OffsetCommitValue = OFFSET_COMMIT_VALUE.decode(value)
    return decoded, commit.offset, commit.commit_timestamp_ms


#: (group, partition, window, offset): the last commit in a window; offset -1 is a deletion.
Commit = tuple[str, TopicPartition, int, int]


def window_ends(start_ms: int, end_ms: int, window_ms: int) -> list[int]:
    """Return the ends of the windows from `start_ms`; the last window ends at `end_ms`."""
    ends = list(range(start_ms + window_ms, end_ms, window_ms))
    return [*ends, end_ms]


def log_ends(
    client: BlockingClient, partitions: Iterable[TopicPartition], times_ms: Sequence[int]
) -> dict[TopicPartition, list[int]]:
    """Return by partition the first offset with a timestamp at or after each of the times."""
    metadata = client.metadata()
    wanted = sorted(tp for tp in set(partitions) if metadata.leader_of(tp) is not None)
    result: dict[TopicPartition, list[int]] = {tp: [] for tp in wanted}
    for chunk in _chunks(wanted, _PARTITIONS_A_REQUEST):
        latest = client.list_offsets(dict.fromkeys(chunk, LATEST))
        for time_ms in times_ms:
            listed = client.list_offsets(dict.fromkeys(chunk, time_ms))
            for tp in chunk:
                offset = listed[tp].offset
                result[tp].append(latest[tp].offset if offset < 0 else offset)
    return result


def past_lags(
    commits: Iterable[Commit], ends: Mapping[TopicPartition, Sequence[int]], times_ms: Sequence[int]
) -> list[LagPoint]:
    """Return the lag of each group at the ends of windows, summed over its partitions.

    A committed offset is valid until the group's next commit. `ends` has the log's end at each of
    `times_ms`.
    """
    last: dict[tuple[str, TopicPartition], dict[int, int]] = {}
    for group, tp, window, offset in commits:
        if tp in ends:
            last.setdefault((group, tp), {})[window] = offset
    records: dict[tuple[str, int], int] = {}
    behind: dict[tuple[str, int], int] = {}
    for (group, tp), by_window in last.items():
        offset = -1
        for place in range(len(times_ms)):
            offset = by_window.get(place, offset)
            if offset < 0:
                continue
            lag = max(0, ends[tp][place] - offset)
            at = (group, place)
            records[at] = records.get(at, 0) + lag
            behind[at] = max(behind.get(at, 0), _behind_ms(ends[tp], times_ms, place, offset))
    return [
        LagPoint(group, times_ms[place], records[group, place], behind[group, place])
        for group, place in sorted(records)
    ]


def _behind_ms(ends: Sequence[int], times_ms: Sequence[int], place: int, offset: int) -> int:
    """Return for how many ms the log has ended beyond `offset`, at the time `times_ms[place]`.

    The result counts from the latest of `times_ms` at which the log did not end beyond `offset`, or
    from the first of `times_ms` if there is none.
    """
    if ends[place] <= offset:
        return 0
    for earlier in range(place - 1, -1, -1):
        if ends[earlier] <= offset:
            return times_ms[place] - times_ms[earlier]
    return times_ms[place] - times_ms[0] if place else 0


def _chunks(values: Sequence[TopicPartition], size: int) -> Iterator[Sequence[TopicPartition]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]
