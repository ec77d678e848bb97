"""Leaders that give up leadership: slow reads (F11), damaged log (V68), bad disk (D13, D14).

The leader that replaces a slow leader has every committed record, and the slow leader stays in the
ISR. A broker that reported slow reads is not elected in place of another leader. The controller
returns no leadership to the broker before the second rebalance check after the report (`Balance`),
so that leadership does not move back and forth between slow brokers. If no other ISR member can
lead, the leader continues to lead.

The controller replaces a leader on a full or slow disk in the same way, but avoids the leader's
broker only for the reported partitions. A request without partitions withdraws the report of full
or slow disks. A broker also reports followers on such disks, so that they are not elected instead.

A replica with a damaged log leaves the ISR and the eligible replicas first, and truncates its log
afterwards. A leader that is alone in the ISR stays, because no other replica may have its records.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tidelog.controller.answers import Answer, Precedence, Result
from tidelog.controller.draft import Draft
from tidelog.controller.elections import election
from tidelog.controller.elections.balance import Balance
from tidelog.controller.elections.circumstances import Circumstances, circumstances
from tidelog.controller.events import Event
from tidelog.controller.image import Image
from tidelog.controller.partitions.refusals import check_readable
from tidelog.controller.state_writes import WritePartitionState
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.shrink_causes import ShrinkCause
from tidelog.core.types import PartitionState, TopicId, TopicPartition, topic_id_to_text
from tidelog.wire.messages.relinquish_leadership import (
    RelinquishedPartition,
    RelinquishedPartitionResult,
    RelinquishedTopicResult,
    RelinquishLeadershipRequest,
    RelinquishLeadershipResponse,
)


@dataclass(frozen=True, slots=True)
class RelinquishAsked(Event):
    """A broker's request to give up leaderships, or to remove its damaged replicas from ISRs."""

    ticket: int
    request: RelinquishLeadershipRequest


@dataclass(frozen=True, slots=True)
class NamedPartition:
    """A partition as the RelinquishLeadership request names it."""

    topic_id: TopicId
    partition: int


def note_reports(asked: RelinquishAsked, image: Image, balance: Balance) -> None:
    """Record a report of slow reads or unfit disks, so that its sender is not elected.

    A report of a damaged log or an unfit disk concerns only the named partitions. A request without
    partitions withdraws the report that disks of the sender are full or slow.
    """
    request = asked.request
    if not _is_current(request, image):
        return
    if not request.topics:
        balance.note_fit(request.broker_id)
    for topic in request.topics:
        name = image.topic_name(topic.topic_id)
        for data in topic.partitions:
            if data.damaged_offset >= 0:
                continue
            if not data.is_unfit:
                balance.note_slow(request.broker_id, image)
            elif name is not None:
                replica = TopicPartition(name, data.partition_index)
                balance.note_unfit(request.broker_id, replica, image)


def relinquish(asked: RelinquishAsked, draft: Draft, balance: Balance) -> None:
    """Elect another leader for each partition of the request."""
    request = asked.request
    error = ErrorCode.NONE if _is_current(request, draft.image) else ErrorCode.STALE_BROKER_EPOCH
    answer = Answer[NamedPartition](
        asked.ticket, Precedence.ELECT_LEADERS, partial(_response, error)
    )
    draft.answer(answer)
    if error is not ErrorCode.NONE:
        return
    for topic in request.topics:
        for data in topic.partitions:
            result = Result(NamedPartition(topic.topic_id, data.partition_index))
            try:
                result.write = _replace_leader(request, topic.topic_id, data, draft, balance)
            except KafkaError as refused:
                result.refuse(refused)
            answer.results.append(result)


def _is_current(request: RelinquishLeadershipRequest, image: Image) -> bool:
    sender = image.brokers.get(request.broker_id)
    return sender is not None and sender.broker_epoch == request.broker_epoch


def _replace_leader(
    request: RelinquishLeadershipRequest,
    topic_id: TopicId,
    data: RelinquishedPartition,
    draft: Draft,
    balance: Balance,
) -> int | None:
    """Elect another leader for one partition of the request.

    Returns the index of the write, None if no write is necessary. Raises KafkaError if no other
    replica can lead.
    """
    image, sender = draft.image, request.broker_id
    name = image.topic_name(topic_id)
    if name is None or image.is_deleting(name):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic {topic_id_to_text(topic_id)}"
        )
    topic_partition = TopicPartition(name, data.partition_index)
    check_readable(topic_partition, image)
    state = draft.state(topic_partition)
    if state is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic_partition}"
        )
    is_damaged = data.damaged_offset >= 0
    if data.is_unfit and not is_damaged and state.leader != sender:
        return None  # the sender only follows, so no leadership has to move
    if state.leader_epoch != data.leader_epoch or (state.leader != sender and not is_damaged):
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"broker {state.leader} leads {topic_partition} in leader epoch {state.leader_epoch}",
        )
    if sender not in image.replicas(topic_partition):
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {sender} is not among the replicas of {topic_partition}",
        )
    if draft.written(topic_partition) is not None:
        raise KafkaError(
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            f"the state of {topic_partition} is being changed: ask again",
        )
    slow = [member for member in state.isr if balance.is_avoided(member, topic_partition, image)]
    around = circumstances(topic_partition, draft)
    if is_damaged:
        return _take_out(sender, state, around, slow, draft, topic_partition)
    elected = election.elect_instead(state, around, slow)
    if elected is None:
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"no other member of the ISR {list(state.isr)} of {topic_partition} can lead; brokers"
            f" {slow} reported slow reads, or full or slow disks",
        )
    return draft.write_state(
        WritePartitionState(topic_partition, elected.state, state.partition_epoch)
    )


def _take_out(
    damaged: int,
    state: PartitionState,
    around: Circumstances,
    slow: Sequence[int],
    draft: Draft,
    topic_partition: TopicPartition,
) -> int:
    """Remove a damaged replica from the ISR and the eligible replicas (V68). Raises KafkaError.

    The leader epoch rises even if the replica has already left the ISR. The command with the new
    leader epoch informs the replica's broker, and no fetch under an earlier epoch can bring the
    replica back into the ISR.
    """
    elected = election.elect_without(state, around, damaged, slow)
    if elected is None:
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"the log of broker {damaged} is damaged, and no other member of the ISR"
            f" {list(state.isr)} of {topic_partition} can lead: broker {damaged} keeps its log",
        )
    return draft.write_state(
        WritePartitionState(
            topic_partition,
            elected.state,
            state.partition_epoch,
            shrinks=((damaged, ShrinkCause.DISK),),
        )
    )


def _response(
    error: ErrorCode, results: Sequence[Result[NamedPartition]]
) -> RelinquishLeadershipResponse:
    topics: dict[TopicId, RelinquishedTopicResult] = {}
    for result in results:
        topic_id = result.subject.topic_id
        topic = topics.setdefault(topic_id, RelinquishedTopicResult(topic_id))
        topic.partitions.append(
            RelinquishedPartitionResult(result.subject.partition, result.error, result.message)
        )
    return RelinquishLeadershipResponse(error_code=error, topics=list(topics.values()))
