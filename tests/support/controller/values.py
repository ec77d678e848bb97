"""Controllers for tests, with everything defaulted that a test does not speak of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidelog.controller.cluster_events import StateChange
from tidelog.controller.controller import Controller
from tidelog.controller.decision import Effects
from tidelog.controller.elections.leaders import ElectLeadersAsked
from tidelog.controller.events import Event
from tidelog.controller.image import Image
from tidelog.controller.notices import TopicOutdated, UnmetRequest
from tidelog.controller.partitions.addition import CreatePartitionsAsked
from tidelog.controller.partitions.alter_partition import AlterPartitionAsked
from tidelog.controller.producer_ids import ProducerIdsRead
from tidelog.controller.reassignments.listing import ReassignmentsListAsked
from tidelog.controller.reassignments.progress import ReassignmentEnded
from tidelog.controller.reassignments.requests import ReassignmentsAsked
from tidelog.controller.reassignments.stored import ReassignmentRefused
from tidelog.controller.records import LastProducerId, Move, Presence, Topic
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.replica_answers import LeaderAndIsrAnswered, StopReplicaAnswered
from tidelog.controller.settings import ControllerSettings, TopicDefaults
from tidelog.controller.shutdowns import ControlledShutdownAsked, LeadershipsTransferred
from tidelog.controller.state_writes import WritePartitionState
from tidelog.controller.topics.changes import TopicFound, TopicUnreadable
from tidelog.controller.topics.creation import CreateTopicsAsked
from tidelog.controller.topics.deletion import (
    DeleteTopicsAsked,
    DeletionsRead,
    TopicRemoved,
    UnreadableTopicDeleted,
)
from tidelog.controller.topics.readings import TopicNodeRemoved, TopicsRead
from tidelog.controller.writes import Outcome, Write, Written
from tidelog.core.errors import ErrorCode
from tidelog.core.topic_config import validate_topic_configs
from tidelog.core.types import (
    BrokerInfo,
    Endpoint,
    PartitionState,
    TopicPartition,
)
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.controlled_shutdown import ControlledShutdownRequest
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

#: Broker epoch of broker N in tests: 100 + N; a later life adds 100 each time.
FIRST_BROKER_EPOCH = 100
CONTROLLER_EPOCH = 7
TP = TopicPartition("t", 0)


def broker(
    broker_id: int,
    life: int = 1,
    *,
    rack: str | None = None,
    previous_broker_epoch: int = -1,
    earlier_broker_epochs: tuple[int, ...] = (),
) -> BrokerInfo:
    """Broker N in its first or a later life."""
    return BrokerInfo(
        broker_id=broker_id,
        broker_epoch=epoch(broker_id, life),
        endpoints=(Endpoint("PLAINTEXT", f"host{broker_id}", 9000 + broker_id),),
        rack=rack,
        previous_broker_epoch=previous_broker_epoch,
        earlier_broker_epochs=earlier_broker_epochs,
        reports_log_ends=True,
    )


def epoch(broker_id: int, life: int = 1) -> int:
    """Broker epoch of a life of broker N."""
    return FIRST_BROKER_EPOCH * life + broker_id


def brokers(*infos: int | BrokerInfo) -> dict[int, BrokerInfo]:
    """Registrations by id; a number is a broker in its first life."""
    made = [broker(one) if isinstance(one, int) else one for one in infos]
    return {one.broker_id: one for one in made}


def state(
    isr: Sequence[int] = (1, 2, 3),
    leader: int | None = None,
    *,
    leader_epoch: int = 5,
    partition_epoch: int = 10,
    isr_epochs: Sequence[int] | str | None = "first lives",
    leader_recovery_state: int = 0,
    elr: Mapping[int, int] | None = None,
    mzxid: int = 1000,
) -> PartitionState:
    """Published state; led by the first ISR member, all in their first lives.

    `elr` has the recorded broker epoch of each eligible replica.
    """
    if isr_epochs == "first lives":
        isr_epochs = [epoch(member) for member in isr]
    assert not isinstance(isr_epochs, str)
    return PartitionState(
        leader=isr[0] if leader is None else leader,
        leader_epoch=leader_epoch,
        isr=tuple(isr),
        controller_epoch=CONTROLLER_EPOCH - 1,
        partition_epoch=partition_epoch,
        leader_recovery_state=leader_recovery_state,
        isr_epochs=None if isr_epochs is None else tuple(isr_epochs),
        elr=tuple(elr or ()),
        elr_epochs=tuple((elr or {}).values()),
        mzxid=mzxid,
    )


def topic_id(name: str, generation: int = 1) -> bytes:
    """The id of the topic of that name."""
    return name.encode().ljust(15, b"\0")[:15] + bytes([generation])


def topic(
    name: str = "t",
    assignments: Mapping[int, tuple[int, ...]] | None = None,
    *,
    unclean: bool | None = None,
    version: int = 0,
    moves: Mapping[int, Move] | None = None,
) -> Topic:
    """Return a topic; by default one partition on brokers 1, 2, 3."""
    return Topic(name, topic_id(name), assignments or {0: (1, 2, 3)}, unclean, version, moves or {})


def one_partition(published: PartitionState, replicas: tuple[int, ...] = (1, 2, 3)) -> TopicFound:
    """The topic with one partition in this state."""
    return TopicFound(topic("t", {0: replicas}), {0: published})


def settings(*, unclean: bool = False, deletion_enabled: bool = True) -> ControllerSettings:
    """Return the settings of a controller in tests."""
    return ControllerSettings(
        controller_id=1,
        controller_epoch=CONTROLLER_EPOCH,
        topic_defaults=TopicDefaults(
            num_partitions=2,
            replication_factor=2,
            validate_configs=validate_topic_configs,
            deletion_enabled=deletion_enabled,
        ),
        unclean=unclean,
    )


def unloaded(
    *found: TopicFound | TopicUnreadable,
    live: Mapping[int, BrokerInfo] | None = None,
    deletions: Sequence[str] = (),
    of: ControllerSettings | None = None,
) -> Controller:
    """A controller that has just read everything and decided nothing."""
    controller = Controller(of or settings())
    names = [one.topic.name if isinstance(one, TopicFound) else one.name for one in found]
    controller.offer(TopicsRead(names, list(found)))
    controller.offer(DeletionsRead(list(deletions)))
    controller.offer(ProducerIdsRead(LastProducerId(last_id=-1, version=0)))
    controller.offer(BrokersRead(brokers(1, 2, 3) if live is None else live))
    return controller


def loaded(
    *found: TopicFound | TopicUnreadable,
    live: Mapping[int, BrokerInfo] | None = None,
    of: ControllerSettings | None = None,
) -> Controller:
    """A controller whose first decision is done; one partition t-0 in full health by default."""
    if not found:
        found = (TopicFound(topic(), {0: state()}),)
    controller = unloaded(*found, live=live, of=of)
    run(controller)
    return controller


class Clock:
    """Transaction ids."""

    zxid = 100_000


def write_all(writes: Sequence[Write]) -> list[Outcome]:
    """Every write succeeds."""
    Clock.zxid += 1
    return [Written(Clock.zxid) for _ in writes]


def check(image: Image) -> None:
    """Everything that an image holds fits together."""
    existing = set(image.partitions())
    for broker_id in {*image.brokers, *(one for tp in existing for one in image.assigned(tp))}:
        assigned = {one for one in existing if broker_id in image.assigned(one)}
        assert set(image.hosted_by(broker_id)) == assigned
    for name, known in image.topics.items():
        assert known.name == name == image.topic_name(known.topic_id)
        assert name not in image.unreadable
    assert {one.topic for one in (*image.states, *image.unreadable_states)} <= set(image.topics)
    assert not image.states.keys() & image.unreadable_states.keys()
    assert set(image.moving) == {one for one in existing if image.move(one) is not None}
    assert set(image.leaving) <= set(image.moving)
    for answers in image.presences.values():
        assert any(found is not Presence.HERE for found in answers.values())
    waiting: list[Iterable[int]] = [
        *(one.waiting for one in image.deletions.values()),
        *(one.waiting for one in image.removals.values()),
        *image.leaving.values(),
        *image.presences.values(),
    ]
    assert {broker_id for one in waiting for broker_id in one} <= image.brokers.keys()
    for name, removal in image.removals.items():
        assert {*removal.commanded, *removal.drained, *removal.by_edit} <= set(removal.requested)
        assert name not in image.topics or removal.requested or removal.closed


def step(
    controller: Controller, *events: Event, outcomes: Mapping[int, Outcome] | None = None
) -> tuple[list[Write], Effects]:
    """One decision about these events; its writes succeed unless `outcomes` says otherwise."""
    for event in events:
        controller.offer(event)
    decision = controller.decide()
    results = write_all(decision.writes)
    for index, outcome in (outcomes or {}).items():
        results[index] = outcome
    effects = controller.applied(decision, results)
    check(controller.image)
    return decision.writes, effects


def run(controller: Controller, *events: Event) -> list[Effects]:
    """Decide until nothing is left to do."""
    for event in events:
        controller.offer(event)
    effects = []
    while controller.has_work:
        effects.append(step(controller)[1])
    return effects


def reports(effects: Effects) -> list[str]:
    """Return the reports about outside requests in the store that cannot be done."""
    return [one.text for one in effects.notices.of(UnmetRequest)]


def published(effects: Effects) -> list[tuple[TopicPartition, PartitionState]]:
    """The states that were published."""
    return [(one.topic_partition, one.after) for one in effects.notices.of(StateChange)]


def outdated(effects: Effects) -> list[str]:
    """Return topics that changed from outside, to be read again."""
    return [one.name for one in effects.notices.of(TopicOutdated)]


def removed(effects: Effects) -> list[str]:
    """Topics whose nodes are gone by their deletion."""
    return [one.name for one in effects.notices.of(TopicRemoved)]


def vanished(effects: Effects) -> list[str]:
    """Return topics whose nodes were removed from outside."""
    return [one.name for one in effects.notices.of(TopicNodeRemoved)]


def deleted_unread(effects: Effects) -> list[str]:
    """Topics that are deleted although their nodes cannot be read."""
    return [one.name for one in effects.notices.of(UnreadableTopicDeleted)]


def refused_moves(effects: Effects) -> list[tuple[TopicPartition, str]]:
    """Reassignments of the administrator's node that cannot be."""
    notices = effects.notices.of(ReassignmentRefused)
    return [(one.topic_partition, one.reason) for one in notices]


