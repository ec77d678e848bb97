"""ISR changes: how soon every broker's metadata shows one, and how many a second there are (A14).

The first on three real brokers: one is paused, leaves the ISR of a partition, and joins it again.
Timed is from the state node in the store, as somebody sees it who watches it, to the last of the
three brokers whose Metadata says so. (Before ISR changes went through the controller, it heard of
them by a node that it looked at; the design counts up to a minute.) The second as in
`bench/controller`: controller and store are real, the leaders that ask stand-ins in this process.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.controller import FIRST_PORT, LIMIT_S, PER_TOPIC, STAND_INS, beat, controlling, populate
from bench.rig import spread, table
from tidelog.broker.broker import Broker
from tidelog.broker.server.requests import Pending
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.local.cluster import LocalCluster
from tidelog.metadata import layout
from tidelog.metadata.store import Create, WatchEvent
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.stores.sqlite import SqliteStore
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)

_TOPIC = TopicPartition("isr", 0)
_BROKERS = 3
_POLL_S = 0.001
#: So that whoever is paused leaves the ISR soon.
_LAG_MS = 1_000
#: Of the controller that many leaders ask.
_PARTITIONS = 9_000
_ONE_BY_ONE = 300


def run(rounds: int) -> list[str]:
    """Both tables."""
    times = _propagation(rounds)
    rows = [("from the store to the last of three brokers' Metadata, ms", spread(times, 1))]
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
        together, one_by_one = asyncio.run(_changes(Path(directory), rounds))
    rates = [
        (f"{_PARTITIONS:,} in three requests, changes a second", spread(together)),
        ("one a request, one after the other, changes a second", spread(one_by_one)),
    ]
    return [
        table("An ISR change, as every broker's metadata shows it", rows, ("of", "tidelog")),
        table("ISR changes through the controller, embedded store", rates, ("how", "tidelog")),
    ]


# Propagation


def _propagation(rounds: int) -> list[float]:
    config = {"replica.lag.time.max.ms": str(_LAG_MS)}
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
        cluster = LocalCluster(f"{directory}/cluster", _BROKERS, config=config)
        cluster.up()
        try:
            with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
                controller = client.metadata([]).controller_id
                others = [one for one in cluster.broker_ids if one != controller]
                client.create_topic(_TOPIC.topic, assignment={0: (controller, *others)})
                client.await_topic(_TOPIC.topic, _BROKERS)
            return [_joins(cluster, others[-1]) for _ in range(rounds)]
        finally:
            cluster.down(timeout_s=LIMIT_S)


def _joins(cluster: LocalCluster, follower: int) -> float:
    """A broker leaves the ISR and joins it again; ms from the store to all metadata."""
    places = cluster.places()
    cluster.pause(follower)
    others = [place.address for one, place in places.items() if one != follower]
    with BlockingClient(",".join(others), timeout_ms=60_000) as client:
        while len(client.metadata([_TOPIC.topic]).topics[_TOPIC.topic].partitions[0].isr) != 2:
            time.sleep(_POLL_S)
    with ThreadPoolExecutor() as threads:
        looks = [threading.Event() for _ in (*others, "store")]
        written = threads.submit(
            lambda: asyncio.run(_written(f"{cluster.directory}/metadata", looks[-1]))
        )
        shown = [
            threads.submit(_shown, at, look) for at, look in zip(others, looks[:-1], strict=True)
        ]
        # The one that is paused answers when it runs again.
        shown.append(threads.submit(_shown, places[follower].address, threading.Event()))
        for look in looks:
            assert look.wait(LIMIT_S)
        cluster.resume(follower)
        took_s = max(one.result(LIMIT_S) for one in shown) - written.result(LIMIT_S)
    cluster.await_full_isrs(LIMIT_S)
    return took_s * 1e3


def _shown(address: str, looking: threading.Event) -> float:
    """When a broker's metadata has the whole ISR."""
    with BlockingClient(address, timeout_ms=60_000) as client:
        while True:
            topics = client.metadata([_TOPIC.topic]).topics
            looking.set()
            if _TOPIC.topic in topics and len(topics[_TOPIC.topic].partitions[0].isr) == _BROKERS:
                return time.monotonic()
            time.sleep(_POLL_S)


