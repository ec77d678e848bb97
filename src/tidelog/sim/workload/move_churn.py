"""Reassignments: partitions move between brokers while clients work (V50).

The administrator requests reassignments by requests to brokers, or by the store node with which
Kafka's old tool requests them. After the faults every reassignment must end. At the end, the
topics' nodes list no adding or removing replicas, and the nodes that request or cancel
reassignments are gone. A broker must host no partition to which it is not assigned (V52), except
strays.

Throttles of moves and of brokers (R4, R15), which are rates and lists of replicas, are set, changed
and removed while partitions move. As `kafka-reassign-partitions --throttle` does, the administrator
lists replicas by topic and sets rates by broker, also on stopped brokers. The rates are so low that
replicas wait for the throttle. At the end all throttles are removed, and no broker may throttle any
replica.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.client.configs import BROKER, TOPIC, ConfigResource
from tidelog.client.moving import MoveAdmin
from tidelog.core.errors import ErrorCode, TidelogError
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.throttle_keys import THROTTLE_RATES, UNLIMITED
from tidelog.core.types import ReassignmentEntry, TopicPartition
from tidelog.metadata import layout
from tidelog.sim.workload.churning import ChurnKind, churn_of_profiles
from tidelog.sim.workload.work import Workload
from tidelog.wire.messages.alter_partition_reassignments import NO_THROTTLE

_BY_NODE: Final = 0.2
_BACK: Final = 0.15
_ALL_BACK: Final = 0.08
_OTHER_FACTOR: Final = 0.15
#: Maximum number of checks whether a new replica of a move is in sync.
_LOOKS: Final = 300
_LOOK_MS: Final = 5
#: Throttle rates in bytes a second; 0 stops replicas outside the ISR until the rate changes.
_THROTTLES: Final = (0, 300, 1_000, 4_000, 20_000)
_LISTS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_ALL_REPLICAS: Final = 0.5
_REMOVED: Final = 0.15


@churn_of_profiles
class PartitionsMoved(ChurnKind):
    """Moves of partitions of `steady` and `__consumer_offsets`, often of several together."""

    pause_ms = 30, 1_500

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._moves = MoveAdmin(self.client.router)
        self._queue = work.cluster.published.queue

    async def act(self) -> None:
        targets = {each: self._target() for each in self._some()}
        if self.draw.random() < _ALL_BACK:
            self._cancel_all()
        elif self.draw.random() < _BY_NODE:
            self._leave_in_the_store(targets)
        else:
            with self.tried("moves", forgets=True):
                begun = await self._reassign(targets, throttle=self._throttle())
                if begun:
                    self.succeeded(f"{len(begun)} moves")

    async def _reassign(
        self,
        targets: Mapping[TopicPartition, tuple[int, ...] | None],
        *,
        queued: bool = False,
        throttle: int | None = None,
    ) -> list[TopicPartition]:
        """Request reassignments; return the partitions whose reassignments begin or are queued.

        Each request is reported to the checker of the reassignment queue, because a newer request
        replaces a queued request for the same partition (R8, R20).
        """
        if not queued:
            self._queue.opened(targets)
        try:
            asked = self._moves.reassign({**targets}, queued=queued, throttle=throttle)
            results = await self.client.run(asked)
        except TidelogError:
            self._queue.asking([] if queued else targets)
            raise
        finally:
            if not queued:
                self._queue.answered(targets)
        return [each for each in results if results[each].error is ErrorCode.NONE]

    def _throttle(self) -> int | None:
        """Return the throttle of the next moves; None requests no throttle."""
        return None

    def _some(self) -> list[TopicPartition]:
        """Return some partitions of the topic `steady` and of `__consumer_offsets`."""
        movable = list(self.work.steady)
        topic = self.work.cluster.published.topics.get(CONSUMER_OFFSETS)
        if topic is not None:
            movable += [TopicPartition(topic.name, number) for number in topic.assignment]
        return self.draw.sample(movable, self.draw.randrange(1, len(movable) + 1))

    def _target(self) -> tuple[int, ...] | None:
        """Return random brokers as a partition's new replicas; None cancels its reassignment."""
        draw = self.draw
        if draw.random() < _BACK:
            return None
        count = self.work.replication_factor
        if draw.random() < _OTHER_FACTOR:
            count += draw.choice((-1, 1))
        brokers = list(self.work.cluster.brokers)
        return tuple(draw.sample(brokers, min(count, len(brokers))))

    def _cancel_all(self) -> None:
        """Create the store node that cancels all reassignments (R2)."""
        store = self.work.cluster.store
        if store.is_available and store.tree.get(layout.CANCEL_REASSIGNMENTS) is None:
            store.write_from_outside(layout.CANCEL_REASSIGNMENTS, b"")
            self._queue.node_asks(layout.CANCEL_REASSIGNMENTS, ())
            self.succeeded("a cancel of all moves")

    def _leave_in_the_store(self, targets: dict[TopicPartition, tuple[int, ...] | None]) -> None:
        """Create the store node that requests reassignments, as Kafka's old tool does, unless it
        exists.
        """
        store = self.work.cluster.store
        path = layout.REASSIGN_PARTITIONS
        if store.is_available and store.tree.get(path) is None:
            entries = [
                ReassignmentEntry(each, target) for each, target in targets.items() if target
            ]
            store.write_from_outside(path, layout.encode_reassignments(entries))
            self._queue.node_asks(path, [each.topic_partition for each in entries])

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


