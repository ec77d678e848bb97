"""Elections for partitions whose circumstances changed, and ElectLeaders (V11, V13, D3).

Elections are level-triggered: the decision depends on the image alone. A conflict in the store, a
new controller and a repeated event therefore need no code of their own (V15, V41). The same code
elects leaders automatically and for ElectLeaders requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from tidelog.controller import lifecycle
from tidelog.controller.agenda import Agenda
from tidelog.controller.answers import Answer, Precedence, Result
from tidelog.controller.command_builder import CommandBuilder
from tidelog.controller.draft import Draft
from tidelog.controller.elections import election, preferred, recoveries, waits
from tidelog.controller.elections.balance import Balance
from tidelog.controller.elections.circumstances import circumstances
from tidelog.controller.elections.election import Election
from tidelog.controller.events import Event
from tidelog.controller.image import Change, Image
from tidelog.controller.orders import Order, Rank, SendRoleAgain
from tidelog.controller.partitions.refusals import check_readable
from tidelog.controller.reassignments import transitions
from tidelog.controller.records import Presence
from tidelog.controller.settings import ControllerSettings
from tidelog.controller.settlement import Settlement
from tidelog.controller.state_writes import ReplicasRemade, WritePartitionState
from tidelog.controller.writes import Conflict
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import NO_LEADER, PartitionState, TopicPartition
from tidelog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

#: ElectLeaders' election types (KIP-460).
_PREFERRED, _UNCLEAN = 0, 1


@dataclass(frozen=True, slots=True)
class UncleanRead(Event):
    """New values of unclean.leader.election.enable.

    `topics` has each topic's value, None for a topic without a value of its own. `cluster` is the
    cluster's value, None if the cluster's value was not read.
    """

    topics: Mapping[str, bool | None]
    cluster: bool | None = None


@dataclass(frozen=True, slots=True)
class MinimumRead(Event):
    """New values of min.insync.replicas, of topics and of the cluster (as in `UncleanRead`)."""

    topics: Mapping[str, int | None]
    cluster: int | None = None


@dataclass(frozen=True, slots=True)
class ElectLeadersAsked(Event):
    """A client's request for preferred or for unclean leaders."""

    ticket: int
    request: ElectLeadersRequest


@dataclass(frozen=True, slots=True)
class UncleanChanged(Change):
    """A topic's own unclean.leader.election.enable has changed, or was removed (None)."""

    name: str
    unclean: bool | None

    def apply(self, image: Image) -> None:
        """Set the topic's unclean.leader.election.enable, unless the topic is gone."""
        topic = image.topics.get(self.name)
        if topic is not None:
            image.topics[self.name] = replace(topic, unclean=self.unclean)


@dataclass(frozen=True, slots=True)
class MinimumChanged(Change):
    """A topic's own min.insync.replicas has changed, or was removed (None)."""

    name: str
    min_insync_replicas: int | None

    def apply(self, image: Image) -> None:
        """Set the topic's min.insync.replicas, unless the topic is gone."""
        topic = image.topics.get(self.name)
        if topic is not None:
            image.topics[self.name] = replace(topic, min_insync_replicas=self.min_insync_replicas)


@dataclass(frozen=True, slots=True)
class RecreateReplicas(Order):
    """Command to brokers to create the replicas of a partition whose creation was interrupted (D3).

    No broker has created its replica of the partition yet.
    """

    topic_partition: TopicPartition

    rank: ClassVar[Rank] = Rank.RECREATION

    def give(self, builder: CommandBuilder) -> None:
        """Command the partition's brokers to create their replicas."""
        builder.send_role(self.topic_partition, is_new=True)


def look_at(topic_partition: TopicPartition, draft: Draft) -> None:
    """Elect a leader for a partition, or change its ISR, if the cluster requires it (V11)."""
    image, controller_epoch = draft.image, draft.settings.controller_epoch
    topic = image.topics.get(topic_partition.topic)
    if (
        topic is None
        or image.is_deleting(topic.name)
        or draft.written(topic_partition) is not None
        or topic_partition in image.unreadable_states
    ):
        return
    state = image.states.get(topic_partition)
    if state is None or lifecycle.is_tombstone(state):
        _begin(topic_partition, image.replicas(topic_partition), state, draft)
        return
    # A new controller checks all partitions, of which nearly all need no election; a cheap check
    # recognizes them.
    is_untouched = (
        topic_partition not in image.presences
        and not state.elr
        and election.is_untouched(state, image.brokers)
    )
    if not is_untouched and _elect(topic_partition, state, draft):
        return
    move = topic.moves.get(topic_partition.partition)
    if move is not None and state.mzxid < move.since_zxid:
        # A reassignment has changed the assignment, and perhaps no command has sent it to the
        # replicas yet: a new leader epoch makes the controller send it.
        under_next = transitions.under_next_epoch(state, controller_epoch)
        if image.is_completing(topic_partition):
            under_next = replace(under_next, reassigned_to=state.reassigned_to)
        draft.write_state(WritePartitionState(topic_partition, under_next, state.partition_epoch))