async def _written(directory: str, looking: threading.Event) -> float:
    """When the state node has the whole ISR, as a session sees it that watches the node."""
    loop = asyncio.get_running_loop()
    store = SqliteStore(directory, loop, session_timeout_ms=60_000)
    await store.open()
    beating = loop.create_task(beat((store,)))
    path = layout.partition_state_path(_TOPIC)
    changed = asyncio.Event()
    while True:
        changed.clear()

        def tell(_: WatchEvent) -> None:
            changed.set()

        node = await store.get(path, tell)
        seen = time.monotonic()
        looking.set()
        assert node is not None
        if len(layout.decode_partition_state(path, node.data, node.stat).isr) == _BROKERS:
            beating.cancel()
            await store.close()
            return seen
        await changed.wait()


# Changes a second


class _Leaders:
    """The stand-ins as leaders: each takes a follower out of its ISRs, and in again."""

    def __init__(self, broker: Broker, epochs: dict[int, int]) -> None:
        self._broker = broker
        self._epochs = epochs
        self._partition_epochs = [0] * _PARTITIONS

    def _request(self, leader: int, numbers: list[int], *, whole: bool) -> AlterPartitionRequest:
        topics: dict[int, RequestTopicData] = {}
        for number in numbers:
            of_topic = number // PER_TOPIC
            if of_topic not in topics:
                topic_id = of_topic.to_bytes(8, "big") + (0x8000_0000_0000_0001).to_bytes(8, "big")
                topics[of_topic] = RequestTopicData(topic_id=topic_id)
            first = STAND_INS.index(leader)
            members = (*STAND_INS[first:], *STAND_INS[:first])[: 3 if whole else 2]
            topics[of_topic].partitions.append(
                RequestPartitionData(
                    partition_index=number % PER_TOPIC,
                    leader_epoch=0,
                    partition_epoch=self._partition_epochs[number],
                    new_isr_with_epochs=[BrokerState(one, self._epochs[one]) for one in members],
                )
            )
        return AlterPartitionRequest(leader, self._epochs[leader], list(topics.values()))

    async def ask(self, leader: int, numbers: list[int], *, whole: bool) -> None:
        """One request, answered; every change in it is accepted."""
        answered: asyncio.Future[AlterPartitionResponse] = (
            asyncio.get_running_loop().create_future()
        )
        reply = self._broker.controller.alter_partition(
            self._request(leader, numbers, whole=whole),
            3,
            lambda: AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER),
        )
        assert isinstance(reply, Pending), reply
        reply.deliver_to(answered.set_result)
        answer = await asyncio.wait_for(answered, LIMIT_S)
        assert answer.error_code == 0
        for topic in answer.topics:
            for one in topic.partitions:
                assert one.error_code == 0, ErrorCode(one.error_code)
        for number in numbers:
            self._partition_epochs[number] += 1

    @staticmethod
    def led_by(leader: int) -> list[int]:
        """The partitions of a stand-in."""
        first = STAND_INS.index(leader)
        return [n for n in range(_PARTITIONS) if n % PER_TOPIC % len(STAND_INS) == first]


async def _changes(directory: Path, rounds: int) -> tuple[list[float], list[float]]:
    loop = asyncio.get_running_loop()
    path = str(directory / "store")
    stand_ins = SqliteStore(path, loop, session_timeout_ms=60_000)
    beating = loop.create_task(beat((stand_ins,)))
    await stand_ins.open()
    epochs = await populate(stand_ins, _PARTITIONS)
    await stand_ins.transact([Create(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(1))])
    store = SqliteStore(path, loop, session_timeout_ms=60_000)
    together, one_by_one = [], []
    async with controlling(directory, store, f"embedded:{path}") as (broker, network, _):
        await network.all_told([FIRST_PORT + one for one in STAND_INS])
        leaders = _Leaders(broker, epochs)
        for _ in range(rounds):
            for whole in (False, True):
                begin = time.monotonic()
                await asyncio.gather(
                    *(leaders.ask(one, leaders.led_by(one), whole=whole) for one in STAND_INS)
                )
                together.append(_PARTITIONS / (time.monotonic() - begin))
            some = leaders.led_by(STAND_INS[0])[:_ONE_BY_ONE]
            for whole in (False, True):
                begin = time.monotonic()
                for number in some:
                    await leaders.ask(STAND_INS[0], [number], whole=whole)
                one_by_one.append(len(some) / (time.monotonic() - begin))
    beating.cancel()
    await stand_ins.close()
    return together, one_by_one
