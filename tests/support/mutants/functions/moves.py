"""Mutants of reassignments.

Each removes one step of the order in which a move completes.
"""

from __future__ import annotations

from typing import Any, Final

from tests.support.mutants.mutant import mutant

from tidelog.core.types import NO_LEADER

_PROFILE: Final = "reassignments"
_QUEUED: Final = "queued_moves"


@mutant(
    "V52", "tidelog.controller.reassignments.progress:ReassignmentsDraft.advance", profile=_PROFILE
)
def completion_order_reversed(original: Any) -> Any:
    """The controller writes the topic's node as soon as the target is in sync, before the ISR
    shrinks and the old replicas are stopped.
    """

    def advance(self: Any, topic_partition: Any) -> None:
        image = self._image
        move, state = image.move(topic_partition), image.states.get(topic_partition)
        if move is not None and state is not None and self.is_free(topic_partition):
            target = tuple(
                one for one in image.assigned(topic_partition) if one not in move.removing
            )
            if state.leader != NO_LEADER and all(one in state.isr for one in target):
                self._end(topic_partition, target)
                return
        original(self, topic_partition)

    return advance


@mutant(
    "V52",
    "tidelog.controller.image:Image.replicas",
    "tidelog.controller.reassignments.progress:departing",
    profile=_PROFILE,
)
def old_replica_readded(_replicas: Any, _departing: Any) -> Any:
    """While a reassignment completes, leaders and the controller still count the old replicas as
    assigned: they rejoin the ISR, and are then deleted.
    """

    def departing(topic_partition: Any, image: Any) -> tuple[int, ...]:
        return tuple(one for one in image.move(topic_partition).removing if one in image.brokers)

    return (lambda self, topic_partition: self.assigned(topic_partition), departing)


@mutant("V51", "tidelog.controller.reassignments.transitions:completed", profile=_PROFILE)
def complete_with_the_first_in_sync(original: Any) -> Any:
    """A reassignment completes when one replica of the target is in sync."""

    def completed(state: Any, target: Any, brokers: Any, absent: Any, controller_epoch: int) -> Any:
        there = tuple(one for one in target if one in state.isr and one in brokers)
        done = original(state, there, brokers, absent, controller_epoch) if there else None
        if done is None:
            return None
        return type(done)(
            **{
                name: getattr(done, name)
                for name in done.__slots__
                if name not in ("isr", "isr_epochs", "reassigned_to")
            },
            isr=target,
            isr_epochs=tuple(brokers[one].broker_epoch if one in brokers else -1 for one in target),
            reassigned_to=target,
        )

    return completed


@mutant("R3", "tidelog.controller.reassignments.transitions:rolled_back", profile=_PROFILE)
def cancel_below_the_minimum(original: Any) -> Any:
    """A cancel ends while the originals are fewer copies of committed records than the minimum."""

    def rolled_back(
        state: Any, replicas: Any, brokers: Any, absent: Any, minimum: int, controller_epoch: int
    ) -> Any:
        return original(state, replicas, brokers, absent, 0, controller_epoch)

    return rolled_back


@mutant(
    "R10",
    "tidelog.controller.reassignments.transitions:without_unwanted",
    profile="swarm",
    world="moves_redirected",
)
def dropped_replica_stays_in_sync(_: Any) -> Any:
    """A replica that another target drops stays in the ISR until the move ends: acks=all waits."""
    return lambda *arguments: None


@mutant("R10", "tidelog.controller.records:unwanted", profile="swarm", world="moves_redirected")
def dropped_replica_rejoins(_: Any) -> Any:
    """A replica that another target drops goes on copying, and joins the ISR again."""
    return lambda replicas, move: ()


@mutant("R8", "tidelog.controller.reassignments.queueing:Queue._look_at", profile=_QUEUED)
def queue_entry_removed_before_it_is_active(original: Any) -> Any:
    """The controller removes an entry of the queue by the decision that begins its move: the
    queue's node may be written before the topic's node, or without it.
    """

    def look_at(self: Any, *entry: Any) -> bool:
        return bool(original(self, *entry)) and not self._draft.reassigned

    return look_at


@mutant("R16", "tidelog.controller.reassignments.pausing:reason_to_pause", profile=_QUEUED)
def paused_move_never_goes_on(original: Any) -> Any:
    """A move that has paused once stays so when enough replicas are in sync again."""

    def reason_to_pause(topic_partition: Any, image: Any, minimum: int) -> Any:
        return image.paused.get(topic_partition) or original(topic_partition, image, minimum)

    return reason_to_pause
