"""Reads of record batches and offsets from partition leaders.

A fetch carries the leader epoch, so that a stale leader rejects it (KIP-320); the client uses no
fetch sessions. A broker returns batches as it stored them. The first batch may begin below the
requested offset, and the last batch may be incomplete. This module decodes no batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from tidelog.client.cluster import BrokerNode
from tidelog.client.retries import RETRIABLE, Patience
from tidelog.client.routing import ClusterRouter, ask, expect, topics_of
from tidelog.client.steps import Call, Operation, always
from tidelog.client.versions import error_code
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import READ_UNCOMMITTED, ZERO_TOPIC_ID, TopicId, TopicPartition
from tidelog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.registry import FETCH, LIST_OFFSETS

#: Special timestamps of ListOffsets.
LATEST: Final = -1
EARLIEST: Final = -2

#: From this version on requests name topics by id.
_TOPIC_IDS_VERSION: Final = 13
_ANSWER_MARGIN_MS: Final = 5_000


class ListedOffset(NamedTuple):
    """The ListOffsets result of a partition; `offset` is -1 if all records are older than the
    timestamp.

    `timestamp` is -1 for earliest and latest.
    """

    offset: int
    timestamp: int
    leader_epoch: int


class AbortedRange(NamedTuple):
    """An aborted transaction: a producer's records from `first_offset` to its abort marker."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """The response for one partition; an offset that is unknown because of `error` is -1."""

    high_watermark: int
    log_start_offset: int
    last_stable_offset: int
    records: memoryview
    error: ErrorCode = ErrorCode.NONE
    aborted: tuple[AbortedRange, ...] = ()
    #: The topic's id at the fetch; zero if the cluster has no topic ids.
    topic_id: TopicId = ZERO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """Limits of a fetch, in bytes; `max_wait_ms` is the broker's longest wait for `min_bytes`."""

    max_bytes: int
    #: One limit for all partitions, or the limit of each partition.
    partition_max_bytes: int | Mapping[TopicPartition, int]
    min_bytes: int = 1
    max_wait_ms: int = 500
    isolation_level: int = READ_UNCOMMITTED


