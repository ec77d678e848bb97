"""A new controller of very many partitions: from the old one's end to the last command sent.

On the embedded store and on a ZooKeeper server of its own.

Controller and store are real; the network port of its broker is not: stand-ins in this process take
its commands and answer them at once, so that what is measured is one broker's part and no other's.
Three stand-ins hold all replicas, each partition has three. The old controller is a session that
ends. Then once more with one of the stand-ins, so that each partition's ISR changes and a third get
new leaders.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.rig import MIB, spread, table
from tidelog.broker.broker import Broker
from tidelog.core import limits
from tidelog.core.config import BrokerConfig
from tidelog.core.ports import Buffer, FrameHandler, Ports, Transport
from tidelog.core.types import BrokerInfo, Endpoint, PartitionState, TopicPartition
from tidelog.local.ports import free_ports
from tidelog.local.zookeeper import LocalZookeeper
from tidelog.metadata import layout
from tidelog.metadata.layout import TopicAssignment
from tidelog.metadata.store import Create, Delete, MetadataStore, Op
from tidelog.runtime.clock import SystemClock, system_random
from tidelog.runtime.lanes import open_lane
from tidelog.runtime.network import SocketNetwork
from tidelog.runtime.stores.sqlite import SqliteStore
from tidelog.runtime.stores.zookeeper import ZookeeperStore
from tidelog.runtime.stores.zookeeper_servers import parse_servers
from tidelog.wire.codec import encode_response
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrResponse
from tidelog.wire.messages.stop_replica import StopReplicaResponse
from tidelog.wire.messages.update_metadata import UpdateMetadataResponse
from tidelog.wire.registry import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA

STORES = ("embedded", "zookeeper")
SIZES = (100_000, 200_000)
#: Seconds to the last command sent, for both sizes.
_AIMS_S = {"embedded": (2, 4), "zookeeper": (3, 6)}
PER_TOPIC = 1_000
STAND_INS = (1, 2, 3)
_CONTROLLER = 4
#: Where stand-ins listen, if they did.
FIRST_PORT = 1
LIMIT_S = 300
#: ZooKeeper's servers allow for less.
_SESSION_TIMEOUT_MS = 60_000
_ZOOKEEPER_HEAP_MIB = 2_048
_ANSWERS: dict[int, Any] = {
    LEADER_AND_ISR: LeaderAndIsrResponse(),
    UPDATE_METADATA: UpdateMetadataResponse(),
    STOP_REPLICA: StopReplicaResponse(),
}
_COMMANDS_TO_EACH = frozenset((LEADER_AND_ISR, UPDATE_METADATA))
OpenStore = Callable[[asyncio.AbstractEventLoop], MetadataStore]


class _StandIn:
    """The other end of a connection: answers each command with success, notes when it came."""

    def __init__(self, network: StandInNetwork, port: int) -> None:
        self.peer = f"127.0.0.1:{port}"
        self.queued_bytes = self.held_bytes = 0
        self._network = network
        self._port = port
        self.handler: FrameHandler | None = None

    def has_ended(self) -> bool:
        """It never has."""
        return False

    def send(self, parts: Sequence[Buffer]) -> None:
        """Whole requests, each behind its size."""
        data = b"".join(bytes(part) for part in parts)
        self._network.sent_bytes += len(data)
        while data:
            size = int.from_bytes(data[:4], "big")
            self._take(data[4 : 4 + size])
            data = data[4 + size :]

    def _take(self, frame: bytes) -> None:
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        correlation_id = int.from_bytes(frame[4:8], "big")
        self._network.taken(self._port, key)
        answer = encode_response(key, version, correlation_id, _ANSWERS[key])
        whole = memoryview(b"".join(bytes(part) for part in answer))[4:]
        self._network.loop.call_soon(self._deliver, whole)

    def _deliver(self, frame: memoryview) -> None:
        if self.handler is not None:
            self.handler.frames_received([frame])

    def keep_frames(self) -> None:
        """They are kept."""

    def handled(self, frame_bytes: int, api_key: int) -> None:
        """There is no budget."""

    def pause_reading(self) -> None:
        """Nothing is read."""

    def resume_reading(self) -> None:
        """Nothing is read."""

    def abort(self, reason: str) -> None:
        """Gone."""
        self.handler = None

    def close(self, reason: str) -> None:
        """Gone."""
        self.handler = None


class StandInNetwork:
    """Listens for real; connects to stand-ins only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, real: SocketNetwork) -> None:
        self.loop = loop
        self._real = real
        #: When each stand-in was told what for the first time since `forget`.
        self.told: dict[tuple[int, int], float] = {}
        self.sent_bytes = 0
        self._awaited: tuple[frozenset[tuple[int, int]], asyncio.Future[None]] | None = None

    def listen(self, *arguments: Any) -> Any:
        """As any broker."""
        return self._real.listen(*arguments)

    async def connect(
        self,
        host: str,
        port: int,
        open_handler: Callable[[Transport], FrameHandler],
        timeout_ms: int,
        max_frame_bytes: int,
    ) -> Transport:
        """To a stand-in, whoever was asked for."""
        stand_in = _StandIn(self, port)
        stand_in.handler = open_handler(stand_in)
        return stand_in

    def taken(self, port: int, key: int) -> None:
        """A command has come."""
        self.told.setdefault((port, key), time.monotonic())
        if self._awaited is not None and self._awaited[0] <= self.told.keys():
            future, self._awaited = self._awaited[1], None
            future.set_result(None)

    async def all_told(self, ports: Sequence[int]) -> float:
        """When the last of these stand-ins got its roles and metadata."""
        wanted = frozenset((port, key) for port in ports for key in _COMMANDS_TO_EACH)
        future = self.loop.create_future()
        self._awaited = wanted, future
        await asyncio.wait_for(future, LIMIT_S)
        return max(self.told[one] for one in wanted)