def _elect(topic_partition: TopicPartition, state: PartitionState, draft: Draft) -> bool:
    """Elect a leader if an election is due; return False if the partition state does not change."""
    around = circumstances(topic_partition, draft)
    if (
        around.absent
        and election.cut_short(state, around.replicas, around.brokers)
        and _ask_for_replicas(topic_partition, around.replicas, draft)
    ):
        return True
    elected = election.elect(state, around)
    after = state if elected is None else elected.state
    if election.needs_recovery(after, around):
        recoveries.go_on(topic_partition, after, around, draft, is_news=elected is not None)
    if after.leader == NO_LEADER:
        waits.look_at(topic_partition, after, around, draft, is_news=elected is not None)
    if elected is None:
        return False
    _write(topic_partition, state, elected, draft)
    return True


def _write(
    topic_partition: TopicPartition, state: PartitionState, elected: Election, draft: Draft
) -> int:
    return draft.write_state(
        WritePartitionState(
            topic_partition, elected.state, state.partition_epoch, is_new=elected.creates_leader
        )
    )


def _begin(
    topic_partition: TopicPartition,
    replicas: tuple[int, ...],
    tombstone: PartitionState | None,
    draft: Draft,
) -> None:
    """Write the first state of a partition that has no state, or only a tombstone (V20, V71).

    A tombstone is the last state of a removed partition with the same number.
    """
    image = draft.image
    removal = image.removals.get(topic_partition.topic)
    if removal is not None and topic_partition.partition in removal.requested:
        return
    former = image.former.get(topic_partition) if tombstone is None else tombstone
    first = lifecycle.first_state(replicas, image.brokers, draft.settings.controller_epoch, former)
    if first is not None:
        expected = first.partition_epoch - 1
        draft.write_state(WritePartitionState(topic_partition, first, expected, is_new=True))


def _ask_for_replicas(
    topic_partition: TopicPartition, replicas: Iterable[int], draft: Draft
) -> bool:
    """Command brokers to create a partition's replicas, if perhaps no broker has created one (D3).

    Returns False if a broker has reported that it has its replica. The partition was then created,
    and brokers that lost their replica may leave the ISR.
    """
    presence = draft.image.presence(topic_partition)
    if any(found is not Presence.LOST for found in presence.values()):
        return False
    silent = [replica for replica in replicas if replica not in presence]
    for replica in silent:
        draft.order(SendRoleAgain(replica, topic_partition))
    if not silent:
        draft.order(RecreateReplicas(topic_partition))
    return True


def settle(settlement: Settlement) -> None:
    """Drop reports of missing replicas whose creation this decision commands."""
    for order in settlement.orders:
        if isinstance(order, RecreateReplicas):
            settlement.apply(ReplicasRemade(order.topic_partition))
    recoveries.settle(settlement)
    waits.settle(settlement)


def unclean_read(
    event: UncleanRead, image: Image, agenda: Agenda, settings: ControllerSettings
) -> ControllerSettings:
    """Apply unclean.leader.election.enable, and check the partitions without a leader (V13)."""
    if event.cluster is not None and event.cluster != settings.unclean:
        settings = replace(settings, unclean=event.cluster)
        for name, topic in image.topics.items():
            if topic.unclean is None:
                _look_at_leaderless(name, image, agenda)
    for name, unclean in event.topics.items():
        image.apply(UncleanChanged(name, unclean))
        if name in image.topics:
            _look_at_leaderless(name, image, agenda)
    return settings


def minimum_read(
    event: MinimumRead, image: Image, agenda: Agenda, settings: ControllerSettings
) -> ControllerSettings:
    """Apply new values of min.insync.replicas, and check the affected partitions (E1, E6)."""
    if event.cluster is not None and event.cluster != settings.min_insync_replicas:
        settings = replace(settings, min_insync_replicas=event.cluster)
        for name, topic in image.topics.items():
            if topic.min_insync_replicas is None:
                _look_at_eligible(name, image, agenda)
    for name, minimum in event.topics.items():
        image.apply(MinimumChanged(name, minimum))
        if name in image.topics:
            _look_at_eligible(name, image, agenda)
    return settings


def _look_at_eligible(name: str, image: Image, agenda: Agenda) -> None:
    for topic_partition in image.topics[name].partitions:
        state = image.states.get(topic_partition)
        if state is not None and (state.elr or state.leader == NO_LEADER):
            agenda.look_at((topic_partition,))


