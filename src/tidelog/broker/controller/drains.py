"""Progress of consumer groups in partitions whose removal waits for these groups (V71).

Like any client, the controller sends its requests to every coordinator and to the partitions'
leaders. The controller requests the groups of each broker, their committed offsets, and the end
offsets of the partitions. The controller uses the responses only if every asked broker responds. If
a coordinator cannot be reached, or groups get another coordinator between the requests, a group may
be missing in the responses, so the progress is unknown. The caller ensures that the leaders accept
no more records.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidelog.broker.services import Services
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.list_groups import ListGroupsRequest
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tidelog.wire.registry import LIST_GROUPS, LIST_OFFSETS, OFFSET_FETCH

_LIST_GROUPS_VERSION, _OFFSET_FETCH_VERSION, _LIST_OFFSETS_VERSION = 4, 8, 8
_TIMEOUT_MS = 5_000
_PURPOSE = "drain"
_LATEST = -1
#: Maximum number of groups whose offsets one request fetches.
_GROUPS_PER_REQUEST = 500


class Drains:
    """The client that finds which partitions all consumer groups have read: it asks coordinators
    and leaders for offsets.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    async def read_to_the_end(
        self, leaders: Mapping[TopicPartition, int], coordinators: Iterable[int]
    ) -> list[TopicPartition]:
        """Return the partitions that every group with committed offsets has read to the end.

        `leaders` maps each partition to its leader; `coordinators` are all brokers that coordinate
        groups. Returns an empty list if a broker does not respond, or responds with an error.
        """
        try:
            ends = await self._ends(leaders)
            committed: dict[TopicPartition, int] = {}
            for broker_id in sorted(coordinators):
                for topic_partition, offset in await self._committed(broker_id, list(leaders)):
                    least = committed.get(topic_partition, offset)
                    committed[topic_partition] = min(least, offset)
        except TidelogError as error:
            self._services.tracer.log(
                "controller",
                logging.INFO,
                f"partition removal waits: progress of consumer groups unknown: {error}",
            )
            return []
        return [tp for tp, end in ends.items() if committed.get(tp, end) >= end]

    async def _ends(self, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        ends: dict[TopicPartition, int] = {}
        for broker_id in sorted(dict.fromkeys(leaders.values())):
            led = [tp for tp, leader in leaders.items() if leader == broker_id]
            topics = [
                ListOffsetsTopic(
                    name,
                    [ListOffsetsPartition(number, timestamp=_LATEST) for number in numbers],
                )
                for name, numbers in _by_topic(led).items()
            ]
            request = ListOffsetsRequest(topics=topics)
            answer = await self._call(broker_id, LIST_OFFSETS, _LIST_OFFSETS_VERSION, request)
            for topic in answer.topics:
                for partition in topic.partitions:
                    _check(partition.error_code)
                    found = TopicPartition(topic.name, partition.partition_index)
                    ends[found] = partition.offset
        return ends

    async def _committed(
        self, broker_id: int, wanted: Sequence[TopicPartition]
    ) -> list[tuple[TopicPartition, int]]:
        """Return the offsets that one coordinator's groups have committed in these partitions."""
        listed = await self._call(broker_id, LIST_GROUPS, _LIST_GROUPS_VERSION, ListGroupsRequest())
        _check(listed.error_code)
        names = [group.group_id for group in listed.groups]
        topics = [
            OffsetFetchRequestTopics(name, numbers) for name, numbers in _by_topic(wanted).items()
        ]
        found: list[tuple[TopicPartition, int]] = []
        for start in range(0, len(names), _GROUPS_PER_REQUEST):
            some = names[start : start + _GROUPS_PER_REQUEST]
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(name, topics=topics) for name in some]
            )
            answer = await self._call(broker_id, OFFSET_FETCH, _OFFSET_FETCH_VERSION, request)
            for group in answer.groups:
                _check(group.error_code)
                for topic in group.topics:
                    for partition in topic.partitions:
                        _check(partition.error_code)
                        if partition.committed_offset >= 0:
                            tp = TopicPartition(topic.name, partition.partition_index)
                            found.append((tp, partition.committed_offset))
        return found

    async def _call(self, broker_id: int, api_key: int, version: int, message: Any) -> Any:
        connection = self._services.peers.connection(broker_id, _PURPOSE)
        return await connection.call(api_key, version, message, _TIMEOUT_MS)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _check(code: int) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(ErrorCode(code), ErrorCode(code).name)
