"""Scenarios of controllers that are deposed in office, or elected without learning of it.

What they have in common: whoever believes to be the controller is not, or is and cannot know, while
its session lives and it has something to write (V3, V42, S2); and of those that the store never
answers, and that cannot act for it. Nothing of it costs any data.
"""

from __future__ import annotations

from typing import Final

from tidelog.metadata import layout
from tidelog.sim.cluster import STORE_HOST
from tidelog.sim.faults.kinds import scenario
from tidelog.sim.faults.stage import Scenario, Stage
from tidelog.sim.faults.store import expire


def _depose(stage: Stage) -> Scenario:
    """An administrator deletes the controller's node, so that another one is elected; its session
    lives, and what it is about to write is refused (V3)."""
    store = stage.cluster.store
    controller = stage.controller()
    if controller is None or store.tree.get(layout.CONTROLLER) is None:
        return
    others = [one for one in stage.cluster.brokers.values() if one is not controller]
    # Something for it to write.
    expire(stage, stage.draw.choice(others))
    yield stage.draw.uniform(1, 60)
    if store.tree.get(layout.CONTROLLER) is not None:
        stage.note("the controller's node is deleted")
        store.delete_from_outside(layout.CONTROLLER)


def _elect_unnoticed(stage: Stage) -> Scenario:
    """Whoever is elected does not hear of it, and cannot ask: the store is not to be reached for a
    moment (V42, S2)."""
    cluster = stage.cluster
    network, epoch = cluster.world.network, cluster.published.controller_epoch
    controller = stage.controller()
    if controller is None or not expire(stage, controller):
        return
    for broker in cluster.brokers.values():
        if broker is not controller and broker.store is not None:
            broker.store.lose_next_answer()
    stage.note("whoever is elected next does not hear of it")
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
    yield stage.draw.uniform(50, 500)
    for link in links:
        network.heal(*link)


def _raise_epoch(stage: Stage) -> Scenario:
    """Somebody raises the controller epoch and does not become the controller, as one of old Kafkas
    that died in between: what the controller writes is refused, and its node is still its own."""
    store = stage.cluster.store
    controller = stage.controller()
    node = store.tree.get(layout.CONTROLLER_EPOCH)
    if controller is None or node is None:
        return
    epoch = layout.decode_controller_epoch(layout.CONTROLLER_EPOCH, node.data)
    stage.note(f"the controller epoch is raised from {epoch}")
    store.write_from_outside(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(epoch + 1))
    yield stage.draw.uniform(0, 20)
    others = [one for one in stage.cluster.brokers.values() if one is not controller]
    # Something for it to write.
    expire(stage, stage.draw.choice(others))


@scenario
def unlucky_elections(stage: Stage) -> Scenario:
    """Controllers are deposed as they write, by somebody or nobody, or elected and cannot know."""
    while True:
        yield stage.draw.uniform(200, 1_500)
        stage.count("scenario")
        yield from stage.draw.choice((_depose, _elect_unnoticed, _raise_epoch))(stage)


#: What the forgotten answer is about: a write of the controller or its election, the brokers that
#: it has to look at, its own claim.
_FORGOTTEN: Final = (
    layout.CONTROLLER_EPOCH,
    layout.CONTROLLER_EPOCH,
    layout.CONTROLLER_EPOCH,
    layout.BROKER_IDS,
    layout.CONTROLLER,
)


def _leave_unanswered(stage: Stage) -> Scenario:
    """A controller in office never hears what became of its request, though its session lives."""
    controller = stage.controller()
    if controller is None or controller.store is None:
        return
    path = stage.draw.choice(_FORGOTTEN)
    stage.note(f"controller {controller.node_id} never hears of {path}")
    controller.store.forget_answer(path)
    others = [one for one in stage.cluster.brokers.values() if one is not controller]
    # Something for it to look at and to write.
    expire(stage, stage.draw.choice(others))
    yield stage.draw.uniform(100, 4_000)


def _elect_unanswered(stage: Stage) -> Scenario:
    """Whoever is elected next never hears of it, though its session lives (KAFKA-13407)."""
    controller = stage.controller()
    if controller is None or not expire(stage, controller):
        return
    stage.note("whoever is elected next never hears of it")
    for broker in stage.cluster.brokers.values():
        if broker is not controller and broker.store is not None:
            broker.store.forget_answer(layout.CONTROLLER_EPOCH)
    yield stage.draw.uniform(100, 4_000)


@scenario
def unanswered_controllers(stage: Stage) -> Scenario:
    """The store answers a controller, or whoever has just been elected, and nobody hears it; its
    session lives on."""
    cluster = stage.cluster

    def hear() -> None:
        for broker in cluster.brokers.values():
            if broker.store is not None:
                broker.store.forget_answer("")

    stage.at_end(hear)
    while True:
        yield stage.draw.uniform(200, 1_500)
        stage.count("scenario")
        yield from stage.draw.choice((_leave_unanswered, _elect_unanswered))(stage)
        hear()