def _look_at_leaderless(name: str, image: Image, agenda: Agenda) -> None:
    for topic_partition in image.topics[name].partitions:
        state = image.states.get(topic_partition)
        if state is not None and state.leader == NO_LEADER:
            agenda.look_at((topic_partition,))


# on request


def elect_leaders(asked: ElectLeadersAsked, draft: Draft, balance: Balance) -> None:
    """Elect preferred or unclean leaders (V8, V13, V46).

    A preferred replica that `balance` knows to be on a full or slow disk is not elected in place of
    another leader (D13, D14).

    If the request names all partitions, the answer omits partitions that needed no election.
    """
    request = asked.request
    answer = Answer[TopicPartition](asked.ticket, Precedence.ELECT_LEADERS, _response, _on_conflict)
    draft.answer(answer)
    named = request.topic_partitions
    if named is None:
        wanted = list(draft.image.partitions())
    else:
        wanted = [TopicPartition(topic.topic, n) for topic in named for n in topic.partitions]
    for topic_partition in dict.fromkeys(wanted):
        result = Result(topic_partition)
        try:
            result.write = _elect_leader(request.election_type, topic_partition, draft, balance)
        except KafkaError as error:
            result.refuse(error)
        if named is not None or result.error is not ErrorCode.ELECTION_NOT_NEEDED:
            answer.results.append(result)


def _elect_leader(
    election_type: int, topic_partition: TopicPartition, draft: Draft, balance: Balance
) -> int:
    """Elect one leader; return the index of the write."""
    image = draft.image
    if election_type not in (_PREFERRED, _UNCLEAN):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"election type {election_type} is not known: 0 (preferred) or 1 (unclean)",
        )
    if image.is_deleting(topic_partition.topic):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is being deleted")
    check_readable(topic_partition, image)
    state = draft.state(topic_partition)
    if state is None or lifecycle.is_tombstone(state):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic_partition}"
        )
    if election_type == _PREFERRED:
        elected = _elect_preferred(topic_partition, state, draft, balance)
    else:
        elected = _elect_uncleanly(topic_partition, state, draft)
    index = draft.written(topic_partition)
    if index is None:
        return _write(topic_partition, state, elected, draft)
    # This decision already writes the partition's state. The election becomes part of that write,
    # so the partition epoch, and the leader epoch of a proven state, do not rise once more.
    leader_epoch = elected.state.leader_epoch if state.is_unproven else state.leader_epoch
    merged = replace(
        elected.state, leader_epoch=leader_epoch, partition_epoch=state.partition_epoch
    )
    draft.replace_state(index, merged, elected.creates_leader)
    return index


def _elect_preferred(
    topic_partition: TopicPartition, state: PartitionState, draft: Draft, balance: Balance
) -> Election:
    replicas = draft.image.replicas(topic_partition)
    if not election.prefers_another(state, replicas):
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"preferred replica {replicas[0]} leads")
    if balance.is_unfit(replicas[0], topic_partition, draft.image):
        raise KafkaError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"the disk of preferred replica {replicas[0]} is full or slow, and its broker would"
            " give the leadership back at once",
        )
    elected = preferred.elect(topic_partition, state, draft)
    if elected is None:
        raise KafkaError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"preferred replica {replicas[0]} is not alive and in the ISR {list(state.isr)}",
        )
    return elected


def _elect_uncleanly(
    topic_partition: TopicPartition, state: PartitionState, draft: Draft
) -> Election:
    image = draft.image
    if state.leader in image.brokers:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {state.leader} leads")
    replicas = image.replicas(topic_partition)
    around = circumstances(topic_partition, draft)
    elected = election.elect(state, replace(around, unclean=True, is_forced=True))
    if elected is None or elected.state.leader not in image.brokers:
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"no replica is alive: {list(replicas)}, live brokers are {sorted(image.brokers)}",
        )
    return elected


def _on_conflict(
    result: Result[TopicPartition], conflict: Conflict
) -> tuple[ErrorCode, str | None]:
    return (
        ErrorCode.INVALID_UPDATE_VERSION,
        "the partition's state was changed meanwhile: ask again",
    )


def _response(results: Sequence[Result[TopicPartition]]) -> ElectLeadersResponse:
    topics: dict[str, ReplicaElectionResult] = {}
    for result in results:
        name, partition = result.subject
        topic = topics.setdefault(name, ReplicaElectionResult(name, []))
        topic.partition_result.append(PartitionResult(partition, result.error, result.message))
    return ElectLeadersResponse(replica_election_results=list(topics.values()))
