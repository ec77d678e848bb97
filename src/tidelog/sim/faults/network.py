"""Faults of links and connections."""

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
    stage.later(stage.draw.uniform(200, 4_000), lambda: network.slow_down(one, other, 0, 0))
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
    stage.later(stage.draw.uniform(500, 3_000), lambda: network.slow_down(source, target, 0, 0))
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
