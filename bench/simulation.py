"""Speed of the simulator with all checkers on, of one core: events, records, states, virtual time.

Two loads: seeds of the default profile, which is busy and full of faults, and a quiet cluster whose
virtual time shall go by a hundred times faster than the real one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench.rig import spread, table
from tidelog.core.types import TopicPartition
from tidelog.sim.broker_settings import BrokerSettings
from tidelog.sim.loop import NS_PER_S
from tidelog.sim.results import RunResult
from tidelog.sim.run import BROKERS, run_seed
from tidelog.sim.seeds import stream
from tidelog.sim.sim_cluster import SimCluster
from tidelog.sim.simulator import CollectorPaused, Simulator
from tidelog.sim.workload.administrator import Administrator
from tidelog.sim.workload.client import ClientNode
from tidelog.sim.workload.partition_producers import Numbers, PartitionProducer

SEEDS = range(1000, 1020)
QUIET_SEEDS = range(5)
QUIET_PARTITIONS = 4
QUIET_OPERATIONS_PER_S = 5
#: Virtual time that a quiet cluster is measured for.
QUIET_S = 60
_START_LIMIT_NS = 30 * NS_PER_S
_TOPIC = "steady"
_CLIENT_TIMEOUT_MS = 4_000


@dataclass(frozen=True, slots=True)
class Timed:
    """A run, and the processor time that it took."""

    result: RunResult
    cpu_s: float


def run() -> list[str]:
    """The tables of the simulator's speed."""
    busy = measured(SEEDS, run_seed, time.process_time)
    quiet = [quiet_speed(seed, QUIET_S, time.process_time) for seed in QUIET_SEEDS]
    return [report(busy, quiet)]


def measured(
    seeds: Iterable[int], make: Callable[[int], RunResult], cpu_s: Callable[[], float]
) -> list[Timed]:
    """Runs with their times; exits at a violation, which would have ended its run too early."""
    found = []
    for seed in seeds:
        began_s = cpu_s()
        result = make(seed)
        found.append(Timed(result, cpu_s() - began_s))
        if result.violation:
            raise SystemExit(f"seed {seed}: {result.violation}")
    return found


def report(busy: list[Timed], quiet: list[float]) -> str:
    """The table."""
    minutes = sum(each.cpu_s for each in busy) / 60
    acknowledged = sum(each.result.counters["acknowledged records"] for each in busy)
    marks = {name for each in busy for name in each.result.marks}
    speeds = [each.result.events / each.cpu_s for each in busy]
    ratios = [each.result.simulated_ns / NS_PER_S / each.cpu_s for each in busy]
    load = (
        f"{BROKERS} brokers, {QUIET_PARTITIONS} partitions, {QUIET_OPERATIONS_PER_S} produces a"
        " second, no faults"
    )
    return table(
        f"Simulation, all checkers on ({len(busy)} seeds of the default profile, one core)",
        [
            ("delivered events per CPU second", spread(speeds), ">= 10,000"),
            ("acknowledged records per CPU minute", f"{acknowledged / minutes:,.0f}", ""),
            ("distinct interesting states per CPU minute", f"{len(marks) / minutes:,.0f}", ""),
            ("distinct interesting states in all", str(len(marks)), ""),
            ("simulated over CPU time", spread(ratios, 1), ""),
            (f"simulated over CPU time: {load}", spread(quiet, 1), ">= 100"),
        ],
        ("", "", "aim"),
    )


def quiet_speed(seed: int, seconds: float, cpu_s: Callable[[], float]) -> float:
    """How much faster than real time a healthy cluster with few clients goes."""
    with CollectorPaused():
        world = Simulator(seed)
        try:
            cluster = _quiet_cluster(world)
            began_s, began_ns = cpu_s(), world.now_ns
            world.run_until(world.now_ns + int(seconds * NS_PER_S))
            world.check()
            operations = len(cluster.history.produces)
            if operations < seconds * QUIET_OPERATIONS_PER_S / 2:
                raise SystemExit(f"seed {seed}: only {operations} operations in {seconds} s")
            return (world.now_ns - began_ns) / NS_PER_S / (cpu_s() - began_s)
        finally:
            world.close()


def _quiet_cluster(world: Simulator) -> SimCluster:
    """A cluster in sync, whose producers have begun."""
    cluster = SimCluster(world, BROKERS, BrokerSettings())
    cluster.start()

    def client(node_id: int) -> ClientNode:
        node = world.add_node(node_id, f"client{node_id}")
        return ClientNode(node, cluster.history, cluster.bootstrap, _CLIENT_TIMEOUT_MS)

    administrator = client(101)
    admin = Administrator(administrator, stream(world.seed, "admin"))
    configs = {"min.insync.replicas": "2"}
    made = administrator.tasks.spawn(
        "create", admin.create(_TOPIC, QUIET_PARTITIONS, BROKERS, configs)
    )
    world.run_while(lambda: not made.done() or bool(cluster.health()), _START_LIMIT_NS)
    world.check()
    writer, numbers = client(102), Numbers()
    for partition in range(QUIET_PARTITIONS):
        producer = PartitionProducer(
            writer,
            TopicPartition(_TOPIC, partition),
            numbers,
            stream(world.seed, "producer", partition),
            pace_ms=1_000 * QUIET_PARTITIONS // QUIET_OPERATIONS_PER_S,
        )
        writer.tasks.spawn(f"produce {partition}", producer.run())
    return cluster
