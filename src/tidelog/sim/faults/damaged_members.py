"""Scenario of a leader with a damaged log that loses its leadership before it can leave the ISR.

Its request to the controller is late, and the preferred replica is elected meanwhile. So a member
of the ISR follows, and knows that its log is damaged (V68). Keeps within the fault budget.
"""

from __future__ import annotations

from tidelog.sim.faults.context import FaultContext, Scenario
from tidelog.sim.faults.disks import damage_leader
from tidelog.sim.faults.kinds import scenario
from tidelog.sim.faults.steps import in_time
from tidelog.sim.faults.store import elect_preferred, expire
from tidelog.sim.loop import NS_PER_MS


@scenario
def damaged_member(context: FaultContext) -> Scenario:
    """Let a leader that has read damage become a follower that is still in the ISR.

    Nothing happens where every partition is led by its preferred replica: then a session expires,
    so that some are not.
    """
    cluster = context.cluster
    network, published = cluster.simulator.network, cluster.published
    while True:
        yield context.draw.uniform(200, 900)
        controller = context.controller()
        cases = [
            state
            for key, state in published.partitions.items()
            if key.topic_id in published.all_topics
            and published.all_topics[key.topic_id].name == "steady"
            and len(state.isr) > 2
            and state.leader != published.all_topics[key.topic_id].assignment[key.partition][0]
        ]
        if controller is None or not cases:
            expire(context, context.leader())
            yield context.draw.uniform(300, 1_500)
            continue
        state = context.draw.choice(cases)
        leader, found = cluster.brokers[state.leader], cluster.damage.found_count
        if not damage_leader(context, state.key):
            continue
        hosts = leader.node.host, controller.node.host
        context.note(f"{hosts[0]}>{hosts[1]} is late")
        network.slow_down(*hosts, 1_200 * NS_PER_MS, 0)
        is_read = yield from in_time(lambda found=found: cluster.damage.found_count > found)  # type: ignore[misc]  # bound now
        if is_read and elect_preferred(context):
            context.count("scenario")
            yield context.draw.uniform(300, 1_300)
        network.slow_down(*hosts, 0, 0)
        yield context.draw.uniform(300, 1_500)
