"""Faults of single log directories of brokers that have several.

The disk itself fails; `sim/log_dir_failure` has the failure and its repair.
"""

from __future__ import annotations

import errno
from typing import Final

from tidelog.sim.faults.context import FaultContext
from tidelog.sim.faults.kinds import kind_of_log_dirs
from tidelog.sim.log_dir_failure import DEVICE_ERRNOS, LogDirFailure

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
