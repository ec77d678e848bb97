"""Checks of reassignments in the store: targets, original replicas and results (R3, R10, V52).

A reassignment must end with the replicas of its target, in the target's order; a cancelled
reassignment must end with its original replicas. The node keeps the original replicas when the
target changes. When a reassignment ends, at least as many replicas as the effective
`min.insync.replicas` have the committed records, or all that had them before if these were fewer.

An entry leaves the queue of reassignments (R8) only when its reassignment is active or done;
otherwise the death of the controller could lose the reassignment. An entry also leaves the queue if
a newer request names its partition, if all reassignments are cancelled, or if the partition is
gone. After a client got the response that reassignments are frozen, no partition gets a new target,
except its original replicas (R11).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tidelog.core.types import TopicPartition
from tidelog.metadata.store import Create, Delete, Op, OpResult, SetData

_QUEUE: Final = "/admin/reassign_partitions_queue"
_FREEZE: Final = "/admin/reassign_cancel"
_CANCEL: Final = "/admin/cancel_reassignment_in_progress"
#: Time in ns after a request without a response during which the request may still be carried out.
_OPEN_NS: Final = 4_000_000_000

Replicas = tuple[int, ...]


class PublishedMove(NamedTuple):
    """A reassignment as a topic's node describes it."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]
    #: The original replicas; empty if the topic's node does not record them.
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
    """Yield (partition, error) for each reassignment that a write of the topic's node changes
    wrongly.
    """
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
            continue  # the replicas are the same, so there is nothing to check
        if assigned_now[number] != target:
            yield number, f"its reassignment to {target} ended with {assigned_now[number]} (V52)"
        elif not move.adding and set(target) == set(move.original) and target != move.original:
            yield number, f"it was moved back to {target}, it began as {move.original} (R3)"


class MoveQueue:
    """The queue of reassignments, whether reassignments are frozen, and clients' requests for
    both.
    """

    def __init__(
        self,
        violate: Callable[[str], None],
        now_ns: Callable[[], int],
        target: Callable[[TopicPartition], Replicas | None],
    ) -> None:
        """`target` returns a partition's target replicas, or its current replicas if it is not
        being reassigned; None if the partition does not exist.
        """
        self._violate = violate
        self._now_ns = now_ns
        self._target = target
        #: The entries of the reassignment queue's store node, as last written.
        self.entries: dict[TopicPartition, Replicas] = {}
        #: Time of each partition's last reassignment request that came through a store node, or
        #: that got no response.
        self._asked_ns: dict[TopicPartition, int] = {}
        #: Number of open reassignment requests of clients, by partition.
        self._open: Counter[TopicPartition] = Counter()
        #: By the path of a store node that requests reassignments, its partitions. A controller may
        #: carry out the request at any later time.
        self._nodes: dict[str, tuple[TopicPartition, ...]] = {}
        self._cancelled_ns = -_OPEN_NS
        #: Whether a client got the response that reassignments are frozen, so that no reassignment
        #: may begin.
        self.is_frozen = False

    # requests of clients and administrators

    def asking(self, partitions: Iterable[TopicPartition]) -> None:
        """Note a reassignment request that came through the store, or got no response: it may take
        effect later.
        """
        self._asked_ns.update(dict.fromkeys(partitions, self._now_ns()))

    def node_asks(self, path: str, partitions: Iterable[TopicPartition]) -> None:
        """Note a store node that requests reassignments; an empty node requests cancellation."""
        self._nodes[path] = tuple(partitions)

    def opened(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that a client has sent a request for reassignments that does not go through the
        queue.
        """
        self._open.update(list(partitions))

    def answered(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that a client's request for reassignments has had its effect, or has failed."""
        self._open.subtract(list(partitions))

    # what the store holds

    def committed(self, ops: Sequence[Op], results: Sequence[OpResult]) -> None:
        """Follow the changes that a transaction makes to nodes other than topic nodes."""
        for op, result in zip(ops, results, strict=True):
            asked = self._nodes.pop(result.path, None) if isinstance(op, Delete) else None
            if asked is not None:
                # The controller deleted a node that requested moves. It may write these moves into
                # the queue later, in a separate transaction.
                self.asking(asked)
            if result.path == _CANCEL:
                self._cancelled_ns = self._now_ns()
            elif result.path == _QUEUE:
                self._queue_changed(op)
            elif result.path == _FREEZE and isinstance(op, Delete):
                self.is_frozen = False

    def _queue_changed(self, op: Op) -> None:
        left: dict[TopicPartition, Replicas] = {}
        if isinstance(op, Create | SetData):
            left = {
                TopicPartition(each["topic"], each["partition"]): tuple(each["replicas"])
                for each in json.loads(op.data)["partitions"]
            }
        for partition, replicas in self.entries.items():
            if left.get(partition) != replicas:
                self._removed(partition, replicas)
        self.entries = left

    def _removed(self, partition: TopicPartition, replicas: Replicas) -> None:
        target = self._target(partition)
        if target == replicas:
            return
        if self._open[partition] > 0 or _CANCEL in self._nodes:
            return
        if any(partition in asked for asked in self._nodes.values()):
            return
        recently = self._now_ns() - _OPEN_NS
        asked_ns = max(self._asked_ns.get(partition, -_OPEN_NS), self._cancelled_ns)
        if target is not None and asked_ns < recently:
            self._violate(
                f"the queued move of {partition} to {replicas} left the queue before it was active:"
                f" the partition is at, or goes to, {target} (R8)"
            )

    def reassigned(
        self,
        partition: TopicPartition,
        before: tuple[Replicas, PublishedMove | None],
        after: tuple[Replicas, PublishedMove | None],
    ) -> None:
        """Check that a partition gets no new target while reassignments are frozen (R11)."""
        if not self.is_frozen:
            return
        goes, went = target_of(*after), target_of(*before)
        move = before[1]
        if goes != went and (move is None or goes != move.original):
            self._violate(
                f"{partition}, on its way to {went}, goes to {goes} while reassignments are frozen"
                " (R11)"
            )


def target_of(replicas: Replicas, move: PublishedMove | None) -> Replicas:
    """Return the target replicas of a partition; its current replicas if it is not moving."""
    leaving = () if move is None else move.removing
    return tuple(each for each in replicas if each not in leaving)
