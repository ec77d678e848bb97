"""Faults of brokers that have several log directories.

One disk fails (`sim/log_dir_failure` has the failure and its repair), or the broker dies in the
middle of a move between two of them.
"""

from __future__ import annotations

import errno
from typing import Any, Final

from tidelog.sim.faults.context import LOSSES, FaultContext
from tidelog.sim.faults.kinds import kind_of_log_dirs
from tidelog.sim.log_dir_failure import DEVICE_ERRNOS, LogDirFailure
from tidelog.sim.node import Incarnation, Strike

#: Interval of an operator's attempts to repair a disk.
_ATTEMPTS_MS: Final = 500


@kind_of_log_dirs
def fail_directory(context: FaultContext) -> bool:
    """Fail all calls of one log directory with an error of D1, until the disk is repaired."""
    broker = context.any_broker()
    if broker is None:
        return False
    disk = context.any_disk(broker)
    if disk.fault is not None:
        return False
    draw = context.draw
    number = draw.choice(DEVICE_ERRNOS)
    left = draw.randrange(1, draw.choice((2, 8, 60)))
    failure = LogDirFailure(context.cluster, broker, disk, number, left)
    name = context.named(broker, disk)
    context.note(f"{name} fails with {errno.errorcode[number]} in {left} calls")
    is_emptied = draw.random() < 0.4

    def operate() -> None:
        # An operator who may not take the data away yet tries again, or leaves the disk.
        if not failure.repair(is_emptied=is_emptied and context.is_active):
            context.later(_ATTEMPTS_MS, operate)

    context.later(draw.choice((300, 3_000)) * draw.uniform(0.5, 1.5), operate)
    context.at_end(failure.cancel)
    return True


@kind_of_log_dirs
def strike_directory_move(context: FaultContext) -> bool:
    """Kill a broker in the middle of its next move between log directories, at a file call."""
    broker = context.any_broker()
    if broker is None:
        return False
    draw, simulator = context.draw, context.cluster.simulator
    event, calls = draw.choice((("directory_move_begun", 50), ("directory_move_swapped", 8)))
    planned = Strike(draw.randrange(1, calls), draw.choice(LOSSES), "files.")
    context.note(f"{broker.node_id} dies {planned.countdown} file calls after {event}")

    def traced(incarnation: Incarnation, name: str, _: dict[str, Any]) -> None:
        if name == event and incarnation is broker.life and context.is_active:
            forget()
            incarnation.plan_strike(planned)

    def forget() -> None:
        if traced in simulator.on_traced:
            simulator.on_traced.remove(traced)

    simulator.on_traced.append(traced)
    context.at_end(forget)
    return True
