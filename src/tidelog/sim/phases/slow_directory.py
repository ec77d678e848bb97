"""The phase of slow log directories: other replicas must lead, as long as directories are slow
(D13).

After the faults, when all replicas are in sync, one directory of a broker becomes slow, or all
directories of one broker, or all directories of all brokers. The checks begin when the brokers have
found the slow directories. If only one broker is slow, it must lead no partition in a slow
directory while another member of the ISR is up. If all brokers are slow, leadership must move at
most once to each broker. A broker whose directories are all slow must give up none of them.
At the end of the phase the directories are quick again, and their brokers must notice this, even
without other operations on them.

The final phase then checks that producers and replicas continue.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Final

from tidelog.core.log_dir_keys import DEMOTE, slow_action_includes
from tidelog.sim import log_dir_failure
from tidelog.sim.client_workload import ClientWorkload
from tidelog.sim.disk import SimDisk
from tidelog.sim.loop import NS_PER_S
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.phases.stage import Stage
from tidelog.sim.sim_broker import SimBroker
from tidelog.sim.sim_cluster import SimCluster

#: Maximum time in ns to wait until brokers find the slow directories; a broker does not notice that
#: an idle directory is slow.
_FOUND_NS: Final = 8 * NS_PER_S
#: Maximum time in ns until replicas outside the slow directories lead.
_LED_NS: Final = 15 * NS_PER_S
#: Shortest and longest time in ms for which the directories stay slow after the phase's conditions
#: hold.
_STAYS_MS: Final = (0, 8_000)
#: Maximum time in ns until quick directories count as fast again: six of the windows in which
#: brokers measure directories.
_HEALS_NS: Final = 10 * NS_PER_S
#: Kinds of changes by clients (`workload/churning`) that cause new leader epochs.
_ELECTING: Final = (
    "leaders_elected", "partitions_moved", "moves_queued", "moves_throttled", "nodes_edited",
)  # fmt: skip
_Pair = tuple[SimBroker, SimDisk]


def play(stage: Stage) -> bool:
    """Play the phase; return False after a violation."""
    cluster = stage.cluster
    if not stage.wait_for_health():
        return False
    log_dir_failure.restart_given_up(cluster)
    found_slow = partial(_found_slow, cluster)
    # Earlier faults may have slowed some directories: wait until all directories count as fast.
    if not stage.wait(found_slow, stage.after_ns(_HEALS_NS), "fast before the phase"):
        return False
    epochs = {key: state.leader_epoch for key, state in cluster.published.partitions.items()}
    slowed = _slow(cluster, stage.draw)
    stage.look_for(lambda: all(_is_found(*each) for each in slowed), _FOUND_NS)
    if cluster.simulator.violations:
        return False
    brokers = list(dict.fromkeys(broker for broker, _ in slowed))

    def others_lead() -> bool:
        what, led = "led by fast directories", partial(_led, stage, slowed)
        return len(brokers) > 1 or stage.wait(led, stage.after_ns(_LED_NS), what, "directory")

    if not others_lead():
        return False
    stage.stay(*_STAYS_MS)
    if not others_lead():
        return False
    if len(brokers) > 1 and not _administrators_elect(stage.workload):
        _check_rest(cluster, epochs)
    _check_kept(brokers, cluster)
    for _, disk in slowed:
        log_dir_failure.quicken(disk)
    cluster.simulator.note(-1, "fault", "the slow directories are quick again")
    return stage.wait(found_slow, stage.after_ns(_HEALS_NS), "quick directories are fast again")


def _slow(cluster: SimCluster, draw: random.Random) -> list[_Pair]:
    broker = draw.choice(list(cluster.brokers.values()))
    disks = {log.disk: None for log in broker.logs.logs.values()}
    what = draw.choice(("directory", "machine", "cluster"))
    pairs = [(broker, disk) for disk in broker.logs.disks]
    if what == "directory" and disks:
        pairs = [(broker, draw.choice(list(disks)))]
    elif what == "cluster":
        pairs = [(each, disk) for each in cluster.brokers.values() for disk in each.logs.disks]
    for each, disk in pairs:
        log_dir_failure.slow(disk)
        cluster.simulator.note(-1, "fault", f"{disk.root} of {each.node_id} stays slow")
    return pairs


def _is_found(broker: SimBroker, disk: SimDisk) -> bool:
    """Return whether a broker has found a directory slow, or has given it up."""
    if broker.broker is None:
        return False
    replicas = broker.broker.replicas
    return disk.root in replicas.failed or any(
        each.path == disk.root and each.speed.is_slow for each in replicas.directories
    )


def _found_slow(cluster: SimCluster) -> str:
    """Describe a directory that its broker has found slow or has given up; empty if there is
    none.
    """
    for broker in cluster.brokers.values():
        for disk in broker.logs.disks:
            if _is_found(broker, disk):
                return f"{disk.root} of {broker.node_id}"
    return ""


def _led(stage: Stage, slowed: list[_Pair]) -> str:
    """Describe a partition that is led in a slow directory although another ISR member is up; empty
    if none.
    """
    if not slow_action_includes(stage.cluster.settings.of(1).log_dir_slow_action, DEMOTE):
        return ""
    slow = [(broker.node_id, disk) for broker, disk in slowed if _is_found(broker, disk)]
    return stage.led_in_vain(slow, "slow")


def _administrators_elect(workload: ClientWorkload) -> bool:
    """Return whether administrators in this run cause new leader epochs."""
    churning = workload.churning
    return churning is not None and any(each.name in _ELECTING for each in churning.kinds)


def _check_rest(cluster: SimCluster, epochs: dict[LogKey, int]) -> None:
    """Check that the leadership of a partition does not move again and again between slow
    brokers.
    """
    for key, epoch in epochs.items():
        state = cluster.published.partitions.get(key)
        if state is None or cluster.published.is_over(key):
            continue
        changes = state.leader_epoch - epoch
        if changes > len(cluster.brokers):
            cluster.simulator.violate(
                f"leadership of partition {key.partition} of {key.topic_id.hex()} moved {changes}"
                " times between slow brokers (D13)"
            )


def _check_kept(brokers: list[SimBroker], cluster: SimCluster) -> None:
    """Check that a broker whose directories are all slow gave up none of them."""
    for broker in brokers:
        given_up = log_dir_failure.given_up(broker)
        if given_up and all(disk.slow for disk in broker.logs.disks):
            cluster.simulator.violate(
                f"broker {broker.node_id} gave {given_up} up, and all of its directories are slow"
            )
