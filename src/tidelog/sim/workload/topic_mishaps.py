"""An operator's mistake: the operator removes the nodes of a topic from the store, and restores
them later.

While the topic's nodes are missing, its replicas become strays. The operator lets brokers restore
the strays in any order, until a leader has every acknowledged record. After the nodes are restored,
this module reads every acknowledged record again. Other checkers do not check the topic's records,
because records of a deleted topic may be lost. Brokers die at any step, without loss of data (V25,
V35).
"""

from __future__ import annotations

import random
from typing import Final

from tidelog.client.fetching import FetchOptions, LogReader
from tidelog.client.producing import LogWriter
from tidelog.client.stray_requests import StrayAction, StrayAdmin
from tidelog.core.errors import ErrorCode, TidelogError
from tidelog.core.types import TopicPartition
from tidelog.metadata.layout import partition_state_path, topic_path
from tidelog.sim.batches import encode_batch, read_batches
from tidelog.sim.disk import Loss
from tidelog.sim.workload.churning import OfTopics, churn_of_profiles
from tidelog.sim.workload.work import Workload

_KEY: Final = TopicPartition("mislaid", 0)
_STATE: Final = partition_state_path(_KEY)
#: Paths of the store nodes of the mislaid topic, parents first.
_PATHS: Final = (
    topic_path(_KEY.topic),
    f"{topic_path(_KEY.topic)}/partitions",
    _STATE.rpartition("/")[0],
    _STATE,
)
#: First record number in this topic; it is above the record numbers of all other clients.
_FIRST_NUMBER: Final = 1 << 40
_CRASHES: Final = 0.5
_OPTIONS: Final = FetchOptions(1 << 20, 1 << 20, 1, 200)


@churn_of_profiles
class TopicsMislaid(OfTopics):
    """Deletions and restorations of a topic's store nodes; acknowledged records must survive."""

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        router = self.client.router
        self._strays, self._log = StrayAdmin(router), LogWriter(router)
        self._records = LogReader(router)
        self._number = _FIRST_NUMBER
        #: Record number of each acknowledged record, by offset.
        self._kept: dict[int, int] = {}

    async def begin(self) -> None:
        await self.create(_KEY.topic)
        self.work.cluster.published.dying[_KEY.topic] = 0

    async def act(self) -> None:
        await self._write()
        await self.pause(50, 800)
        nodes = None if self.stopping else self._lose()
        if nodes is None:
            return
        self._crash_soon()
        await self.client.tasks.sleep(self.draw.choice((0, 5, 300, 2_000)))
        await self._bring_back(nodes)
        await self._restore()
        self.succeeded("restored")

    async def finish(self) -> None:
        # Restore strays again and again: a broker that learns late of the missing nodes may set its
        # replica aside after the nodes are back.
        await self._restore()

    async def _write(self) -> None:
        for _ in range(self.draw.randrange(1, 5)):
            self._number += 1
            batch = encode_batch([self._number], [20], timestamp_ms=self.client.now_ns // 1_000_000)
            with self.tried("written", forgets=True):
                offset = await self.client.run(self._log.produce(_KEY, batch, -1, 1_000))
                self._kept[offset] = self._number

    def _lose(self) -> dict[str, tuple[bytes, int]] | None:
        """Remove the topic's store nodes; return their contents and versions."""
        store = self.work.cluster.store
        found = {}
        for path in _PATHS:
            node = store.tree.get(path)
            if node is None or not store.is_available:
                return None
            found[path] = (node.data, node.stat.version)
        for path in reversed(_PATHS):
            store.delete_from_outside(path)
        return found

    async def _bring_back(self, nodes: dict[str, tuple[bytes, int]]) -> None:
        """Restore the topic's nodes, with higher versions than before, because versions are
        partition epochs.
        """
        store = self.work.cluster.store
        while not store.is_available:
            await self.pause(20, 100)
        for path, (data, version) in nodes.items():
            for _ in range(version + 2):
                store.write_from_outside(path, data)

    def _crash_soon(self) -> None:
        cluster = self.work.cluster
        if not self.stopping and self.draw.random() < _CRASHES:
            broker = self.draw.choice(list(cluster.brokers.values()))
            delay_ns = self.draw.randrange(0, 60_000_000)
            cluster.simulator.scheduler.after(
                delay_ns, None, lambda: broker.crash(Loss.NONE, "mishap")
            )

    async def _restore(self) -> None:
        """Restore strays in any order until a leader has every acknowledged record."""
        while not await self._is_whole():
            self._crash_soon()
            brokers = list(self.work.cluster.brokers)
            for broker_id in self.draw.sample(brokers, len(brokers)):
                with self.tried("restored"):
                    found = await self.client.run(self._strays.list_strays(broker_id))
                    wanted = [stray for stray in found if stray.tp == _KEY]
                    if wanted:
                        chosen = [self.draw.choice(wanted)]
                        await self.client.run(self._strays.alter(StrayAction.RESTORE, chosen))
            await self.pause(50, 600)
            self.client.router.forget()

    async def _is_whole(self) -> bool:
        """Read all acknowledged records from the leader; return whether this succeeded.

        A leader that lacks an acknowledged record is a violation.
        """
        found: dict[int, int] = {}
        end = 0
        try:
            while True:
                fetched = await self.client.run(self._records.fetch({_KEY: end}, _OPTIONS))
                response = fetched[_KEY]
                if response.error is not ErrorCode.NONE:
                    return False
                for batch in read_batches(bytes(response.records)):
                    found.update(
                        zip(range(batch.base_offset, batch.next_offset), batch.numbers, strict=True)
                    )
                    end = batch.next_offset
                if end >= response.high_watermark:
                    break
        except TidelogError as error:
            self.failed("read", error)
            return False
        lost = {at: n for at, n in self._kept.items() if at < end and found.get(at) != n}
        if lost:
            self.work.cluster.simulator.violate(
                f"{_KEY}: records {lost} are lost after a restore (V35)"
            )
        missing = [offset for offset in self._kept if offset not in found]
        if missing:
            self._look_at_leader(max(missing))
        return not missing

    def _look_at_leader(self, offset: int) -> None:
        """Check that the leader's log does not end before an acknowledged record, because the
        leader could never get this record again.

        """
        cluster = self.work.cluster
        topic = cluster.published.topics[_KEY.topic]
        state = cluster.published.partitions[cluster.published.key(topic.topic_id, 0)]
        leader = cluster.brokers.get(state.leader)
        if leader is None or not leader.is_up or leader.broker is None:
            return
        partition = leader.broker.replicas.get(_KEY)
        if (
            partition is not None
            and partition.is_leader
            and partition.leader_epoch == state.leader_epoch
            and partition.log.log_end_offset <= offset
        ):
            cluster.simulator.violate(
                f"{_KEY}: broker {state.leader} leads from a stray that ends at"
                f" {partition.log.log_end_offset}, offset {offset} was acknowledged (V35)"
            )