def ended_moves(effects: Effects) -> list[tuple[TopicPartition, tuple[int, ...]]]:
    """Reassignments that are over, and the replicas that there are now."""
    return [(one.topic_partition, one.replicas) for one in effects.notices.of(ReassignmentEnded)]


def left_to(effects: Effects) -> list[tuple[int, Sequence[TopicPartition]]]:
    """Brokers that have handed over, and what they lead nevertheless."""
    return [(one.broker_id, one.remaining) for one in effects.notices.of(LeadershipsTransferred)]


def state_writes(writes: Sequence[Write]) -> dict[TopicPartition, PartitionState]:
    """The states among the writes."""
    return {
        write.topic_partition: write.state
        for write in writes
        if isinstance(write, WritePartitionState)
    }


def alter(
    *members: int | tuple[int, int],
    sender: int = 1,
    sender_epoch: int | None = None,
    leader_epoch: int = 5,
    partition_epoch: int = 10,
    recovery: int = 0,
    of_topic: bytes | None = None,
    partition: int = 0,
    version: int = 3,
    ticket: int = 1,
    may_hold: bool = True,
) -> AlterPartitionAsked:
    """A leader asks for this ISR; a plain number is a member in its first life."""
    epochs = [one if isinstance(one, tuple) else (one, epoch(one)) for one in members]
    data = RequestPartitionData(
        partition_index=partition,
        leader_epoch=leader_epoch,
        leader_recovery_state=recovery,
        partition_epoch=partition_epoch,
    )
    if version >= 3:
        data.new_isr_with_epochs = [BrokerState(member, life) for member, life in epochs]
    else:
        data.new_isr = [member for member, _ in epochs]
    named = RequestTopicData(of_topic or topic_id("t"), partitions=[data])
    if version < 2:
        named = RequestTopicData(topic_name="t", partitions=[data])
    return AlterPartitionAsked(
        ticket,
        version,
        AlterPartitionRequest(
            broker_id=sender,
            broker_epoch=epoch(sender) if sender_epoch is None else sender_epoch,
            topics=[named],
            may_hold=may_hold,
        ),
    )


