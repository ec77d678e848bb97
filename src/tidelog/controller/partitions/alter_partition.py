"""AlterPartition: a leader proposes an ISR, and receives the state once it is durable (A1-A4).

This module checks the sender; `isr` judges each partition. A conflict in the store becomes
INVALID_UPDATE_VERSION for the leader (A3). The controller may hold an ISR expansion back
(`expansions`), and judges it again when the wait is over. The response omits this expansion, and
the leader later gets the outcome as a command (A11).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tidelog.controller import records
from tidelog.controller.answers import Answer, Precedence, Result
from tidelog.controller.draft import Draft
from tidelog.controller.events import Event
from tidelog.controller.image import Image
from tidelog.controller.incarnations import Brokers
from tidelog.controller.orders import SendRoleAgain
from tidelog.controller.partitions import expansions, isr
from tidelog.controller.partitions.expansions import HeldExpansion, HeldExpansions
from tidelog.controller.state_writes import WritePartitionState
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MAX_PARTITIONS_PER_REQUEST
from tidelog.core.shrink_causes import cause_of
from tidelog.core.types import PartitionState, TopicId, TopicPartition
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
    ResponseTopicData,
)


@dataclass(frozen=True, slots=True)
class AlterPartitionAsked(Event):
    """A leader's request for new ISRs (A1)."""

    ticket: int
    version: int
    request: AlterPartitionRequest


#: First version of AlterPartition that names topics by id; earlier versions use names (KIP-841).
FIRST_VERSION_WITH_TOPIC_IDS = 2


@dataclass(frozen=True, slots=True)
class Proposed:
    """A partition of an AlterPartition request, with its new state unless that is rejected."""

    #: The topic as the request names it: by id, or by name (versions 0 and 1).
    topic_id: TopicId
    topic_name: str
    partition: int
    state: PartitionState | None = None
    #: Whether the controller holds the proposal back; the response then omits the partition (A11).
    is_held: bool = False

    @property
    def key(self) -> tuple[TopicId, str, int]:
        """Topic id, topic name and partition number, as the request names them."""
        return self.topic_id, self.topic_name, self.partition


def alter_partitions(asked: AlterPartitionAsked, held: HeldExpansions, draft: Draft) -> None:
    """Judge the proposals of a leader's request."""
    request = asked.request
    error = ErrorCode.NONE
    if not _is_registered(request.broker_id, request.broker_epoch, draft):
        error = ErrorCode.STALE_BROKER_EPOCH
    elif _names_too_many(request, draft):
        error = ErrorCode.INVALID_REQUEST
    respond = partial(_response, error, draft.settings.isr_expand_linger_ms)
    answer = Answer[Proposed](asked.ticket, Precedence.ALTER_PARTITION, respond)
    draft.answer(answer)
    if error is not ErrorCode.NONE:
        return
    named: set[tuple[TopicId, str, int]] = set()
    for topic in request.topics:
        for data in topic.partitions:
            subject = _subject(topic, data)
            if subject.key in named:
                # A request may name a partition only once, because a leader proposes one ISR for
                # it.
                answer.results.append(Result(subject, ErrorCode.INVALID_REQUEST))
                continue
            named.add(subject.key)
            expansion = HeldExpansion(
                request.broker_id, request.broker_epoch, asked.version, topic, data
            )
            may_hold = held if request.may_hold else None
            answer.results.append(_alter(expansion, subject, may_hold, draft))


def alter_held(held: HeldExpansions, draft: Draft) -> None:
    """Judge the expansions that were held back; each leader gets the outcome as a command (A11)."""
    for expansion in held.take().values():
        if not _is_registered(expansion.sender, expansion.sender_epoch, draft):
            continue
        result = _alter(expansion, _subject(expansion.topic, expansion.data), None, draft)
        topic_partition = _find(expansion, draft)
        if topic_partition is not None and result.error is ErrorCode.NONE:
            draft.order(SendRoleAgain(expansion.sender, topic_partition))


def _is_registered(broker_id: int, broker_epoch: int, draft: Draft) -> bool:
    """Return whether the incarnation that sent a request is still registered (A2)."""
    sender = draft.image.brokers.get(broker_id)
    return sender is not None and sender.broker_epoch == broker_epoch


def _names_too_many(request: AlterPartitionRequest, draft: Draft) -> bool:
    """Return whether a request names more partitions than its sender can lead (A2).

    A leader proposes ISRs only for partitions that it hosts, or hosted a moment ago. A request with
    more partitions does not come from a leader, and would take the controller much time.
    """
    named = sum(len(topic.partitions) for topic in request.topics)
    hosted = draft.image.count_hosted_by(request.broker_id)
    return named > max(hosted, MAX_PARTITIONS_PER_REQUEST)


def _find(asked: HeldExpansion, draft: Draft) -> TopicPartition | None:
    """Return the partition that a request names, None if its topic does not exist."""
    image = draft.image
    if asked.version >= FIRST_VERSION_WITH_TOPIC_IDS:
        name = image.topic_name(asked.topic.topic_id)
    else:
        name = asked.topic.topic_name if asked.topic.topic_name in image.topics else None
    if name is None or image.is_deleting(name):
        return None
    return TopicPartition(name, asked.data.partition_index)


