"""Scenarios of controllers that are deposed while active, or elected without learning of it.

A deposed broker still believes that it is the controller, or a newly elected controller does not
know of its election. In both cases, the broker keeps its session, and is about to write to the
store (V3, V42, S2). In some
scenarios, the store never responds to a request of the controller, which therefore cannot go on. No
scenario of this module loses data.
"""

from __future__ import annotations

from typing import Final

from tidelog.metadata import layout
from tidelog.sim.faults.context import FaultContext, Scenario, both_ways, later_in_time
from tidelog.sim.faults.kinds import scenario, scenario_of_rounds
from tidelog.sim.sim_broker import SimBroker
from tidelog.sim.sim_cluster import STORE_HOST


def _expire_another(context: FaultContext, controller: SimBroker) -> None:
    """End another broker's session, so that the controller has to read and write store nodes."""
    context.expire(context.draw.choice(context.others(controller)))


def _depose(context: FaultContext) -> Scenario:
    """Delete the controller's node, as an administrator does, so that another broker is elected.

    The deposed controller keeps its session; the store must reject its next write (V3).
    """
    store = context.cluster.store
    controller = context.controller()
    if controller is None or store.tree.get(layout.CONTROLLER) is None:
        return
    _expire_another(context, controller)
    yield context.draw.uniform(1, 60)
    if store.tree.get(layout.CONTROLLER) is not None:
        context.note("the controller's node is deleted")
        store.delete_from_outside(layout.CONTROLLER)


def _elect_unnoticed(context: FaultContext) -> Scenario:
    """Elect a controller that does not learn of its election (V42, S2).

    The store's response to the election is lost. For a moment after its election, no broker reaches
    the store, so the new controller cannot find out.
    """
    cluster = context.cluster
    epoch = cluster.published.controller_epoch
    controller = context.controller()
    if controller is None or not context.expire(controller):
        return
    for broker in context.others(controller):
        if broker.store is not None:
            broker.store.lose_next_answer()
    context.note("the next elected controller does not learn of its election")
    yield from later_in_time(lambda: cluster.published.controller_epoch != epoch, 1, 2_000)
    links = both_ways(*((broker.node.host, STORE_HOST) for broker in cluster.brokers.values()))
    context.cut(links)
    yield context.draw.uniform(50, 500)
    context.heal(links)


def _raise_epoch(context: FaultContext) -> Scenario:
    """Raise the controller epoch although the controller stays the same.

    In old versions of Kafka, a broker that dies during its election may raise the epoch without
    becoming the controller. The store must then reject the controller's writes, although the
    controller still owns the controller node.
    """
    store = context.cluster.store
    controller = context.controller()
    node = store.tree.get(layout.CONTROLLER_EPOCH)
    if controller is None or node is None:
        return
    epoch = layout.decode_controller_epoch(layout.CONTROLLER_EPOCH, node.data)
    context.note(f"the controller epoch is raised from {epoch}")
    store.write_from_outside(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(epoch + 1))
    yield context.draw.uniform(0, 20)
    _expire_another(context, controller)


@scenario_of_rounds(200, 1_500)
def unlucky_elections(context: FaultContext) -> Scenario:
    """Depose controllers with writes in flight, or elect controllers that do not learn of it.

    A controller is deposed because another broker is elected, or only because the controller epoch
    rises.
    """
    context.count("scenario")
    yield from context.draw.choice((_depose, _elect_unnoticed, _raise_epoch))(context)


#: Store nodes; the store withholds its response to a request about one of them. Each entry is
#: equally likely.
_FORGOTTEN: Final = (
    layout.CONTROLLER_EPOCH,
    layout.CONTROLLER_EPOCH,
    layout.CONTROLLER_EPOCH,
    layout.BROKER_IDS,
    layout.CONTROLLER,
)


def _leave_unanswered(context: FaultContext) -> Scenario:
    """Withhold the store's response to a request of the active controller, which keeps its
    session.
    """
    controller = context.controller()
    if controller is None or controller.store is None:
        return
    path = context.draw.choice(_FORGOTTEN)
    context.note(f"controller {controller.node_id} never hears of {path}")
    controller.store.forgotten_path = path
    _expire_another(context, controller)
    yield context.draw.uniform(100, 4_000)


def _elect_unanswered(context: FaultContext) -> Scenario:
    """Elect a controller that never learns of its election but keeps its session (KAFKA-13407).

    The store's response to the election request of the next controller is withheld.
    """
    controller = context.controller()
    if controller is None or not context.expire(controller):
        return
    context.note("the next elected controller never learns of its election")
    for broker in context.others(controller):
        if broker.store is not None:
            broker.store.forgotten_path = layout.CONTROLLER_EPOCH
    yield context.draw.uniform(100, 4_000)


@scenario
def unanswered_controllers(context: FaultContext) -> Scenario:
    """Withhold the store's response to the active controller, or to a newly elected controller.

    The controller keeps its session.
    """
    cluster = context.cluster

    def hear() -> None:
        for broker in cluster.brokers.values():
            if broker.store is not None:
                broker.store.forgotten_path = ""

    context.at_end(hear)
    while True:
        yield context.draw.uniform(200, 1_500)
        context.count("scenario")
        yield from context.draw.choice((_leave_unanswered, _elect_unanswered))(context)
        hear()
