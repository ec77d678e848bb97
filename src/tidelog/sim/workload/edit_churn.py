"""An administrator that edits the nodes of a topic in the store, as tools other than tidelog can
(V25).

The administrator creates a topic by its store node, adds partitions, removes the highest partition,
deletes all nodes of the topic and creates it again. In between, the administrator writes invalid
content: no JSON, truncated JSON, missing partition numbers, brokers that do not exist, other
replicas, an invalid state. The controller must treat a valid edit like a request. The controller
must ignore an invalid edit, and no acknowledged record may be lost; the administrator repairs the
node after a while. If a new controller was elected while the node was invalid, it has read the
invalid node. The administrator therefore lets another controller be elected after the repair, which
reads the repaired node.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import ClassVar, Final

from tidelog.core.types import TopicId, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.layout import TopicAssignment
from tidelog.metadata.store import ANY_VERSION, Create, Delete, Op, SetData
from tidelog.sim.workload.churning import OfTopics, churn_of_profiles
from tidelog.sim.workload.partition_consumers import SimPartitionConsumer
from tidelog.sim.workload.partition_producers import PartitionProducer
from tidelog.sim.workload.work import Workload

_MAX_PARTITIONS: Final = 4
#: Id of a broker that does not exist.
_NOBODY: Final = 99
#: Time after which the administrator repeats an edit that had no effect.
_PATIENCE_MS: Final = 3_000
_POLL_MS: Final = 20


@churn_of_profiles
class NodesEdited(OfTopics):
    """Direct edits of a topic's nodes in the store: creation, changes, invalid content, repairs,
    deletion.
    """

    topic: ClassVar[str] = "edited"
    pause_ms = 50, 800

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._topic_id: TopicId = b""
        self._partitions: dict[int, tuple[int, ...]] = {}
        self._clients: dict[int, tuple[PartitionProducer, SimPartitionConsumer]] = {}

    async def begin(self) -> None:
        await self._make()

    async def act(self) -> None:
        await self.draw.choice(
            (self._grow, self._shrink, self._scribble, self._scribble, self._recreate)
        )()

    def unsettled(self) -> str:
        found = self.work.cluster.published.topics.get(self.topic)
        count = 0 if found is None else len(found.assignment)
        if count != len(self._partitions):
            return f"{self.topic} has {count} partitions, and its node has {len(self._partitions)}"
        return ""

    # valid edits

    async def _make(self) -> None:
        """Create the topic by its store node alone; the controller creates the nodes below it."""
        self._topic_id = self.draw.randbytes(16)
        self._partitions = {0: self._replicas()}
        if self.draw.random() < 0.5:
            self._partitions[1] = self._replicas()
        path = layout.topic_path(self.topic)
        await self._edit([Create(path, self._node(self._partitions))])
        self.client.history.topic_created(self.topic, self._topic_id, self.client.now_ns)
        await self._until_adopted()
        self.succeeded("created by its node")
        for number in self._partitions:
            self._work_on(number)

    async def _grow(self) -> None:
        number = len(self._partitions)
        published = self.work.cluster.published
        former = published.partitions.get(published.key(self._topic_id, number))
        if number >= _MAX_PARTITIONS or (former is not None and former.isr):
            # The partition was removed earlier, and its state still has an ISR: a controller that
            # was elected during the removal did not finish it. Brokers have set the replicas aside,
            # and only an operator could restore them, so do not add the partition again.
            return
        self._partitions[number] = self._replicas()
        await self._write()
        await self._until_adopted()
        self.succeeded(f"partition {number} written into its node")
        self._work_on(number)

    async def _shrink(self) -> None:
        number = len(self._partitions) - 1
        if number == 0:
            return
        self._stop_work_on(number)
        published = self.work.cluster.published
        published.removed[published.key(self._topic_id, number)] = None
        del self._partitions[number]
        await self._write()
        # Wait for the end of this removal, because the controller carries out one removal of a
        # topic at a time.
        await self._until(lambda: not self._is_held(number))
        self.succeeded(f"partition {number} removed from its node")

    async def _recreate(self) -> None:
        """Delete all store nodes of the topic, and recreate the topic with another id."""
        if self.draw.random() < 0.6:
            return
        self.client.history.deletion_begins(self.topic, self.client.now_ns)
        for number in list(self._clients):
            self._stop_work_on(number)
        store = self.work.cluster.store
        path = layout.topic_path(self.topic)
        await self._available()
        below = sorted(each for each in store.tree.nodes if each.startswith(f"{path}/"))
        await self._edit([Delete(each, ANY_VERSION) for each in (*reversed(below), path)])
        self.succeeded("deleted with all nodes below")
        await self.client.tasks.sleep(self.draw.choice((0, 5, 300, 1_500)))
        await self._make()

    # invalid edits

    async def _scribble(self) -> None:
        """Write invalid content into a store node, and repair the node after a while."""
        cluster = self.work.cluster
        await self._available()
        epoch = cluster.published.controller_epoch
        path, data = self._wrong()
        before = cluster.store.write_from_outside(path, data)
        self.client.ports.tracer.event("scribbled", path=path, data=data)
        await self.pause(20, 1_500)
        await self._available()
        node = cluster.store.tree.get(path)
        # Leave the node as it is if another client has changed it since the invalid write.
        if node is not None and node.data == data:
            cluster.store.write_from_outside(path, before)
        self.succeeded("invalid content repaired")
        if cluster.published.controller_epoch != epoch:
            await self._another_controller()

    def _wrong(self) -> tuple[str, bytes]:
        """Return the path of a store node, and invalid content for it."""
        path = layout.topic_path(self.topic)
        last = len(self._partitions)
        whole = self._node(self._partitions)
        some = self.draw.choice(list(self._partitions))
        replicas = self._partitions[some]
        node = self._node
        kinds: list[tuple[str, bytes]] = [
            (path, b""),
            (path, b"{"),
            (path, whole[: self.draw.randrange(1, len(whole))]),
            (path, json.dumps([1, 2, 3]).encode()),
            (path, node({})),
            (path, node({**self._partitions, last + 1: replicas})),
            (path, node({**self._partitions, some: replicas[::-1]})),
            (path, node({**self._partitions, some: (*replicas[:-1], _NOBODY)})),
            (path, node({**self._partitions, some: replicas[:1] * 2})),
            (path, node({n: chosen for n, chosen in self._partitions.items() if n > 0})),
        ]
        state = layout.partition_state_path(TopicPartition(self.topic, some))
        kinds += [(state, b"{"), (state, b'{"leader":1}'), (state, b"nonsense")]
        return self.draw.choice(kinds)

    # mechanism

    def _replicas(self) -> tuple[int, ...]:
        brokers = list(self.work.cluster.brokers)
        return tuple(self.draw.sample(brokers, self.work.replication_factor))

    def _node(self, partitions: dict[int, tuple[int, ...]]) -> bytes:
        return layout.encode_topic(TopicAssignment(self._topic_id, partitions))

    async def _write(self) -> None:
        await self._edit([SetData(layout.topic_path(self.topic), self._node(self._partitions), -1)])

    async def _edit(self, ops: list[Op]) -> None:
        """Apply a valid edit, and report it to the checkers of published state."""
        await self._available()
        cluster = self.work.cluster
        results = cluster.store.edit_from_outside(ops)
        cluster.published.committed(cluster.store.tree.zxid, 0, ops, results)

    async def _available(self) -> None:
        while not self.work.cluster.store.is_available:
            await self.client.tasks.sleep(_POLL_MS)

    async def _until_adopted(self) -> None:
        """Wait until every partition in the topic's node has a state with an ISR.

        The controller ignores partitions whose brokers are all down, so the node is written again
        after a while.
        """
        published = self.work.cluster.published

        def adopted() -> bool:
            states = [
                published.partitions.get(published.key(self._topic_id, number))
                for number in self._partitions
            ]
            return all(
                state is not None and bool(state.isr) and state.key not in published.removed
                for state in states
            )

        await self._until(adopted)

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds` returns true; write the store node again after each `_PATIENCE_MS`."""
        waited_ms = 0
        while not holds():
            await self.client.tasks.sleep(_POLL_MS)
            waited_ms += _POLL_MS
            if waited_ms % _PATIENCE_MS == 0:
                await self._write()

    def _is_held(self, number: int) -> bool:
        """Return whether a broker still has files of a partition that was removed from the topic's
        node.
        """
        return any(
            (key.topic_id, key.partition) == (self._topic_id, number)
            for broker in self.work.cluster.brokers.values()
            for key in broker.logs.logs
        )

    async def _another_controller(self) -> None:
        """End the session of the active controller, repeatedly, until another broker is elected.

        If the fault budget forbids this, delete the controller node instead.
        """
        cluster = self.work.cluster
        epoch = cluster.published.controller_epoch
        while cluster.published.controller_epoch == epoch:
            for broker in cluster.brokers.values():
                is_active = broker.broker is not None and broker.broker.controller.is_active
                store = broker.store
                if not is_active or store is None or store.session_id is None:
                    continue
                if cluster.store.expire(store.session_id) or not cluster.store.is_available:
                    continue
                if cluster.store.tree.get(layout.CONTROLLER) is not None:
                    cluster.store.edit_from_outside([Delete(layout.CONTROLLER, ANY_VERSION)])
            await self.client.tasks.sleep(100)

    def _work_on(self, number: int) -> None:
        self._clients[number] = self.work_on(TopicPartition(self.topic, number))

    def _stop_work_on(self, number: int) -> None:
        self.stop_work_on(TopicPartition(self.topic, number), *self._clients.pop(number))
