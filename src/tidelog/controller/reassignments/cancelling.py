"""Cancellation of all reassignments by `/admin/cancel_reassignment_in_progress` (R2, R5, R6, R19).

By creating this node (the cancel node), an operator cancels every reassignment under way that can
still be rolled back. The controller first writes the topics' nodes with the reassignments rolled
back. When every reassignment is being rolled back or cannot be cancelled, the controller removes
the cancel node, and reports the reassignments that cannot be cancelled. While the cancel node
exists, no reassignment begins, and entries of `/admin/reassign_partitions` are dropped. If a
controller dies during the cancellation, the next controller thus continues it.
"""

from __future__ import annotations

from tidelog.controller.agenda import Agenda
from tidelog.controller.events import Event
from tidelog.controller.image import Change, Image
from tidelog.controller.reassignments import targets, transitions
from tidelog.controller.reassignments.progress import ReassignmentsDraft
from tidelog.controller.settlement import Settlement
from tidelog.controller.writes import Outcome, Write
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import KafkaError
from tidelog.core.types import TopicPartition


@dataclass(frozen=True, slots=True)
class CancelRead(Event):
    """Event: the controller read whether `/admin/cancel_reassignment_in_progress` exists (R2)."""

    is_requested: bool


@dataclass(frozen=True, slots=True)
class CancelSkipped:
    """Notice: a cancellation of all reassignments cannot roll back this reassignment (R6)."""

    topic_partition: TopicPartition
    reason: str


@dataclass(frozen=True, slots=True)
class CancelEnded:
    """Notice: each reassignment is rolled back, or cannot be cancelled."""

    #: Number of reassignments that return to their original replicas.
    count: int


@dataclass(frozen=True, slots=True)
class CancelFound(Change):
    """Change: the node that cancels all reassignments (R2) was created or removed."""

    is_requested: bool

    def apply(self, image: Image) -> None:
        """Record in the image whether the cancel node exists."""
        image.cancels_all = self.is_requested


@dataclass(frozen=True, slots=True)
class ForgetCancel(Write):
    """Remove `/admin/cancel_reassignment_in_progress`: no reassignment is left to roll back."""

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Let reassignments begin again, even if another writer removed the cancel node."""
        settlement.apply(CancelFound(is_requested=False))


def cancel_read(event: CancelRead, image: Image, agenda: Agenda) -> None:
    """Record whether an operator requests the cancellation of all reassignments."""
    image.apply(CancelFound(event.is_requested))
    agenda.look_at_requests(image)


def look_at_cancel(reassignments: ReassignmentsDraft) -> bool:
    """Roll all reassignments back; return whether a later decision must check them again.

    A later check is necessary if this decision rolls any reassignment back or changes it otherwise.
    The last check reports the reassignments that cannot be rolled back, and removes the cancel
    node.
    """
    draft = reassignments.draft
    image = draft.image
    if not image.cancels_all:
        return False
    is_unfinished, count = False, 0
    skipped: list[CancelSkipped] = []
    for topic_partition in sorted(image.moving):
        move = image.move(topic_partition)
        assert move is not None
        if transitions.goes_back(image.assigned(topic_partition), move):
            count += 1
        elif image.is_completing(topic_partition) or image.is_deleting(topic_partition.topic):
            continue
        elif not reassignments.is_free(topic_partition):
            is_unfinished = True
        else:
            try:
                original = targets.original_of(topic_partition, image)
                # If a topic's node was edited by hand, a reassignment may already have its original
                # replicas as target, and still add some of them.
                is_begun = reassignments.begin(topic_partition, original) is not None
                is_unfinished = is_unfinished or is_begun
                count += not is_begun
            except KafkaError as error:
                skipped.append(CancelSkipped(topic_partition, error.message))
    if is_unfinished:
        return True
    for skip in skipped:
        draft.notice(skip)
    draft.notice(CancelEnded(count))
    draft.add(ForgetCancel())
    return False
