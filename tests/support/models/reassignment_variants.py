"""Reassignments with a rule broken, which `ReassignmentModel` must find broken (R3, R6, R10, V52).

Each variant has the smallest bounds that let its defect show.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tests.support.models.reassignment_states import Bounds
from tests.support.models.variants import by_name, variant

from tidelog.controller.command_builder import CommandBuilder
from tidelog.controller.reassignments import transitions
from tidelog.controller.reassignments.progress import DeleteReassignedReplicas, ReassignmentsDraft
from tidelog.core.types import TopicPartition


def _roles_of_everybody(original: Any) -> Any:
    """Roles of a cancelled reassignment name the replicas that it removes, too (breaks R3)."""

    def new_role(builder: CommandBuilder, topic_partition: TopicPartition, is_new: bool) -> Any:
        role = original(builder, topic_partition, is_new)
        assigned = builder._image.assigned(topic_partition)
        move = builder._image.move(topic_partition)
        if move is None or not transitions.goes_back(assigned, move):
            return role
        return role._replace(state=replace(role.state, replicas=assigned))

    return new_role


def _deleted_at_once(original: Any) -> Any:
    """A cancel deletes what the reassignment added before the ISR is without it (breaks R3)."""

    def begin(
        draft: ReassignmentsDraft,
        topic_partition: TopicPartition,
        target: tuple[int, ...],
        throttle: int | None = None,
    ) -> Any:
        image = draft._image
        move, assigned = image.move(topic_partition), image.assigned(topic_partition)
        write = original(draft, topic_partition, target, throttle)
        if move is not None and target == move.original:
            gone = [each for each in assigned if each not in target and each in image.brokers]
            epoch = image.states[topic_partition].leader_epoch
            draft.draft.order(DeleteReassignedReplicas(topic_partition, gone, epoch))
        return write

    return begin


def _dropped_with_its_target(original: Any) -> Any:
    """Another target drops at once whatever only the earlier target had added (breaks R10)."""

    def toward(target: Any, replicas: Any, move: Any, throttle: int = 0) -> Any:
        full, begun = original(target, replicas, move, throttle)
        if begun is None or move is None or target == move.original:
            return full, begun
        kept = tuple(each for each in full if each in target or each not in move.adding)
        adding = tuple(each for each in begun.adding if each in kept)
        removing = tuple(each for each in kept if each not in target)
        return kept, replace(begun, adding=adding, removing=removing)

    return toward


def _in_one_go(original: Any) -> Any:
    """A cancel is answered, and written nowhere before its state is (breaks R3, R14)."""

    def begin(
        draft: ReassignmentsDraft,
        topic_partition: TopicPartition,
        target: tuple[int, ...],
        throttle: int | None = None,
    ) -> Any:
        move = draft._image.move(topic_partition)
        if move is not None and target == move.original:
            return None
        return original(draft, topic_partition, target, throttle)

    return begin


_BEGIN: Final = "tidelog.controller.reassignments.progress:ReassignmentsDraft.begin"
_ONE_CONTROLLER: Final = Bounds(controller_deaths=0)
_COMPLETED: Final = Bounds(controller_deaths=0, cancels=False)
_SECOND: Final = Bounds(second=(2, 3), controller_deaths=0)
#: Variants of `ReassignmentModel`.
REASSIGNMENT_VARIANTS: Final = by_name(
    variant("node_before_state", ("LeaderInIsr",), "completion_order_reversed", bounds=_COMPLETED),
    variant(
        "old_replicas_not_awaited", ("NodeLast",), "old_replicas_not_awaited", bounds=_COMPLETED
    ),
    variant(
        "complete_with_the_first_in_sync",
        ("StrongIsr",),
        "complete_with_the_first_in_sync",
        bounds=_COMPLETED,
    ),
    variant("originals_lost", ("Exact",), "originals_lost_on_a_second_target", bounds=_SECOND),
    variant(
        "leader_dropped_in_flight",
        ("LeaderInIsr",),
        ("tidelog.controller.reassignments.transitions:toward", _dropped_with_its_target),
        bounds=_SECOND,
    ),
    variant(
        "removed_replicas_in_roles",
        ("NothingLeft",),
        ("tidelog.controller.command_builder:CommandBuilder._new_role", _roles_of_everybody),
        bounds=_ONE_CONTROLLER,
    ),
    variant(
        "deleted_before_the_shrink",
        ("StrongIsr",),
        (_BEGIN, _deleted_at_once),
        bounds=_ONE_CONTROLLER,
    ),
    variant("cancel_not_written", ("Exact",), (_BEGIN, _in_one_go), bounds=_ONE_CONTROLLER),
    variant(
        "cancel_without_an_original_in_sync",
        ("CancelStaysOnline",),
        (
            "tidelog.controller.reassignments.targets:check_stays_online",
            lambda _: lambda topic_partition, original, image: None,
        ),
        bounds=Bounds((1,), (2, 3), controller_deaths=0, mortal=1),
    ),
)
