"""Churn of reassignments: partitions move between brokers while clients work (V50).

The administrator uses requests and the reassignment node. After the faults every reassignment must
end. Then the topics' nodes list no adding or removing replicas, and the reassignment node is gone,
as is the node that cancels all.
Every broker that hosts a partition is one of its replicas (V52); replicas set aside do not count.
"""

from __future__ import annotations

import random
from typing import ClassVar, Final

from tidelog.client.moving import MoveAdmin
from tidelog.core.errors import ErrorCode, TidelogError
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.types import ReassignmentEntry, TopicPartition
from tidelog.metadata import layout
from tidelog.sim.workload.churning import ChurnKind, Work, churn

_BY_NODE: Final = 0.2
_BACK: Final = 0.15
_ALL_BACK: Final = 0.08
_OTHER_FACTOR: Final = 0.15


@churn
class PartitionsMoved(ChurnKind):
    """Moves of the steady partitions and of groups' partitions, some of them at once."""

    name: ClassVar[str] = "partitions_moved"
    is_drawn: ClassVar[bool] = False

    def __init__(self, work: Work, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._admin = MoveAdmin(self.client.router)

    async def run(self) -> None:
        while not self.stopping:
            await self.pause(30, 1_500)
            movable = [*self.work.steady, *self._of_groups()]
            partitions = self.draw.sample(movable, self.draw.randrange(1, len(movable) + 1))
            targets = {each: self._target(each) for each in partitions}
            if self.draw.random() < _ALL_BACK:
                self._cancel_all()
                continue
            if self.draw.random() < _BY_NODE:
                self._leave_in_the_store(targets)
                continue
            try:
                asked = self._admin.reassign(targets, throttle=self._throttle())
                results = await self.client.run(asked)
            except TidelogError as error:
                self.failed("moves", error)
                self.client.router.forget()
                continue
            begun = [each for each in results if results[each].error is ErrorCode.NONE]
            if begun:
                self.succeeded(f"{len(begun)} moves")
        await self._stopped()
        self.is_done = True

    def _throttle(self) -> int | None:
        """Return the throttle that goes with the next moves; None asks for none."""
        return None

    async def _stopped(self) -> None:
        """Put right what keeps moves from their end."""

    def _of_groups(self) -> list[TopicPartition]:
        topic = self.work.cluster.published.topics.get(CONSUMER_OFFSETS)
        if topic is None:
            return []
        return [TopicPartition(topic.name, number) for number in topic.assignment]

    def _target(self, partition: TopicPartition) -> tuple[int, ...] | None:
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
