"""Reassignments with a rule broken, which `ReassignmentModel` must find broken (R3, R6, R10, V52).

Each variant has the smallest bounds that let its defect show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from tests.support.models.reassignment_states import Bounds
from tests.support.models.variants import Variant
from tests.support.mutants import MUTANTS, Mutant

from tidelog.controller.command_builder import CommandBuilder
from tidelog.controller.reassignments import transitions
from tidelog.controller.reassignments.progress import DeleteReassignedReplicas, ReassignmentsDraft
from tidelog.core.types import TopicPartition


def _put(name: str, target: str, make: Callable[[Any], Any]) -> Mutant:
    return Mutant(name, "", "", (f"tidelog.controller.{target}",), make)


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


_BEGIN: Final = "reassignments.progress:ReassignmentsDraft.begin"
_DEAD_ORIGINAL: Final = Bounds((1,), (2, 3), controller_deaths=0, mortal=1)
_SECOND: Final = Bounds(second=(2, 3), controller_deaths=0)
#: What is broken, and the bounds at which it shows.
REASSIGNMENT_VARIANTS: Final[Mapping[str, tuple[Variant, Bounds]]] = {
    variant.name: (variant, bounds)
    for variant, bounds in (
        (
            Variant("node_before_state", (MUTANTS["completion_order_reversed"],), ("LeaderInIsr",)),
            Bounds(controller_deaths=0, cancels=False),
        ),
        (
            Variant(
                "old_replicas_not_awaited", (MUTANTS["old_replicas_not_awaited"],), ("NodeLast",)
            ),
            Bounds(cancels=False, controller_deaths=0),
        ),
        (
            Variant(
                "complete_with_the_first_in_sync",
                (MUTANTS["complete_with_the_first_in_sync"],),
                ("StrongIsr",),
            ),
            Bounds(controller_deaths=0, cancels=False),
        ),
        (
            Variant("originals_lost", (MUTANTS["originals_lost_on_a_second_target"],), ("Exact",)),
            _SECOND,
        ),
        (
            Variant(
                "leader_dropped_in_flight",
                (_put("dropped", "reassignments.transitions:toward", _dropped_with_its_target),),
                ("LeaderInIsr",),
            ),
            _SECOND,
        ),
        (
            Variant(
                "removed_replicas_in_roles",
                (_put("roles", "command_builder:CommandBuilder._new_role", _roles_of_everybody),),
                ("NothingLeft",),
            ),
            Bounds(controller_deaths=0),
        ),
        (
            Variant(
                "deleted_before_the_shrink",
                (_put("deleted", _BEGIN, _deleted_at_once),),
                ("StrongIsr",),
            ),
            Bounds(controller_deaths=0),
        ),
        (
            Variant("cancel_not_written", (_put("unwritten", _BEGIN, _in_one_go),), ("Exact",)),
            Bounds(controller_deaths=0),
        ),
        (
            Variant(
                "cancel_without_an_original_in_sync",
                (
                    _put(
                        "rash",
                        "reassignments.targets:check_stays_online",
                        lambda _: lambda topic_partition, original, image: None,
                    ),
                ),
                ("CancelStaysOnline",),
            ),
            _DEAD_ORIGINAL,
        ),
    )
}  # fmt: skip
