"""A follower that fetches without a registration, and what its fetches count for (V63, E3).

The session ends, the process lives on and catches up, and then its unsynced data is lost. The next
incarnation of that broker has less than the leader last saw.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tidelog.sim.disk import Loss
from tidelog.sim.faults.context import FaultContext, Scenario
from tidelog.sim.faults.kinds import scenario_of_partition
from tidelog.sim.faults.steps import in_time, is_member, push_out, take_back
from tidelog.sim.faults.store import expire
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.observed.published_state import PublishedPartition
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.sim_broker import SimBroker
from tidelog.sim.sim_cluster import STORE_HOST

#: Interval of the looks at published state while the scenario waits for its next step.
_LOOK_MS: Final = 10.0
#: Delay of a follower's fetches: the leader hears from the controller first.
_LATE_NS: Final = 500 * NS_PER_MS
#: Interval of the looks for a moment that passes within some requests to the store.
_STEP_MS: Final = 0.2


def _are_out(context: FaultContext, key: LogKey, broker_ids: list[int]) -> bool:
    return not any(is_member(context, key, broker_id) for broker_id in broker_ids)


def _has_no_session(broker: SimBroker) -> bool:
    return broker.store is not None and broker.store.session_id is None


@scenario_of_partition(100, 600)
def unregistered_fetches(context: FaultContext, state: PublishedPartition) -> Scenario:
    """Let a follower catch up without a registration, then lose its power, return, and lead (V63).

    Both followers have left the ISR before, so the high watermark and the leader epoch stay. The
    leader learns of the return before the follower's next fetch arrives. It is killed once the
    follower is in the ISR.
    """
    cluster, network = context.cluster, context.cluster.simulator.network
    key, leader = state.key, cluster.brokers[state.leader]
    followers = [member for member in state.isr if member != state.leader]
    follower = cluster.brokers[context.draw.choice(followers)]
    host = follower.node.host
    context.count("scenario")
    push_out(context, state.leader, followers)
    yield from in_time(partial(_are_out, context, key, followers), _LOOK_MS)
    # The follower hears that its session is over, and cannot register again.
    expire(context, follower)
    yield from in_time(partial(_has_no_session, follower), _STEP_MS)
    network.cut(host, STORE_HOST)
    network.heal(leader.node.host, host)
    yield context.draw.uniform(200, 800)
    follower.crash(Loss.ALL_UNSYNCED, "the power fails while it has no registration")
    network.heal(host, STORE_HOST)
    network.slow_down(host, leader.node.host, _LATE_NS, 0)
    yield from in_time(partial(is_member, context, key, follower.node_id), _LOOK_MS)
    leader.crash(Loss.NONE, "is killed once the follower is a member")
    take_back(context, state.leader, followers)
    network.slow_down(host, leader.node.host, 0, 0)
    yield context.draw.uniform(1_000, 3_000)
