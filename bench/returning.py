"""ISR changes in bulk: a broker that returns to 1,000 partitions, and ISR churn (A12, A14).

The first kills a broker that follows in 1,000 partitions and starts it again, through the
controller (AlterPartition) and with leaders that write the state nodes (direct). Timed is from its
first response until its leader's metadata has it in all ISRs. Counted are the AlterPartition
requests meanwhile, the writes of state nodes, and the transactions that made them. The second
measures producers while a follower is paused and resumed each second, in turns with producers of a
quiet cluster.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.controller import beat
from bench.rig import LATENCY_OPTIONS, MIB, PRODUCER_OPTIONS, Driver, spread, table
from tidelog.broker.server.interception import Action, Rule
from tidelog.core.config import BrokerConfig
from tidelog.core.config_text import parse_properties
from tidelog.core.errors import KafkaError
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.local.cluster import LocalCluster
from tidelog.metadata import layout
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.interception import InterceptionControl
from tidelog.runtime.stores.opening import make_store
from tidelog.wire.registry import ALTER_PARTITION

#: How leaders change an ISR: the broker properties of each way.
MODES: Mapping[str, Mapping[str, str]] = {
    "AlterPartition": {},
    "direct": {"inter.broker.protocol.version": "2.6"},
}
_BROKERS = 3
_FOLLOWED = 1_000
_TOPIC = "followed"
_LIMIT_S = 180.0
_POLL_S = 0.005
#: The follower leaves the ISR well within a pause of `_PAUSE_S`.
_LAG_MS = 300
_PAUSE_S = 0.5
_PARTITIONS = 6
_RECORD_BYTES = 1024
_LATENCY_S = 10
_THROUGHPUT, _P99 = "produce RF 3 acks=all, MiB/s", "one at a time, p99 ms"


def run(rounds: int, run_bytes: int, stores: Sequence[str]) -> list[str]:
    """Return both tables, with a column for each store, and of the first also for each mode."""
    returns = {
        f"{store}, {mode}": _returns(store, MODES[mode], rounds)
        for store in stores
        for mode in MODES
    }
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
        driver = Driver(directory)
        churns = {store: _churn(store, rounds, run_bytes, driver) for store in stores}
    found = returns.values()
    rows = [
        ("in the ISR of all partitions, ms", *(spread(each.times_ms) for each in found)),
        ("AlterPartition requests", *(spread(each.requests) for each in found)),
        ("writes of state nodes", *(spread(each.writes) for each in found)),
        ("transactions that made them", *(spread(each.transactions) for each in found)),
        ("out of all ISRs after SIGKILL, ms", *(spread(each.left_ms) for each in found)),
    ]
    title = f"A broker with {_FOLLOWED:,} follower partitions comes back"
    tables = [table(title, rows, ("of", *returns))]
    rows = [
        (f"{name}, {how}", *(spread(churn[name, how], digits) for churn in churns.values()))
        for name, digits in ((_THROUGHPUT, 0), (_P99, 2))
        for how in ("quiet", "churn")
    ]
    title = "A follower paused and resumed each second (churn) against none (quiet)"
    return [*tables, table(title, rows, ("of", *stores))]


@dataclass
class _Returns:
    times_ms: list[float] = field(default_factory=list)
    left_ms: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)
    transactions: list[float] = field(default_factory=list)


def _returns(store: str, mode: Mapping[str, str], rounds: int) -> _Returns:
    found = _Returns()
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
        counted = InterceptionControl(f"{directory}/interceptions")
        config = {**mode, "tidelog.test.interception.directory": f"{directory}/interceptions"}
        cluster = LocalCluster(f"{directory}/cluster", _BROKERS, config=config, store=store)
        cluster.up()
        # The rule matches, and never strikes.
        counted.add(_counting_rule())
        try:
            controller = controller_of(cluster)
            leader, follower = (each for each in cluster.broker_ids if each != controller)
            with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
                assignment = dict.fromkeys(range(_FOLLOWED), (leader, follower, controller))
                client.create_topic(_TOPIC, assignment=assignment)
            _await_isr(cluster, leader, _BROKERS)
            for _ in range(rounds):
                begin = time.monotonic()
                cluster.kill(follower)
                _await_isr(cluster, leader, _BROKERS - 1)
                found.left_ms.append((time.monotonic() - begin) * 1e3)
                path = cluster.places()[leader].properties_path
                before, requests = asyncio.run(_states(path)), counted.matched(_RULE)
                cluster.start(follower, _LIMIT_S)
                begin = time.monotonic()
                _await_isr(cluster, leader, _BROKERS)
                found.times_ms.append((time.monotonic() - begin) * 1e3)
                found.requests.append(counted.matched(_RULE) - requests)
                after = asyncio.run(_states(path))
                found.writes.append(sum(after.versions) - sum(before.versions))
                found.transactions.append(len(after.zxids - before.zxids))
        finally:
            cluster.down(timeout_s=_LIMIT_S)
    return found


_RULE = 1


def _counting_rule() -> Rule:
    return Rule(
        number=_RULE,
        api_keys=(ALTER_PARTITION,),
        action=Action.DELAY,
        from_brokers=True,
        first=1 << 62,
    )


def controller_of(cluster: LocalCluster) -> int:
    """Return the broker id of the controller."""
    with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
        return client.metadata([]).controller_id


def _await_isr(cluster: LocalCluster, leader: int, size: int) -> None:
    """Return when the leader's metadata has that many in-sync replicas in each partition."""
    deadline = time.monotonic() + _LIMIT_S
    with BlockingClient(cluster.places()[leader].address, timeout_ms=60_000) as client:
        while True:
            try:
                partitions = client.metadata([_TOPIC]).topics[_TOPIC].partitions.values()
            except KafkaError:
                partitions = {}.values()  # 1,000 new partitions take a while to be known
            isrs = [len(each.isr) for each in partitions if each.leader != NO_LEADER]
            if isrs == [size] * _FOLLOWED:
                return
            assert time.monotonic() < deadline, f"not {size} in-sync replicas everywhere"
            time.sleep(_POLL_S)


