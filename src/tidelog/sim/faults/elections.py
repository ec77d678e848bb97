"""Scenarios of controllers that are deposed in office, or elected without learning of it.

What they have in common: whoever believes to be the controller is not, or is and cannot know, while
its session lives and it has something to write (V3, V42, S2); and of those that the store never
answers, and that cannot act for it. Nothing of it costs any data.
"""

from __future__ import annotations

from typing import Final

from tidelog.metadata import layout
from tidelog.sim.faults.context import FaultContext, Scenario
from tidelog.sim.faults.kinds import scenario
from tidelog.sim.faults.store import expire
from tidelog.sim.sim_cluster import STORE_HOST


def _depose(context: FaultContext) -> Scenario:
    """An administrator deletes the controller's node, so that another one is elected; its session
    lives, and what it is about to write is refused (V3)."""
    store = context.cluster.store
    controller = context.controller()
    if controller is None or store.tree.get(layout.CONTROLLER) is None:
        return
    others = [one for one in context.cluster.brokers.values() if one is not controller]
    # Something for it to write.
    expire(context, context.draw.choice(others))
    yield context.draw.uniform(1, 60)
    if store.tree.get(layout.CONTROLLER) is not None:
        context.note("the controller's node is deleted")
        store.delete_from_outside(layout.CONTROLLER)


def _elect_unnoticed(context: FaultContext) -> Scenario:
    """Whoever is elected does not hear of it, and cannot ask: the store is not to be reached for a
    moment (V42, S2)."""
    cluster = context.cluster
    network, epoch = cluster.simulator.network, cluster.published.controller_epoch
    controller = context.controller()
    if controller is None or not expire(context, controller):
        return
    for broker in cluster.brokers.values():
        if broker is not controller and broker.store is not None:
            broker.store.lose_next_answer()
    context.note("whoever is elected next does not hear of it")
    for _ in range(2_000):
        yield 1
        if cluster.published.controller_epoch != epoch:
            break
    links = [
        pair
        for broker in cluster.brokers.values()
        for pair in ((broker.node.host, STORE_HOST), (STORE_HOST, broker.node.host))
    ]
    for link in links:
        network.cut(*link)
    yield context.draw.uniform(50, 500)
    for link in links:
        network.heal(*link)


def _raise_epoch(context: FaultContext) -> Scenario:
    """Somebody raises the controller epoch and does not become the controller, as one of old Kafkas
    that died in between: what the controller writes is refused, and its node is still its own."""
    store = context.cluster.store
    controller = context.controller()
    node = store.tree.get(layout.CONTROLLER_EPOCH)
    if controller is None or node is None:
        return
    epoch = layout.decode_controller_epoch(layout.CONTROLLER_EPOCH, node.data)
    context.note(f"the controller epoch is raised from {epoch}")
    store.write_from_outside(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(epoch + 1))
    yield context.draw.uniform(0, 20)
    others = [one for one in context.cluster.brokers.values() if one is not controller]
    # Something for it to write.
    expire(context, context.draw.choice(others))


@scenario
def unlucky_elections(context: FaultContext) -> Scenario:
    """Controllers are deposed as they write, by somebody or nobody, or elected and cannot know."""
    while True:
        yield context.draw.uniform(200, 1_500)
        context.count("scenario")
        yield from context.draw.choice((_depose, _elect_unnoticed, _raise_epoch))(context)


#: What the forgotten answer is about: a write of the controller or its election, the brokers that
#: it has to look at, its own claim.
_FORGOTTEN: Final = (
    layout.CONTROLLER_EPOCH,
    layout.CONTROLLER_EPOCH,
    layout.CONTROLLER_EPOCH,
    layout.BROKER_IDS,
    layout.CONTROLLER,
)


def _leave_unanswered(context: FaultContext) -> Scenario:
    """A controller in office never hears what became of its request, though its session lives."""
    controller = context.controller()
    if controller is None or controller.store is None:
        return
    path = context.draw.choice(_FORGOTTEN)
    context.note(f"controller {controller.node_id} never hears of {path}")
    controller.store.forget_answer(path)
    others = [one for one in context.cluster.brokers.values() if one is not controller]
    # Something for it to look at and to write.
    expire(context, context.draw.choice(others))
    yield context.draw.uniform(100, 4_000)


def _elect_unanswered(context: FaultContext) -> Scenario:
    """Whoever is elected next never hears of it, though its session lives (KAFKA-13407)."""
    controller = context.controller()
    if controller is None or not expire(context, controller):
        return
    context.note("whoever is elected next never hears of it")
    for broker in context.cluster.brokers.values():
        if broker is not controller and broker.store is not None:
            broker.store.forget_answer(layout.CONTROLLER_EPOCH)
    yield context.draw.uniform(100, 4_000)


@scenario
def unanswered_controllers(context: FaultContext) -> Scenario:
    """The store answers a controller, or whoever has just been elected, and nobody hears it; its
    session lives on."""
    cluster = context.cluster

    def hear() -> None:
        for broker in cluster.brokers.values():
            if broker.store is not None:
                broker.store.forget_answer("")

    context.at_end(hear)
    while True:
        yield context.draw.uniform(200, 1_500)
        context.count("scenario")
        yield from context.draw.choice((_leave_unanswered, _elect_unanswered))(context)
        hear()
