"""Faults of links and connections: between brokers, and between brokers and some clients.

Links are directions; what is cut, slow, clogged or deaf heals by itself after a drawn time, and in
any case when the faults end. No connection ever reorders what travels on it.
"""

from __future__ import annotations

from tidelog.sim.cluster import STORE_HOST
from tidelog.sim.faults.kinds import kind
from tidelog.sim.faults.stage import Stage
from tidelog.sim.loop import NS_PER_MS


def cut_for_a_while(stage: Stage, links: list[tuple[str, str]]) -> None:
    """Let nothing pass in these directions until they are healed."""
    network = stage.cluster.world.network
    for source, target in links:
        network.cut(source, target)
    stage.note("cut " + " ".join(f"{source}>{target}" for source, target in links))

    def heal() -> None:
        for source, target in links:
            network.heal(source, target)
        stage.note("healed " + " ".join(f"{source}>{target}" for source, target in links))

    stage.later(stage.draw.choice((60, 600, 4_000)) * stage.draw.uniform(0.5, 1.5), heal)


def two_hosts(stage: Stage) -> tuple[str, str]:
    """A broker's host, and another one: a broker's or a client's."""
    one = stage.draw.choice(list(stage.cluster.brokers.values())).node.host
    other = stage.draw.choice([host for host in stage.hosts if host != one])
    return one, other


@kind
def cut_one_way(stage: Stage) -> bool:
    """One direction between a broker and another host is cut for a while."""
    one, other = two_hosts(stage)
    cut_for_a_while(stage, [stage.draw.choice(((one, other), (other, one)))])
    return True


@kind
def cut_two_ways(stage: Stage) -> bool:
    """Both directions between a broker and another host are cut for a while."""
    one, other = two_hosts(stage)
    cut_for_a_while(stage, [(one, other), (other, one)])
    return True


@kind
def isolate(stage: Stage) -> bool:
    """A broker is cut off from all others for a while, from the store too or not."""
    broker = stage.any_broker()
    if broker is None:
        return False
    host = broker.node.host
    others = [other for other in stage.hosts if other != host]
    if stage.draw.random() < 0.5:
        others.append(STORE_HOST)
    cut_for_a_while(stage, [pair for other in others for pair in ((host, other), (other, host))])
    return True


@kind
def slow_link(stage: Stage) -> bool:
    """What a broker sends to another host comes late for a while."""
    network = stage.cluster.world.network
    one, other = two_hosts(stage)
    extra_ms = stage.draw.choice((5, 60, 400))
    network.slow_down(one, other, extra_ms * NS_PER_MS, extra_ms * NS_PER_MS)
    stage.note(f"slow {one}>{other} {extra_ms} ms")

    def quick() -> None:
        network.slow_down(one, other, 0, 0)
        stage.note(f"no longer slow {one}>{other}")

    stage.later(stage.draw.uniform(200, 4_000), quick)
    return True


@kind
def late_roles(stage: Stage) -> bool:
    """What the controller tells one broker comes late; others hear of it at once."""
    controller = stage.controller()
    if controller is None:
        return False
    others = [one for one in stage.cluster.brokers.values() if one is not controller]
    source, target = controller.node.host, stage.draw.choice(others).node.host
    late_ms = stage.draw.choice((150, 500, 1_200))
    network = stage.cluster.world.network
    network.slow_down(source, target, late_ms * NS_PER_MS, late_ms * NS_PER_MS)
    stage.note(f"roles come late: {source}>{target} {late_ms} ms")

    def in_time() -> None:
        network.slow_down(source, target, 0, 0)
        stage.note(f"roles come in time: {source}>{target}")

    stage.later(stage.draw.uniform(500, 3_000), in_time)
    return True


@kind
def reset_connections(stage: Stage) -> bool:
    """Every connection of a broker breaks, on both sides."""
    broker = stage.any_broker()
    if broker is None or broker.life is None:
        return False
    stage.note(f"reset connections of {broker.node_id}")
    stage.cluster.world.network.reset_connections(broker.life)
    return True


def _links_of(stage: Stage, host: str) -> list[tuple[str, str]]:
    return [
        pair for other in stage.hosts if other != host for pair in ((host, other), (other, host))
    ]


@kind
def jitter(stage: Stage) -> bool:
    """Each message of a broker takes a time of its own for a while: connections overtake others."""
    broker = stage.any_broker()
    if broker is None:
        return False
    network = stage.cluster.world.network
    links = _links_of(stage, broker.node.host)
    spread_ms = stage.draw.choice((5, 40, 250))
    for source, target in links:
        network.slow_down(source, target, 0, spread_ms * NS_PER_MS)
    stage.note(f"jitter of {spread_ms} ms around {broker.node.host}")

    def calm() -> None:
        for source, target in links:
            network.slow_down(source, target, 0, 0)
        stage.note(f"no more jitter around {broker.node.host}")

    stage.later(stage.draw.uniform(200, 3_000), calm)
    return True


@kind
def clog(stage: Stage) -> bool:
    """What one host sends to another fills the window for a while; then all arrives at once."""
    network = stage.cluster.world.network
    one, other = two_hosts(stage)
    source, target = stage.draw.choice(((one, other), (other, one)))
    network.clog(source, target)
    stage.note(f"clogged {source}>{target}")

    def flow() -> None:
        network.unclog(source, target)
        stage.note(f"flows {source}>{target}")

    stage.later(stage.draw.choice((40, 400, 3_000)) * stage.draw.uniform(0.5, 1.5), flow)
    return True


@kind
def half_open(stage: Stage) -> bool:
    """Connections of a broker are gone and no reset tells of it: one side, or both, go on."""
    broker = stage.any_broker()
    if broker is None or broker.life is None:
        return False
    network = stage.cluster.world.network
    connections = network.connections_of(broker.life)
    if not connections:
        return False
    count = stage.draw.choice((1, 1, len(connections)))
    is_told = stage.draw.random() < 0.5
    for endpoint in stage.draw.sample(connections, count):
        stage.note(f"half open {endpoint.name}-{endpoint.peer_name} told {is_told}")
        network.vanish(endpoint, is_told=is_told)
    return True


@kind
def unserved_connections(stage: Stage) -> bool:
    """A broker's kernel accepts connections for a while, and nobody ever serves them."""
    broker = stage.any_broker()
    if broker is None:
        return False
    host = stage.cluster.world.network.hosts[broker.node.host]
    host.is_serving = False
    stage.note(f"{host.name} accepts and does not serve")

    def serve() -> None:
        host.is_serving = True
        stage.note(f"{host.name} serves again")

    stage.later(stage.draw.choice((100, 1_500)) * stage.draw.uniform(0.5, 1.5), serve)
    return True
