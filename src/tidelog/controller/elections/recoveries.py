"""Recoveries by proof of leaderless partitions: the wait, and requests for log ends (E6).

A recovery begins when enough members of a leaderless partition are registered and none of them is
proven to have all committed records. A recovery ends with the controller's term: the next
controller begins another recovery.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from tidelog.controller.agenda import Agenda
from tidelog.controller.command_builder import CommandBuilder
from tidelog.controller.draft import Draft
from tidelog.controller.elections import recovery
from tidelog.controller.elections.circumstances import Circumstances
from tidelog.controller.elections.recovery import RecoveryPlan
from tidelog.controller.events import Event
from tidelog.controller.image import Change, Image
from tidelog.controller.orders import Order, Rank
from tidelog.controller.records import LogEnd, Recovery
from tidelog.controller.settlement import Settlement
from tidelog.core.dataclass import dataclass
from tidelog.core.types import NO_LEADER, PartitionState, TopicPartition


@dataclass(frozen=True, slots=True)
class RecoveryWaitOver(Event):
    """Event: leader.recovery.wait.ms has passed since the recoveries of these partitions began."""

    begun: Sequence[RecoveryBegun]


@dataclass(frozen=True, slots=True)
class LogEndsReported(Event):
    """A broker's answer to GetReplicaLogInfo."""

    broker_id: int
    broker_epoch: int
    logs: Mapping[TopicPartition, LogEnd]


class RecoveryBegun(NamedTuple):
    """A recovery by proof begins; the caller sets a timer for its wait for unregistered members.

    The serial number distinguishes a recovery from a later recovery of the same partition. The
    leader epoch cannot distinguish recoveries, because a reassignment raises it during a recovery.
    """

    topic_partition: TopicPartition
    serial: int


@dataclass(frozen=True, slots=True)
class LeaderAwaited:
    """Notice: a partition has no leader, and no registered replica provably has all records."""

    topic_partition: TopicPartition
    plan: RecoveryPlan
    #: The leader before this wait; -1 if none is recorded.
    last_leader: int


@dataclass(frozen=True, slots=True)
class AskForLogEnd(Order):
    """A request to a broker for its log end of a partition."""

    broker_id: int
    topic_partition: TopicPartition

    rank: ClassVar[Rank] = Rank.LOG_END

    def give(self, builder: CommandBuilder) -> None:
        """Add the request for the log end to the broker's commands."""
        builder.ask_for_log_end(self.broker_id, self.topic_partition)


@dataclass(frozen=True, slots=True)
class RecoveryStarted(Change):
    """Change: the recovery of a partition without a leader has begun."""

    topic_partition: TopicPartition
    serial: int

    def apply(self, image: Image) -> None:
        """Add the recovery, unless the partition has a leader again or is gone."""
        image.next_recovery = max(image.next_recovery, self.serial + 1)
        state = image.states.get(self.topic_partition)
        if state is not None and state.leader == NO_LEADER:
            image.recoveries.setdefault(self.topic_partition, Recovery(self.serial))


@dataclass(frozen=True, slots=True)
class RecoveryDue(Change):
    """Change: leader.recovery.wait.ms has passed since a recovery began."""

    topic_partition: TopicPartition

    def apply(self, image: Image) -> None:
        """Mark the next step of the recovery as due, unless the recovery is over."""
        found = image.recoveries.get(self.topic_partition)
        if found is not None:
            found.is_due = True


@dataclass(frozen=True, slots=True)
class LogEndAsked(Change):
    """Change: the controller asks a broker for its log end of a partition."""

    topic_partition: TopicPartition
    broker_id: int

    def apply(self, image: Image) -> None:
        """Record that the broker was asked for its log end, so that it is asked only once."""
        found = image.recoveries.get(self.topic_partition)
        if found is not None and self.broker_id in image.brokers:
            found.asked[self.broker_id] = None


@dataclass(frozen=True, slots=True)
class LogEndFound(Change):
    """Change: a broker has reported its log end of a partition."""

    topic_partition: TopicPartition
    broker_id: int
    log_end: LogEnd

    def apply(self, image: Image) -> None:
        """Keep the log end while the broker is registered, unless the recovery is over."""
        found = image.recoveries.get(self.topic_partition)
        if found is not None:
            found.asked.pop(self.broker_id, None)
            found.logs[self.broker_id] = self.log_end


def go_on(
    topic_partition: TopicPartition,
    state: PartitionState,
    around: Circumstances,
    draft: Draft,
    *,
    is_news: bool,
) -> None:
    """Take the next step of the recovery of a partition without a leader.

    `is_news` means that this decision publishes the state without a leader.
    """
    plan = recovery.plan(state, around)
    begins = plan.is_under_way and around.recovery is None
    if is_news or begins:
        draft.notice(LeaderAwaited(topic_partition, plan, state.last_leader))
    if begins:
        draft.notice(RecoveryBegun(topic_partition, draft.image.next_recovery))
    asked = () if around.recovery is None else around.recovery.asked
    for broker_id in plan.asked:
        if broker_id not in asked:
            draft.order(AskForLogEnd(broker_id, topic_partition))


def settle(settlement: Settlement) -> None:
    """Record the recoveries that begin, and the brokers that are asked for log ends."""
    for begun in settlement.notices.of(RecoveryBegun):
        settlement.apply(RecoveryStarted(*begun))
    for order in settlement.orders:
        if isinstance(order, AskForLogEnd):
            settlement.apply(LogEndAsked(order.topic_partition, order.broker_id))


def wait_over(event: RecoveryWaitOver, image: Image, agenda: Agenda) -> None:
    """Mark recoveries as due: the controller no longer waits for unregistered members."""
    for topic_partition, serial in event.begun:
        found = image.recoveries.get(topic_partition)
        if found is not None and found.serial == serial:
            image.apply(RecoveryDue(topic_partition))
            agenda.look_at((topic_partition,))


def log_ends_reported(event: LogEndsReported, image: Image, agenda: Agenda) -> None:
    """Record the log ends that a broker reported."""
    broker = image.brokers.get(event.broker_id)
    if broker is None or broker.broker_epoch != event.broker_epoch:
        return
    for topic_partition, log_end in event.logs.items():
        if topic_partition in image.recoveries:
            image.apply(LogEndFound(topic_partition, event.broker_id, log_end))
            agenda.look_at((topic_partition,))
