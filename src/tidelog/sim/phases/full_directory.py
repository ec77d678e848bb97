"""The phase of full log directories: reads must go on, and other replicas must lead (D14).

After the faults, when all replicas are in sync, one directory of one broker or of each broker is
filled, and becomes read-only. If only one broker has a full directory, it must lead no partition in
this directory while another member of the ISR is up. Consumers that begin during the phase must be
able to read everything that is committed. At the end of the phase the directories get free space
again, and the final phase checks that producers and replicas continue.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Final

from tidelog.sim.disk import SimDisk
from tidelog.sim.loop import NS_PER_S
from tidelog.sim.phases import rereading
from tidelog.sim.phases.stage import Stage
from tidelog.sim.sim_broker import SimBroker
from tidelog.sim.sim_cluster import SimCluster

#: Maximum time in ns to wait until brokers notice the full disks; a broker notices a full disk only
#: by a write.
_MEETS_NS: Final = 12 * NS_PER_S
#: Maximum time in ns until reads make progress, and until replicas outside the full directories
#: lead. It is shorter than the minute for a recovery, because nothing must be repaired.
_SERVES_NS: Final = 15 * NS_PER_S
#: Number of records that a consumer must read within `_SERVES_NS`, unless it reads all before.
_READS: Final = 100
#: Share of the seeds that fill a directory of each broker.
_EVERYWHERE: Final = 0.5
#: Shortest and longest time in ms for which the directories stay full after the phase's conditions
#: hold.
_STAYS_MS: Final = (0, 2_000)


def play(stage: Stage) -> bool:
    """Play the phase; return False after a violation."""
    simulator = stage.cluster.simulator
    if not stage.wait_for_health():
        return False
    filled = _fill(stage.cluster, stage.draw)
    stage.look_for(lambda: all(_is_read_only(*each) for each in filled), _MEETS_NS)
    if simulator.violations or not _all_read(stage):
        return False
    if len(filled) == 1:
        led = partial(_led, stage, *filled[0])
        if not stage.wait(led, stage.after_ns(_SERVES_NS), "led elsewhere", "directory"):
            return False
    stage.stay(*_STAYS_MS)
    for _, disk in filled:
        disk.free()
    simulator.note(-1, "fault", "the full directories are freed")
    return not simulator.violations


def _all_read(stage: Stage) -> bool:
    """Wait until consumers have read all records; return False if one reads too little.

    The wait as a whole has no limit, because the amount of records differs from run to run.
    """
    reading = rereading.begin(stage.cluster, stage.workload, is_growing=True)
    while before := reading.behind():
        if not stage.wait(
            partial(reading.crawls, before, _READS),
            stage.after_ns(_SERVES_NS),
            "everything committed is read from full directories",
        ):
            return False
    return True


def _fill(cluster: SimCluster, draw: random.Random) -> list[tuple[SimBroker, SimDisk]]:
    brokers = list(cluster.brokers.values())
    if draw.random() >= _EVERYWHERE:
        brokers = [draw.choice(brokers)]
    filled = []
    for broker in brokers:
        disks = {log.disk: None for log in broker.logs.logs.values()}
        if disks:
            filled.append((broker, draw.choice(list(disks))))
    for broker, disk in filled:
        disk.fill(draw.randrange(200))
        cluster.simulator.note(-1, "fault", f"{disk.root} of {broker.node_id} stays full")
    return filled


def _is_read_only(broker: SimBroker, disk: SimDisk) -> bool:
    return broker.broker is not None and any(
        directory.path == disk.root and directory.space.is_full
        for directory in broker.broker.replicas.directories
    )


def _led(stage: Stage, broker: SimBroker, disk: SimDisk) -> str:
    """Describe a partition that is led in the full directory although another ISR member is up;
    empty if none.
    """
    if not _is_read_only(broker, disk):
        return ""
    return stage.led_in_vain([(broker.node_id, disk)], "full")
