"""A log directory that stays failed: the other replicas must lead without it (D4, E6).

After the faults, when all replicas are in sync, one directory of one broker fails. Within the limit
of liveness every partition has a leader elsewhere if enough of its members are good, and no replica
of a live broker in the failed directory is in an ISR beside others. Then the directory is repaired.
Without this phase every run would end with all directories good, and a replica that is offline and
stays in the ISR for ever would go unnoticed.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tidelog.sim import absence
from tidelog.sim.checkers.published_state import PublishedPartition
from tidelog.sim.log_dir_failure import DEVICE_ERRNOS, LogDirFailure
from tidelog.sim.loop import NS_PER_MS, NS_PER_S
from tidelog.sim.sim_cluster import SimCluster

#: Time within which some call meets the failure; a directory without writes keeps its secret.
_MEETS_NS = 5 * NS_PER_S
#: Range of the time that the directory stays failed after the others lead.
_STAYS_MS = (0, 2_000)

#: Runs until a condition no longer holds; returns whether it ended in time without a violation.
Wait = Callable[[Callable[[], bool], int, str], bool]


def play(cluster: SimCluster, draw: random.Random, wait: Wait, limit_ns: int) -> bool:
    """Play the phase; return whether nothing was violated. Each wait takes at most `limit_ns`."""
    simulator = cluster.simulator
    if not wait(lambda: bool(cluster.health()), simulator.now_ns + limit_ns, "in sync again"):
        return False
    failure = _begin(cluster, draw)
    if failure is None:
        return True
    restart, cluster.on_broker_death = cluster.on_broker_death, None
    until_ns = simulator.now_ns + _MEETS_NS
    while not failure.has_begun and simulator.now_ns < until_ns and not simulator.violations:
        simulator.run_until(simulator.now_ns + 20 * NS_PER_MS)
    if failure.has_begun:
        due_ns = simulator.now_ns + limit_ns
        if not wait(lambda: bool(awaited(cluster)), due_ns, "led without a directory"):
            simulator.note(-1, "directory", awaited(cluster))
            return False
        simulator.run_until(simulator.now_ns + draw.randrange(*_STAYS_MS) * NS_PER_MS)
    is_emptied = draw.random() < 0.5
    is_repaired = wait(
        lambda: not failure.repair(is_emptied=is_emptied),
        simulator.now_ns + limit_ns,
        "a directory is repaired",
    )
    cluster.on_broker_death = restart
    cluster.start()
    return is_repaired


def _begin(cluster: SimCluster, draw: random.Random) -> LogDirFailure | None:
    """Plan the failure of a directory with replicas; return None if there is none."""
    targets = [
        (broker, disk)
        for broker in cluster.brokers.values()
        for disk in broker.logs.disks
        if disk.fault is None and any(log.disk is disk for log in broker.logs.logs.values())
    ]
    if not targets:
        return None
    broker, disk = draw.choice(targets)
    cluster.simulator.note(-1, "fault", f"{disk.root} of {broker.node_id} fails and stays so")
    return LogDirFailure(cluster, broker, disk, draw.choice(DEVICE_ERRNOS), 1)


def awaited(cluster: SimCluster) -> str:
    """Return the first partition that waits for a failed directory in vain; empty if none does."""
    missing = absence.unregistered(cluster)
    if missing:
        return missing
    present = absence.present_brokers(cluster)
    for name, state in absence.partitions(cluster):
        good = [
            member
            for member in state.members
            if member in present and _is_good(cluster, state, member)
        ]
        if len(good) < cluster.published.quorum(state):
            continue
        if state.leader not in good:
            return f"{name}: leader {state.leader}; members {good} of {state.members} are good"
        offline = [each for each in state.isr if each in present and each not in good]
        if offline:
            return f"{name}: {offline} of ISR {state.isr} are in a failed directory"
    return ""


def _is_good(cluster: SimCluster, state: PublishedPartition, member: int) -> bool:
    log = cluster.brokers[member].logs.logs.get(state.key)
    return log is None or not log.disk.is_failed
