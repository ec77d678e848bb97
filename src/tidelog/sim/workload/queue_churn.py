"""Reassignments that are queued, frozen, or requested by nodes below /admin (R8, R11, R12, R20).

Clients and an administrator use every way to request a move, several at a time. After the faults
reassignments are unfrozen; then every queued and every requested move must be carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.core.types import ReassignmentEntry, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.store import Create, Op
from tidelog.sim.workload.churning import churn_of_profiles
from tidelog.sim.workload.move_churn import PartitionsMoved

#: What the client does next, chosen at random: each action with its weight.
_ACTS: Final = {
    "queue": 6.0, "queue_by_node": 2.0, "freeze": 3.0, "freeze_by_node": 1.0, "request": 3.0,
    "single": 2.0, "move": 2.0, "cancel": 1.5, "cancel_all": 1.0, "wait": 4.0,
}  # fmt: skip
#: Share of the request nodes that get a child node, which they should not have.
_BELOW: Final = 0.3


@churn_of_profiles
class MovesQueued(PartitionsMoved):
    """Reassignments that are queued, frozen, and requested by store nodes."""

    pause_ms = 30, 1_200

    async def act(self) -> None:
        [act] = self.draw.choices([*_ACTS], [*_ACTS.values()])
        with self.tried(act, forgets=True):
            await self._act(act)

    async def finish(self) -> None:
        self._thaw()

    async def _act(self, act: str) -> None:
        match act:
            case "queue":
                await self._asks(self._targets(), queued=True)
            case "queue_by_node":
                self._queue_by_node(self._targets())
            case "freeze":
                await self._freeze()
            case "freeze_by_node":
                await self._freeze_by_node()
            case "request":
                self._request(self._targets())
            case "single":
                self._request_one(*next(iter(self._targets().items())))
            case "move":
                await self._asks(self._targets(), queued=False)
            case "cancel":
                await self._asks(dict.fromkeys(self._targets()), queued=False)
            case "cancel_all":
                self._cancel_all()
            case _:
                await self.pause(500, 4_500)

    def _targets(self) -> dict[TopicPartition, tuple[int, ...]]:
        partitions, brokers = self._some(), list(self.work.cluster.brokers)
        count = min(self.work.replication_factor, len(brokers))
        return {each: tuple(self.draw.sample(brokers, count)) for each in partitions}

    async def _asks(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None], *, queued: bool
    ) -> None:
        begun = await self._reassign(targets, queued=queued)
        if begun:
            self.succeeded(f"{len(begun)} moves {'queued' if queued else 'asked for'}")

    def _queue_by_node(self, targets: dict[TopicPartition, tuple[int, ...]]) -> None:
        entries = [ReassignmentEntry(each, target) for each, target in targets.items()]
        data = layout.encode_reassignments(entries)
        if self._write(Create(layout.REASSIGNMENT_QUEUE, data)):
            self._queue.entries = dict(targets)

    async def _freeze(self) -> None:
        await self.client.run(self._moves.freeze(True))
        self._queue.is_frozen = True
        self.succeeded("a freeze")
        await self.pause(100, 1_500)
        # Send a request while reassignments are frozen; the controller must reject it.
        await self._asks(self._targets(), queued=False)
        await self.pause(100, 1_500)
        self._queue.is_frozen = False
        await self.client.run(self._moves.freeze(False))

    async def _freeze_by_node(self) -> None:
        if self._write(Create(layout.FREEZE_REASSIGNMENTS, b"")):
            await self.pause(100, 3_000)
            self._thaw()

    def _thaw(self) -> None:
        self._queue.is_frozen = False
        store = self.work.cluster.store
        if store.tree.get(layout.FREEZE_REASSIGNMENTS) is not None:
            store.delete_from_outside(layout.FREEZE_REASSIGNMENTS)

    def _request(self, targets: dict[TopicPartition, tuple[int, ...]]) -> None:
        data = layout.encode_reassignment_request(targets)
        root = layout.REASSIGNMENT_REQUESTS
        tree = self.work.cluster.store.tree
        before = dict.fromkeys(tree.children(root) or ())
        if self._write(Create(layout.REASSIGNMENT_REQUEST_PREFIX, data, sequence=True)):
            [name] = [each for each in tree.children(root) or () if each not in before]
            self._queue.node_asks(f"{root}/{name}", targets)

    def _request_one(self, partition: TopicPartition, target: tuple[int, ...]) -> None:
        parent = f"{layout.PARTITIONS_REASSIGNED}/{partition.topic}"
        path = layout.partition_reassigned_path(partition)
        tree = self.work.cluster.store.tree
        ops: list[Op] = [] if tree.get(parent) is not None else [Create(parent, b"")]
        ops.append(Create(path, layout.encode_partition_reassigned(target)))
        if self._write(*ops):
            self._queue.node_asks(path, [partition])
            if self.draw.random() < _BELOW:
                self._write(Create(f"{path}/below", b""))

    def _write(self, *ops: Op) -> bool:
        """Create store nodes; return False if the last of them exists already, or the store is
        unavailable.
        """
        store = self.work.cluster.store
        if not store.is_available or store.tree.get(ops[-1].path) is not None:
            return False
        store.edit_from_outside(ops)
        self.succeeded(ops[-1].path)
        return True

    def unsettled(self) -> str:
        tree = self.work.cluster.store.tree
        for path in (layout.REASSIGNMENT_QUEUE, layout.FREEZE_REASSIGNMENTS):
            if tree.get(path) is not None:
                return f"{path} is there"
        for path in (
            layout.REASSIGNMENT_REQUESTS,
            layout.PARTITIONS_REASSIGNED,
            layout.REASSIGNMENTS,
        ):
            if tree.children(path):
                return f"{path} has {tree.children(path)}"
        return super().unsettled()
