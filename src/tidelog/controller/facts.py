"""Facts that a controller learns: into the image at once, and on the agenda what follows.

What was read from the store and what brokers answered counts when it is taken (DESIGN.md, rule 6).
Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidelog.controller import (
    adoption,
    liveness,
    removals,
    shutdowns,
)
from tidelog.controller.agenda import Agenda
from tidelog.controller.changes import (
    BrokersChanged,
    DeletionRequested,
    FormerFound,
    PartitionsDrained,
    RemovalsAdded,
    RemovalsRequested,
    ReplicaAnswered,
    ReplicasStopped,
    ShutdownBegun,
    StatePublished,
    StateUnreadable,
    TopicFound,
    TopicGone,
    TopicUnreadable,
    UncleanChanged,
)
from tidelog.controller.draft import Settings
from tidelog.controller.events import (
    AdditionsRead,
    BrokersRead,
    CommandsDropped,
    ControlledShutdownAsked,
    DeletionsRead,
    DrainRead,
    Event,
    FormerRead,
    LeaderAndIsrAnswered,
    PreferredElectionRead,
    ProducerIdsRead,
    ReassignmentsRead,
    RebalanceDue,
    RebalanceStepDue,
    RemovalsRead,
    RequestsUnreadable,
    StatesRead,
    StopReplicaAnswered,
    SweepDue,
    TopicsRead,
    UncleanRead,
)
from tidelog.controller.image import Image
from tidelog.controller.shutdowns import HandOver, ShutdownAnswer
from tidelog.core.errors import ErrorCode
from tidelog.core.names import is_internal_topic
from tidelog.core.types import NO_LEADER, TopicPartition

#: Outcomes of a role that tell that the replica is there: Kafka's brokers refuse one of the leader
#: epoch that they know already.
_HAS_REPLICA = (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH)


class Facts:
    """Takes facts over for one controller."""

    def __init__(self, image: Image, agenda: Agenda, settings: Settings) -> None:
        self._image = image
        self._agenda = agenda
        #: As told at the beginning, and since.
        self.settings = settings

    def take(self, event: Event) -> None:
        """Take one over; what a client or a broker asks for is none."""
        match event:
            case BrokersRead():
                self._brokers_read(event)
            case TopicsRead():
                self._topics_read(event)
            case DeletionsRead():
                self._deletions_read(event)
            case RemovalsRead():
                self._removals_read(event)
            case AdditionsRead():
                self._agenda.additions = event
            case RequestsUnreadable():
                reason = "its node says nothing that can be done"
                for one in event.topic_partitions:
                    self._agenda.refused[one, event.is_removal] = reason
            case FormerRead():
                self._image.apply(FormerFound(event.states))
            case StatesRead():
                self._states_read(event)
            case DrainRead():
                for name, partition in event.topic_partitions:
                    self._image.apply(PartitionsDrained(name, (partition,)))
            case ProducerIdsRead():
                self._image.producer_ids = event.found
            case UncleanRead():
                self._unclean_read(event)
            case PreferredElectionRead():
                self._agenda.preferred.update(dict.fromkeys(event.topic_partitions))
                self._agenda.election_requested = True
            case ControlledShutdownAsked():
                self._shutdown_asked(event)
            case RebalanceDue():
                self._agenda.balance.look(self._image, event.percentage)
                self._give_back()
            case RebalanceStepDue():
                self._give_back()
            case ReassignmentsRead():
                self._image.reassignments = event.found
                self._agenda.look_at_requests(self._image)
            case SweepDue():
                self._agenda.moves.update(self._image.moving)
                self._agenda.look_at_requests(self._image)
            case LeaderAndIsrAnswered():
                if self._is_current(event.broker_id, event.broker_epoch):
                    self._replicas_answered(event)
            case StopReplicaAnswered():
                if self._is_current(event.broker_id, event.broker_epoch):
                    self._image.apply(
                        ReplicasStopped(event.broker_id, tuple(event.topic_partitions))
                    )
                    self._agenda.look_at_moves(event.topic_partitions, self._image)
            case CommandsDropped():
                if self._is_current(event.broker_id, event.broker_epoch):
                    self._agenda.full[event.broker_id] = None

    def _give_back(self) -> None:
        due = self._agenda.balance.step(self._image)
        self._agenda.preferred.update(dict.fromkeys(due))

    def _is_current(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self._image.brokers.get(broker_id)
        return broker is not None and broker.broker_epoch == broker_epoch

    def _brokers_read(self, event: BrokersRead) -> None:
        before = self._image.brokers
        changes = liveness.broker_changes(before, event.brokers)
        if self._agenda.has_read_brokers:
            ended = [one for one in (*changes.arrived, *changes.gone) if one in before]
            self._agenda.gone += [before[one] for one in ended]
            self._agenda.arrived += [event.brokers[one] for one in changes.arrived]
        self._agenda.has_read_brokers = True
        if not changes:
            return
        self._image.apply(BrokersChanged(event.brokers))
        self._agenda.brokers_changed = True
        for broker_id in (*changes.arrived, *changes.gone):
            self._registration_over(broker_id)
            for topic_partition in self._image.hosted_by(broker_id):
                self._agenda.dirty[topic_partition] = None
                self._agenda.shown[topic_partition] = None
            self._agenda.look_at_moves(self._image.hosted_by(broker_id), self._image)
        self._agenda.full.update(dict.fromkeys(changes.arrived))

    def _shutdown_asked(self, event: ControlledShutdownAsked) -> None:
        """A broker is leaving from now on, until its registration ends; asked again, what has come
        since is looked at."""
        error = shutdowns.refusal(event.request, self._image.brokers)
        if error is not ErrorCode.NONE:
            self._agenda.shutdown_answers.append(ShutdownAnswer(event.ticket, error))
            return
        broker_id = event.request.broker_id
        self._image.apply(ShutdownBegun(broker_id))
        hand_over = self._agenda.hand_overs.setdefault(broker_id, HandOver(broker_id))
        hand_over.tickets.append(event.ticket)
        shutdowns.look_at(hand_over, self._image, self._image.hosted_by(broker_id))

    def _registration_over(self, broker_id: int) -> None:
        hand_over = self._agenda.hand_overs.pop(broker_id, None)
        if hand_over is not None:
            self._agenda.shutdown_answers.extend(
                ShutdownAnswer(ticket, ErrorCode.STALE_BROKER_EPOCH) for ticket in hand_over.tickets
            )

    def _topics_read(self, event: TopicsRead) -> None:
        names = dict.fromkeys(event.names)
        for name in [*self._image.topics, *self._image.unreadable]:
            if name not in names:
                self._vanished(name)
        for found in event.found:
            taken, changes = self._adopted(found) if isinstance(found, TopicFound) else (found, ())
            if isinstance(taken, TopicFound):
                if self._is_news_to_brokers(taken):
                    self._agenda.full.update(dict.fromkeys(self._image.brokers))
                self._report_unreadable(taken)
            self._image.apply(taken)
            # What is known of former lives of partitions goes when the topic is taken over.
            for change in changes:
                self._image.apply(change)
            if isinstance(taken, TopicFound):
                for topic_partition in taken.topic.partitions:
                    self._agenda.dirty[topic_partition] = None
                    self._agenda.shown[topic_partition] = None
                for partition in taken.topic.moves:
                    self._agenda.moves[TopicPartition(taken.topic.name, partition)] = None
                    self._agenda.stopping[TopicPartition(taken.topic.name, partition)] = None
        self._agenda.look_at_requests(self._image)

    def _vanished(self, name: str) -> None:
        """Somebody has removed the node of a topic (V25): brokers are told everything without it at
        once, which makes its replicas strays. Those of a deletion under way are told to delete."""
        deletion = self._image.deletions.get(name)
        if deletion is None or not deletion.commanded:
            self._agenda.vanished.append(name)
            self._agenda.full.update(dict.fromkeys(self._image.brokers))
        self._image.apply(TopicGone(name))

    def _is_news_to_brokers(self, found: TopicFound) -> bool:
        """Whether brokers are to be told of a topic even if nothing of it is decided: it could not
        be read, and some may have registered meanwhile; somebody has brought its nodes back, with
        what was published in them; or it has taken the place of another one of its name, whose
        replicas are strays."""
        name = found.topic.name
        known = self._image.topics.get(name)
        if known is not None and known.topic_id != found.topic.topic_id:
            return True
        if name in self._image.unreadable or any(
            TopicPartition(name, number) in self._image.unreadable_states for number in found.states
        ):
            return True
        return name not in self._image.topics and bool(found.states)

    def _states_read(self, event: StatesRead) -> None:
        """States that could not be read: who had no role meanwhile gets one now (V35)."""
        image, agenda = self._image, self._agenda
        for topic_partition, found in event.found.items():
            if topic_partition not in image.unreadable_states:
                continue
            if isinstance(found, str):
                image.apply(StateUnreadable(topic_partition, found))
                continue
            image.apply(StatePublished(topic_partition, found))
            agenda.full.update(dict.fromkeys(image.brokers))
            agenda.dirty[topic_partition] = None
            agenda.shown[topic_partition] = None
            if topic_partition in image.moving:
                agenda.moves[topic_partition] = None
                agenda.stopping[topic_partition] = None
            agenda.look_at_requests(image)

    def _report_unreadable(self, found: TopicFound) -> None:
        """Say what was known of a state that cannot be read any more."""
        for partition in found.unreadable:
            topic_partition = TopicPartition(found.topic.name, partition)
            state = self._image.states.get(topic_partition)
            if state is not None:
                self._agenda.reports.append(adoption.last_known(topic_partition, state))

    def _adopted(
        self, found: TopicFound
    ) -> tuple[TopicFound | TopicUnreadable, Sequence[FormerFound | RemovalsAdded]]:
        name = found.topic.name
        known = self._image.topics.get(name)
        if known is None or adoption.is_another(known, found, self._image):
            fault = adoption.fault(found)
            if not fault:
                return found, ()
            if self._image.unreadable.get(name) != fault:
                self._agenda.reports.append(
                    f"topic {name!r} is left alone until its node is mended: {fault}"
                )
            return TopicUnreadable(name, fault), ()
        adopted = adoption.adopt(known, found, self._image)
        if adopted.report:
            self._agenda.reports.append(adopted.report)
        return adopted.found, adopted.changes

    def _removals_read(self, event: RemovalsRead) -> None:
        good, bad = removals.accepted(event.wanted, self._image)
        self._image.apply(RemovalsRequested(good))
        self._agenda.refused.update({(one, True): reason for one, reason in bad.items()})

    def _deletions_read(self, event: DeletionsRead) -> None:
        for name in event.names:
            exists = name in self._image.topics or name in self._image.unreadable
            exists = exists and not is_internal_topic(name)
            if exists and self.settings.topic_defaults.deletion_enabled:
                self._image.apply(DeletionRequested(name))
            else:
                self._agenda.forgotten[name] = None

    def _unclean_read(self, event: UncleanRead) -> None:
        """Partitions without a leader may get one now (V13)."""
        if event.cluster is not None and event.cluster != self.settings.unclean:
            self.settings = replace(self.settings, unclean=event.cluster)
            for name, topic in self._image.topics.items():
                if topic.unclean is None:
                    self._look_at_leaderless(name)
        for name, unclean in event.topics.items():
            self._image.apply(UncleanChanged(name, unclean))
            if name in self._image.topics:
                self._look_at_leaderless(name)

    def _look_at_leaderless(self, name: str) -> None:
        for topic_partition in self._image.topics[name].partitions:
            state = self._image.states.get(topic_partition)
            if state is not None and state.leader == NO_LEADER:
                self._agenda.dirty[topic_partition] = None

    def _replicas_answered(self, event: LeaderAndIsrAnswered) -> None:
        for topic_partition, error in event.outcomes:
            state = self._image.states.get(topic_partition)
            if state is None:
                continue
            if error is ErrorCode.REPLICA_NOT_AVAILABLE:
                # Outside the ISR it makes the replica; that it had none says nothing there.
                news = event.broker_id in state.isr
            else:
                news = error in _HAS_REPLICA and bool(self._image.presence(topic_partition))
            if news:
                present = error in _HAS_REPLICA
                self._image.apply(ReplicaAnswered(topic_partition, event.broker_id, present))
                self._agenda.dirty[topic_partition] = None
