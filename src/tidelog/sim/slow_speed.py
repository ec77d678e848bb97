"""The speed of slow log directories, and the operator who restarts brokers that gave one up (D13).

A slow directory takes some milliseconds for each operation: more than any operation of a quick one,
and little enough that the work of the clients does not pile up.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.log_dir_keys import OFFLINE
from tidelog.sim.disk import SLOW_NS, Loss, SimDisk
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.sim_broker import SimBroker
from tidelog.sim.sim_cluster import SimCluster

#: Range of the time of an operation; the profile's threshold is below.
_OPERATION_NS: Final = (5 * NS_PER_MS, 9 * NS_PER_MS)
_LOOK_NS: Final = 500 * NS_PER_MS


def slow(disk: SimDisk) -> None:
    """Slow down a disk."""
    disk.slow, disk.slow_ns = True, _OPERATION_NS
    disk.count("slow directory")


def quicken(disk: SimDisk) -> None:
    """End the slowness of a disk."""
    disk.slow, disk.slow_ns = False, SLOW_NS


def given_up(broker: SimBroker) -> str:
    """Return a directory that a broker gave up although its device works; empty if there is none.

    Only slowness makes a broker do so.
    """
    if broker.broker is None:
        return ""
    failed = broker.broker.replicas.failed
    working = [disk.root for disk in broker.logs.disks if disk.fault is None]
    return next((root for root in working if root in failed), "")


def restart_given_up(cluster: SimCluster) -> None:
    """Restart, from now on, each broker that gave a directory up and has only quick ones.

    Looks again and again, because the fault budget may refuse it for now.
    """
    if cluster.settings.of(1).log_dir_slow_action != OFFLINE:
        return
    for broker in cluster.brokers.values():
        directory = given_up(broker)
        if directory and not any(disk.slow for disk in broker.logs.disks):
            broker.crash(Loss.NONE, f"{directory} is quick again")
    cluster.simulator.scheduler.after(_LOOK_NS, None, restart_given_up, cluster)
