"""Nodes of a topic are removed by mistake and brought back, its strays restored, brokers dying in
between wherever they happen to be: every record that was acknowledged is there again (V25, V35).

Checkers take the topic for one that is there all the time, so that what they promise of it is not
looked at here; epochs, and whatever brokers do unforeseen, are.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.sim.fault_harness import TOPIC, FaultHarness, fault_harness

from tidelog.client.fetching import FetchOptions, LogReader
from tidelog.client.producing import LogWriter
from tidelog.client.steps import Operation
from tidelog.client.stray_requests import StrayAction, StrayAdmin, StrayReplica
from tidelog.core.errors import ErrorCode, TidelogError
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.metadata.layout import partition_state_path, topic_path
from tidelog.sim.batches import encode_batch
from tidelog.sim.disk import Loss

TP = TopicPartition(TOPIC, 0)
STATE = partition_state_path(TP)
#: Parents first.
PATHS = (topic_path(TOPIC), f"{topic_path(TOPIC)}/partitions", STATE.rpartition("/")[0], STATE)
BATCHES = 6


class Mishap:
    """One topic with records, and what becomes of it."""

    def __init__(self, at: FaultHarness, seed: int) -> None:
        self.at = at
        self.draw = random.Random(seed)
        at.cluster.history.keeps_promises = False
        self.strays = StrayAdmin(at.client.router)
        self.writer = LogWriter(at.client.router)
        self.reader = LogReader(at.client.router)

    def ask(self, operation: Operation[Any]) -> Any:
        """What comes of it, an error included."""

        async def attempt() -> Any:
            try:
                return await self.at.client.run(operation)
            except TidelogError as error:
                return error

        task = self.at.client.tasks.spawn("ask", attempt())
        self.at.until(task.done)
        return task.result()

    def write(self) -> None:
        for number in range(BATCHES):
            batch = encode_batch([number + 1], [20], timestamp_ms=1_000_000)
            base = self.ask(self.writer.produce(TP, batch, -1, 2_000))
            assert base == number, base

    def lose_nodes(self) -> dict[str, tuple[bytes, int]]:
        """Their contents and versions."""
        store = self.at.cluster.store
        found = {}
        for path in PATHS:
            node = store.tree.get(path)
            assert node is not None
            found[path] = (node.data, node.stat.version)
        for path in reversed(PATHS):
            store.delete_from_outside(path)
        return found

    def put_back(self, nodes: dict[str, tuple[bytes, int]]) -> None:
        """In versions that go on, as checkers take them for the same nodes."""
        store = self.at.cluster.store
        for path, (data, version) in nodes.items():
            for _ in range(version + 2):
                store.write_from_outside(path, data)

    def disturb(self) -> None:
        """Now and then a broker dies soon, perhaps amid the next request."""
        if self.draw.random() < 0.6:
            broker = self.draw.choice(self.at.brokers)
            delay_ms = self.draw.uniform(0, 40)
            simulator = self.at.simulator
            simulator.scheduler.after(
                int(delay_ms * 1e6), None, lambda: broker.crash(Loss.NONE, "mishap")
            )

    def revive(self) -> None:
        """Everybody is up again."""
        self.at.run(60)
        self.at.cluster.start()
        self.at.until(lambda: all(one.is_up for one in self.at.brokers))
        self.at.forget_connections()
        self.at.client.router.forget()

    def listed(self) -> list[StrayReplica]:
        found = []
        for broker_id in self.at.cluster.brokers:
            listed = self.ask(self.strays.list_strays(broker_id))
            if isinstance(listed, list):
                found += listed
        return found

    def is_led(self) -> bool:
        node = self.at.cluster.store.tree.get(STATE)
        return node is not None and any(
            partition.topic_partition == TP and partition.is_leader
            for one in self.at.brokers
            if one.is_up and one.broker is not None
            for partition in one.broker.replicas.all()
        )

    def restore(self) -> None:
        """Try brokers' strays in any order until somebody leads what was there."""
        for _ in range(30):
            self.disturb()
            for stray in self.draw.sample(found := self.listed(), len(found)):
                answer = self.ask(self.strays.alter(StrayAction.RESTORE, [stray]))
                if isinstance(answer, list) and answer[0].error is ErrorCode.NONE:
                    self.at.run(200)
            self.revive()
            self.at.run(2_500)
            if self.is_led() and not self.at.cluster.health():
                return
        raise AssertionError(f"nobody leads: {self.listed()}")

    def records(self) -> list[int]:
        """The end of what a consumer is given from offset 0 on, and how much of it there is."""
        options = FetchOptions(1 << 20, 1 << 20, 1, 500)
        fetched = self.ask(self.reader.fetch({TP: 0}, options))[TP]
        assert fetched.error is ErrorCode.NONE
        return [fetched.high_watermark, len(bytes(fetched.records))]


@pytest.mark.parametrize("seed", range(6))
def test_whoever_dies_when_strays_are_restored_all_records_are_there_again(seed: int) -> None:
    with fault_harness() as at:
        mishap = Mishap(at, seed)
        mishap.write()
        before = mishap.records()
        assert before[0] == BATCHES
        nodes = mishap.lose_nodes()
        mishap.disturb()
        at.run(300)
        mishap.revive()
        at.until(lambda: len(mishap_strays(at)) == 3)
        mishap.put_back(nodes)
        mishap.disturb()
        at.run(500)
        mishap.revive()
        mishap.restore()
        assert mishap.records() == before
        assert at.noted("stray_restored")
        assert at.simulator.violations == []
        state = at.cluster.published.partitions[
            at.cluster.published.key(at.cluster.published.topics[TOPIC].topic_id, 0)
        ]
        assert state.leader != NO_LEADER


def mishap_strays(at: FaultHarness) -> list[str]:
    return [
        name
        for one in at.brokers
        if one.broker is not None
        for directory in one.broker.replicas.directories
        for name in directory.strays
    ]
