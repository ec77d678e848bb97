"""The metrics of consumer groups, read at a scrape from the coordinators of this broker.

If the records at a group's committed offset were deleted, the lag counts from the log start. The
lag in seconds is the age of the oldest unread record, by the timestamp of its batch; it is 0 if the
group has read all records, even if the partition is idle. A separate metric counts the partitions
without a committed offset, which have no lag. The lag counts up to the last stable offset, up to
which consumers read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidelog.broker.coordinators import metrics as declared
from tidelog.broker.coordinators.log_ends import KnownEnds, LogEnds
from tidelog.core.coordinator_shard import CoordinatorPhase
from tidelog.core.errors import KafkaError
from tidelog.core.limits import MAX_METERED_GROUP_OFFSETS, MAX_METERED_GROUPS
from tidelog.core.metrics import PAUSE, MetricReading, reading
from tidelog.core.types import TopicId, TopicPartition
from tidelog.group.classic.classic_group import ClassicGroup, GroupState
from tidelog.records.batch import CREATE_TIME, BatchView, CorruptBatch

if TYPE_CHECKING:
    from tidelog.broker.coordinators.group_coordinators import GroupCoordinators
    from tidelog.broker.replicas.hosting.hosted_partitions import HostedPartitions
    from tidelog.broker.services import Services
    from tidelog.group.group import Group

_MS_PER_S = 1_000
#: Timestamps in ms by topic id, partition index and offset.
_Timestamps = dict[tuple[TopicId, int, int], int]


class _TopicSums:
    """Sums over the partitions of one topic for which a group has committed offsets."""

    __slots__ = ("committed", "lag", "offsets")

    def __init__(self) -> None:
        self.committed = self.lag = self.offsets = 0


class GroupReadings:
    """The metrics of the groups that one broker coordinates."""

    def __init__(
        self, services: Services, groups: GroupCoordinators, replicas: HostedPartitions
    ) -> None:
        self._services = services
        self._groups = groups
        self._replicas = replicas
        self._ends = KnownEnds(services, replicas)
        #: The timestamps of the oldest unread records that the last reading found.
        self._timestamps: _Timestamps = {}
        services.metrics.collect(self.readings)

    def readings(self) -> Iterator[MetricReading]:
        """Read the metrics group by group; then request log ends that only other brokers know."""
        known, self._timestamps = self._timestamps, {}
        groups = groups_left_out = shown = left_out = 0
        for shard in list(self._groups.shards.loaded()):
            if shard.phase is not CoordinatorPhase.ACTIVE:
                continue
            for group in list(shard.groups.values()):
                yield PAUSE
                groups += 1
                if groups > MAX_METERED_GROUPS:
                    groups_left_out += 1
                    left_out += len(group.offsets)
                    continue
                yield from self._of_group(group)
                room = MAX_METERED_GROUP_OFFSETS - shown
                yield from self._of_offsets(group, room, known)
                shown += min(len(group.offsets), max(room, 0))
                left_out += max(0, len(group.offsets) - max(room, 0))
        yield reading(declared.GROUPS_LEFT_OUT, groups_left_out)
        yield reading(declared.OFFSETS_LEFT_OUT, left_out)
        self._ends.refresh()

    def _of_group(self, group: Group) -> Iterator[MetricReading]:
        name = group.group_id
        yield reading(declared.MEMBERS, group.size, name)
        yield reading(declared.MINION_MEMBERS, group.size, name)
        listed = group.listed()
        yield reading(
            declared.MINION_GROUP,
            int(listed.group_state == GroupState.STABLE.value),
            name,
            (group.protocol_name or "") if isinstance(group, ClassicGroup) else "",
            listed.protocol_type,
            listed.group_state,
            self._services.broker_id,
        )

    def _of_offsets(self, group: Group, room: int, known: _Timestamps) -> Iterator[MetricReading]:
        """Return a series for each of a group's first `room` committed offsets.

        Also returns the sums over all committed offsets of the group.
        """
        name, now_ms = group.group_id, self._services.clock.wall_ms()
        topics: dict[str, _TopicSums] = {}
        for number, (key, committed) in enumerate(list(group.offsets.items())):
            topic, index = key
            sums = topics.setdefault(topic, _TopicSums())
            sums.offsets += 1
            sums.committed += committed.offset
            ends = self._ends.of(key)
            lag = None if ends is None else _lag(committed.offset, ends)
            sums.lag += lag or 0
            if number >= room:
                continue
            labels = (name, topic, str(index))
            if lag is None or ends is None:
                yield MetricReading((declared.CURRENT_OFFSET,), (committed.offset,), labels)
                continue
            yield MetricReading(
                (declared.CURRENT_OFFSET, declared.LAG), (committed.offset, lag), labels
            )
            yield MetricReading((declared.MINION_LAG,), (lag,), labels)
            since_ms = now_ms
            if lag:
                found = self._oldest_ms(key, max(committed.offset, ends.start), ends.end, known)
                if found is None:
                    continue
                since_ms = found
            age_s = max(0, now_ms - since_ms) // _MS_PER_S
            yield MetricReading((declared.LAG_SECONDS,), (age_s,), labels)
        yield from self._of_topics(group, topics)

    def _of_topics(self, group: Group, topics: dict[str, _TopicSums]) -> Iterator[MetricReading]:
        name = group.group_id
        subscribed = group.subscribed_topics if isinstance(group, ClassicGroup) else None
        for topic in sorted(subscribed or ()):
            topics.setdefault(topic, _TopicSums())
        for topic, sums in topics.items():
            if sums.offsets:
                yield MetricReading(
                    (declared.CURRENT_OFFSET_SUM, declared.LAG_SUM),
                    (sums.committed, sums.lag),
                    (name, topic),
                )
                yield reading(declared.MINION_TOPIC_LAG, sums.lag, name, topic)
            shown = self._services.view.topics.get(topic)
            if shown is not None:
                missing = max(0, len(shown.partitions) - sums.offsets)
                yield reading(declared.WITHOUT_COMMIT, missing, name, topic)

    def _oldest_ms(
        self,
        key: TopicPartition,
        offset: int,
        end: int,
        known: _Timestamps,
    ) -> int | None:
        """Return the timestamp of the batch at an offset; None if it cannot be read here now.

        The broker reads the header of the batch from the page cache, never from the disk. `end` is
        the last stable offset, and `known` has the results of the last reading.
        """
        partition = self._replicas.get(key)
        if partition is None:
            return None
        place = partition.topic_id, key.partition, offset
        found = known.get(place)
        if found is None:
            try:
                read = partition.log.read(offset, 1, end, min_one_batch=True, may_wait=False)
                if not read.done or read.error is not None:
                    return None
                found = oldest_ms(BatchView(read.result().data))
            except (KafkaError, CorruptBatch):
                return None
            if found is None:
                return None
        self._timestamps[place] = found
        return found


def oldest_ms(batch: BatchView) -> int | None:
    """Return the timestamp of a batch's first record; None if its records have no timestamp.

    In a topic with LogAppendTime, all records of a batch have the batch's maximum timestamp. In a
    compacted batch the delete horizon may replace the first timestamp (KIP-534); the maximum
    timestamp is returned in this case, too.
    """
    is_first = batch.timestamp_type == CREATE_TIME and batch.delete_horizon_ms is None
    found = batch.base_timestamp if is_first else batch.max_timestamp
    return found if found >= 0 else None


def _lag(committed: int, ends: LogEnds) -> int:
    """Return the number of unread records.

    Returns 0 if the known end is below the committed offset, as on a follower that lags behind.
    """
    return max(0, ends.end - max(committed, ends.start))
