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
from typing import Any

from tidelog.controller import (
    adoption,
    removals,
    shutdowns,
)
from tidelog.controller.agenda import Agenda
from tidelog.controller.balance import Balance
from tidelog.controller.changes import (
    DeletionCommanded,
    LeavingCommanded,
    PartitionsClosed,
    RemovalCommanded,
    ReplicasRemade,
)
from tidelog.controller.commands import CommandBuilder, Commands
from tidelog.controller.decision import (
    Conflict,
    Decision,
    DeleteTopicsAnswer,
    ForgetDeletion,
    ForgetPreferredElection,
    Outcome,
    RemoveTopic,
    Write,
    WritePartitionState,
)
from tidelog.controller.draft import Draft, Settings
from tidelog.controller.events import (
    AdditionsRead,
    AlterPartitionAsked,
    CreatePartitionsAsked,
    CreateTopicsAsked,
    DeleteTopicsAsked,
    ElectLeadersAsked,
    Event,
    FormerRead,
    ProducerIdsAsked,
    ReassignmentsAsked,
    ReassignmentsListAsked,
    RemovePartitionsAsked,
)
from tidelog.controller.facts import Facts
from tidelog.controller.image import Image
from tidelog.controller.moving import MovingDraft
from tidelog.controller.outcomes import Effects, Outcomes
from tidelog.controller.shutdowns import HandOver, ShutdownAnswer
from tidelog.core.errors import ErrorCode, InvariantError
from tidelog.core.limits import MAX_PREFERRED_ELECTIONS_PER_DECISION
from tidelog.core.types import PartitionState, TopicPartition


