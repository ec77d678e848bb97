"""The controller: events in, a decision out, effects once the decision is durable (V1, V2).

`offer` queues events; `decide` takes all queued events and returns one `Decision`. When the
decision's writes are done, `applied` changes the image and returns the messages and answers to
send. At most one decision is in flight. Events that arrive while a decision is in flight are
queued; the next decision handles all of them together (DESIGN.md, rule 6).

The image changes only when `decide` begins and in `applied`, and is read-only otherwise. Readings
of the store and answers of brokers are facts: `decide` applies them to the image before it decides.
`applied` enters the finished writes into the image, then what brokers will be commanded to do, and
builds the commands last. Elections are level-triggered: the decision about a partition depends on
the image alone. A conflict in the store, a new controller and a repeated event therefore need no
code of their own (V15, V41).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from tidelog.controller import producer_ids, registrations, replica_answers
from tidelog.controller.agenda import Agenda
from tidelog.controller.answers import Precedence
from tidelog.controller.command_builder import CommandBuilder
from tidelog.controller.commands import Commands
from tidelog.controller.decision import Decision, Effects
from tidelog.controller.draft import Draft
from tidelog.controller.elections import leaders, preferred, recoveries, relinquishing
from tidelog.controller.elections.balance import Balance
from tidelog.controller.events import Event
from tidelog.controller.image import Image
from tidelog.controller.orders import Order
from tidelog.controller.partitions import (
    addition,
    alter_partition,
    expansions,
    isr_changes,
    refusals,
    removal,
)
from tidelog.controller.reassignments import (
    cancelling,
    listing,
    pausing,
    progress,
    queueing,
    requests,
    stored,
    stored_nodes,
)
from tidelog.controller.registrations import Registrations
from tidelog.controller.settings import ControllerSettings
from tidelog.controller.settlement import Settlement
from tidelog.controller.shutdowns import ControlledShutdownAsked, Shutdowns
from tidelog.controller.topics import creation, deletion, readings
from tidelog.controller.writes import Outcome
from tidelog.core.errors import InvariantError
from tidelog.core.types import TopicPartition


class Controller:
    """The decisions of one controller term, for the whole cluster."""

    def __init__(self, settings: ControllerSettings) -> None:
        self.image = Image()
        #: The controller's configuration at the beginning of the term, with later changes applied.
        self.settings = settings
        self._events: list[Event] = []
        self._deciding: Decision | None = None
        self._agenda = Agenda()
        # Each of the following objects keeps the state of one concern (deletions, shutdowns, ...)
        # between decisions.
        self._registrations = Registrations()
        self._deletions = deletion.Deletions()
        self._additions = addition.Additions()
        self._preferred = preferred.PreferredElections()
        self._shutdowns = Shutdowns()
        self._expansions = expansions.HeldExpansions()

    def offer(self, event: Event) -> None:
        """Queue an event."""
        self._events.append(event)

    @property
    def has_work(self) -> bool:
        """Return whether an event or a due check waits for `decide`."""
        return bool(
            self._events
            or self._agenda
            or self._preferred
            or self._shutdowns
            or deletion.has_work(self.image)
            or removal.has_work(self.image)
        )

    @property
    def balance(self) -> Balance:
        """The leaderships that automatic elections still have to return to preferred replicas."""
        return self._preferred.balance

    def wanted_former(self) -> list[TopicPartition]:
        """Return partitions that are about to be added and whose former incarnations are unknown.

        The former states of the returned partitions must be read (`FormerRead`) before `decide`
        (V71).
        """
        return self._additions.wanted_former(self._events, self.image)

    def give_up(self, ticket: int) -> Any | None:
        """Return the answer to a DeleteTopics request whose timeout is over.

        Returns None if no decision has served the request yet. The decision that serves the request
        then also gives the answer.
        """
        return self._deletions.give_up(ticket)

    # deciding

    def decide(self) -> Decision:
        """Decide about all queued events; the caller writes the decision, then calls `applied`."""
        if self._deciding is not None:
            raise InvariantError("a decision is in flight")
        events, self._events = self._events, []
        draft = Draft(self.image, self.settings)
        refused = refusals.RefusedRequests()
        for event in events:
            self._learn(event, draft, refused)
        draft.settings = self.settings
        with self.image.read_only():
            self._decide(draft, events, refused)
        self._deciding = draft.close()
        return self._deciding

    def _learn(self, event: Event, draft: Draft, refused: refusals.RefusedRequests) -> None:
        """Apply an event to the image if it is a fact, not a request of a client or broker."""
        image, agenda = self.image, self._agenda
        match event:
            case registrations.BrokersRead():
                changes = self._registrations.read(event, draft, agenda)
                ended = (*changes.arrived, *changes.gone)
                self._shutdowns.registrations_over(ended, draft)
                agenda.look_at_requests(image)
            case readings.TopicsRead():
                readings.topics_read(event, draft, agenda)
            case readings.StatesRead():
                readings.states_read(event, draft, agenda)
            case isr_changes.IsrChangesRead():
                isr_changes.isr_changes_read(event, draft, agenda)
            case deletion.DeletionsRead():
                self._deletions.read(event, draft)
            case removal.RemovalsRead():
                refused.removals(removal.removals_read(event, image))
            case removal.DrainRead():
                removal.drain_read(event, image)
            case addition.AdditionsRead():
                self._additions.read(event)
            case addition.FormerRead():
                image.apply(addition.FormerFound(event.states))
            case refusals.RequestsUnreadable():
                refused.unreadable(event)
            case producer_ids.ProducerIdsRead():
                image.apply(producer_ids.ProducerIdsFound(event.found))
            case leaders.UncleanRead():
                self.settings = leaders.unclean_read(event, image, agenda, self.settings)
            case leaders.MinimumRead():
                self.settings = leaders.minimum_read(event, image, agenda, self.settings)
            case queueing.QueueLimitsRead():
                self.settings = queueing.limits_read(event, image, agenda, self.settings)
            case recoveries.RecoveryWaitOver():
                recoveries.wait_over(event, image, agenda)
            case recoveries.LogEndsReported():
                recoveries.log_ends_reported(event, image, agenda)
            case preferred.PreferredElectionRead():
                self._preferred.read(event)
            case preferred.RebalanceDue():
                self._preferred.rebalance(event, image)
            case relinquishing.RelinquishAsked():
                relinquishing.note_reports(event, image, self.balance)
            case preferred.RebalanceStepDue():
                self._preferred.step(image)
            case stored_nodes.ReassignmentsRead():
                stored_nodes.requests_read(event, image, agenda)
            case stored_nodes.RoutesRead():
                stored_nodes.routes_read(event, image, agenda)
            case cancelling.CancelRead():
                cancelling.cancel_read(event, image, agenda)
            case progress.SweepDue():
                progress.sweep(image, agenda)
            case ControlledShutdownAsked():
                self._shutdowns.begin(event, draft)
            case replica_answers.LeaderAndIsrAnswered():
                replica_answers.role_answered(event, draft, agenda)
            case replica_answers.LogDirEventsRead():
                replica_answers.directory_failed(event, draft)
            case replica_answers.StopReplicaAnswered():
                replica_answers.stop_answered(event, image, agenda)
            case replica_answers.CommandsDropped():
                replica_answers.commands_dropped(event, draft)

    def _decide(
        self, draft: Draft, events: Sequence[Event], refused: refusals.RefusedRequests
    ) -> None:
        """Check the agenda's partitions, then serve requests; later steps see earlier results."""
        self._shutdowns.look_at_next(draft, self._agenda)
        refused.write(draft)
        removal.write_due(draft)
        looked_at, self._agenda.partitions = self._agenda.partitions, {}
        for topic_partition in looked_at:
            leaders.look_at(topic_partition, draft)
        reassignments = progress.ReassignmentsDraft(draft)
        nodes = stored.StoredRequests(reassignments)
        self._serve(draft, requests.ReassignmentRequests(reassignments, nodes), events)
        self._additions.write(draft)
        if not draft.full:
            # A new controller continues reassignments only after it has sent full commands (V41).
            self._advance(reassignments, nodes)
        nodes.close()
        reassignments.close()
        self._preferred.write(draft)
        self._deletions.write(draft)
        self._preferred.write_end(draft)

    def _serve(
        self,
        draft: Draft,
        reassignments: requests.ReassignmentRequests,
        events: Sequence[Event],
    ) -> None:
        """Serve requests; requests that conflict with this decision wait for the next decision."""
        names: creation.TakenNames | None = None
        for event in events:
            # Elections come first, because AlterPartition requests are judged by the leaders that
            # this decision elects.
            if isinstance(event, leaders.ElectLeadersAsked):
                leaders.elect_leaders(event, draft, self.balance)
            elif isinstance(event, relinquishing.RelinquishAsked):
                relinquishing.relinquish(event, draft, self.balance)
        for event in events:
            match event:
                case requests.ReassignmentsAsked():
                    if not reassignments.serve(event):
                        self._events.append(event)
        for event in events:
            match event:
                case alter_partition.AlterPartitionAsked():
                    alter_partition.alter_partitions(event, self._expansions, draft)
                case expansions.ExpansionsDue():
                    alter_partition.alter_held(self._expansions, draft)
                case creation.CreateTopicsAsked():
                    names = names or creation.TakenNames(self.image)
                    creation.create_topics(event, draft, names)
                case addition.CreatePartitionsAsked():
                    if not addition.create_partitions(event, draft):
                        self._events.append(event)
                case listing.ReassignmentsListAsked():
                    listing.list_reassignments(event, draft)
                case removal.RemovePartitionsAsked():
                    if not removal.remove_partitions(event, draft):
                        self._events.append(event)
                case deletion.DeleteTopicsAsked():
                    self._deletions.delete_topics(event, draft)
        asked = [event for event in events if isinstance(event, producer_ids.ProducerIdsAsked)]
        producer_ids.give_producer_ids(asked, draft)

    def _advance(
        self,
        reassignments: progress.ReassignmentsDraft,
        nodes: stored.StoredRequests,
    ) -> None:
        agenda = self._agenda
        looked_at, agenda.reassignments = agenda.reassignments, {}
        for topic_partition in looked_at:
            reassignments.advance(topic_partition)
        if agenda.has_requests:
            nodes.look_at_requests()
            nodes.look_at_accepted()
            nodes.look_at_node()
            queueing.Queue(reassignments, nodes).look_at()
            agenda.has_requests = cancelling.look_at_cancel(reassignments)

    # effects

    def applied(self, decision: Decision, outcomes: Sequence[Outcome]) -> Effects:
        """Apply the decision; `outcomes` are the results of its writes, in order of the writes."""
        if decision is not self._deciding:
            raise InvariantError("not the decision in flight")
        self._deciding = None
        settlement = Settlement(self.image, self._agenda, decision.orders, decision.notices)
        for write, outcome in zip(decision.writes, outcomes, strict=True):
            write.settle(outcome, settlement)
        leaders.settle(settlement)
        self._deletions.settle(settlement)
        progress.settle(settlement)
        pausing.settle(settlement)
        removal.settle(settlement)
        with self.image.read_only():
            commands = self._commands(settlement.orders)
            answers = self._answers(decision, outcomes, settlement)
        return Effects(commands, answers, settlement.notices)

    def _commands(self, orders: Sequence[Order]) -> dict[int, Commands]:
        builder = CommandBuilder(self.image)
        for order in sorted(orders, key=attrgetter("rank")):
            order.give(builder)
        return builder.build()

    def _answers(
        self, decision: Decision, outcomes: Sequence[Outcome], settlement: Settlement
    ) -> list[tuple[int, Any]]:
        answers: list[tuple[int, Any]] = []
        shutdowns: list[tuple[int, Any]] = []
        for answer in sorted(decision.answers, key=attrgetter("precedence")):
            if answer.again is not None and answer.is_due_again(outcomes):
                self._events.append(answer.again)
            elif answer.precedence is Precedence.CONTROLLED_SHUTDOWN:
                shutdowns.append((answer.ticket, answer.message(outcomes)))
            else:
                answers.append((answer.ticket, answer.message(outcomes)))
        removed = settlement.notices.of(deletion.TopicRemoved)
        answers += self._deletions.answers(removed)
        return [*answers, *shutdowns, *self._shutdowns.settle(settlement)]

    # for the model checker

    def copy(self) -> Controller:
        """Return an independent copy; a decision in flight is shared, as it does not change."""
        other = Controller(self.settings)
        other.image, other._agenda = self.image.copy(), self._agenda.copy()
        other._registrations = self._registrations.copy()
        other._deletions = self._deletions.copy()
        other._additions = self._additions.copy()
        other._preferred = self._preferred.copy()
        other._shutdowns = self._shutdowns.copy()
        other._expansions = self._expansions.copy()
        other._events = list(self._events)
        other._deciding = self._deciding
        return other

    def key(self) -> tuple[object, ...]:
        """Return a hashable form for the model checker; equal forms mean equal next decisions.

        The returned form leaves out queued events and the numbers (tickets) of requests.
        """
        return (
            self.image.key(),
            self._agenda.key(),
            self._preferred.key(),
            self._shutdowns.key(),
            self._expansions.key(),
            self.settings.unclean,
            self.settings.min_insync_replicas,
            self.settings.concurrent_reassignments,
            self.settings.concurrent_reassignments_per_broker,
            len(self._events),
            self._deciding is None,
        )