@dataclass(frozen=True)
class _States:
    """The state nodes of all partitions: versions, and transactions that wrote them last."""

    versions: list[int]
    zxids: set[int]


async def _states(properties_path: str) -> _States:
    text = Path(properties_path).read_text(encoding="utf-8")
    config = BrokerConfig.from_properties(parse_properties(text))
    store = make_store(config, asyncio.get_running_loop(), print)
    await store.open()
    beating = asyncio.get_running_loop().create_task(beat((store,)))
    names = [TopicPartition(_TOPIC, number) for number in range(_FOLLOWED)]
    nodes = await store.get_many([layout.partition_state_path(name) for name in names])
    beating.cancel()
    await store.close()
    stats = [node.stat for node in nodes if node is not None]
    return _States([stat.version for stat in stats], {stat.mzxid for stat in stats})


def _churn(
    store: str, rounds: int, run_bytes: int, driver: Driver
) -> dict[tuple[str, str], list[float]]:
    found: dict[tuple[str, str], list[float]] = {}
    config = {"replica.lag.time.max.ms": str(_LAG_MS), "replica.fetch.wait.max.ms": "100"}
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
        cluster = LocalCluster(f"{directory}/cluster", _BROKERS, config=config, store=store)
        cluster.up()
        try:
            controller = controller_of(cluster)
            leader, follower = (each for each in cluster.broker_ids if each != controller)
            with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
                replicas = (leader, follower, controller)
                assignment = dict.fromkeys(range(_PARTITIONS), replicas)
                for topic in ("fast", "slow"):
                    settings = {"min.insync.replicas": "2"}
                    client.create_topic(topic, configs=settings, assignment=assignment)
                    client.await_topic(topic, _BROKERS)
            for number in range(rounds):
                hows = ("quiet", "churn") if number % 2 == 0 else ("churn", "quiet")
                for how in hows:
                    with _churning(cluster, follower if how == "churn" else None):
                        speed, p99_ms = _produce(
                            driver, cluster.places()[leader].address, run_bytes
                        )
                    cluster.await_full_isrs(_LIMIT_S)
                    found.setdefault((_THROUGHPUT, how), []).append(speed)
                    found.setdefault((_P99, how), []).append(p99_ms)
        finally:
            cluster.down(timeout_s=_LIMIT_S)
    return found


def _produce(driver: Driver, bootstrap: str, run_bytes: int) -> tuple[float, float]:
    """Return MiB/s of many records, and p99 in ms of single ones."""
    arguments = (bootstrap, "fast", _PARTITIONS, _RECORD_BYTES, run_bytes, -1)
    result = driver.run("produce", *arguments, options=PRODUCER_OPTIONS)
    arguments = (bootstrap, "slow", _PARTITIONS, _RECORD_BYTES, _LATENCY_S, -1)
    latency = driver.run("latency", *arguments, options=LATENCY_OPTIONS)
    return result["bytes"] / MIB / result["seconds"], latency["p99_ms"]


@contextmanager
def _churning(cluster: LocalCluster, follower: int | None) -> Iterator[None]:
    """Pause and resume a follower once a second while the block runs; None: nothing."""
    if follower is None:
        yield
        return
    is_over = threading.Event()

    def churn() -> None:
        while not is_over.is_set():
            cluster.pause(follower)
            is_over.wait(_PAUSE_S)
            cluster.resume(follower)
            is_over.wait(_PAUSE_S)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