class _Phases:
    """The tracer: when the controller was elected, and when it first published."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}

    def event(self, name: str, /, **fields: Any) -> None:
        """Note the first of each kind."""
        self.at.setdefault(name, time.monotonic())

    def mark(self, name: str, /) -> None:
        """Of no use here."""

    def log(self, logger: str, level: int, message: str, /) -> None:
        """Of no use here."""


def _halt(reason: str) -> None:
    os.write(2, f"bench: the controller halts: {reason}\n".encode())
    os._exit(1)


async def populate(store: MetadataStore, partitions: int) -> dict[int, int]:
    """Topics whose replicas are on the stand-ins; returns the broker epochs of those."""
    for path in layout.PERSISTENT_ROOTS:
        if await store.get(path) is None:
            await store.transact([Create(path, b"")])
    epochs = {}
    for broker_id in STAND_INS:
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", FIRST_PORT + broker_id, "PLAINTEXT")
        info = BrokerInfo(broker_id=broker_id, broker_epoch=0, endpoints=(endpoint,))
        data = layout.encode_broker(info, 0)
        (made,) = await store.transact(
            [Create(layout.broker_path(broker_id), data, ephemeral=True)]
        )
        assert made.stat is not None
        epochs[broker_id] = made.stat.czxid
    ops: list[Op] = []
    for number in range(partitions // PER_TOPIC):
        ops.extend(_topic(f"topic-{number:04d}", number, epochs))
        while len(ops) > limits.MAX_TRANSACTION_OPS:
            await store.transact(ops[: limits.MAX_TRANSACTION_OPS])
            del ops[: limits.MAX_TRANSACTION_OPS]
    await store.transact(ops)
    return epochs


def _topic(name: str, number: int, epochs: dict[int, int]) -> list[Op]:
    topic_id = number.to_bytes(8, "big") + (0x8000_0000_0000_0001).to_bytes(8, "big")
    assignments = {}
    ops: list[Op] = []
    for partition in range(PER_TOPIC):
        first = partition % len(STAND_INS)
        replicas = (*STAND_INS[first:], *STAND_INS[:first])
        assignments[partition] = replicas
        state = PartitionState(
            leader=replicas[0],
            leader_epoch=0,
            isr=replicas,
            controller_epoch=1,
            partition_epoch=0,
            isr_epochs=tuple(epochs[one] for one in replicas),
        )
        place = TopicPartition(name, partition)
        ops.append(Create(layout.partition_path(place), b""))
        ops.append(Create(layout.partition_state_path(place), layout.encode_partition_state(state)))
    topic = layout.encode_topic(TopicAssignment(topic_id, assignments))
    head: list[Op] = [
        Create(layout.topic_path(name), topic),
        Create(layout.topic_partitions_path(name), b""),
        Create(layout.config_path("topics", name), layout.encode_config({})),
    ]
    return [*head, *ops]


@contextlib.asynccontextmanager
async def controlling(
    directory: Path, store: MetadataStore, store_text: str
) -> AsyncIterator[tuple[Broker, StandInNetwork, _Phases]]:
    """A real broker, the only one that may become the controller; the others are stand-ins."""
    loop = asyncio.get_running_loop()
    clock = SystemClock(loop)
    phases = _Phases()
    network = StandInNetwork(loop, SocketNetwork(loop, lambda where, error: _halt(repr(error))))
    config = BrokerConfig.from_properties(
        {
            "broker.id": str(_CONTROLLER),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(directory / "logs"),
            "metadata.store": store_text,
        },
        {},
    )
    ports = Ports(
        loop=loop,
        clock=clock,
        random=system_random(),
        network=network,
        tracer=phases,
        on_turn=lambda callback: None,
        open_lane=lambda path: open_lane(path, loop, clock),
        halt=_halt,
    )
    broker = Broker(config, ports, store)
    await broker.start()
    try:
        yield broker, network, phases
    finally:
        await broker.stop()


@contextlib.contextmanager
def _store(kind: str, directory: Path) -> Iterator[tuple[OpenStore, str]]:
    """How sessions of a new store are opened, and what `metadata.store` says of it."""
    if kind == "embedded":
        path = str(directory / "store")
        yield lambda loop: SqliteStore(path, loop, _SESSION_TIMEOUT_MS), f"embedded:{path}"
        return
    server = LocalZookeeper(
        str(directory / "zookeeper"),
        free_ports(1)[0],
        heap_mib=_ZOOKEEPER_HEAP_MIB,
        end_with_program=True,
    )
    server.start()
    try:
        text = f"zookeeper://{server.address}"
        servers = parse_servers(text)
        yield lambda loop: ZookeeperStore(servers, loop, _SESSION_TIMEOUT_MS), text
    finally:
        server.stop()


async def _measure(
    open_store: OpenStore, store_text: str, directory: Path, partitions: int
) -> dict[str, float]:
    """One failover of a store with so many partitions; seconds by phase."""
    loop = asyncio.get_running_loop()
    old, stand_ins = open_store(loop), open_store(loop)
    beating = loop.create_task(beat((old, stand_ins)))
    await stand_ins.open()
    await old.open()
    await populate(stand_ins, partitions)
    claim = layout.encode_controller(9, 0)
    await old.transact(
        [
            Create(layout.CONTROLLER, claim, ephemeral=True),
            Create(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(1)),
        ]
    )
    async with controlling(directory, open_store(loop), store_text) as (_, network, phases):
        gc.collect()
        gc.freeze()
        # As every broker that runs as a process.
        gc.set_threshold(100_000, 50, 50)
        ports = [FIRST_PORT + one for one in STAND_INS]
        begin, cpu_s = time.monotonic(), time.process_time()
        await old.close()
        end = await network.all_told(ports)
        result = {
            "elected": phases.at["controller_elected"] - begin,
            "all": end - begin,
            "cpu": time.process_time() - cpu_s,
            "sent_mib": network.sent_bytes / MIB,
            "rss_mib": _rss_bytes() / MIB,
        }
        network.told.clear()
        phases.at.pop("partition_state", None)
        begin = time.monotonic()
        await stand_ins.transact([Delete(layout.broker_path(1), -1)])
        end = await network.all_told(ports[1:])
        result["death_written"] = phases.at["partition_state"] - begin
        result["death_all"] = end - begin
    beating.cancel()
    await stand_ins.close()
    return result


async def beat(stores: Sequence[MetadataStore]) -> None:
    """Keep sessions until cancelled."""
    while True:
        for store in stores:
            store.beat()
        await asyncio.sleep(0.2)


def _rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(rounds: int, stores: Sequence[str] = STORES) -> list[str]:
    """A table per store."""
    return [_table(store, rounds) for store in stores]


def _table(store: str, rounds: int) -> str:
    rows: list[tuple[str, ...]] = []
    for partitions, aim_s in zip(SIZES, _AIMS_S[store], strict=True):
        runs = []
        for _ in range(rounds):
            with (
                tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory,
                _store(store, Path(directory)) as (open_store, text),
            ):
                measured = _measure(open_store, text, Path(directory), partitions)
                runs.append(asyncio.run(measured))
            gc.unfreeze()
        rows.extend(
            (f"{partitions:,}: {what}", spread([one[key] for one in runs], 2), aim)
            for key, what, aim in (
                ("elected", "the old controller's end to the election, s", ""),
                ("all", "to the last command sent, s", f"<= {aim_s}"),
                ("cpu", "CPU of the controller until then, s", ""),
                ("sent_mib", "commands, MiB", ""),
                ("rss_mib", "its resident memory, MiB", ""),
                ("death_written", "a broker's end to all states written, s", ""),
                ("death_all", "to the last command sent, s", ""),
            )
        )
    title = f"A new controller, {store} store, three brokers with all replicas ({rounds} runs)"
    return table(title, rows, ("partitions", "tidelog", "aim"))
