"""Faults of brokers that have several log directories.

Some faults make a disk fail, at any call or at a call of a certain operation
(`sim/log_dir_failure`). Another fault makes a single operation fail with an error that does not
mean a failed device. Another kills the broker in the middle of a move between two directories.
`OPERATIONS` lists every operation of `core.ports.Files`; `errors_of` returns the possible errors of
an operation.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from tidelog.sim.disk import SimDisk
from tidelog.sim.faults.context import LOSSES, FaultContext
from tidelog.sim.faults.disks import fail_calls
from tidelog.sim.faults.kinds import kind_at_broker, kind_at_disk
from tidelog.sim.log_dir_failure import CHANGES, DEVICE_ERRNOS, LogDirFailure
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.node import Incarnation, Strike
from tidelog.sim.sim_broker import SimBroker

#: Interval in ms at which an operator tries to repair a disk.
_ATTEMPTS_MS: Final = 500
#: Names of calls, by operation. `close` is not listed: it does not fail, because the kernel already
#: has the data.
OPERATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "open": ("open",), "read": ("pread", "pread_cached", "read_file"), "write": ("pwritev",),
    "sync": ("fsync", "sync_volume"), "sync of a directory": ("fsync_directory",),
    "truncate": ("truncate",), "rename": ("rename",),
    "unlink": ("unlink", "rmdir", "remove_tree"), "mkdir": ("mkdir",), "listdir": ("listdir",),
    "stat": ("exists", "size", "volume_place"), "statvfs": ("volume_size",),
}  # fmt: skip
_FREQUENT: Final = ("open", "read", "write", "stat")
_SYNCS: Final = ("sync", "sync of a directory")
#: Errors of a full disk (D14); `_NEED_SPACE` has the operations that need space.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_NEED_SPACE: Final = ("write", *_SYNCS, "truncate", "rename", "mkdir")
#: Errors for lack of file descriptors (D1); `_NEED_HANDLE` has the operations that need a
#: descriptor.
_NO_HANDLES: Final = (errno.EMFILE, errno.ENFILE)
_NEED_HANDLE: Final = ("open", "sync of a directory", "listdir")
#: Errors that every operation may return, and that never mean a failed disk (D1).
_NEVER_THE_DISK: Final = (errno.ENOMEM, errno.EINTR)
#: Events in the trace of a move between directories; a step of the move begins after each of them.
_STEPS: Final = ("directory_move_begun", "directory_move_swapped")


def errors_of(operation: str) -> tuple[int, ...]:
    """Return the errnos with which an operation may fail."""
    changes = any(call in CHANGES for call in OPERATIONS[operation])
    return (
        *(number for number in DEVICE_ERRNOS if changes or number != errno.EROFS),
        *(_FULL if operation in _NEED_SPACE else ()),
        *(_NO_HANDLES if operation in _NEED_HANDLE else ()),
        *_NEVER_THE_DISK,
    )


@kind_at_disk
def fail_directory(context: FaultContext, broker: SimBroker, disk: SimDisk) -> bool:
    """Fail all calls of one log directory with a device error (D1), until the disk is repaired."""
    if disk.fault is not None:
        return False
    draw = context.draw
    number = draw.choice(DEVICE_ERRNOS)
    left = draw.randrange(1, draw.choice((2, 8, 60)))
    failure = LogDirFailure(context.cluster, broker, disk, number, left)
    name = context.named(broker, disk)
    context.note(f"{name} fails with {errno.errorcode[number]} in {left} calls")
    _repair_later(context, failure)
    return True


@kind_at_disk
def hang_directory(context: FaultContext, broker: SimBroker, disk: SimDisk) -> bool:
    """Hang the device of one log directory: no operation ends until the disk is replaced."""
    if disk.hangs or disk.fault is not None:
        return False
    disk.hangs = True
    name = context.named(broker, disk)
    context.note(f"{name} hangs")
    context.cluster.log_dirs.hung[broker.node_id] = None
    _watch_hang(context, broker, disk)

    def come_back() -> None:
        if disk.hangs:
            context.note(f"{name} answers again")
            disk.come_back()

    # Some of these times are long enough for the broker to notice the hang, others are too short.
    context.until(context.about(400, 3_000, 9_000), come_back)
    return True


def _watch_hang(context: FaultContext, broker: SimBroker, disk: SimDisk) -> None:
    """Check periodically that the broker gives up a directory in which a write hangs (D13)."""
    cluster = context.cluster
    limit_ns = 2 * cluster.settings.session_timeout_ms * NS_PER_MS

    def look() -> None:
        life = broker.life
        if life is not None and life.runs and broker.broker is not None:
            for directory in broker.broker.replicas.directories:
                ages = directory.lane.times.open_ages()
                # The broker must give up the directory if a write has hung for `limit_ns`, or
                # another operation for twice as long.
                waits_ns = max(ages.write_ns, ages.other_ns // 2)
                is_served = directory.path == disk.root and directory.failure is None
                if is_served and waits_ns > limit_ns:
                    cluster.simulator.violate(
                        f"broker {broker.node_id} has waited {waits_ns // NS_PER_MS} ms for"
                        f" {disk.root}, which hangs (D13)"
                    )
                    return
        if disk.hangs:
            context.later(_ATTEMPTS_MS, look)

    context.later(_ATTEMPTS_MS, look)


def _repair_later(context: FaultContext, failure: LogDirFailure) -> None:
    """Let an operator repair a directory after a while, or replace its disk by an empty disk."""
    is_emptied = context.draw.random() < 0.4

    def operate() -> None:
        # If the fault budget refuses the empty disk, the operator tries again later; after the end
        # of the faults, the operator repairs the disk instead.
        if not failure.repair(is_emptied=is_emptied and context.is_active):
            context.later(_ATTEMPTS_MS, operate)

    context.later(context.about(300, 3_000), operate)
    context.at_end(failure.cancel)


@kind_at_disk
def fail_operation(context: FaultContext, broker: SimBroker, disk: SimDisk) -> None:
    """Fail a random operation of one log directory with a random errno, perhaps in a move."""
    draw = context.draw
    operation = draw.choice(list(OPERATIONS))
    number = draw.choice(errors_of(operation))
    left = draw.randrange(1, 8) if operation in _FREQUENT else 1
    step = draw.choice((None, None, *_STEPS))
    loses_controller = draw.random() < 0.3
    name, error = context.named(broker, disk), errno.errorcode[number]
    when = f"after {step}" if step else "now"
    context.note(f"{operation} of {name} fails with {error} in {left} calls, {when}")

    def begin() -> None:
        if disk.fault is not None or broker.life is None:
            return
        strike_operation(context, broker, disk, operation, number, left)
        if loses_controller:
            context.crash(context.controller(), f"dies while {name} fails")

    if step is None:
        begin()
    else:
        _at_event(context, broker, step, begin)


def strike_operation(
    context: FaultContext, broker: SimBroker, disk: SimDisk, operation: str, number: int, left: int
) -> None:
    """Let an operation fail with the errno `number` after `left` calls.

    A device error lasts until an operator repairs the disk; another error occurs only once.
    """
    calls = OPERATIONS[operation]
    if number in DEVICE_ERRNOS:
        failure = LogDirFailure(context.cluster, broker, disk, number, left, calls)
        _repair_later(context, failure)
    else:
        # Ask the fault budget, because a failure while the broker starts ends the broker.
        may_fail = partial(
            context.cluster.budget.may_fail,
            broker.node_id,
            loses_data=operation in _SYNCS,
            disk=disk,
        )
        fail_calls(context, broker, disk, calls, number, left, may_fail, is_once=True, note=" once")


def _at_event(
    context: FaultContext, broker: SimBroker, event: str, then: Callable[[], None]
) -> None:
    """Call `then` once, when the broker's current incarnation traces `event` while faults
    happen.
    """
    on_traced = context.cluster.simulator.on_traced

    def traced(incarnation: Incarnation, name: str, _: dict[str, Any]) -> None:
        if name == event and incarnation is broker.life and context.is_active:
            forget()
            then()

    def forget() -> None:
        if traced in on_traced:
            on_traced.remove(traced)

    on_traced.append(traced)
    context.at_end(forget)


@kind_at_broker
def strike_directory_move(context: FaultContext, broker: SimBroker) -> None:
    """Kill a broker in the middle of its next move between log directories, at a file call."""
    draw = context.draw
    event, calls = draw.choice((("directory_move_begun", 50), ("directory_move_swapped", 8)))
    planned = Strike(draw.randrange(1, calls), draw.choice(LOSSES), "files.")
    context.note(f"{broker.node_id} dies {planned.countdown} file calls after {event}")

    def strike() -> None:
        if broker.life is not None:
            broker.life.plan_strike(planned)

    _at_event(context, broker, event, strike)
