"""Brokers' answers to commands: replicas that exist, are missing or are stopped (D3, D4, V22, V52).

The controller ignores an answer that an earlier registration of the broker sent. A broker also
reports through the store that a log directory has failed. The controller then sends the broker all
its roles, and the broker's answers name the offline replicas (D4). A new controller sends full
commands, and so learns of offline replicas from the answers, too (D8).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.controller.agenda import Agenda
from tidelog.controller.draft import Draft
from tidelog.controller.events import Event
from tidelog.controller.image import Change, Image
from tidelog.controller.orders import SendRoleAgain
from tidelog.controller.records import NO_LOG, Presence
from tidelog.core import eligible_replicas
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition

#: Error codes which show that the replica exists. A Kafka broker responds STALE_CONTROLLER_EPOCH to
#: a role whose leader epoch it already knows.
_HAS_REPLICA = (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH)


@dataclass(frozen=True, slots=True)
class LeaderAndIsrAnswered(Event):
    """A broker's answer to LeaderAndIsr, per partition (D3)."""

    broker_id: int
    broker_epoch: int
    outcomes: Sequence[tuple[TopicPartition, ErrorCode]]


@dataclass(frozen=True, slots=True)
class StopReplicaAnswered(Event):
    """A broker's answer to StopReplica: the replicas that the broker has stopped (V22, V52)."""

    broker_id: int
    broker_epoch: int
    topic_partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class CommandsDropped(Event):
    """A broker must be sent a full command.

    The broker's backlog of commands grew so large that part of it was dropped (V81), or the broker
    has restored a stray replica and requested all commands (V35).
    """

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class LogDirEventsRead(Event):
    """Event: these brokers reported in the store that a log directory of theirs failed (D4)."""

    broker_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class ReplicaAnswered(Change):
    """A broker reported whether it has a replica (D3, D4), under its present registration."""

    topic_partition: TopicPartition
    broker_id: int
    presence: Presence

    def apply(self, image: Image) -> None:
        """Record the report; drop a partition's reports if every broker has its replica."""
        answers = image.presences.setdefault(self.topic_partition, {})
        answers[self.broker_id] = self.presence
        is_here = self.presence is Presence.HERE
        if all(found is Presence.HERE for found in answers.values()):
            del image.presences[self.topic_partition]
        if is_here and _reported_no_log(image, self.topic_partition, self.broker_id):
            # The replica is there again, for example because an operator restored it, so the
            # recovery asks the broker for the log end again (E6).
            del image.recoveries[self.topic_partition].logs[self.broker_id]


@dataclass(frozen=True, slots=True)
class ReplicasStopped(Change):
    """A broker acknowledged the StopReplica of replicas that were to be deleted."""

    broker_id: int
    topic_partitions: Sequence[TopicPartition]

    def apply(self, image: Image) -> None:
        """Record that the broker no longer has to acknowledge the deletion of these replicas."""
        for topic_partition in self.topic_partitions:
            image.leaving.get(topic_partition, {}).pop(self.broker_id, None)
            for ending in (
                image.deletions.get(topic_partition.topic),
                image.removals.get(topic_partition.topic),
            ):
                if ending is not None and self.broker_id in ending.waiting:
                    waiting = ending.waiting[self.broker_id]
                    waiting.pop(topic_partition, None)
                    if not waiting:
                        del ending.waiting[self.broker_id]


def role_answered(event: LeaderAndIsrAnswered, draft: Draft, agenda: Agenda) -> None:
    """Record which replicas a broker has; check the partitions whose replica presence changed.

    If a replica is missing that is neither in the ISR nor eligible, the broker may create it, but
    the answered command did not say so. The controller sends the role once more at once, because
    hours may pass before the next command.
    """
    image = draft.image
    if not _is_current(event.broker_id, event.broker_epoch, image):
        return
    for topic_partition, error in event.outcomes:
        state = image.states.get(topic_partition)
        if state is None:
            continue
        known = image.presence(topic_partition)
        before, presence = known.get(event.broker_id), Presence.HERE
        if error is ErrorCode.REPLICA_NOT_AVAILABLE:
            presence = Presence.LOST
            news = event.broker_id in eligible_replicas.members(state)
            if not news and event.broker_id in image.replicas(topic_partition):
                draft.order(SendRoleAgain(event.broker_id, topic_partition))
        elif error is ErrorCode.KAFKA_STORAGE_ERROR:
            presence = Presence.OFFLINE
            news = before is not presence
        else:
            news = error in _HAS_REPLICA and (
                bool(known) or _reported_no_log(image, topic_partition, event.broker_id)
            )
        if news:
            image.apply(ReplicaAnswered(topic_partition, event.broker_id, presence))
            agenda.look_at((topic_partition,))
            if Presence.OFFLINE in (presence, before):
                agenda.look_at_reassignments((topic_partition,), image)
                draft.show((topic_partition,))


def directory_failed(event: LogDirEventsRead, draft: Draft) -> None:
    """Send full commands to the given brokers, whose answers name the failed replicas (D4)."""
    draft.send_everything([each for each in event.broker_ids if each in draft.image.brokers])


def stop_answered(event: StopReplicaAnswered, image: Image, agenda: Agenda) -> None:
    """Record which replicas a broker has stopped."""
    if _is_current(event.broker_id, event.broker_epoch, image):
        image.apply(ReplicasStopped(event.broker_id, tuple(event.topic_partitions)))
        agenda.look_at_reassignments(event.topic_partitions, image)


def commands_dropped(event: CommandsDropped, draft: Draft) -> None:
    """Send a full command to the broker whose queued commands were dropped."""
    if _is_current(event.broker_id, event.broker_epoch, draft.image):
        draft.send_everything((event.broker_id,))


def _reported_no_log(image: Image, topic_partition: TopicPartition, broker_id: int) -> bool:
    """Return whether the broker has reported to a recovery under way that it has no log."""
    recovery = image.recoveries.get(topic_partition)
    return recovery is not None and recovery.logs.get(broker_id) == NO_LOG


def _is_current(broker_id: int, broker_epoch: int, image: Image) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.broker_epoch == broker_epoch
