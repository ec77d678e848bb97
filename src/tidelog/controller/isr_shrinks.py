"""The causes why replicas are outside the ISR, as far as the controller knows (V10, V43, V62, D3).

A leader that removes replicas sends the causes with AlterPartition. If the controller itself
removes members, it derives the cause from its image. The image keeps the causes of replicas that
are still outside the ISR. The controller sends these causes to all brokers, so that operators see
them. The next controller does not know the causes; brokers keep the causes that they received.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidelog.controller import incarnations
from tidelog.controller.image import Image
from tidelog.controller.incarnations import Brokers
from tidelog.core.shrink_causes import ShrinkCause
from tidelog.core.types import PartitionState, TopicPartition

#: Replicas that left the ISR, with their causes, in the order of the previous ISR.
Shrinks = tuple[tuple[int, ShrinkCause], ...]


def keep_causes(
    image: Image, topic_partition: TopicPartition, isr: Collection[int], shrinks: Shrinks
) -> None:
    """Record in the image why replicas are outside `isr`.

    `shrinks` has the replicas that have just left the ISR; causes of replicas that are in the ISR
    again are dropped.
    """
    known = image.shrinks.get(topic_partition)
    if not known and not shrinks:
        return
    replicas = image.assigned(topic_partition)
    after = {
        replica: cause
        for replica, cause in (*(known or {}).items(), *shrinks)
        if replica not in isr and replica in replicas
    }
    if after:
        image.shrinks[topic_partition] = after
    else:
        image.shrinks.pop(topic_partition, None)


def shrinks(
    before: PartitionState | None,
    after: PartitionState,
    replicas: Sequence[int],
    brokers: Brokers,
    *,
    ended: Mapping[int, bool],
    absent: Collection[int] = (),
    offline: Collection[int] = (),
    reported: Mapping[int, ShrinkCause] | None = None,
) -> Shrinks:
    """Return the replicas that are in the ISR of `before` but not of `after`, with the causes.

    `ended` are the brokers whose registration ended; the value is True if it ended by a controlled
    shutdown. `absent` are live brokers that reported their replica missing or offline. `offline`
    are the brokers of `absent` whose log directory has failed. `reported` are the causes that the
    leader sent. The result omits replicas that are no longer assigned.
    """
    if before is None:
        return ()
    left = [member for member in before.isr if member not in after.isr and member in replicas]
    if not left:
        return ()
    named = reported or {}
    return tuple(
        [
            (
                member,
                named.get(member)
                or _cause_of_move(member, after)
                or _cause(member, before, brokers, ended, absent, offline),
            )
            for member in left
        ]
    )


def _cause_of_move(member: int, after: PartitionState) -> ShrinkCause:
    """Return MOVED for a replica that a completed reassignment removes (V52), else UNKNOWN."""
    leaves = after.reassigned_to and member not in after.reassigned_to
    return ShrinkCause.MOVED if leaves else ShrinkCause.UNKNOWN


def _cause(
    member: int,
    before: PartitionState,
    brokers: Brokers,
    ended: Mapping[int, bool],
    absent: Collection[int],
    offline: Collection[int],
) -> ShrinkCause:
    broker = brokers.get(member)
    if broker is None:
        return ShrinkCause.SHUTDOWN if ended.get(member) else ShrinkCause.SESSION
    if broker.is_leaving:
        return ShrinkCause.SHUTDOWN
    if member in offline:
        return ShrinkCause.OFFLINE
    if member in absent:
        return ShrinkCause.DISK
    has_restarted = member in incarnations.restarted_members(before, brokers)
    return ShrinkCause.BOUNCE if has_restarted else ShrinkCause.UNKNOWN
