"""Checks of reassignments as the store sees them: their targets, originals and ends (R3, R10, V52).

A reassignment ends with the replicas of its target, in that order; a cancelled one with exactly the
replicas of which it began. The original replicas stay recorded, whatever the targets. The state
that ends one leaves no fewer copies of committed records than the minimum asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol


class PublishedMove(NamedTuple):
    """A reassignment as a topic's node describes it."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]
    #: Empty where the node does not record it.
    original: tuple[int, ...]


def moves_of(value: Mapping[str, Any]) -> dict[int, PublishedMove]:
    """Return the reassignments of a topic's node, by partition."""
    adding, removing, original = (
        {int(number): tuple(replicas) for number, replicas in (value.get(key) or {}).items()}
        for key in ("adding_replicas", "removing_replicas", "original_replicas")
    )
    return {
        number: PublishedMove(
            adding.get(number, ()), removing.get(number, ()), original.get(number, ())
        )
        for number in {**adding, **removing}
    }


def wrong_changes(
    before: Mapping[int, PublishedMove],
    after: Mapping[int, PublishedMove],
    assigned: Mapping[int, tuple[int, ...]],
    assigned_now: Mapping[int, tuple[int, ...]],
) -> Iterator[tuple[int, str]]:
    """Yield (partition, fault) for each reassignment that a write of the topic's node breaks."""
    for number, move in before.items():
        if number not in assigned_now:
            continue
        if number in after:
            original = after[number].original
            if move.original and original != move.original:
                yield number, f"its original replicas {move.original} became {original} (R10)"
            continue
        target = tuple(replica for replica in assigned[number] if replica not in move.removing)
        if set(assigned_now[number]) == set(assigned[number]):
            continue  # another target, of the same replicas: nothing was removed
        if assigned_now[number] != target:
            yield number, f"its reassignment to {target} ended with {assigned_now[number]} (V52)"
        elif not move.adding and set(target) == set(move.original) and target != move.original:
            yield number, f"it was moved back to {target}, it began as {move.original} (R3)"


class MoveMembers(Protocol):
    """A partition's published state, as far as the end of a reassignment concerns it."""

    @property
    def members(self) -> tuple[int, ...]:
        """The ISR with the eligible replicas: every committed record is on all of them."""

    @property
    def reassigned_to(self) -> tuple[int, ...]:
        """The target that a reassignment has come down to (V52)."""


def copies_lost(before: MoveMembers, after: MoveMembers, minimum: int) -> str:
    """Return what is wrong with the state that ends a reassignment, empty where nothing is (R3)."""
    target = after.reassigned_to
    if (
        not target
        or before.reassigned_to
        or len(after.members) >= min(minimum, len(before.members))
    ):
        return ""
    return (
        f"the reassignment to {target} ends with copies of committed records on {after.members}, of"
        f" {before.members}, where {minimum} are the minimum (R3)"
    )
