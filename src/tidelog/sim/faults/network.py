"""Faults of links and connections: between brokers, and between brokers and some clients.

A link is one direction between two hosts. A cut, slow or clogged link heals after a random time, as
does a host that serves no connections. All heal when the faults end, at the latest. No connection
ever reorders frames.
"""

from __future__ import annotations

from tidelog.sim.faults.context import FaultContext
from tidelog.sim.faults.kinds import kind
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.sim_cluster import STORE_HOST


def cut_for_a_while(context: FaultContext, links: list[tuple[str, str]]) -> None:
    """Cut these links, and heal them after a random time."""
    network = context.cluster.simulator.network
    for source, target in links:
        network.cut(source, target)
    context.note("cut " + " ".join(f"{source}>{target}" for source, target in links))

    def heal() -> None:
        for source, target in links:
            network.heal(source, target)
        context.note("healed " + " ".join(f"{source}>{target}" for source, target in links))

    context.later(context.draw.choice((60, 600, 4_000)) * context.draw.uniform(0.5, 1.5), heal)


def two_hosts(context: FaultContext) -> tuple[str, str]:
    """Return a broker's host, and another host of a broker or a client."""
    first = context.draw.choice(list(context.cluster.brokers.values())).node.host
    second = context.draw.choice([host for host in context.hosts if host != first])
    return first, second


@kind
def cut_one_way(context: FaultContext) -> bool:
    """Cut one direction between a broker and another host for a while."""
    first, second = two_hosts(context)
    cut_for_a_while(context, [context.draw.choice(((first, second), (second, first)))])
    return True


@kind
def cut_two_ways(context: FaultContext) -> bool:
    """Cut both directions between a broker and another host for a while."""
    first, second = two_hosts(context)
    cut_for_a_while(context, [(first, second), (second, first)])
    return True


@kind
def isolate(context: FaultContext) -> bool:
    """Cut a broker off from all others for a while, with or without the store."""
    broker = context.any_broker()
    if broker is None:
        return False
    host = broker.node.host
    others = [other for other in context.hosts if other != host]
    if context.draw.random() < 0.5:
        others.append(STORE_HOST)
    cut_for_a_while(context, [pair for other in others for pair in ((host, other), (other, host))])
    return True


@kind
def slow_link(context: FaultContext) -> bool:
    """Delay all that a broker sends to another host for a while."""
    network = context.cluster.simulator.network
    first, second = two_hosts(context)
    extra_ms = context.draw.choice((5, 60, 400))
    network.slow_down(first, second, extra_ms * NS_PER_MS, extra_ms * NS_PER_MS)
    context.note(f"slow {first}>{second} {extra_ms} ms")

    def quick() -> None:
        network.slow_down(first, second, 0, 0)
        context.note(f"no longer slow {first}>{second}")

    context.later(context.draw.uniform(200, 4_000), quick)
    return True


@kind
def late_roles(context: FaultContext) -> bool:
    """Delay the controller's messages to one broker; the others get theirs at once."""
    controller = context.controller()
    if controller is None:
        return False
    others = [each for each in context.cluster.brokers.values() if each is not controller]
    source, target = controller.node.host, context.draw.choice(others).node.host
    late_ms = context.draw.choice((150, 500, 1_200))
    network = context.cluster.simulator.network
    network.slow_down(source, target, late_ms * NS_PER_MS, late_ms * NS_PER_MS)
    context.note(f"roles come late: {source}>{target} {late_ms} ms")

    def in_time() -> None:
        network.slow_down(source, target, 0, 0)
        context.note(f"roles come in time: {source}>{target}")

    context.later(context.draw.uniform(500, 3_000), in_time)
    return True


@kind
def reset_connections(context: FaultContext) -> bool:
    """Break every connection of a broker, on both sides."""
    broker = context.any_broker()
    if broker is None or broker.life is None:
        return False
    context.note(f"reset connections of {broker.node_id}")
    context.cluster.simulator.network.reset_connections(broker.life)
    return True


def _links_of(context: FaultContext, host: str) -> list[tuple[str, str]]:
    return [
        pair for other in context.hosts if other != host for pair in ((host, other), (other, host))
    ]


@kind
def jitter(context: FaultContext) -> bool:
    """Delay each message of a broker by a time of its own: connections overtake others."""
    broker = context.any_broker()
    if broker is None:
        return False
    network = context.cluster.simulator.network
    links = _links_of(context, broker.node.host)
    spread_ms = context.draw.choice((5, 40, 250))
    for source, target in links:
        network.slow_down(source, target, 0, spread_ms * NS_PER_MS)
    context.note(f"jitter of {spread_ms} ms around {broker.node.host}")

    def calm() -> None:
        for source, target in links:
            network.slow_down(source, target, 0, 0)
        context.note(f"no more jitter around {broker.node.host}")

    context.later(context.draw.uniform(200, 3_000), calm)
    return True


@kind
def clog(context: FaultContext) -> bool:
    """Clog one direction between two hosts: it fills the window, then delivers all at once."""
    network = context.cluster.simulator.network
    first, second = two_hosts(context)
    source, target = context.draw.choice(((first, second), (second, first)))
    network.clog(source, target)
    context.note(f"clogged {source}>{target}")

    def flow() -> None:
        network.unclog(source, target)
        context.note(f"flows {source}>{target}")

    context.later(context.draw.choice((40, 400, 3_000)) * context.draw.uniform(0.5, 1.5), flow)
    return True


@kind
def half_open(context: FaultContext) -> bool:
    """Drop connections of a broker without a reset: one side, or both, continue."""
    broker = context.any_broker()
    if broker is None or broker.life is None:
        return False
    network = context.cluster.simulator.network
    connections = network.connections_of(broker.life)
    if not connections:
        return False
    count = context.draw.choice((1, 1, len(connections)))
    closes = context.draw.random() < 0.5
    for endpoint in context.draw.sample(connections, count):
        context.note(f"half open {endpoint.name}-{endpoint.peer_name} one side closed {closes}")
        network.vanish(endpoint, closes=closes)
    return True


@kind
def unserved_connections(context: FaultContext) -> bool:
    """Let a broker's kernel accept connections that no process serves for a while."""
    broker = context.any_broker()
    if broker is None:
        return False
    host = context.cluster.simulator.network.hosts[broker.node.host]
    host.is_serving = False
    context.note(f"{host.name} accepts and does not serve")

    def serve() -> None:
        host.is_serving = True
        context.note(f"{host.name} serves again")

    context.later(context.draw.choice((100, 1_500)) * context.draw.uniform(0.5, 1.5), serve)
    return True
