"""AlterPartition: a leader proposes an ISR, and receives the state once that is durable (A1-A4).

This module checks the sender; `isr` judges each partition. A conflict in the store is the leader's
INVALID_UPDATE_VERSION (A3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tidelog.controller.answers import Answer, Precedence, Result
from tidelog.controller.draft import Draft
from tidelog.controller.events import Event
from tidelog.controller.orders import SendRoleAgain
from tidelog.controller.partitions import isr
from tidelog.controller.state_writes import WritePartitionState
from tidelog.core.errors import ErrorCode
from tidelog.core.shrink_causes import cause_of
from tidelog.core.types import PartitionState, TopicId, TopicPartition
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)


@dataclass(frozen=True, slots=True)
class AlterPartitionAsked(Event):
    """A leader's request for new ISRs (A1)."""

    ticket: int
    version: int
    request: AlterPartitionRequest


@dataclass(frozen=True, slots=True)
class Proposed:
    """A partition of a request, and the state that holds unless the proposal is rejected."""

    topic_id: TopicId
    partition: int
    state: PartitionState | None = None


def alter_partitions(asked: AlterPartitionAsked, draft: Draft) -> None:
    """Judge a leader's request."""
    request = asked.request
    sender = draft.image.brokers.get(request.broker_id)
    is_stale = sender is None or sender.broker_epoch != request.broker_epoch
    error = ErrorCode.STALE_BROKER_EPOCH if is_stale else ErrorCode.NONE
    answer = Answer[Proposed](asked.ticket, Precedence.ALTER_PARTITION, partial(_response, error))
    draft.answer(answer)
    if is_stale:
        return
    for topic in request.topics:
        for data in topic.partitions:
            answer.results.append(_alter(asked, topic.topic_id, data, draft))


def _alter(
    asked: AlterPartitionAsked, topic_id: TopicId, data: RequestPartitionData, draft: Draft
) -> Result[Proposed]:
    image, partition = draft.image, data.partition_index
    name = image.topic_name(topic_id)
    if name is None or image.is_deleting(name):
        return Result(Proposed(topic_id, partition), ErrorCode.UNKNOWN_TOPIC_ID)
    topic_partition = TopicPartition(name, partition)
    state = draft.state(topic_partition)
    if state is None:
        return Result(Proposed(topic_id, partition), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    sender = asked.request.broker_id
    verdict = isr.judge(
        isr.proposal(sender, data, asked.version),
        state,
        image.replicas(topic_partition),
        image.brokers,
        draft.settings.controller_epoch,
        asked.version,
        draft.minimum(topic_partition),
    )
    is_refused = verdict.error is not ErrorCode.NONE
    # Under another leader epoch every replica is sent its role.
    to_all = verdict.state is not None and verdict.state.leader_epoch != state.leader_epoch
    if verdict.error is ErrorCode.INVALID_UPDATE_VERSION or (
        is_refused and verdict.is_new and not to_all
    ):
        # Neither a lost answer nor a partition epoch that has passed without the leader may leave
        # it waiting (A3).
        draft.order(SendRoleAgain(sender, topic_partition))
    if verdict.is_new and verdict.state is not None:
        draft.write_state(
            WritePartitionState(
                topic_partition,
                verdict.state,
                state.partition_epoch,
                asked_by_leader=not to_all,
                shrinks=tuple(zip(data.shrunk, map(cause_of, data.causes), strict=False)),
            )
        )
    proposed = Proposed(topic_id, partition, None if is_refused else verdict.state)
    return Result(proposed, verdict.error, write=draft.written(topic_partition))


def _response(error: ErrorCode, results: Sequence[Result[Proposed]]) -> AlterPartitionResponse:
    topics: dict[TopicId, ResponseTopicData] = {}
    for result in results:
        topic_id = result.subject.topic_id
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ResponseTopicData(topic_id=topic_id)
        topic.partitions.append(_partition(result))
    return AlterPartitionResponse(error_code=error, topics=list(topics.values()))


def _partition(result: Result[Proposed]) -> ResponsePartitionData:
    partition, state = result.subject.partition, result.subject.state
    if result.error is not ErrorCode.NONE or state is None:
        return ResponsePartitionData(partition_index=partition, error_code=result.error)
    return ResponsePartitionData(
        partition_index=partition,
        error_code=result.error,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        leader_recovery_state=state.leader_recovery_state,
        partition_epoch=state.partition_epoch,
        has_eligible=bool(state.elr),
    )
