"""An older copy of the metadata store, put back while no broker runs (E8).

The copy names replicas in sync that stopped before the last records were acknowledged. Topics and
their replicas are the same in the copy. Brokers end without a loss: cleanly, or killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from tidelog.metadata import layout
from tidelog.metadata.tree import Tree
from tidelog.sim.disk import Loss
from tidelog.sim.faults.context import FaultContext, Scenario
from tidelog.sim.faults.kinds import scenario_of_partition
from tidelog.sim.faults.steps import in_time, is_member
from tidelog.sim.observed.published_state import PublishedPartition
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.sim_broker import SimBroker

#: Interval of the looks for the end of a stop, and for the cluster's return.
_LOOK_MS: Final = 25.0


@scenario_of_partition(300, 1_500)
def older_store_returns(context: FaultContext, state: PublishedPartition) -> Scenario:
    """Put an older copy of the metadata store back, which names a stopped replica in sync (E8).

    The leader or a follower stops after the copy, and the others acknowledge more records. Then all
    brokers end, and start together on the copy.
    """
    cluster = context.cluster
    if cluster.health() or not cluster.store.is_available:
        return
    copy = cluster.store.tree.copy()
    yield context.draw.choice((0, context.draw.uniform(50, 500)))
    stale = cluster.brokers[context.draw.choice(state.isr)]
    _end(context, stale)
    has_left = partial(_has_left, context, state.key, stale.node_id)
    yield from in_time(has_left, _LOOK_MS, 80)
    yield context.draw.uniform(100, 1_500)
    for broker in cluster.brokers.values():
        if broker is not stale and broker.life is not None:
            _end(context, broker)
    yield from in_time(partial(_none_runs, cluster.brokers), _LOOK_MS, 20)
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
    yield from in_time(lambda: not cluster.health(), _LOOK_MS, 400)


def _end(context: FaultContext, broker: SimBroker) -> None:
    if context.draw.random() < 0.6:
        broker.stop(Loss.NONE)
    else:
        broker.crash(Loss.NONE, "is killed")


def _has_left(context: FaultContext, key: LogKey, broker_id: int) -> bool:
    return not is_member(context, key, broker_id)


def _none_runs(brokers: Mapping[int, SimBroker]) -> bool:
    return all(broker.life is None for broker in brokers.values())


def _layout_of(tree: Tree) -> dict[str, bytes]:
    """Return what operators and clients have decided: topics, configurations and requests."""
    kept = {}
    for path, node in tree.nodes.items():
        is_topic = path.startswith(f"{layout.TOPICS}/") and path.count("/") == 3
        if is_topic or path.startswith((f"{layout.CONFIG}/topics/", f"{layout.ADMIN}/")):
            kept[path] = node.data
    return kept
