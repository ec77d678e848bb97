"""Churn of reassignments: partitions move between brokers while clients work (V50).

The administrator uses requests and the reassignment node. After the faults every reassignment must
end. Then the topics' nodes list no adding or removing replicas, and the reassignment node is gone,
as is the node that cancels all.
Every broker that hosts a partition is one of its replicas (V52); replicas set aside do not count.
"""

from __future__ import annotations

import random
from typing import Final

from tidelog.client.moving import MoveAdmin
from tidelog.core.errors import ErrorCode
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.types import ReassignmentEntry, TopicPartition
from tidelog.metadata import layout
from tidelog.sim.workload.churning import ChurnKind, churn_of_profiles
from tidelog.sim.workload.work import Work

_BY_NODE: Final = 0.2
_BACK: Final = 0.15
_ALL_BACK: Final = 0.08
_OTHER_FACTOR: Final = 0.15


@churn_of_profiles
class PartitionsMoved(ChurnKind):
    """Moves of the steady partitions and of groups' partitions, some of them at once."""

    pause_ms = 30, 1_500

    def __init__(self, work: Work, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._moves = MoveAdmin(self.client.router)

    async def act(self) -> None:
        targets = {each: self._target() for each in self._some()}
        if self.draw.random() < _ALL_BACK:
            self._cancel_all()
        elif self.draw.random() < _BY_NODE:
            self._leave_in_the_store(targets)
        else:
            with self.tried("moves", forgets=True):
                asked = self._moves.reassign(targets, throttle=self._throttle())
                results = await self.client.run(asked)
                begun = [each for each in results if results[each].error is ErrorCode.NONE]
                if begun:
                    self.succeeded(f"{len(begun)} moves")

    def _throttle(self) -> int | None:
        """Return the throttle that goes with the next moves; None asks for none."""
        return None

    def _some(self) -> list[TopicPartition]:
        """Return some of the steady partitions and of those of groups."""
        movable = list(self.work.steady)
        topic = self.work.cluster.published.topics.get(CONSUMER_OFFSETS)
        if topic is not None:
            movable += [TopicPartition(topic.name, number) for number in topic.assignment]
        return self.draw.sample(movable, self.draw.randrange(1, len(movable) + 1))

    def _target(self) -> tuple[int, ...] | None:
        """Return other brokers, or the same in another order; None cancels a reassignment."""
        draw = self.draw
        if draw.random() < _BACK:
            return None
        count = self.work.replication_factor
        if draw.random() < _OTHER_FACTOR:
            count += draw.choice((-1, 1))
        brokers = list(self.work.cluster.brokers)
        return tuple(draw.sample(brokers, min(count, len(brokers))))

    def _cancel_all(self) -> None:
        """Create the node that cancels all reassignments (R2)."""
        store = self.work.cluster.store
        if store.is_available and store.tree.get(layout.CANCEL_REASSIGNMENTS) is None:
            store.write_from_outside(layout.CANCEL_REASSIGNMENTS, b"")
            self.succeeded("a cancel of all moves")

    def _leave_in_the_store(self, targets: dict[TopicPartition, tuple[int, ...] | None]) -> None:
        """Write the reassignment node if there is none, as Kafka's older tools did."""
        store = self.work.cluster.store
        path = layout.REASSIGN_PARTITIONS
        if store.is_available and store.tree.get(path) is None:
            entries = [
                ReassignmentEntry(each, target) for each, target in targets.items() if target
            ]
            store.write_from_outside(path, layout.encode_reassignments(entries))

    def unsettled(self) -> str:
        cluster = self.work.cluster
        for topic in cluster.published.topics.values():
            if topic.moving:
                return f"{topic.name}: partitions {sorted(topic.moving)} are being moved"
        for path in (layout.REASSIGN_PARTITIONS, layout.CANCEL_REASSIGNMENTS):
            if cluster.store.tree.get(path) is not None:
                return f"{path} is there"
        for node_id, node in cluster.brokers.items():
            for key in node.logs.logs:
                found = cluster.published.all_topics.get(key.topic_id)
                if found is None or found.deleted_zxid >= 0:
                    continue
                if node_id not in found.assignment.get(key.partition, ()):
                    return f"broker {node_id} has {found.name}-{key.partition}, which left it"
        return ""
