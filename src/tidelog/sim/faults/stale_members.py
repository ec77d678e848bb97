"""Scenarios of replicas that have fewer or other records than the rest of the cluster assumes.

In one scenario, a follower fetches without a registration (V63, E3): its session ends, the follower
catches up, and then it loses its unsynced data. Its next incarnation has fewer records than the
leader last saw.

In another scenario, an older copy of the metadata store is restored while no broker runs (E8). The
copy has the same topics and replicas, but lists as in sync a replica that stopped before the last
records were acknowledged. Brokers stop cleanly or are killed, without a loss of data.

In a third scenario, a leader with a damaged log loses its leadership before it can leave the ISR,
and becomes a follower that knows of its damage (V68).

All scenarios keep within the fault budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from tidelog.metadata import layout
from tidelog.metadata.tree import Tree
from tidelog.sim.disk import Loss
from tidelog.sim.faults.context import FaultContext, Scenario, in_time
from tidelog.sim.faults.disks import damage_leader
from tidelog.sim.faults.kinds import scenario_of_partition, scenario_of_rounds
from tidelog.sim.faults.store import elect_preferred
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.observed.published_state import PublishedPartition
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.sim_broker import SimBroker
from tidelog.sim.sim_cluster import STORE_HOST

#: Interval in ms of the checks of published state between two steps of a scenario.
_LOOK_MS: Final = 10.0
#: Delay of a follower's fetches in ns, so that the leader first learns from the controller that the
#: follower is back.
_LATE_NS: Final = 500 * NS_PER_MS
#: Interval in ms of the checks whether a session is over. It is short, because a broker starts the
#: next session with only a few requests.
_STEP_MS: Final = 0.2


@scenario_of_partition(100, 600)
def unregistered_fetches(context: FaultContext, state: PublishedPartition) -> Scenario:
    """Let a follower catch up without a registration, then lose its power, return, and lead (V63).

    Both followers leave the ISR first, so their later steps change neither the high watermark nor
    the leader epoch. The controller informs the leader that the follower is back before the
    follower's next fetch arrives. The leader is killed once the follower is in the ISR.
    """
    cluster, network = context.cluster, context.cluster.simulator.network
    key, leader = state.key, cluster.brokers[state.leader]
    followers = [member for member in state.isr if member != state.leader]
    follower = cluster.brokers[context.draw.choice(followers)]
    host = follower.node.host
    context.count("scenario")
    context.push_out(state.leader, followers)
    yield from in_time(partial(_are_out, context, key, *followers), _LOOK_MS)
    # Let the follower learn that its session is over, then keep it from registering again.
    context.expire(follower)
    yield from in_time(
        lambda: (store := follower.store) is not None and store.session_id is None, _STEP_MS
    )
    network.cut(host, STORE_HOST)
    network.heal(leader.node.host, host)
    yield context.draw.uniform(200, 800)
    follower.crash(Loss.ALL_UNSYNCED, "the power fails while it has no registration")
    network.heal(host, STORE_HOST)
    network.slow_down(host, leader.node.host, _LATE_NS, 0)
    yield from in_time(partial(context.is_member, key, follower.node_id), _LOOK_MS)
    leader.crash(Loss.NONE, "is killed once the follower is a member")
    context.take_back(state.leader, followers)
    network.slow_down(host, leader.node.host, 0, 0)
    yield context.draw.uniform(1_000, 3_000)


#: Interval in ms of the checks whether brokers have stopped, and of the later checks whether the
#: cluster is back.
_STOP_LOOK_MS: Final = 25.0


@scenario_of_partition(300, 1_500)
def older_store_returns(context: FaultContext, state: PublishedPartition) -> Scenario:
    """Restore an older copy of the metadata store that lists a stopped replica as in sync (E8).

    The leader or a follower stops after the store was copied, and the other brokers acknowledge
    more records. Finally all brokers stop, the older copy replaces the store, and all brokers start
    together.
    """
    cluster = context.cluster
    if cluster.health() or not cluster.store.is_available:
        return
    copy = cluster.store.tree.copy()
    yield context.draw.choice((0, context.draw.uniform(50, 500)))
    stale = cluster.brokers[context.draw.choice(state.isr)]
    _end(context, stale)
    has_left = partial(_are_out, context, state.key, stale.node_id)
    yield from in_time(has_left, _STOP_LOOK_MS, 80)
    yield context.draw.uniform(100, 1_500)
    for broker in context.others(stale):
        if broker.life is not None:
            _end(context, broker)
    yield from in_time(partial(_none_runs, cluster.brokers), _STOP_LOOK_MS, 20)
    if _layout_of(copy) != _layout_of(cluster.store.tree) or not cluster.store.is_available:
        return
    for broker in cluster.brokers.values():
        broker.crash(Loss.NONE, "is killed before the store is put back")
    if not _none_runs(cluster.brokers):
        return
    context.count("scenario")
    context.note(f"the store of transaction {copy.zxid} is put back")
    cluster.put_store_back(copy)
    for broker in cluster.brokers.values():
        broker.start()
    yield from in_time(lambda: not cluster.health(), _STOP_LOOK_MS, 400)


def _end(context: FaultContext, broker: SimBroker) -> None:
    if context.draw.random() < 0.6:
        broker.stop(Loss.NONE)
    else:
        broker.crash(Loss.NONE, "is killed")


def _are_out(context: FaultContext, key: LogKey, *broker_ids: int) -> bool:
    return not any(context.is_member(key, broker_id) for broker_id in broker_ids)


def _none_runs(brokers: Mapping[int, SimBroker]) -> bool:
    return all(broker.life is None for broker in brokers.values())


def _layout_of(tree: Tree) -> dict[str, bytes]:
    """Return the store's nodes of topics, configurations and requests, by path."""
    kept = {}
    for path, node in tree.nodes.items():
        is_topic = path.startswith(f"{layout.TOPICS}/") and path.count("/") == 3
        if is_topic or path.startswith((f"{layout.CONFIG}/topics/", f"{layout.ADMIN}/")):
            kept[path] = node.data
    return kept


@scenario_of_rounds(200, 900)
def damaged_member(context: FaultContext) -> Scenario:
    """Let a leader that has read damage in its log become a follower that is still in the ISR
    (V68).

    The leader's request to the controller is delayed; before it arrives, the preferred replica is
    elected. If preferred replicas lead all partitions, the scenario first ends a session, so that
    other replicas lead.
    """
    cluster = context.cluster
    network, topics = cluster.simulator.network, cluster.published.all_topics
    controller = context.controller()
    cases = [
        state
        for key, state in cluster.published.partitions.items()
        if key.topic_id in topics
        and topics[key.topic_id].name == "steady"
        and len(state.isr) > 2
        and state.leader != topics[key.topic_id].assignment[key.partition][0]
    ]
    if controller is None or not cases:
        context.expire(context.leader())
        yield context.draw.uniform(300, 1_500)
        return
    state = context.draw.choice(cases)
    leader, found = cluster.brokers[state.leader], cluster.damage.found_count
    if not damage_leader(context, state.key):
        return
    hosts = leader.node.host, controller.node.host
    context.note(f"{hosts[0]}>{hosts[1]} is late")
    network.slow_down(*hosts, 1_200 * NS_PER_MS, 0)
    is_read = yield from in_time(lambda: cluster.damage.found_count > found)
    if is_read and elect_preferred(context):
        context.count("scenario")
        yield context.draw.uniform(300, 1_300)
    network.slow_down(*hosts, 0, 0)
    yield context.draw.uniform(300, 1_500)