class Controller:
    """Decides for the cluster; one per term of office."""

    def __init__(self, settings: Settings) -> None:
        self.image = Image()
        self._events: list[Event] = []
        self._deciding: Decision | None = None
        self._agenda = Agenda()
        self._facts = Facts(self.image, self._agenda, settings)
        self._deleting: list[DeleteTopicsAnswer] = []
        self._given_up: dict[int, None] = {}

    @property
    def settings(self) -> Settings:
        """What it was told when it took office, and since."""
        return self._facts.settings

    def offer(self, event: Event) -> None:
        """Queue an event."""
        self._events.append(event)

    @property
    def has_work(self) -> bool:
        """Whether `decide` would find anything to do."""
        return bool(
            self._events
            or self._agenda
            or any(d.done or not d.commanded for d in self.image.deletions.values())
            or removals.has_work(self.image)
        )

    @property
    def balance(self) -> Balance:
        """What is to go back to preferred replicas by itself, to be looked at."""
        return self._agenda.balance

    def wanted_former(self) -> list[TopicPartition]:
        """Partitions that are about to be added, and of which it is not known whether there were
        some of their number before: `FormerRead` must tell before they can be decided (V71)."""
        asked: dict[str, int] = {}
        told: dict[TopicPartition, PartitionState | None] = {}
        additions = [self._agenda.additions.wanted]
        for event in self._events:
            if isinstance(event, CreatePartitionsAsked):
                for one in event.request.topics:
                    asked[one.name] = max(one.count, asked.get(one.name, 0))
            elif isinstance(event, AdditionsRead):
                additions.append(event.wanted)
            elif isinstance(event, FormerRead):
                told.update(event.states)
        for wanted in additions:
            for name, partitions in wanted.items():
                asked[name] = max(asked.get(name, 0), *(one + 1 for one in partitions))
        unknown = adoption.unknown_numbers(asked, self.image)
        return [one for one in unknown if one not in told]

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
            self._facts.take(event)
        draft = Draft(self.image, self.settings)
        self._hand_over(draft.decision)
        self._remove_partitions(draft)
        dirty, self._agenda.dirty = self._agenda.dirty, {}
        for topic_partition in dirty:
            draft.elect(topic_partition)
        moving = MovingDraft(draft)
        self._requests(draft, moving, events)
        for name, wanted in self._agenda.additions.wanted.items():
            draft.add_requested(name, wanted, self._agenda.additions.seed)
        self._agenda.report_waiting(draft.waiting)
        if not self._agenda.full:
            # A new controller resumes them once its full commands are out (V41).
            self._bring_forward(moving)
        moving.close()
        self._give_back(draft)
        decision = draft.decision
        decision.reports[:0], self._agenda.reports = self._agenda.reports, []
        decision.writes.extend(self._deletion_writes())
        if self._agenda.election_requested and not self._agenda.preferred:
            self._agenda.election_requested = False
            decision.writes.append(ForgetPreferredElection())
        decision.shown.update(self._agenda.shown)
        self._agenda.shown = {}
        decision.full, self._agenda.full = tuple(self._agenda.full), {}
        decision.brokers_changed, self._agenda.brokers_changed = self._agenda.brokers_changed, False
        self._deciding = decision
        return decision

    def _remove_partitions(self, draft: Draft) -> None:
        """What is due for partitions on their way out, before anything else is decided of them."""
        for (topic_partition, is_removal), reason in self._agenda.refused.items():
            draft.refuse_request(topic_partition, reason, is_removal=is_removal)
        self._agenda.refused = {}
        for name in self.image.removals:
            draft.finish_removal(name)
            for topic_partition in removals.to_bury(name, self.image):
                draft.bury(topic_partition)

    def _bring_forward(self, moving: MovingDraft) -> None:
        looked_at, self._agenda.moves = self._agenda.moves, {}
        for topic_partition in looked_at:
            moving.advance(topic_partition)
        if self._agenda.requested:
            self._agenda.requested = False
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
                case RemovePartitionsAsked():
                    if not draft.remove_partitions(event):
                        self._events.append(event)
                case DeleteTopicsAsked():
                    draft.delete_topics(event)
                case ProducerIdsAsked():
                    producer_ids.append(event)
        draft.give_producer_ids(producer_ids)

    def _hand_over(self, decision: Decision) -> None:
        """Look at the next partitions of brokers that are leaving (V43)."""
        for broker_id, hand_over in list(self._agenda.hand_overs.items()):
            batch = shutdowns.next_batch(hand_over)
            self._agenda.dirty.update(dict.fromkeys(batch.partitions))
            if batch.are_followed:
                decision.stopped.extend((broker_id, one) for one in batch.partitions)
            if hand_over.is_done:
                decision.handed_over.append(self._agenda.hand_overs.pop(broker_id))
        decision.shutdown_answers, self._agenda.shutdown_answers = self._agenda.shutdown_answers, []

    def _give_back(self, draft: Draft) -> None:
        waiting = list(self._agenda.preferred)
        for topic_partition in waiting[:MAX_PREFERRED_ELECTIONS_PER_DECISION]:
            del self._agenda.preferred[topic_partition]
            draft.elect_preferred(topic_partition)

    def _deletion_writes(self) -> list[Write]:
        writes: list[Write] = [
            RemoveTopic(name, self.image.topics.get(name))
            for name, deletion in self.image.deletions.items()
            if deletion.done
        ]
        forgotten, self._agenda.forgotten = self._agenda.forgotten, {}
        writes.extend(ForgetDeletion(name) for name in forgotten)
        return writes

    # effects

    def applied(self, decision: Decision, outcomes: Sequence[Outcome]) -> Effects:
        """The decision's writes are done, with these outcomes in their order."""
        if decision is not self._deciding:
            raise InvariantError("not the decision in flight")
        self._deciding = None
        effects = Effects({}, refused=decision.refused, reports=decision.reports)
        taken = Outcomes(self.image, self._agenda, effects)
        taken.take(decision.writes, outcomes)
        for topic_partition in decision.remade:
            self.image.apply(ReplicasRemade(topic_partition))
        effects.unread = [
            name
            for name, deletion in self.image.deletions.items()
            if not deletion.commanded and name in self.image.unreadable
        ]
        effects.commands = self._commands(decision, effects.published, taken.conflicts)
        effects.gone, self._agenda.gone = self._agenda.gone, []
        effects.arrived, self._agenda.arrived = self._agenda.arrived, []
        effects.vanished, self._agenda.vanished = self._agenda.vanished, []
        effects.answers = self._answers(decision, outcomes, effects.removed)
        for hand_over in decision.handed_over:
            self._handed_over(hand_over, effects)
        return effects

    def _handed_over(self, hand_over: HandOver, effects: Effects) -> None:
        """Answer a broker that is leaving; what somebody else has changed is looked at again."""
        again = [
            one for one in self.image.hosted_by(hand_over.broker_id) if one in self._agenda.dirty
        ]
        if again:
            shutdowns.look_at(hand_over, self.image, again)
            self._agenda.hand_overs[hand_over.broker_id] = hand_over
            return
        left = shutdowns.remaining(self.image, hand_over.broker_id)
        effects.handed_over.append((hand_over.broker_id, left))
        effects.answers.extend(
            (ticket, ShutdownAnswer(ticket, remaining=left).message())
            for ticket in hand_over.tickets
        )

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
        for broker_id, topic_partition in decision.stopped:
            builder.stop_replica(broker_id, topic_partition)
        for topic_partition in decision.shown:
            builder.show(topic_partition)
        self._command_deletions(builder)
        self._command_leaving(builder)
        self._command_removals(builder)
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
            if name in self.image.unreadable:
                # Nobody knows who holds replicas of it: whoever does sets them aside (V35).
                for broker_id in self.image.brokers:
                    builder.tell_everything(broker_id)
            self.image.apply(DeletionCommanded(name, told))

    def _command_leaving(self, builder: CommandBuilder) -> None:
        """Replicas that a reassignment takes away are told to go once the target is all there is;
        those on dead brokers are strays when they return (V52, V45)."""
        stopping, self._agenda.stopping = self._agenda.stopping, {}
        for topic_partition in stopping:
            deleting = self.image.is_deleting(topic_partition.topic)
            if self.image.is_completing(topic_partition) and not deleting:
                told = builder.leave(topic_partition)
                self.image.apply(LeavingCommanded(topic_partition, told))
                self._agenda.moves[topic_partition] = None

    def _command_removals(self, builder: CommandBuilder) -> None:
        for name in list(self.image.removals):
            if name not in self.image.topics or self.image.is_deleting(name):
                continue
            removal = self.image.removals[name]
            closing = removals.to_close(name, self.image)
            for partition in dict.fromkeys((*closing, *removal.closed)):
                if partition not in closing or partition not in removal.closed:
                    builder.tell_role(TopicPartition(name, partition), is_new=False)
            due = removals.to_command(name, self.image)
            if due:
                told = builder.remove(due)
                numbers = tuple(one.partition for one in due)
                self.image.apply(RemovalCommanded(name, numbers, told))
            self.image.apply(PartitionsClosed(name, closing))

    def _answers(
        self, decision: Decision, outcomes: Sequence[Outcome], removed: Sequence[str]
    ) -> list[tuple[int, Any]]:
        answers: list[tuple[int, Any]] = [
            (answer.ticket, answer.message(outcomes)) for answer in decision.isr_answers
        ]
        for waiting in (
            decision.creation_answers,
            decision.growth_answers,
            decision.removal_answers,
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
        answers.extend((one.ticket, one.message()) for one in decision.shutdown_answers)
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
        other.image, other._agenda = self.image.copy(), self._agenda.copy()
        other._facts = Facts(other.image, other._agenda, self.settings)
        other._events = list(self._events)
        other._deciding = self._deciding
        other._deleting = [answer.copy() for answer in self._deleting]
        other._given_up = dict(self._given_up)
        return other

    def key(self) -> tuple[object, ...]:
        """Equal for controllers that go on alike; events and tickets are not told apart."""
        return (
            self.image.key(),
            self._agenda.key(),
            self.settings.unclean,
            len(self._events),
            self._deciding is None,
        )
