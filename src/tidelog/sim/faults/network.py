"""Faults of links and connections: between brokers, and between brokers and some clients.

A link is one direction between two hosts. A cut, slow or clogged link becomes normal after a random
time, and so does a host whose processes do not accept connections. All links heal at the latest
when the faults end. No connection ever reorders bytes.
"""

from __future__ import annotations

from functools import partial

from tidelog.sim.faults.context import FaultContext, both_ways
from tidelog.sim.faults.kinds import kind, kind_at_broker
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.sim_broker import SimBroker
from tidelog.sim.sim_cluster import STORE_HOST

#: Directed links between hosts.
_Links = list[tuple[str, str]]


def cut_for_a_while(context: FaultContext, links: _Links) -> None:
    """Cut the given links, and heal them after a random time."""
    context.cut(links)
    names = " ".join(f"{source}>{target}" for source, target in links)
    context.note(f"cut {names}")
    heals = partial(context.heal, links)
    context.heal_later(context.about(60, 600, 4_000), heals, f"healed {names}")


def two_hosts(context: FaultContext) -> tuple[str, str]:
    """Return the host of a broker, and the host of another broker or of a client."""
    first = context.draw.choice(list(context.cluster.brokers.values())).node.host
    second = context.draw.choice([host for host in context.hosts if host != first])
    return first, second


def _either_way(context: FaultContext) -> tuple[str, str]:
    """Return a link between a broker and another host, in one of the two directions."""
    return context.draw.choice(both_ways(two_hosts(context)))


def _others(context: FaultContext, host: str) -> list[str]:
    return [other for other in context.hosts if other != host]


def slow_down(context: FaultContext, links: _Links, extra_ms: int, spread_ms: int) -> None:
    """Delay all messages on links by a fixed plus a random time; two zeros end the delay."""
    for link in links:
        context.cluster.simulator.network.slow_down(
            *link, extra_ms * NS_PER_MS, spread_ms * NS_PER_MS
        )


def _end_delays(context: FaultContext, links: _Links, after_ms: tuple[int, int], note: str) -> None:
    """End the delays on the given links after a random time, with a line in the trace."""
    end = partial(slow_down, context, links, 0, 0)
    context.heal_later(context.draw.uniform(*after_ms), end, note)


@kind
def cut_one_way(context: FaultContext) -> None:
    """Cut one direction between a broker and another host for a while."""
    cut_for_a_while(context, [_either_way(context)])


@kind
def cut_two_ways(context: FaultContext) -> None:
    """Cut both directions between a broker and another host for a while."""
    cut_for_a_while(context, both_ways(two_hosts(context)))


@kind_at_broker
def isolate(context: FaultContext, broker: SimBroker) -> None:
    """Cut a broker off from all other brokers for a while, and sometimes from the store, too."""
    host = broker.node.host
    others = _others(context, host)
    if context.draw.random() < 0.5:
        others.append(STORE_HOST)
    cut_for_a_while(context, both_ways(*((host, other) for other in others)))


@kind
def slow_link(context: FaultContext) -> None:
    """Delay all messages of a broker to another host for a while."""
    first, second = two_hosts(context)
    links, extra_ms = [(first, second)], context.draw.choice((5, 60, 400))
    slow_down(context, links, extra_ms, extra_ms)
    context.note(f"slow {first}>{second} {extra_ms} ms")
    _end_delays(context, links, (200, 4_000), f"no longer slow {first}>{second}")


@kind
def late_roles(context: FaultContext) -> bool:
    """Delay the controller's messages to one broker, but not to other brokers."""
    controller = context.controller()
    if controller is None:
        return False
    source = controller.node.host
    target = context.draw.choice(context.others(controller)).node.host
    links, late_ms = [(source, target)], context.draw.choice((150, 500, 1_200))
    slow_down(context, links, late_ms, late_ms)
    context.note(f"roles come late: {source}>{target} {late_ms} ms")
    _end_delays(context, links, (500, 3_000), f"roles come in time: {source}>{target}")
    return True


@kind_at_broker
def reset_connections(context: FaultContext, broker: SimBroker) -> None:
    """Break every connection of a broker, on both sides."""
    assert broker.life is not None
    context.note(f"reset connections of {broker.node_id}")
    context.cluster.simulator.network.reset_connections(broker.life)


@kind_at_broker
def jitter(context: FaultContext, broker: SimBroker) -> None:
    """Delay each message of a broker by a random time, so that connections overtake each other."""
    host = broker.node.host
    links = both_ways(*((host, other) for other in _others(context, host)))
    spread_ms = context.draw.choice((5, 40, 250))
    slow_down(context, links, 0, spread_ms)
    context.note(f"jitter of {spread_ms} ms around {host}")
    _end_delays(context, links, (200, 3_000), f"no more jitter around {host}")


@kind
def clog(context: FaultContext) -> None:
    """Stop the delivery from one host to another until send windows fill; then deliver all."""
    network = context.cluster.simulator.network
    source, target = _either_way(context)
    network.clog(source, target)
    context.note(f"clogged {source}>{target}")
    unclog = partial(network.unclog, source, target)
    context.heal_later(context.about(40, 400, 3_000), unclog, f"flows {source}>{target}")


@kind_at_broker
def split_reads(context: FaultContext, broker: SimBroker) -> None:
    """Split and merge the bytes of a broker's connections for a while: reads end within frames."""
    network = context.cluster.simulator.network
    host = broker.node.host
    links = [
        network.link(*names)
        for names in both_ways(*((host, other) for other in _others(context, host)))
    ]
    for link in links:
        link.splits = True
    context.note(f"reads split around {host}")

    def whole() -> None:
        for link in links:
            link.splits = False

    context.heal_later(context.about(300, 2_000), whole, f"reads whole around {host}")


@kind_at_broker
def half_open(context: FaultContext, broker: SimBroker) -> bool:
    """Break connections of a broker without a reset: one side, or both, do not notice."""
    assert broker.life is not None
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


@kind_at_broker
def unserved_connections(context: FaultContext, broker: SimBroker) -> None:
    """Let a broker's kernel accept connections that no process serves for a while."""
    host = context.cluster.simulator.network.hosts[broker.node.host]
    host.is_serving = False
    context.note(f"{host.name} accepts and does not serve")
    serve = partial(setattr, host, "is_serving", True)
    context.heal_later(context.about(100, 1_500), serve, f"{host.name} serves again")