def _brokers_that_may_join(
    topic_partition: TopicPartition, state: PartitionState, image: Image
) -> Brokers:
    """Return the live brokers, except brokers that a reassignment keeps out of the ISR (R10).

    A tidelog leader never proposes a replica that a reassignment keeps from the ISR. A Kafka leader
    may propose a replica against rule R10, which Kafka does not know.
    """
    move = image.move(topic_partition)
    if move is None:
        return image.brokers
    out = [
        each
        for each in records.unwanted(image.assigned(topic_partition), move)
        if each not in state.isr
    ]
    if not out:
        return image.brokers
    return {each: broker for each, broker in image.brokers.items() if each not in out}


def _subject(
    topic: RequestTopicData, data: RequestPartitionData, state: PartitionState | None = None
) -> Proposed:
    return Proposed(topic.topic_id, topic.topic_name, data.partition_index, state)


def _alter(
    asked: HeldExpansion, subject: Proposed, held: HeldExpansions | None, draft: Draft
) -> Result[Proposed]:
    """Judge the proposed ISR of one partition.

    With `held`, the controller may hold an expansion of the ISR back (A11).
    """
    image = draft.image
    topic_partition = _find(asked, draft)
    if topic_partition is None:
        has_ids = asked.version >= FIRST_VERSION_WITH_TOPIC_IDS
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if has_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return Result(subject, unknown)
    state = draft.state(topic_partition)
    if state is None:
        return Result(subject, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    sender = asked.sender
    wanted = isr.proposal(sender, asked.data, asked.version)
    published = image.states.get(topic_partition)
    if published is not None and wanted.partition_epoch > published.partition_epoch:
        # No leader can know the epoch of a state that this decision has not written yet. A
        # partition epoch above the published epoch therefore comes from another controller, or is
        # invented (A3).
        return Result(subject, ErrorCode.NOT_CONTROLLER)
    replicas = image.replicas(topic_partition)
    minimum = _minimum(asked, replicas, draft.minimum(topic_partition))
    verdict = isr.judge(
        wanted,
        state,
        replicas,
        _brokers_that_may_join(topic_partition, state, image),
        draft.settings.controller_epoch,
        asked.version,
        minimum,
    )
    if held is not None and _is_held_back(wanted, verdict, state, minimum, topic_partition, draft):
        if held.hold(topic_partition, asked):
            linger_ms = draft.settings.isr_expand_linger_ms
            draft.notice(expansions.ExpansionsHeld(topic_partition, linger_ms))
        return Result(replace(subject, is_held=True))
    is_refused = verdict.error is not ErrorCode.NONE
    # After a change of the leader epoch the controller sends every replica its role.
    to_all = verdict.state is not None and verdict.state.leader_epoch != state.leader_epoch
    if verdict.error is ErrorCode.INVALID_UPDATE_VERSION or (
        is_refused and verdict.is_new and not to_all
    ):
        # The leader may have missed a response or a newer partition epoch, and would wait forever,
        # so the controller sends the leader its role (A3).
        draft.order(SendRoleAgain(sender, topic_partition))
    if verdict.is_new and verdict.state is not None:
        draft.write_state(
            WritePartitionState(
                topic_partition,
                verdict.state,
                state.partition_epoch,
                asked_by_leader=not to_all,
                shrinks=tuple(
                    zip(asked.data.shrunk, map(cause_of, asked.data.causes), strict=False)
                ),
            )
        )
    if not is_refused:
        subject = _subject(asked.topic, asked.data, verdict.state)
    return Result(subject, verdict.error, write=draft.written(topic_partition))


def _minimum(asked: HeldExpansion, replicas: Sequence[int], own: int) -> int:
    """Return the greater of the leader's effective minimum and the controller's `own` (E1).

    The two minimums may differ while brokers learn one by one of a new `min.insync.replicas`. The
    leader commits records by the value that it knows. If the controller used a smaller minimum than
    the leader, it would drop eligible replicas that have every committed record. If the
    controller's effective minimum is greater than the leader's, the leader commits nothing until
    `elr` is cleared.
    """
    return max(own, min(asked.data.minimum, len(replicas)))


def _is_held_back(
    wanted: isr.Proposal,
    verdict: isr.ProposalVerdict,
    state: PartitionState,
    minimum: int,
    topic_partition: TopicPartition,
    draft: Draft,
) -> bool:
    image = draft.image
    return draft.settings.isr_expand_linger_ms > 0 and expansions.may_wait(
        wanted,
        verdict,
        state,
        minimum,
        is_moving=image.move(topic_partition) is not None,
        is_leaving=image.brokers[wanted.leader].is_leaving,
    )


def _response(
    error: ErrorCode, linger_ms: int, results: Sequence[Result[Proposed]]
) -> AlterPartitionResponse:
    topics: dict[tuple[TopicId, str], ResponseTopicData] = {}
    held_ms = 0
    for result in results:
        if result.subject.is_held:
            held_ms = linger_ms
            continue
        key = (result.subject.topic_id, result.subject.topic_name)
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = ResponseTopicData(topic_id=key[0], topic_name=key[1])
        topic.partitions.append(_partition(result))
    return AlterPartitionResponse(error_code=error, topics=list(topics.values()), held_ms=held_ms)


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
