"""A host that does not return: the others must lead what k members can lead (E6).

After the faults all brokers are killed at once, and one of them stays away. Within the limit of
liveness every partition has a leader, unless fewer members than its effective minimum are there.
Without this phase every run would end with all brokers up, and a controller that waits for a dead
member for ever would go unnoticed.
"""

from __future__ import annotations

import random

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
    published = cluster.published
    present = {each.node_id for each in cluster.brokers.values() if each.life is not None}
    if present & published.brokers.keys() != present:
        return f"of brokers {sorted(present)} only {sorted(published.brokers)} are registered"
    for topic in published.topics.values():
        for partition in topic.assignment:
            key = published.key(topic.topic_id, partition)
            state = published.partitions.get(key)
            if state is None or not state.isr or state.leader >= 0:
                continue
            if cluster.waits_for_operator(key):
                continue
            here = [member for member in state.members if member in present]
            if len(here) >= min(published.effective_minimum(key), len(state.members)):
                return (
                    f"{topic.name}-{partition} has no leader; members {here} of"
                    f" {list(state.members)} are there"
                )
    return ""
