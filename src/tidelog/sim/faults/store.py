"""Faults of the metadata store: links to it, sessions, requests and answers, strange writes.

They keep the store's contract (rules S1 to S5): what is lost or late is lost or late as a real
store may lose or delay it, and no session that the fault budget relies on is ended.
"""

from __future__ import annotations

import json
import random

from tidelog.metadata import layout
from tidelog.sim.cluster import STORE_HOST
from tidelog.sim.faults.kinds import kind
from tidelog.sim.faults.network import cut_for_a_while
from tidelog.sim.faults.stage import LOSSES, Stage
from tidelog.sim.sim_broker import SimBroker
from tidelog.sim.store import WriteStrike


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
    store = stage.cluster.store
    if not asked or not store.is_available or store.tree.get(path) is not None:
        return False
    stage.note("preferred leaders are asked for")
    content = json.dumps({"version": 1, "partitions": asked})
    store.write_from_outside(path, content.encode())
    return True


@kind
def store_outage(stage: Stage) -> bool:
    """The store is there for nobody for a while: no session ends, nothing is written (S3)."""
    store = stage.cluster.store
    if not store.is_available:
        return False
    store.is_available = False
    stage.note("the store is away")

    def back() -> None:
        if not store.is_available:
            store.come_back()
            stage.note("the store is back")

    stage.later(stage.draw.choice((100, 1_000, 5_000)) * stage.draw.uniform(0.5, 1.5), back)
    stage.at_end(back)
    return True


@kind
def late_watches(stage: Stage) -> bool:
    """For a while watches come late, though never after what their session reads later (S1)."""
    store, draw = stage.cluster.store, stage.draw
    late_ms = draw.choice((20, 200, 1_500))
    # A stream of its own: how many watches fire is no business of the faults to come.
    delays = random.Random(draw.getrandbits(64))

    def delay() -> float:
        return delays.uniform(0, late_ms)

    def prompt() -> None:
        if store.watch_delay_ms is delay:
            store.watch_delay_ms = lambda: 0.0

    store.watch_delay_ms = delay
    stage.note(f"watches are up to {late_ms} ms late")
    stage.later(draw.uniform(300, 4_000), prompt)
    stage.at_end(prompt)
    return True


def strike_next_write(
    stage: Stage, controller: SimBroker, number: int, *, is_applied: bool
) -> bool:
    """Lose a controller right before or after the write of that number, counted from now."""
    store = controller.store
    if store is None:
        return False
    loss = stage.draw.choice(LOSSES)
    when = "after" if is_applied else "before"

    def strike() -> None:
        controller.crash(loss, f"the controller is lost {when} a write")

    store.strike_write(WriteStrike(number, layout.CONTROLLER_EPOCH, is_applied, strike))
    stage.note(f"strike controller {controller.node_id} {when} write {number}")
    return True


@kind
def strike_controller_write(stage: Stage) -> bool:
    """The controller is lost right before one of its writes to come, or right after it."""
    controller = stage.controller()
    if controller is None:
        return False
    number = stage.draw.randrange(1, stage.draw.choice((2, 4, 12)))
    return strike_next_write(stage, controller, number, is_applied=stage.draw.random() < 0.5)
