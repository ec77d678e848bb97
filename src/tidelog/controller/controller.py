"""The controller: events in, a decision out, effects once the decision is durable (V1, V2).

`offer` queues events, `decide` takes all of them and returns one `Decision`; when its writes are
done, `applied` changes the image and says what to send and what to answer. One decision is in
flight; what comes meanwhile is decided together on the applied image (DESIGN.md, rule 6). Readings
of the store and answers of brokers are facts: they enter the image when they are taken. Elections
are level-triggered: a partition whose circumstances changed is looked at, and what to do follows
from the image alone; so a conflict in the store, a new controller and a repeated event all take
the same way (V15, V41).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.controller import balance, liveness
from tidelog.controller.commands import CommandBuilder, Commands
from tidelog.controller.decision import (
    AddPartitions,
    Conflict,
    CreateTopic,
    Decision,
    DeleteTopicsAnswer,
    ForgetDeletion,
    ForgetPreferredElection,
    KeepReassignments,
    Outcome,
    QueueDeletion,
    RemoveTopic,
    TakeProducerIds,
    Write,
    WriteAssignments,
    WritePartitionState,
    Written,
)
from tidelog.controller.draft import Draft, Settings
from tidelog.controller.events import (
    AlterPartitionAsked,
    BrokersRead,
    CreatePartitionsAsked,
    CreateTopicsAsked,
    DeleteTopicsAsked,
    DeletionsRead,
    ElectLeadersAsked,
    Event,
    LeaderAndIsrAnswered,
    PreferredElectionRead,
    ProducerIdsAsked,
    ProducerIdsRead,
    ReassignmentsAsked,
    ReassignmentsListAsked,
    ReassignmentsRead,
    RebalanceDue,
    StopReplicaAnswered,
    SweepDue,
    TopicsRead,
    UncleanRead,
)
from tidelog.controller.image import (
    AssignmentsWritten,
    BrokersChanged,
    DeletionCommanded,
    DeletionRequested,
    Image,
    LeavingCommanded,
    PartitionsAdded,
    ProducerIdsFound,
    ReassignmentsFound,
    ReplicaAnswered,
    ReplicasRemade,
    ReplicasStopped,
    StatePublished,
    TopicFound,
    TopicGone,
    TopicUnreadable,
    UncleanChanged,
)
from tidelog.controller.moving import MovingDraft
from tidelog.core.errors import ErrorCode, InvariantError
from tidelog.core.limits import MAX_PREFERRED_ELECTIONS_PER_DECISION
from tidelog.core.names import is_internal_topic
from tidelog.core.types import NO_LEADER, PartitionState, TopicPartition


@dataclass(slots=True)
class Effects:
    """What follows from a decision that is durable."""

    #: By broker id; for its registration as the image has it.
    commands: dict[int, Commands]
    #: (ticket, message).
    answers: list[tuple[int, Any]] = field(default_factory=list)
    #: What was published, for those who watch.
    published: list[tuple[TopicPartition, PartitionState]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    #: Topics whose nodes somebody else has changed: read them again.
    reread: list[str] = field(default_factory=list)
    #: Reassignments that an administrator's node asks for and that cannot be, and why.
    refused: list[tuple[TopicPartition, str]] = field(default_factory=list)
    #: Reassignments that have ended, and the replicas that there are now.
    reassigned: list[tuple[TopicPartition, tuple[int, ...]]] = field(default_factory=list)


class Controller:
    """Decides for the cluster; one per term of office."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.image = Image()
        self._events: list[Event] = []
        self._deciding: Decision | None = None
        #: Partitions to look at.
        self._dirty: dict[TopicPartition, None] = {}
        #: Partitions whose metadata changed without a write.
        self._shown: dict[TopicPartition, None] = {}
        self._full: dict[int, None] = {}
        self._brokers_changed = False
        self._forgotten: dict[str, None] = {}
        #: Partitions to give back to their preferred replicas, a few at a time (V46).
        self._preferred: dict[TopicPartition, None] = {}
        #: `/admin/preferred_replica_election` goes when none is left.
        self._election_requested = False
        #: Reassignments to look at, those whose replicas may have to be told to go, and whether
        #: `/admin/reassign_partitions` is to be looked at (V50).
        self._moves: dict[TopicPartition, None] = {}
        self._stopping: dict[TopicPartition, None] = {}
        self._requested = False
        self._deleting: list[DeleteTopicsAnswer] = []
        self._given_up: dict[int, None] = {}

    def offer(self, event: Event) -> None:
        """Queue an event."""
        self._events.append(event)

    @property
    def has_work(self) -> bool:
        """Whether `decide` would find anything to do."""
        return bool(
            self._events
            or self._dirty
            or self._shown
            or self._full
            or self._brokers_changed
            or self._forgotten
            or self._preferred
            or self._election_requested
            or self._moves
            or self._stopping
            or self._requested
            or any(d.done or not d.commanded for d in self.image.deletions.values())
        )

    def give_up(self, ticket: int) -> Any | None:
        """A client's time for DeleteTopics is over: the answer, None while it is not decided (it
        then comes as soon as it is)."""
        for answer in self._deleting:
            if answer.ticket == ticket:
                self._deleting.remove(answer)
                answer.give_up()
                return answer.message()
        self._given_up[ticket] = None
        return None

    # deciding

    def decide(self) -> Decision:
        """Take all events; the decision must be made durable and given to `applied`."""
        if self._deciding is not None:
            raise InvariantError("a decision is in flight")
        events, self._events = self._events, []
        for event in events:
            self._take(event)
        draft = Draft(self.image, self.settings)
        dirty, self._dirty = self._dirty, {}
        for topic_partition in dirty:
            draft.elect(topic_partition)
        moving = MovingDraft(draft)
        self._requests(draft, moving, events)
        if not self._full:
            # A new controller resumes them once its full commands are out (V41).
            self._bring_forward(moving)
        moving.close()
        self._give_back(draft)
        decision = draft.decision
        decision.writes.extend(self._deletion_writes())
        if self._election_requested and not self._preferred:
            self._election_requested = False
            decision.writes.append(ForgetPreferredElection())
        decision.shown.update(self._shown)
        self._shown = {}
        decision.full, self._full = tuple(self._full), {}
        decision.brokers_changed, self._brokers_changed = self._brokers_changed, False
        self._deciding = decision
        return decision

    def _bring_forward(self, moving: MovingDraft) -> None:
        looked_at, self._moves = self._moves, {}
        for topic_partition in looked_at:
            moving.advance(topic_partition)
        if self._requested:
            self._requested = False
            moving.look_at_requests()

    def _requests(self, draft: Draft, moving: MovingDraft, events: Iterable[Event]) -> None:
        producer_ids = []
        for event in events:
            # Before the leaders' own requests: those are judged against who leads then.
            if isinstance(event, ElectLeadersAsked):
                draft.elect_leaders(event)
        for event in events:
            if isinstance(event, ReassignmentsAsked) and not moving.reassign(event):
                self._events.append(event)
        for event in events:
            match event:
                case AlterPartitionAsked():
                    draft.alter_partitions(event)
                case CreateTopicsAsked():
                    draft.create_topics(event)
                case CreatePartitionsAsked():
                    if not draft.create_partitions(event):
                        self._events.append(event)
                case ReassignmentsListAsked():
                    moving.list(event)
                case DeleteTopicsAsked():
                    draft.delete_topics(event)
                case ProducerIdsAsked():
                    producer_ids.append(event)
        draft.give_producer_ids(producer_ids)

    def _give_back(self, draft: Draft) -> None:
        waiting = list(self._preferred)
        for topic_partition in waiting[:MAX_PREFERRED_ELECTIONS_PER_DECISION]:
            del self._preferred[topic_partition]
            draft.elect_preferred(topic_partition)

    def _deletion_writes(self) -> list[Write]:
        writes: list[Write] = [
            RemoveTopic(name, self.image.topics.get(name))
            for name, deletion in self.image.deletions.items()
            if deletion.done
        ]
        forgotten, self._forgotten = self._forgotten, {}
        writes.extend(ForgetDeletion(name) for name in forgotten)
        return writes

    # facts

    def _take(self, event: Event) -> None:
        match event:
            case BrokersRead():
                self._brokers_read(event)
            case TopicsRead():
                self._topics_read(event)
            case DeletionsRead():
                self._deletions_read(event)
            case ProducerIdsRead():
                self.image.producer_ids = event.found
            case UncleanRead():
                self._unclean_read(event)
            case PreferredElectionRead():
                self._preferred.update(dict.fromkeys(event.topic_partitions))
                self._election_requested = True
            case RebalanceDue():
                due = balance.out_of_balance(self.image, event.percentage)
                self._preferred.update(dict.fromkeys(due))
            case ReassignmentsRead():
                self.image.reassignments = event.found
                self._look_at_requests()
            case SweepDue():
                self._moves.update(self.image.moving)
                self._look_at_requests()
            case LeaderAndIsrAnswered():
                if self._is_current(event.broker_id, event.broker_epoch):
                    self._replicas_answered(event)
            case StopReplicaAnswered():
                if self._is_current(event.broker_id, event.broker_epoch):
                    self.image.apply(
                        ReplicasStopped(event.broker_id, tuple(event.topic_partitions))
                    )
                    self._look_at_moves(event.topic_partitions)

    def _is_current(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.broker_epoch == broker_epoch

    def _brokers_read(self, event: BrokersRead) -> None:
        changes = liveness.broker_changes(self.image.brokers, event.brokers)
        if not changes:
            return
        self.image.apply(BrokersChanged(event.brokers))
        self._brokers_changed = True
        for broker_id in (*changes.arrived, *changes.gone):
            for topic_partition in self.image.hosted_by(broker_id):
                self._dirty[topic_partition] = None
                self._shown[topic_partition] = None
            self._look_at_moves(self.image.hosted_by(broker_id))
        self._full.update(dict.fromkeys(changes.arrived))

    def _look_at_requests(self) -> None:
        self._requested = self._requested or self.image.reassignments is not None

    def _look_at_moves(self, topic_partitions: Iterable[TopicPartition]) -> None:
        moving = self.image.moving
        self._moves.update(dict.fromkeys(one for one in topic_partitions if one in moving))

    def _topics_read(self, event: TopicsRead) -> None:
        names = dict.fromkeys(event.names)
        for name in [*self.image.topics, *self.image.unreadable]:
            if name not in names:
                self.image.apply(TopicGone(name))
        for found in event.found:
            if isinstance(found, TopicFound) and found.topic.name in self.image.unreadable:
                # Brokers may have registered meanwhile, and were told nothing of its partitions.
                self._full.update(dict.fromkeys(self.image.brokers))
            self.image.apply(found)
            if isinstance(found, TopicFound):
                for topic_partition in found.topic.partitions():
                    self._dirty[topic_partition] = None
                    self._shown[topic_partition] = None
                for partition in found.topic.moves:
                    self._moves[TopicPartition(found.topic.name, partition)] = None
                    self._stopping[TopicPartition(found.topic.name, partition)] = None
        self._look_at_requests()

    def _deletions_read(self, event: DeletionsRead) -> None:
        for name in event.names:
            exists = name in self.image.topics or name in self.image.unreadable
            exists = exists and not is_internal_topic(name)
            if exists and self.settings.topic_defaults.deletion_enabled:
                self.image.apply(DeletionRequested(name))
            else:
                self._forgotten[name] = None

    def _unclean_read(self, event: UncleanRead) -> None:
        """Partitions without a leader may get one now (V13)."""
        if event.cluster is not None and event.cluster != self.settings.unclean:
            self.settings = replace(self.settings, unclean=event.cluster)
            for name, topic in self.image.topics.items():
                if topic.unclean is None:
                    self._look_at_leaderless(name)
        for name, unclean in event.topics.items():
            self.image.apply(UncleanChanged(name, unclean))
            if name in self.image.topics:
                self._look_at_leaderless(name)

    def _look_at_leaderless(self, name: str) -> None:
        for topic_partition in self.image.topics[name].partitions():
            state = self.image.states.get(topic_partition)
            if state is not None and state.leader == NO_LEADER:
                self._dirty[topic_partition] = None

    def _replicas_answered(self, event: LeaderAndIsrAnswered) -> None:
        for topic_partition, error in event.outcomes:
            state = self.image.states.get(topic_partition)
            if state is None:
                continue
            if error is ErrorCode.REPLICA_NOT_AVAILABLE:
                # Outside the ISR it makes the replica; that it had none says nothing there.
                news = event.broker_id in state.isr
            else:
                news = error is ErrorCode.NONE and bool(self.image.presence(topic_partition))
            if news:
                present = error is ErrorCode.NONE
                self.image.apply(ReplicaAnswered(topic_partition, event.broker_id, present))
                self._dirty[topic_partition] = None

    # effects

    def applied(self, decision: Decision, outcomes: Sequence[Outcome]) -> Effects:
        """The decision's writes are done, with these outcomes in their order."""
        if decision is not self._deciding:
            raise InvariantError("not the decision in flight")
        self._deciding = None
        effects = Effects({}, refused=decision.refused)
        conflicts: list[WritePartitionState] = []
        removed: list[str] = []
        published: list[tuple[TopicPartition, PartitionState]] = []
        reread: list[str] = []
        for write, outcome in zip(decision.writes, outcomes, strict=True):
            match write:
                case WritePartitionState():
                    self._state_written(write, outcome)
                    if isinstance(outcome, Conflict):
                        conflicts.append(write)
                    else:
                        published.append((write.topic_partition, write.state))
                case CreateTopic():
                    if isinstance(outcome, Written):
                        published.extend(self._topic_made(write, outcome))
                case AddPartitions():
                    if isinstance(outcome, Written):
                        published.extend(self._partitions_added(write, outcome))
                    else:
                        reread.append(write.growth.topic.name)
                case WriteAssignments():
                    if isinstance(outcome, Written):
                        effects.reassigned.extend(self._assigned(write, outcome))
                    else:
                        reread.append(write.topic.name)
                case KeepReassignments():
                    self._reassignments_kept(write, outcome)
                case QueueDeletion():
                    self.image.apply(DeletionRequested(write.name))
                    self._look_at_requests()
                case RemoveTopic():
                    self.image.apply(TopicGone(write.name))
                    removed.append(write.name)
                case TakeProducerIds():
                    self._producer_ids_taken(write, outcome)
        for topic_partition in decision.remade:
            self.image.apply(ReplicasRemade(topic_partition))
        effects.commands = self._commands(decision, published, conflicts)
        effects.published, effects.removed, effects.reread = published, removed, reread
        effects.answers = self._answers(decision, outcomes, removed)
        return effects

    def _state_written(self, write: WritePartitionState, outcome: Outcome) -> None:
        topic_partition = write.topic_partition
        if isinstance(outcome, Written):
            state = _modified_in(write.state, outcome.mzxid)
            self.image.apply(StatePublished(topic_partition, state))
            if write.is_new:
                self.image.apply(ReplicasRemade(topic_partition))
        elif outcome.state is not None:
            self.image.apply(StatePublished(topic_partition, outcome.state))
            self._dirty[topic_partition] = None
        else:
            self.image.apply(TopicUnreadable(topic_partition.topic, outcome.reason))
        if topic_partition in self.image.moving:
            self._moves[topic_partition] = None
            self._stopping[topic_partition] = None

    def _topic_made(
        self, write: CreateTopic, outcome: Written
    ) -> list[tuple[TopicPartition, PartitionState]]:
        topic = write.made.topic
        states = {
            partition: _modified_in(state, outcome.mzxid)
            for partition, state in write.made.states.items()
        }
        self.image.apply(TopicFound(topic, states))
        return [
            (TopicPartition(topic.name, partition), state) for partition, state in states.items()
        ]

    def _partitions_added(
        self, write: AddPartitions, outcome: Written
    ) -> list[tuple[TopicPartition, PartitionState]]:
        topic = write.growth.topic
        states = {
            partition: _modified_in(state, outcome.mzxid)
            for partition, state in write.growth.states.items()
        }
        self.image.apply(PartitionsAdded(topic, states))
        return [
            (TopicPartition(topic.name, partition), state) for partition, state in states.items()
        ]

    def _assigned(
        self, write: WriteAssignments, outcome: Written
    ) -> list[tuple[TopicPartition, tuple[int, ...]]]:
        """Take over a topic's node; returns the reassignments that are over with it."""
        topic = write.topic
        if topic.name not in self.image.topics:
            return []  # a state of it could not be read: it is left alone
        before = self.image.topics[topic.name].moves
        since = {
            partition: replace(topic.moves[partition], since_zxid=outcome.mzxid)
            for partition in write.begun
            if partition in topic.moves
        }
        self.image.apply(AssignmentsWritten(replace(topic, moves={**topic.moves, **since})))
        for partition in write.begun:
            topic_partition = TopicPartition(topic.name, partition)
            self._moves[topic_partition] = None
        ended = [partition for partition in before if partition not in topic.moves]
        if ended:
            self._look_at_requests()
        return [(TopicPartition(topic.name, one), topic.assignments[one]) for one in ended]

    def _reassignments_kept(self, write: KeepReassignments, outcome: Outcome) -> None:
        if isinstance(outcome, Conflict):
            # Somebody has changed the node: a watch tells, and it is read again.
            return
        found = ReassignmentsFound(write.expected_version + 1, write.entries)
        self.image.reassignments = found if write.entries else None

    def _producer_ids_taken(self, write: TakeProducerIds, outcome: Outcome) -> None:
        if isinstance(outcome, Written):
            self.image.apply(ProducerIdsFound(write.last, write.expected_version + 1))
        else:
            self.image.producer_ids = outcome.producer_ids

    def _commands(
        self,
        decision: Decision,
        published: Sequence[tuple[TopicPartition, PartitionState]],
        conflicts: Sequence[WritePartitionState],
    ) -> dict[int, Commands]:
        builder = CommandBuilder(self.image)
        writes = {
            write.topic_partition: write
            for write in decision.writes
            if isinstance(write, WritePartitionState)
        }
        for topic_partition, _ in published:
            builder.show(topic_partition)
            write = writes.get(topic_partition)
            if write is None:
                builder.tell_role(topic_partition, is_new=True)
            elif not write.asked_by_leader:
                builder.tell_role(topic_partition, write.is_new, write.new_replicas)
        for write in conflicts:
            builder.show(write.topic_partition)
            builder.tell_role(write.topic_partition, is_new=False)
        for topic_partition in decision.remade:
            builder.tell_role(topic_partition, is_new=True)
        for topic_partition in decision.shown:
            builder.show(topic_partition)
        self._command_deletions(builder)
        self._command_leaving(builder)
        for retell in decision.retold:
            builder.retell_role(retell.broker_id, retell.topic_partition, retell.is_new)
        if decision.brokers_changed:
            builder.tell_brokers()
        for broker_id in decision.full:
            builder.tell_everything(broker_id)
        return builder.build()

    def _command_deletions(self, builder: CommandBuilder) -> None:
        waiting = [
            name for name, deletion in self.image.deletions.items() if not deletion.commanded
        ]
        for name in waiting:
            told = builder.delete(name) if name in self.image.topics else {}
            self.image.apply(DeletionCommanded(name, told))

    def _command_leaving(self, builder: CommandBuilder) -> None:
        """Replicas that a reassignment takes away are told to go once the target is all there is;
        those on dead brokers are strays when they return (V52, V45)."""
        stopping, self._stopping = self._stopping, {}
        for topic_partition in stopping:
            deleting = self.image.is_deleting(topic_partition.topic)
            if self.image.is_completing(topic_partition) and not deleting:
                told = builder.leave(topic_partition)
                self.image.apply(LeavingCommanded(topic_partition, told))
                self._moves[topic_partition] = None

    def _answers(
        self, decision: Decision, outcomes: Sequence[Outcome], removed: Sequence[str]
    ) -> list[tuple[int, Any]]:
        answers: list[tuple[int, Any]] = [
            (answer.ticket, answer.message(outcomes)) for answer in decision.isr_answers
        ]
        for waiting in (
            decision.creation_answers,
            decision.growth_answers,
            decision.election_answers,
            decision.reassignment_answers,
        ):
            answers.extend((answer.ticket, answer.message(outcomes)) for answer in waiting)
        answers.extend(decision.ready_answers)
        index = decision.producer_id_write
        again = index is not None and isinstance(outcomes[index], Conflict)
        for producer_answer in decision.producer_id_answers:
            if again and producer_answer.error is ErrorCode.NONE:
                self._events.append(producer_answer.asked)
            else:
                answers.append((producer_answer.ticket, producer_answer.message()))
        answers.extend(self._deletion_answers(decision.deletion_answers, removed))
        return answers

    def _deletion_answers(
        self, new: Sequence[DeleteTopicsAnswer], removed: Sequence[str]
    ) -> list[tuple[int, Any]]:
        for answer in self._deleting:
            for name in removed:
                answer.waiting.pop(name, None)
        for answer in new:
            if answer.ticket in self._given_up:
                del self._given_up[answer.ticket]
                answer.give_up()
        waiting = [*self._deleting, *new]
        self._deleting = [answer for answer in waiting if answer.waiting]
        return [(answer.ticket, answer.message()) for answer in waiting if not answer.waiting]

    # for the model checker

    def copy(self) -> Controller:
        """An independent copy; a decision in flight is shared, as it does not change."""
        other = Controller(self.settings)
        other.image = self.image.copy()
        other._events = list(self._events)
        other._deciding = self._deciding
        other._dirty = dict(self._dirty)
        other._shown = dict(self._shown)
        other._full = dict(self._full)
        other._brokers_changed = self._brokers_changed
        other._forgotten = dict(self._forgotten)
        other._preferred = dict(self._preferred)
        other._election_requested = self._election_requested
        other._moves = dict(self._moves)
        other._stopping = dict(self._stopping)
        other._requested = self._requested
        other._deleting = [answer.copy() for answer in self._deleting]
        other._given_up = dict(self._given_up)
        return other

    def key(self) -> tuple[object, ...]:
        """Equal for controllers that go on alike; events and tickets are not told apart."""
        return (
            self.image.key(),
            tuple(self._dirty),
            tuple(self._full),
            tuple(self._preferred),
            self._election_requested,
            tuple(self._moves),
            tuple(self._stopping),
            self.settings.unclean,
            len(self._events),
            self._deciding is None,
        )


def _modified_in(state: PartitionState, mzxid: int) -> PartitionState:
    return replace(state, mzxid=mzxid)
