"""A host that does not return: the others must lead what k members can lead (E6).

After the faults all brokers are killed at once, and one of them stays away. Within the limit of
liveness every partition has a leader, unless fewer members than its effective minimum are there.
Without this phase every run would end with all brokers up, and a controller that waits for a dead
member for ever would go unnoticed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tidelog.sim.checkers.published_state import PublishedPartition
from tidelog.sim.disk import Loss
from tidelog.sim.sim_cluster import SimCluster


def begin(cluster: SimCluster, draw: random.Random) -> None:
    """Kill every broker that the fault budget does not spare; start all of them but one."""
    restart, cluster.on_broker_death = cluster.on_broker_death, None
    for broker in cluster.brokers.values():
        broker.crash(Loss.NONE, "all brokers are killed, and one host does not return")
    cluster.on_broker_death = restart
    down = [broker for broker in cluster.brokers.values() if broker.life is None]
    absentee = draw.choice(down) if down else None
    for broker in down:
        if broker is not absentee:
            broker.start()


def awaited(cluster: SimCluster) -> str:
    """Return the first partition without a leader that could have one; empty if there is none."""
    missing = unregistered(cluster)
    if missing:
        return missing
    present = present_brokers(cluster)
    for name, state in partitions(cluster):
        if state.leader >= 0:
            continue
        here = [member for member in state.members if member in present]
        if len(here) >= cluster.published.quorum(state):
            return f"{name} has no leader; members {here} of {list(state.members)} are there"
    return ""


def present_brokers(cluster: SimCluster) -> set[int]:
    """Return the brokers whose processes run."""
    return {each.node_id for each in cluster.brokers.values() if each.life is not None}


def unregistered(cluster: SimCluster) -> str:
    """Return which running brokers are not registered; empty if all are."""
    present, registered = present_brokers(cluster), cluster.published.brokers.keys()
    if present <= registered:
        return ""
    return f"of brokers {sorted(present)} only {sorted(registered)} are registered"


def partitions(cluster: SimCluster) -> Iterator[tuple[str, PublishedPartition]]:
    """Yield the name and the state of each partition that waits for no operator."""
    published = cluster.published
    for topic in published.topics.values():
        for partition in topic.assignment:
            key = published.key(topic.topic_id, partition)
            state = published.partitions.get(key)
            if state is not None and state.isr and not cluster.waits_for_operator(key):
                yield f"{topic.name}-{partition}", state
