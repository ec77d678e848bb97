"""Upkeep of partitions: leader elections, deletions of oldest records, sizes of replicas.

The controller serves elections (KIP-183, KIP-460), leaders serve deletions (KIP-107), and each
broker serves its own sizes (KIP-113, KIP-827). All requests of this module may be repeated without
further effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final

from tidelog.client.cluster import BrokerNode
from tidelog.client.retries import RETRIABLE, Patience
from tidelog.client.routing import ClusterRouter, ask, expect, topics_of
from tidelog.client.steps import Call, Operation, always
from tidelog.client.versions import error_code
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tidelog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tidelog.wire.messages.mark_log_dirs_bad import MarkLogDirsBadRequest, MarkLogDirsBadResponse
from tidelog.wire.registry import (
    DELETE_RECORDS,
    DESCRIBE_LOG_DIRS,
    ELECT_LEADERS,
    MARK_LOG_DIRS_BAD,
)

#: The offset for `delete_records` that deletes everything below the high watermark.
HIGH_WATERMARK: Final = -1
_ANSWER_MARGIN_MS: Final = 2_000


class ElectionType(IntEnum):
    """The replica to elect: the preferred replica, or any live replica despite lost records."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """The result for one partition; ELECTION_NOT_NEEDED if the wanted leader already leads."""

    error: ErrorCode
    message: str

    @property
    def holds(self) -> bool:
        """Whether the wanted leader leads now."""
        return self.error in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """A replica in a log directory; `future` if the broker is moving it to this directory."""

    topic: str
    partition: int
    size_bytes: int
    #: Records behind the high watermark; for a future replica, records behind the current replica.
    offset_lag: int
    future: bool

    @property
    def tp(self) -> TopicPartition:
        """The partition to which the replica belongs."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One log directory of a broker; volume bytes are -1 if the broker sends none."""

    broker_id: int
    path: str
    error: ErrorCode
    replicas: tuple[ReplicaSize, ...]
    usable_bytes: int
    total_bytes: int
    #: Whether the disk is full, so that the directory serves only reads; False from brokers of
    #: Kafka.
    is_read_only: bool = False
    #: Whether the directory takes no new replicas; False from brokers of Kafka.
    is_cordoned: bool = False
    #: Whether too many operations in the directory are slow; False from brokers of Kafka.
    is_slow: bool = False
    #: Whether the directory's replicas move to other directories; False from brokers of Kafka.
    is_draining: bool = False
    #: The replicas that a failed directory held at its failure; empty from brokers of Kafka.
    last_known: tuple[ReplicaSize, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of all replicas in the directory."""
        return sum(each.size_bytes for each in self.replicas)

    @classmethod
    def from_response(cls, broker_id: int, answer: DescribeLogDirsResult) -> LogDirDescription:
        """Return one directory of a response; its replicas are sorted."""
        return cls(
            broker_id,
            answer.log_dir,
            error_code(answer.error_code),
            _replicas(answer.topics),
            answer.usable_bytes,
            answer.total_bytes,
            answer.is_read_only,
            answer.is_cordoned,
            answer.is_slow,
            answer.is_draining,
            _replicas(answer.last_known),
        )


def _replicas(topics: Iterable[DescribeLogDirsTopic]) -> tuple[ReplicaSize, ...]:
    """Return the replicas in a part of a DescribeLogDirs response, sorted by topic partition."""
    found = [
        ReplicaSize(
            topic.name,
            each.partition_index,
            each.partition_size,
            each.offset_lag,
            each.is_future_key,
        )
        for topic in topics
        for each in topic.partitions
    ]
    return tuple(sorted(found, key=lambda each: each.tp))


def sizes_of(directories: Iterable[LogDirDescription]) -> dict[TopicPartition, int]:
    """Return the bytes of each replica in these log directories, except future replicas."""
    replicas = (replica for directory in directories for replica in directory.replicas)
    return {each.tp: each.size_bytes for each in replicas if not each.future}


class PartitionAdmin:
    """Operations on existing partitions."""

    def __init__(self, router: ClusterRouter) -> None:
        self._router = router

    def elect_leaders(
        self, election: ElectionType, partitions: Iterable[TopicPartition] | None
    ) -> Operation[dict[TopicPartition, ElectionResult]]:
        """Elect leaders of these partitions, or of all; for all, omit elections that are not
        needed.

        An error of a single partition is in the result. Raises KafkaError if the whole request
        failed.
        """
        topics = None if partitions is None else topics_of(partitions, TopicPartitions)

        def attempt(patience: Patience) -> Operation[dict[TopicPartition, ElectionResult]]:
            controller = yield from self._router.controller(patience)
            timeout_ms = max(1, patience.remaining_ms)
            message = ElectLeadersRequest(election, topics, timeout_ms)
            answer = yield Call(
                controller.address, ELECT_LEADERS, always(message), timeout_ms + _ANSWER_MARGIN_MS
            )
            response = expect(answer, ElectLeadersResponse)
            results = _elections(response)
            if response.error_code:
                reasons = [each.message for each in results.values() if each.message]
                reason = reasons[0] if reasons else f"at {controller.address}"
                raise KafkaError(error_code(response.error_code), reason)
            if any(each.error is ErrorCode.NOT_CONTROLLER for each in results.values()):
                raise KafkaError(ErrorCode.NOT_CONTROLLER, f"at {controller.address}")
            return results

        return self._router.repeat("electing leaders", attempt)

    def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> Operation[dict[TopicPartition, int]]:
        """Delete the records below each offset; return the new low watermark of each partition.

        Raises KafkaError with the partition; an offset above the high watermark is
        OFFSET_OUT_OF_RANGE.
        """
        done: dict[TopicPartition, int] = {}

        def attempt(patience: Patience) -> Operation[dict[TopicPartition, int]]:
            missing = [tp for tp in before if tp not in done]
            by_leader = yield from self._router.leaders(missing, patience)
            failures: list[KafkaError] = []
            for leader, partitions in by_leader.items():
                timeout_ms = max(1, patience.remaining_ms)
                topics = topics_of(
                    partitions,
                    DeleteRecordsTopic,
                    lambda tp: DeleteRecordsPartition(tp.partition, before[tp]),
                )
                response = yield from ask(
                    leader,
                    DELETE_RECORDS,
                    DeleteRecordsRequest(topics, timeout_ms),
                    patience,
                    DeleteRecordsResponse,
                    timeout_ms + _ANSWER_MARGIN_MS,
                )
                failures += _collect_deletions(response, leader, before, done)
            # The first failure is raised. Errors that are not retriable come first, because a retry
            # cannot repair them.
            failures.sort(key=lambda failure: failure.code in RETRIABLE)
            if failures:
                raise failures[0]
            for tp in before:
                if tp not in done:
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer for {tp}")
            return {tp: done[tp] for tp in before}

        return self._router.repeat("deleting records", attempt)

    def describe_log_dirs(
        self,
        broker_id: int,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
    ) -> Operation[list[LogDirDescription]]:
        """Return a broker's log directories with all replicas, or only with `partitions`.

        Raises KafkaError. `timeout_ms` replaces the client's timeout.
        """
        topics = None if partitions is None else topics_of(partitions, DescribableLogDirTopic)
        message = DescribeLogDirsRequest(topics)

        def attempt(patience: Patience) -> Operation[list[LogDirDescription]]:
            node = yield from self._router.broker(broker_id, patience)
            response = yield from ask(
                node, DESCRIBE_LOG_DIRS, message, patience, DescribeLogDirsResponse
            )
            return [LogDirDescription.from_response(broker_id, each) for each in response.results]

        what = f"reading the log directories of broker {broker_id}"
        return self._router.repeat(what, attempt, timeout_ms)

    def mark_log_dirs_bad(self, broker_id: int, paths: Sequence[str]) -> Operation[None]:
        """Make a broker treat log directories as failed (D12).

        Only tidelog's brokers serve MarkLogDirsBad. Repeating the request has no further effect.
        Raises KafkaError for the first directory that is refused.
        """
        message = MarkLogDirsBadRequest(list(paths))

        def attempt(patience: Patience) -> Operation[None]:
            node = yield from self._router.broker(broker_id, patience)
            response = yield from ask(
                node, MARK_LOG_DIRS_BAD, message, patience, MarkLogDirsBadResponse
            )
            for result in response.results:
                if result.error_code:
                    raise KafkaError(error_code(result.error_code), result.error_message or "")

        return self._router.repeat(f"marking log directories of broker {broker_id} bad", attempt)


def _elections(response: ElectLeadersResponse) -> dict[TopicPartition, ElectionResult]:
    return {
        TopicPartition(topic.topic, each.partition_id): ElectionResult(
            error_code(each.error_code), each.error_message or ""
        )
        for topic in response.replica_election_results
        for each in topic.partition_result
    }


def _collect_deletions(
    response: DeleteRecordsResponse,
    leader: BrokerNode,
    before: Mapping[TopicPartition, int],
    done: dict[TopicPartition, int],
) -> list[KafkaError]:
    failures = []
    for topic in response.topics:
        for each in topic.partitions:
            tp = TopicPartition(topic.name, each.partition_index)
            code = error_code(each.error_code)
            if code is ErrorCode.NONE:
                done[tp] = each.low_watermark
            elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
                failures.append(
                    KafkaError(code, f"{tp}: offset {before[tp]} is above the high watermark")
                )
            else:
                failures.append(KafkaError(code, f"{tp} at {leader.address}"))
    return failures
