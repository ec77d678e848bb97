"""The phase of full log directories: reads must go on, and other replicas must lead (D14).

After the faults, when all replicas are in sync, one directory of one broker or of each broker is
filled, and becomes read-only. If only one broker has a full directory, it must lead no partition in
this directory while another member of the ISR is up. Elections of preferred replicas, requested
twice, must not return a leadership to this directory. Consumers that begin during the phase must be
able to read everything that is committed. At the end of the phase the directories get free space
again, and the final phase checks that producers and replicas continue.
"""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Final

from tidelog.metadata import layout
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
        for is_known in (False, True):
            if not _elect_preferred(stage, *filled[0], is_known=is_known):
                return False
    stage.stay(*_STAYS_MS)
    for _, disk in filled:
        disk.free()
    simulator.note(-1, "fault", "the full directories are freed")
    return not simulator.violations


def _elect_preferred(stage: Stage, broker: SimBroker, disk: SimDisk, *, is_known: bool) -> bool:
    """Request preferred leaders for all partitions; return False after a violation.

    A first election may return a leadership to the full directory, because the report of a follower
    may still be under way to the controller. Then the broker gives the leadership up and reports
    that, so that a second election (`is_known`) must not return the leadership. If the directory
    had space in between, or if there is another controller, the election proves nothing.
    """
    cluster, limit_ns = stage.cluster, stage.after_ns(_SERVES_NS)
    store, path = cluster.store, layout.PREFERRED_REPLICA_ELECTION
    before = _full_since_ms(broker, disk), cluster.published.controller_epoch
    asked = [{"topic": name.topic, "partition": name.partition} for name, _ in stage.partitions()]
    if before[0] is None or not asked:
        return True
    store.write_from_outside(path, json.dumps({"version": 1, "partitions": asked}).encode())
    if not stage.wait(lambda: store.tree.get(path), limit_ns, "preferred leaders are elected"):
        return False
    is_same = (_full_since_ms(broker, disk), cluster.published.controller_epoch) == before
    led = _led(stage, broker, disk)
    if led and is_same and is_known:
        cluster.simulator.violate(f"an election returned a leadership to a full directory: {led}")
        return False
    return stage.wait(partial(_led, stage, broker, disk), limit_ns, "led elsewhere", "directory")


def _full_since_ms(broker: SimBroker, disk: SimDisk) -> int | None:
    """Return since when a broker knows that its directory is full; None if it is not full."""
    directories = [] if broker.broker is None else broker.broker.replicas.directories
    return next(
        (each.space.free.full_since_ms for each in directories if each.path == disk.root), None
    )


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
