"""Pauses of reassignments whose partition has too few in-sync replicas.

Replicas that a reassignment adds compete with followers for the leader's disk and network. While
fewer replicas than min.insync.replicas are in sync, the added replicas therefore do not copy
(`reassignment.auto.pause.enable`). A reassignment may pause only if enough replicas were in sync
when it began. A reassignment does not pause while an original replica is offline: the offline
replica, not the copying, shrank the ISR, and the ISR needs the added replicas.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.controller import records
from tidelog.controller.cluster_events import StateChange
from tidelog.controller.image import Change, Image
from tidelog.controller.orders import SendRoleAgain
from tidelog.controller.records import Move
from tidelog.controller.settlement import Settlement
from tidelog.core.dataclass import dataclass
from tidelog.core.types import PartitionState, TopicPartition


@dataclass(frozen=True, slots=True)
class MovePaused:
    """Notice: the added replicas of a reassignment stop copying, or copy again.

    `reason` is empty if the replicas copy again.
    """

    topic_partition: TopicPartition
    reason: str


@dataclass(frozen=True, slots=True)
class PauseFound(Change):
    """Brokers are commanded to pause a reassignment, or to continue it."""

    topic_partition: TopicPartition
    reason: str

    def apply(self, image: Image) -> None:
        """Record why the reassignment pauses, or that it continues."""
        if self.reason:
            image.paused[self.topic_partition] = self.reason
        else:
            image.paused.pop(self.topic_partition, None)


def is_guarded(state: PartitionState | None, minimum: int) -> bool:
    """Return whether a reassignment that begins now may pause, as enough replicas are in sync."""
    return state is not None and len(state.isr) >= minimum


def reason_to_pause(topic_partition: TopicPartition, image: Image, minimum: int) -> str:
    """Return why a reassignment's added replicas should not copy now; "" if they may copy.

    `minimum` is the effective minimum of the original replicas.
    """
    move, state = image.move(topic_partition), image.states.get(topic_partition)
    if move is None or state is None or not _may_pause(topic_partition, move, image):
        return ""
    if len(state.isr) >= minimum:
        return ""
    return f"its ISR {list(state.isr)} is below min.insync.replicas, which is {minimum}"


def _may_pause(topic_partition: TopicPartition, move: Move, image: Image) -> bool:
    assigned, absent = image.assigned(topic_partition), image.absent(topic_partition)
    if not move.is_guarded or not move.adding or image.is_completing(topic_partition):
        return False
    return all(
        replica in image.brokers and replica not in absent
        for replica in records.before(assigned, move)
    )


def settle(settlement: Settlement) -> None:
    """Command added replicas to pause or to continue copying, as this decision requires.

    A replica that leaves the ISR stops copying if its reassignment pauses, or if its reassignment
    no longer needs the replica (R10). The leader proposed the removal from the ISR, so the leader
    gets no command.
    """
    image = settlement.image
    for paused in settlement.notices.of(MovePaused):
        move = image.move(paused.topic_partition)
        assert move is not None, f"it has ended by the same decision: {paused}"
        settlement.apply(PauseFound(paused.topic_partition, paused.reason))
        settlement.orders.extend(roles_of_idle(paused.topic_partition, move.adding, image))
    for change in settlement.notices.of(StateChange):
        if change.topic_partition in image.moving:
            idled = _idled_by(change, image)
            settlement.orders.extend(roles_of_idle(change.topic_partition, idled, image))


def roles_of_idle(
    topic_partition: TopicPartition, replicas: Sequence[int], image: Image
) -> list[SendRoleAgain]:
    """Return orders to send roles that make `replicas` stop copying, or copy again.

    The leader gets its role, too: it must not add to the ISR a replica that has stopped copying.
    """
    state = image.states.get(topic_partition)
    if not replicas or state is None:
        return []
    brokers = [each for each in (state.leader, *replicas) if each in image.brokers]
    return [SendRoleAgain(broker_id, topic_partition) for broker_id in brokers]


def _idled_by(change: StateChange, image: Image) -> list[int]:
    """Return the replicas that a new partition state makes stop copying, or copy again."""
    topic_partition, before = change.topic_partition, change.before
    move, state = image.move(topic_partition), image.states.get(topic_partition)
    if move is None or before is None or state is None or image.is_completing(topic_partition):
        return []
    assigned, is_paused = image.assigned(topic_partition), topic_partition in image.paused
    earlier = records.idle(assigned, move, before, is_paused)
    now = records.idle(assigned, move, state, is_paused)
    return [each for each in assigned if (each in earlier) != (each in now)]