def answer_of(effects: Effects, ticket: int = 1) -> Any:
    """The answer given to a ticket."""
    [message] = [message for one, message in effects.answers if one == ticket]
    return message


def isr_answer(effects: Effects, ticket: int = 1) -> ResponsePartitionData:
    """The only partition's outcome of an AlterPartition answer."""
    message = answer_of(effects, ticket)
    assert message.error_code == ErrorCode.NONE
    data: ResponsePartitionData
    [[data]] = [one.partitions for one in message.topics]
    return data


def create(
    *wanted: CreatableTopic, ticket: int = 1, validate_only: bool = False, seed: int = 0
) -> CreateTopicsAsked:
    """A client asks for topics."""
    return CreateTopicsAsked(
        ticket,
        CreateTopicsRequest(topics=list(wanted), validate_only=validate_only),
        [topic_id(one.name, 2) for one in wanted],
        seed,
    )


def delete(*names: str, ticket: int = 1, by_id: bool = False) -> DeleteTopicsAsked:
    """A client asks for topics to be deleted."""
    if by_id:
        topics = [DeleteTopicState(None, topic_id(name)) for name in names]
        return DeleteTopicsAsked(ticket, DeleteTopicsRequest(topics=topics))
    return DeleteTopicsAsked(ticket, DeleteTopicsRequest(topic_names=list(names)))


