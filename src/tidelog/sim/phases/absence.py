"""A host that does not return: the others must lead what k members can lead (E6).

After the faults all brokers are killed at once, and one of them stays away. Within the limit of
liveness every partition has a leader, unless fewer members than its effective minimum are there.
Without this phase a controller that waits for a dead member for ever would go unnoticed.
"""

from __future__ import annotations

from functools import partial

from tidelog.sim.disk import Loss
from tidelog.sim.phases.stage import LIVENESS_LIMIT_NS, Stage


def play(stage: Stage) -> bool:
    """Let one broker stay away; return whether the others lead in time."""
    _kill_all(stage)
    limit_ns = stage.after_ns(LIVENESS_LIMIT_NS)
    if not stage.wait(partial(_awaited, stage), limit_ns, "led without a host"):
        return False
    stage.cluster.start()
    return True


def _kill_all(stage: Stage) -> None:
    """Kill every broker that the fault budget does not spare; start all of them but one."""
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


def _awaited(stage: Stage) -> str:
    """Return the first partition without a leader that could have one; empty if there is none."""
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
