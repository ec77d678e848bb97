"""Faults of brokers' processes: crashes, stops and pauses.

The fault budget decides whether a broker may crash, and what the crash loses. A broker whose
process ended is started again after a random time.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.disk import Loss
from tidelog.sim.faults.context import LOSSES, FaultContext, Scenario
from tidelog.sim.faults.kinds import kind, kind_at_broker
from tidelog.sim.node import Strike
from tidelog.sim.sim_broker import SimBroker

#: Prefixes of the names (`port.method`) of calls at which a broker may crash. The fault `strike`
#: draws one of the prefixes; the empty prefix means any call.
_STRIKE_PREFIXES: Final = (
    "", "", "files.", "files.pwritev", "files.fsync", "files.rename", "files.truncate",
    "network.send", "store", "lane.",
)  # fmt: skip
#: Maximum number of checks whether a restarted broker is back, at intervals of `_ROLLING_LOOK_MS`;
#: then the rolling restart goes on in any case.
_ROLLING_LOOKS: Final = 100
_ROLLING_LOOK_MS: Final = 50


@kind
def strike(context: FaultContext) -> bool:
    """Crash a broker at one of its next calls to files, network, store or other services."""
    broker = context.draw.choice((context.any_broker(), context.leader()))
    if broker is None or broker.life is None:
        return False
    planned = Strike(
        context.draw.randrange(1, context.draw.choice((4, 40, 400))),
        context.draw.choice(LOSSES),
        context.draw.choice(_STRIKE_PREFIXES),
    )
    context.note(f"strike {broker.node_id} {planned.countdown} {planned.prefix}")
    broker.life.plan_strike(planned)
    return True


@kind
def crash_leader(context: FaultContext) -> bool:
    """Kill the leader of some partition, or cut its power."""
    return context.crash(context.leader(), "a leader crashes")


@kind
def crash_any(context: FaultContext) -> bool:
    """Kill some broker, or cut its power."""
    return context.crash(context.any_broker(), "crashes")


@kind
def crash_controller(context: FaultContext) -> bool:
    """Kill the controller's broker, or cut its power."""
    return context.crash(context.controller(), "the controller crashes")


@kind_at_broker
def stop(context: FaultContext, broker: SimBroker) -> None:
    """Shut a broker down, and perhaps cut its power right after."""
    context.note(f"stop {broker.node_id}")
    broker.stop(context.draw.choice(LOSSES))


@kind_at_broker
def pause(context: FaultContext, broker: SimBroker) -> bool:
    """Pause a broker's process for a while; its watchdog may end the process when it resumes."""
    life = broker.life
    if life is None or life.paused:
        return False
    pause_ms = context.about(30, 500, 2_500)
    life.pause()

    def resume() -> None:
        silent_too_long = pause_ms >= context.cluster.settings.session_timeout_ms
        if silent_too_long and context.draw.random() < 0.5:
            broker.crash(Loss.NONE, "the watchdog ended it")
        life.resume()

    context.later(pause_ms, resume)
    return True


@kind
def rolling_restart(context: FaultContext) -> None:
    """Restart brokers in turn, by shutdown or kill; sometimes wait until the cluster is healthy."""
    context.play(
        _roll(context, is_clean=context.draw.random() < 0.6, waits=context.draw.random() < 0.5)
    )


def _roll(context: FaultContext, *, is_clean: bool, waits: bool) -> Scenario:
    for broker in list(context.cluster.brokers.values()):
        life = broker.incarnation
        context.note(f"rolling: {broker.node_id} clean {is_clean} waits {waits}")
        if is_clean:
            broker.stop(context.draw.choice(LOSSES))
        elif not broker.crash(Loss.NONE, "killed in its turn"):
            continue
        yield from context.until_back(broker, life, _ROLLING_LOOK_MS, _ROLLING_LOOKS, waits=waits)
        yield context.draw.uniform(0, 300)