class LogReader:
    """Operations that read batches and offsets."""

    def __init__(self, router: ClusterRouter) -> None:
        self._router = router

    # -- offsets --------------------------------------------------------------------------------

    def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        isolation_level: int = READ_UNCOMMITTED,
        tolerated: Collection[ErrorCode] = (),
    ) -> Operation[dict[TopicPartition, ListedOffset]]:
        """Return each partition's first offset with a record at or after the given timestamp.

        A timestamp is in milliseconds, or LATEST or EARLIEST.

        A partition whose leader responds with a `tolerated` error is absent from the result. For
        any other error, raises KafkaError with the partition in its message.
        """
        found: dict[TopicPartition, ListedOffset | None] = {}

        def attempt(patience: Patience) -> Operation[dict[TopicPartition, ListedOffset]]:
            missing = [tp for tp in timestamps if tp not in found]
            by_leader = yield from self._router.leaders(missing, patience)
            for leader, partitions in by_leader.items():
                message = self._offsets_request(partitions, timestamps, isolation_level)
                response = yield from ask(
                    leader, LIST_OFFSETS, message, patience, ListOffsetsResponse
                )
                _collect_offsets(response, leader, found, tolerated)
            listed = {tp: found[tp] for tp in timestamps}
            return {tp: each for tp, each in listed.items() if each is not None}

        return self._router.repeat("listing offsets", attempt)

    def positions(
        self, starts: Mapping[TopicPartition, int], isolation_level: int = READ_UNCOMMITTED
    ) -> Operation[dict[TopicPartition, int]]:
        """Return offsets like `list_offsets`; if all records are older than a timestamp, return the
        log's end.
        """
        listed = yield from self.list_offsets(starts, isolation_level)
        too_new = {tp: LATEST for tp, each in listed.items() if each.offset < 0}
        if too_new:
            listed |= yield from self.list_offsets(too_new, isolation_level)
        return {tp: each.offset for tp, each in listed.items()}

    def _offsets_request(
        self,
        partitions: Iterable[TopicPartition],
        timestamps: Mapping[TopicPartition, int],
        isolation_level: int,
    ) -> ListOffsetsRequest:
        def question(tp: TopicPartition) -> ListOffsetsPartition:
            epoch = self._router.leader_epoch(tp)
            return ListOffsetsPartition(tp.partition, epoch, timestamps[tp])

        return ListOffsetsRequest(
            -1, isolation_level, topics_of(partitions, ListOffsetsTopic, question)
        )

    # -- records --------------------------------------------------------------------------------

    def fetch(
        self, offsets: Mapping[TopicPartition, int], options: FetchOptions
    ) -> Operation[dict[TopicPartition, FetchedPartition]]:
        """Fetch records from each offset on, one request per leader, one after the other.

        Non-retriable errors of partitions (mostly OFFSET_OUT_OF_RANGE) are in the result. A request
        is retried while its error is retriable; after the last try, the error is raised.
        """
        done: dict[TopicPartition, FetchedPartition] = {}

        def attempt(patience: Patience) -> Operation[dict[TopicPartition, FetchedPartition]]:
            missing = [tp for tp in offsets if tp not in done]
            by_leader = yield from self._router.leaders(missing, patience)
            failure: KafkaError | None = None
            for leader, partitions in by_leader.items():
                answers = yield from self._fetch_from(leader, partitions, offsets, options)
                for tp in partitions:
                    answer = answers.get(tp)
                    if answer is None:
                        failure = failure or _silent(leader, tp)
                    elif answer.error in RETRIABLE:
                        failure = failure or KafkaError(answer.error, f"{tp} at {leader.address}")
                    else:
                        done[tp] = answer
            if failure is not None:
                raise failure
            return {tp: done[tp] for tp in offsets}

        names = ", ".join(str(tp) for tp in offsets)
        return self._router.repeat(f"fetching {names}", attempt)

    def _fetch_from(
        self,
        leader: BrokerNode,
        partitions: list[TopicPartition],
        offsets: Mapping[TopicPartition, int],
        options: FetchOptions,
    ) -> Operation[dict[TopicPartition, FetchedPartition]]:
        message = self._fetch_request(partitions, offsets, options)
        by_id = all(topic.topic_id != ZERO_TOPIC_ID for topic in message.topics)
        answer = yield Call(
            leader.address,
            FETCH,
            always(message),
            options.max_wait_ms + _ANSWER_MARGIN_MS,
            max_version=0x7FFF if by_id else _TOPIC_IDS_VERSION - 1,
        )
        response = expect(answer, FetchResponse)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(error_code(response.error_code), f"fetch from {leader.address}")
        names = {topic.topic_id: topic.topic for topic in message.topics}
        ids = {topic.topic: topic.topic_id for topic in message.topics}
        answers: dict[TopicPartition, FetchedPartition] = {}
        for topic in response.responses:
            name = names.get(topic.topic_id, "") if answer.version >= _TOPIC_IDS_VERSION else None
            for data in topic.partitions:
                tp = TopicPartition(topic.topic if name is None else name, data.partition_index)
                answers[tp] = _fetched(data, ids.get(tp.topic, ZERO_TOPIC_ID))
        return answers

    def _fetch_request(
        self,
        partitions: list[TopicPartition],
        offsets: Mapping[TopicPartition, int],
        options: FetchOptions,
    ) -> FetchRequest:
        limit = options.partition_max_bytes

        def place(tp: TopicPartition) -> FetchPartition:
            return FetchPartition(
                partition=tp.partition,
                current_leader_epoch=self._router.leader_epoch(tp),
                fetch_offset=offsets[tp],
                partition_max_bytes=limit if isinstance(limit, int) else limit[tp],
            )

        def topic(name: str, places: list[FetchPartition]) -> FetchTopic:
            return FetchTopic(name, self._router.topic_id(name), places)

        return FetchRequest(
            max_wait_ms=options.max_wait_ms,
            min_bytes=options.min_bytes,
            max_bytes=options.max_bytes,
            isolation_level=options.isolation_level,
            topics=topics_of(partitions, topic, place),
        )


def _collect_offsets(
    response: ListOffsetsResponse,
    leader: BrokerNode,
    found: dict[TopicPartition, ListedOffset | None],
    tolerated: Collection[ErrorCode],
) -> None:
    """Add the offsets of a response to `found`; None for a partition with a tolerated error."""
    failure: KafkaError | None = None
    for topic in response.topics:
        for each in topic.partitions:
            tp = TopicPartition(topic.name, each.partition_index)
            code = error_code(each.error_code)
            if code is ErrorCode.NONE:
                found[tp] = ListedOffset(each.offset, each.timestamp, each.leader_epoch)
            elif code in tolerated:
                found[tp] = None
            else:
                failure = failure or KafkaError(code, f"{tp} at {leader.address}")
    if failure is not None:
        raise failure


def _silent(leader: BrokerNode, tp: TopicPartition) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{leader.address} did not answer for {tp}"
    )


def _fetched(data: PartitionData, topic_id: TopicId) -> FetchedPartition:
    records = data.records if isinstance(data.records, memoryview) else memoryview(b"")
    aborted = data.aborted_transactions or []
    return FetchedPartition(
        high_watermark=data.high_watermark,
        log_start_offset=data.log_start_offset,
        last_stable_offset=data.last_stable_offset,
        records=records,
        error=error_code(data.error_code),
        aborted=tuple(AbortedRange(each.producer_id, each.first_offset) for each in aborted),
        topic_id=topic_id,
    )
