"""DeleteRecords (key 21), versions 0 to 2: advance the log start of partitions (KIP-107).

Each partition's leader advances its log start at once. The broker responds with the low watermark
when every live replica has advanced its log start. At the client's timeout the broker responds
REQUEST_TIMED_OUT, and the deletion continues. The broker refuses to delete records of internal
topics, and of topics with `cleanup.policy=compact`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import DELETE_TOPIC
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.names import is_internal_topic
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext
    from tidelog.broker.replicas.hosting.partition import Partition

CARD = Card(api_key=21, min_version=0, max_version=2, rights=(DELETE_TOPIC,))


class _Deletion:
    """A DeleteRecords request in progress, with the number of partitions without an outcome."""

    def __init__(self) -> None:
        self.response = DeleteRecordsResponse()
        self.pending = Pending()
        self.waiting: dict[_PartitionDeletion, None] = {}

    def look(self) -> None:
        if not self.waiting:
            self.pending.complete(self.response)

    def timed_out(self) -> None:
        for waiting in list(self.waiting):
            waiting.partition.watchers.give_up_deletion(waiting)
            waiting.refused(ErrorCode.REQUEST_TIMED_OUT, "")

    def forgotten(self) -> None:
        for waiting in self.waiting:
            waiting.partition.watchers.give_up_deletion(waiting)
        self.waiting.clear()


class _PartitionDeletion:
    """The wait until the replicas of one partition have advanced their log start (`AcksWait`)."""

    def __init__(
        self, deletion: _Deletion, partition: Partition, answer: DeleteRecordsPartitionResult
    ) -> None:
        self.partition = partition
        self._deletion = deletion
        self._answer = answer

    def acknowledged(self) -> None:
        """Respond with the low watermark: all live replicas have advanced their log start."""
        self._answer.low_watermark = self.partition.low_watermark
        self._done()

    def refused(self, error: ErrorCode, message: str) -> None:
        """Respond with `error`; perhaps not every replica has advanced its log start."""
        self._answer.error_code = error
        self._done()

    def _done(self) -> None:
        self._deletion.waiting.pop(self, None)
        self._deletion.look()


def handle(context: ApiContext, request: Request[DeleteRecordsRequest]) -> Pending:
    """Advance the log starts, and wait for the replicas."""
    message = request.message
    deletion = _Deletion()
    for topic in message.topics:
        answers = DeleteRecordsTopicResult(topic.name, [])
        deletion.response.topics.append(answers)
        for asked in topic.partitions:
            answer = DeleteRecordsPartitionResult(asked.partition_index, -1)
            answers.partitions.append(answer)
            topic_partition = TopicPartition(topic.name, asked.partition_index)
            try:
                _begin(context, deletion, topic_partition, asked.offset, answer)
            except KafkaError as error:
                answer.error_code = error.code
    if deletion.waiting:
        timeout = context.services.serving_timers.after(
            max(0, message.timeout_ms), deletion.timed_out
        )
        deletion.pending.on_cancel(timeout.cancel)
        deletion.pending.on_cancel(deletion.forgotten)
    deletion.look()
    return deletion.pending


def _begin(
    context: ApiContext,
    deletion: _Deletion,
    topic_partition: TopicPartition,
    offset: int,
    answer: DeleteRecordsPartitionResult,
) -> None:
    """Begin the deletion in one partition; raise KafkaError if no record may be deleted."""
    if is_internal_topic(topic_partition.topic):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"records of internal topic {topic_partition.topic!r} are not deleted",
        )
    partition = context.replicas.get(topic_partition)
    if partition is None:
        raise KafkaError(context.replicas.missing_replica_error(topic_partition))
    wanted = partition.role.delete_records_before(offset)
    if partition.low_watermark >= wanted:
        answer.low_watermark = partition.low_watermark
        return
    waiting = _PartitionDeletion(deletion, partition, answer)
    deletion.waiting[waiting] = None
    partition.watchers.wait_for_low_watermark(wanted, waiting)
