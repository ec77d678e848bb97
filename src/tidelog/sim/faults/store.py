"""Faults of the metadata store: links to it, sessions, requests and answers, strange writes."""

from __future__ import annotations

import json

from tidelog.metadata import layout
from tidelog.sim.cluster import STORE_HOST, SimBroker
from tidelog.sim.faults.kinds import kind
from tidelog.sim.faults.network import cut_for_a_while
from tidelog.sim.faults.stage import Stage


def expire(stage: Stage, broker: SimBroker | None) -> bool:
    """End a broker's session now, where the budget allows it."""
    store = None if broker is None else broker.store
    if broker is None or store is None or store.session_id is None:
        return False
    stage.note(f"expire the session of broker {broker.node_id}")
    return stage.cluster.store.expire(store.session_id)


def replace_controller(stage: Stage, epoch: int) -> None:
    """End the controller's session until another one is elected: some may not be ended."""
    if stage.cluster.published.controller_epoch == epoch:
        expire_controller(stage)
        stage.later(200, lambda: replace_controller(stage, epoch))


@kind
def expire_session(stage: Stage) -> bool:
    """The session of some broker ends."""
    return expire(stage, stage.any_broker())


@kind
def expire_controller(stage: Stage) -> bool:
    """The session of the controller's broker ends."""
    return expire(stage, stage.controller())


@kind
def lose_answer(stage: Stage) -> bool:
    """A broker's next transaction is applied, and its answer is lost."""
    broker = stage.any_broker()
    if broker is None or broker.store is None:
        return False
    stage.note(f"lose the next answer of the store to {broker.node_id}")
    broker.store.lose_next_answer()
    return True


@kind
def lose_request(stage: Stage) -> bool:
    """A broker's next transaction is lost on its way to the store."""
    broker = stage.any_broker()
    if broker is None or broker.store is None:
        return False
    stage.note(f"lose the next request of {broker.node_id} to the store")
    broker.store.lose_next_request()
    return True


@kind
def cut_store(stage: Stage) -> bool:
    """A broker and the store cannot talk for a while."""
    host = stage.draw.choice(list(stage.cluster.brokers.values())).node.host
    cut_for_a_while(stage, [(host, STORE_HOST)])
    return True


@kind
def elect_preferred(stage: Stage) -> bool:
    """An administrator asks for preferred leaders, as the old tool does (V8)."""
    path = layout.PREFERRED_REPLICA_ELECTION
    asked = [
        {"topic": topic.name, "partition": partition}
        for topic in stage.cluster.published.topics.values()
        for partition in topic.assignment
    ]
    if not asked or stage.cluster.store.tree.get(path) is not None:
        return False
    stage.note("preferred leaders are asked for")
    content = json.dumps({"version": 1, "partitions": asked})
    stage.cluster.store.write_from_outside(path, content.encode())
    return True
