"""Phases in which a host or a log directory stays broken, and other replicas must lead (D4, E6).

In the phase of an absent host, all brokers are killed at once, and one of them stays down. Within a
minute, every partition with as many live members as its effective min.insync.replicas must have a
leader. Only this phase reveals a controller that waits forever for a dead member.

The phase of a failed directory begins when all replicas are in sync after the faults. Then one
directory of one broker fails. Within a minute, every partition whose members outside the failed
directory suffice for an election (E6) must have a leader among these members. No replica in the
failed directory may stay in an ISR with other members. The phase ends when the failed directory is
repaired. Only the phase of a failed directory reveals an offline replica that stays in the ISR
forever.
"""

from __future__ import annotations

import random
from functools import partial

from tidelog.sim.disk import Loss
from tidelog.sim.log_dir_failure import DEVICE_ERRNOS, LogDirFailure
from tidelog.sim.loop import NS_PER_S
from tidelog.sim.observed.published_state import PublishedPartition
from tidelog.sim.phases.stage import LIVENESS_LIMIT_NS, Stage
from tidelog.sim.sim_cluster import SimCluster

#: Maximum time in ns to wait for a call that fails. If no call fails in this time, the directory is
#: idle, and the broker cannot notice the failure.
_MEETS_NS = 5 * NS_PER_S
#: Shortest and longest time in ms for which the directory stays failed after other replicas lead.
_STAYS_MS = (0, 2_000)


def play_host(stage: Stage) -> bool:
    """Keep one broker down; return whether other brokers lead in time."""
    _kill_all(stage)
    limit_ns = stage.after_ns(LIVENESS_LIMIT_NS)
    if not stage.wait(partial(_without_leader, stage), limit_ns, "led without a host"):
        return False
    stage.cluster.start()
    return True


def _kill_all(stage: Stage) -> None:
    """Kill every broker whose crash the fault budget allows; start all killed brokers but one."""
    cluster = stage.cluster
    restart, cluster.on_broker_death = cluster.on_broker_death, None
    for broker in cluster.brokers.values():
        broker.crash(Loss.NONE, "all brokers are killed, and one host does not return")
    cluster.on_broker_death = restart
    down = [broker for broker in cluster.brokers.values() if broker.life is None]
    absentee = stage.draw.choice(down) if down else None
    for broker in down:
        if broker is not absentee:
            broker.start()


def _without_leader(stage: Stage) -> str:
    """Describe the first partition without a leader that has enough members for an election; empty
    if none.
    """
    if missing := stage.unregistered():
        return missing
    present = stage.present
    for name, state in stage.partitions():
        if state.leader >= 0:
            continue
        here = [member for member in state.members if member in present]
        if len(here) >= stage.cluster.published.quorum(state):
            return f"{name} has no leader; members {here} of {list(state.members)} are there"
    return ""


def play_directory(stage: Stage) -> bool:
    """Play the phase of a failed directory; return False after a violation."""
    cluster = stage.cluster
    if not stage.wait_for_health():
        return False
    failure = _begin(cluster, stage.draw)
    if failure is None:
        return True
    restart, cluster.on_broker_death = cluster.on_broker_death, None
    stage.look_for(lambda: failure.has_begun, _MEETS_NS)
    if failure.has_begun:
        waiting, limit_ns = partial(in_failed_directory, stage), stage.after_ns(LIVENESS_LIMIT_NS)
        if not stage.wait(waiting, limit_ns, "led without a directory", "directory"):
            return False
        stage.stay(*_STAYS_MS)
    is_emptied = stage.draw.random() < 0.5
    is_repaired = stage.wait(
        lambda: not failure.repair(is_emptied=is_emptied),
        stage.after_ns(LIVENESS_LIMIT_NS),
        "a directory is repaired",
    )
    cluster.on_broker_death = restart
    cluster.start()
    return is_repaired


def _begin(cluster: SimCluster, draw: random.Random) -> LogDirFailure | None:
    """Plan the failure of a directory with replicas; return None if no directory has replicas."""
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


def in_failed_directory(stage: Stage) -> str:
    """Describe a partition with a leader or ISR member in a failed directory; empty if there is
    none.
    """
    if missing := stage.unregistered():
        return missing
    cluster, present = stage.cluster, stage.present
    for name, state in stage.partitions():
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