@churn_of_profiles
class MovesRedirected(PartitionsMoved):
    """Reassignments that get a new target when one of their added replicas is in sync (R10).

    The new target does not contain this replica.
    """

    pause_ms = 100, 900

    async def act(self) -> None:
        partition = self.draw.choice(self.work.steady)
        if await self._asks(partition, self._target()):
            added = await self._first_in_sync(partition)
            if added >= 0:
                others = [each for each in self.work.cluster.brokers if each != added]
                target = self.draw.sample(others, self.work.replication_factor)
                if await self._asks(partition, tuple(target)):
                    self.succeeded(f"{partition} without {added}")

    async def _asks(self, partition: TopicPartition, target: tuple[int, ...] | None) -> bool:
        with self.tried("moves", forgets=True):
            return bool(await self._reassign({partition: target}))
        return False

    async def _first_in_sync(self, partition: TopicPartition) -> int:
        """Wait for an added replica to be in sync and return it; -1 if the reassignment ends
        before.
        """
        published = self.work.cluster.published
        for _ in range(_LOOKS):
            move = published.topics[partition.topic].moving.get(partition.partition)
            state = published.partitions[self.key(partition)]
            if move is None or self.stopping:
                break
            added = [each for each in move.adding if each in state.isr and each != state.leader]
            if added:
                return added[0]
            await self.client.tasks.sleep(_LOOK_MS)
        return -1


@churn_of_profiles
class MovesThrottled(PartitionsMoved):
    """Moves with a throttle that is changed while replicas move (R4)."""

    def _throttle(self) -> int | None:
        """Return the throttle of the next moves; None keeps their current throttle."""
        return self.draw.choice((None, NO_THROTTLE, 300, 1_000, 4_000, 20_000))

    async def finish(self) -> None:
        """Remove the throttles of moves under way, because with these rates the moves would not end
        in time.
        """
        while True:
            with self.tried("the throttle of moves", forgets=True):
                moves = await self.client.run(self._moves.list_reassignments())
                targets = {each: move.target for each, move in moves.items() if move.throttle}
                if not targets:
                    return
                await self._reassign(targets, throttle=NO_THROTTLE)
            await self.pause(50, 300)


@churn_of_profiles
class ThrottlesChanged(ChurnKind):
    """Throttle rates of brokers and lists of throttled replicas, which change at any time."""

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._topics = list(dict.fromkeys(each.topic for each in work.steady))

    async def act(self) -> None:
        draw = self.draw
        if draw.random() < _REMOVED:
            await self._remove()
        else:
            for topic in self._topics:
                await self._set(ConfigResource(TOPIC, topic), _LISTS, self._replicas(topic))
            brokers = list(self.work.cluster.brokers)
            for broker in draw.sample(brokers, draw.randint(1, len(brokers))):
                rate = str(draw.choice(_THROTTLES))
                await self._set(ConfigResource(BROKER, str(broker)), THROTTLE_RATES, rate)
        await self.pause(200, 4_000)

    async def finish(self) -> None:
        await self.until_done(self._remove)

    def _replicas(self, topic: str) -> str:
        """Return a value of a topic's list of throttled replicas: all or some replicas."""
        if self.draw.random() < _ALL_REPLICAS:
            return "*"
        return ",".join(
            f"{each.partition}:{broker}"
            for each in self.work.steady
            if each.topic == topic
            for broker in self.work.cluster.brokers
            if self.draw.random() < _ALL_REPLICAS
        )

    async def _remove(self) -> bool:
        """Remove all throttle rates and replica lists; return whether the removal succeeded."""
        resources = [(ConfigResource(TOPIC, topic), _LISTS) for topic in self._topics]
        resources += [
            (ConfigResource(BROKER, str(each)), THROTTLE_RATES)
            for each in self.work.cluster.brokers
        ]
        return all([await self._set(resource, keys, None) for resource, keys in resources])

    async def _set(self, resource: ConfigResource, keys: Sequence[str], value: str | None) -> bool:
        what = f"the throttle of {resource}"
        return await self.alter(resource, dict.fromkeys(keys, value), what, f": {value}")

    def unsettled(self) -> str:
        for node_id, node in self.work.cluster.brokers.items():
            if node.broker is None:
                continue
            throttles = node.broker.replicas.throttles
            for side in (throttles.leader, throttles.follower):
                if side.is_active or side.rate != UNLIMITED:
                    return f"broker {node_id} has a throttle: {side.rate} bytes/s"
        return ""