def more(name: str = "t", count: int = 2, *replicas: tuple[int, ...]) -> CreatePartitionsTopic:
    """A topic is to have `count` partitions, the new ones on these brokers if they are given."""
    chosen = [CreatePartitionsAssignment(one) for one in replicas] or None
    return CreatePartitionsTopic(name, count, chosen)


def grow(
    *wanted: CreatePartitionsTopic, ticket: int = 1, validate_only: bool = False, seed: int = 0
) -> CreatePartitionsAsked:
    """A client asks for more partitions."""
    request = CreatePartitionsRequest(topics=list(wanted), validate_only=validate_only)
    return CreatePartitionsAsked(ticket, request, seed)


def elect(
    *wanted: TopicPartition, unclean: bool = False, everything: bool = False, ticket: int = 1
) -> ElectLeadersAsked:
    """A client asks for leaders."""
    named = [TopicPartitions(one.topic, [one.partition]) for one in wanted]
    return ElectLeadersAsked(
        ticket,
        ElectLeadersRequest(
            election_type=1 if unclean else 0, topic_partitions=None if everything else named
        ),
    )


def shut_down(broker_id: int, life: int = 1, *, ticket: int = 1) -> ControlledShutdownAsked:
    """A broker wants to stop."""
    request = ControlledShutdownRequest(broker_id, epoch(broker_id, life))
    return ControlledShutdownAsked(ticket, request)


def reassign(
    topic_partition: TopicPartition, target: Sequence[int] | None, ticket: int = 1
) -> ReassignmentsAsked:
    """A client asks for a partition to be moved there; None: back to where it was."""
    name, partition = topic_partition
    wanted = ReassignableTopic(name, [ReassignablePartition(partition, target)])
    return ReassignmentsAsked(ticket, AlterPartitionReassignmentsRequest(topics=[wanted]))


def list_moves(
    *wanted: TopicPartition, everything: bool = True, ticket: int = 1
) -> ReassignmentsListAsked:
    """A client asks which partitions are being moved."""
    named = [ListPartitionReassignmentsTopics(one.topic, [one.partition]) for one in wanted]
    request = ListPartitionReassignmentsRequest(topics=None if everything else named)
    return ReassignmentsListAsked(ticket, request)


def stopped(
    broker_id: int, topic_partition: TopicPartition = TP, life: int = 1
) -> StopReplicaAnswered:
    """A broker answers StopReplica for one partition."""
    return StopReplicaAnswered(broker_id, epoch(broker_id, life), [topic_partition])


def roles_answered(
    broker_id: int,
    error: ErrorCode = ErrorCode.REPLICA_NOT_AVAILABLE,
    topic_partition: TopicPartition = TP,
    life: int = 1,
) -> LeaderAndIsrAnswered:
    """A broker answers LeaderAndIsr for one partition."""
    return LeaderAndIsrAnswered(broker_id, epoch(broker_id, life), [(topic_partition, error)])
