"""Faults of the metadata store: of its links, sessions, requests, responses and nodes.

The faults keep the store's contract (rules S1 to S5): they lose or delay only requests and
responses that a real store may lose or delay. They do not end a session if the fault budget forbids
it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from tidelog.metadata import layout
from tidelog.sim.faults.context import LOSSES, FaultContext
from tidelog.sim.faults.kinds import kind, kind_at_broker
from tidelog.sim.faults.network import cut_for_a_while
from tidelog.sim.sim_broker import SimBroker
from tidelog.sim.sim_cluster import STORE_HOST
from tidelog.sim.sim_store import WriteStrike


def replace_controller(context: FaultContext, epoch: int) -> None:
    """End the controller's session repeatedly, until the controller epoch is no longer `epoch`."""
    if context.cluster.published.controller_epoch == epoch:
        expire_controller(context)
        context.later(200, lambda: replace_controller(context, epoch))


@kind
def expire_session(context: FaultContext) -> bool:
    """End the session of some broker."""
    return context.expire(context.any_broker())


@kind
def expire_controller(context: FaultContext) -> bool:
    """End the session of the controller's broker."""
    return context.expire(context.controller())


@kind_at_broker
def remove_registration(context: FaultContext, broker: SimBroker) -> bool:
    """Delete a broker's registration, as an administrator could, while its session continues."""
    server = context.cluster.store
    if broker.store is None or not server.is_available:
        return False
    path = layout.broker_path(broker.node_id)
    node = server.tree.get(path)
    session_id = broker.store.session_id
    if node is None or session_id is None or node.stat.ephemeral_owner != session_id:
        return False
    if not server.may_expire(session_id):
        return False
    context.note(f"the registration of broker {broker.node_id} is deleted by hand")
    server.remove_from_outside(path)
    return True


@kind_at_broker
def lose_answer(context: FaultContext, broker: SimBroker) -> None:
    """Let the store apply a broker's next transaction, and lose the response."""
    assert broker.store is not None
    context.note(f"lose the next answer of the store to {broker.node_id}")
    broker.store.lose_next_answer()


@kind_at_broker
def lose_request(context: FaultContext, broker: SimBroker) -> None:
    """Lose a broker's next transaction on its way to the store."""
    assert broker.store is not None
    context.note(f"lose the next request of {broker.node_id} to the store")
    broker.store.lose_next_request()


@kind
def cut_store(context: FaultContext) -> None:
    """Cut the links between a broker and the store for a while."""
    host = context.draw.choice(list(context.cluster.brokers.values())).node.host
    cut_for_a_while(context, [(host, STORE_HOST)])


@kind
def elect_preferred(context: FaultContext) -> bool:
    """Create the store node by which Kafka's old tool requests preferred leaders (V8)."""
    path = layout.PREFERRED_REPLICA_ELECTION
    asked = [
        {"topic": topic.name, "partition": partition}
        for topic in context.cluster.published.topics.values()
        for partition in topic.assignment
    ]
    store = context.cluster.store
    if not asked or not store.is_available or store.tree.get(path) is not None:
        return False
    context.note("preferred leaders are asked for")
    content = json.dumps({"version": 1, "partitions": asked})
    store.write_from_outside(path, content.encode())
    return True


@kind
def store_outage(context: FaultContext) -> bool:
    """Make the store unavailable for a while: no session ends, nothing is written (S3)."""
    store = context.cluster.store
    if not store.is_available:
        return False
    store.is_available = False
    context.note("the store is away")

    def back() -> None:
        if not store.is_available:
            store.come_back()
            context.note("the store is back")

    context.until(context.about(100, 1_000, 5_000), back)
    return True


def hold_watches_back(context: FaultContext, delay: Callable[[], float], time_ms: float) -> None:
    """For `time_ms`, delay every watch by the time in ms that `delay` returns (S1)."""
    store = context.cluster.store

    def prompt() -> None:
        if store.watch_delay_ms is delay:
            store.watch_delay_ms = lambda: 0.0

    store.watch_delay_ms = delay
    context.until(time_ms, prompt)


@kind
def late_watches(context: FaultContext) -> None:
    """Delay watches for a while; each fires before responses to its session's later reads (S1)."""
    draw = context.draw
    late_ms = draw.choice((20, 200, 1_500))
    # Use a separate random stream, so that later faults do not depend on the number of watches.
    delays = random.Random(draw.getrandbits(64))
    hold_watches_back(context, lambda: delays.uniform(0, late_ms), draw.uniform(300, 4_000))
    context.note(f"watches are up to {late_ms} ms late")


def strike_next_write(
    context: FaultContext, controller: SimBroker, number: int, *, is_applied: bool
) -> bool:
    """Crash a controller right before or after its `number`-th write from now on."""
    store = controller.store
    if store is None:
        return False
    loss = context.draw.choice(LOSSES)
    when = "after" if is_applied else "before"

    def strike() -> None:
        controller.crash(loss, f"the controller is lost {when} a write")

    store.write_strike = WriteStrike(number, layout.CONTROLLER_EPOCH, is_applied, strike)
    context.note(f"strike controller {controller.node_id} {when} write {number}")
    return True


@kind
def strike_controller_write(context: FaultContext) -> bool:
    """Crash the controller right before or right after one of its next writes."""
    controller = context.controller()
    if controller is None:
        return False
    number = context.draw.randrange(1, context.draw.choice((2, 4, 12)))
    return strike_next_write(context, controller, number, is_applied=context.draw.random() < 0.5)
