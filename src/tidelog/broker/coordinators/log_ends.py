"""The log start and the last stable offset of partitions, for the lag of groups.

The broker reads its own log if it has a replica in the ISR. The high watermark of such a follower
may be one fetch behind the leader's high watermark. For other partitions, a reading of the metrics
sends ListOffsets requests to the leaders, at most every `_REFRESH_MS`; the next reading uses the
responses. A scrape never waits. A broker with an admin port reads its metrics every ten seconds for
its history, so the ends are at most about ten seconds old.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.broker.store_access import RETRY_MS
from tidelog.core import protocol_level
from tidelog.core.errors import TidelogError
from tidelog.core.limits import MAX_LISTED_ENTRIES
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.registry import LIST_OFFSETS

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.hosted_partitions import HostedPartitions
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.services import Services

_REFRESH_MS: Final = 5_000
#: Maximum age of offsets that another broker returned. Older offsets are not used: if this broker
#: led the partition for an hour, and so asked no other broker, the offsets from before would be an
#: hour old.
_KEPT_MS: Final = 60_000
_EARLIEST: Final = -2
_LATEST: Final = -1
_CONSUMER: Final = -1
_PURPOSE: Final = "group-lag"


class LogEnds(NamedTuple):
    """The first offset of a partition, and the offset up to which consumers may read."""

    start: int
    end: int


class KnownEnds:
    """The log ends of the partitions for which groups of this broker have committed offsets."""

    def __init__(self, services: Services, replicas: HostedPartitions) -> None:
        self._services = services
        self._replicas = replicas
        #: The offsets that leaders returned last, at `_read_ms`.
        self._remote: dict[TopicPartition, LogEnds] = {}
        self._read_ms = 0
        self._wanted: dict[TopicPartition, None] = {}
        self._asked_ms = -_REFRESH_MS
        self._is_asking = False

    def of(self, topic_partition: TopicPartition) -> LogEnds | None:
        """Return a partition's offsets, None if they are unknown.

        If only another broker knows the offsets, the next `refresh` requests them.
        """
        partition = self._replicas.get(topic_partition)
        if partition is not None and self._is_in_sync(partition):
            return LogEnds(partition.log.log_start_offset, partition.last_stable_offset)
        self._wanted[topic_partition] = None
        return self._remote.get(topic_partition)

    def _is_in_sync(self, partition: Partition) -> bool:
        if not partition.has_role or partition.is_leader:
            return partition.has_role
        shown = self._services.view.partition(partition.topic_partition)
        return shown is not None and self._services.broker_id in shown.isr

    def refresh(self) -> None:
        """Request the log ends of other brokers' partitions, unless a request is running."""
        now_ms = self._services.clock.monotonic_ms()
        if now_ms - self._read_ms >= _KEPT_MS:
            self._remote = {}
        if not self._wanted or self._is_asking or now_ms - self._asked_ms < _REFRESH_MS:
            return
        self._asked_ms, self._is_asking = now_ms, True
        wanted, self._wanted = self._wanted, {}
        self._services.tasks.spawn("ends of logs for lag", self._ask(wanted))

    async def _ask(self, wanted: dict[TopicPartition, None]) -> None:
        found: dict[TopicPartition, LogEnds] = {}
        services = self._services
        try:
            for leader, partitions in self._by_leader(wanted).items():
                for begin in range(0, len(partitions), MAX_LISTED_ENTRIES // 4):
                    part = partitions[begin : begin + MAX_LISTED_ENTRIES // 4]
                    starts = await self._list(leader, part, _EARLIEST)
                    ends = await self._list(leader, part, _LATEST)
                    for each, start in starts.items():
                        if each in ends:
                            found[each] = LogEnds(start, ends[each])
        except AssertionError:
            raise
        except Exception as error:  # a defect in metrics must not halt the broker
            services.unexpected("the ends of logs for the lag of groups", error)
        finally:
            self._remote, self._is_asking = found, False
            self._read_ms = services.clock.monotonic_ms()

    def _by_leader(self, wanted: dict[TopicPartition, None]) -> dict[int, list[TopicPartition]]:
        led: dict[int, list[TopicPartition]] = {}
        for each in wanted:
            shown = self._services.view.partition(each)
            if shown is not None and shown.leader >= 0 and shown.leader != self._services.broker_id:
                led.setdefault(shown.leader, []).append(each)
        return led

    async def _list(
        self, leader: int, partitions: list[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """Return the offsets in a leader's ListOffsets response; empty without a response."""
        services = self._services
        by_topic: dict[str, list[ListOffsetsPartition]] = {}
        for topic, index in partitions:
            asked = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            by_topic.setdefault(topic, []).append(asked)
        request = ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=1,
            topics=[ListOffsetsTopic(topic, asked) for topic, asked in by_topic.items()],
        )
        level = services.config.inter_broker_protocol_version
        version = protocol_level.request_versions(level).list_offsets
        try:
            connection = services.peers.connection(leader, _PURPOSE)
            response: ListOffsetsResponse = await connection.call(
                LIST_OFFSETS, version, request, services.config.request_timeout_ms
            )
        except TidelogError as error:
            services.tracer.event("lag_not_read", leader=leader, error=repr(error))
            await services.tasks.sleep(RETRY_MS)
            return {}
        return {
            TopicPartition(topic.name, each.partition_index): each.offset
            for topic in response.topics
            for each in topic.partitions
            if not each.error_code and each.offset >= 0
        }
