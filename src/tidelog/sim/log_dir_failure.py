"""Failed and slow log directories, and the operator who repairs them (D1, D6, D13).

From the begin of a failure until the repair, all calls of the directory fail with the same errno.
An operator later restarts the broker with the same disk, or with an empty disk in its place. The
directory fails, and the operator replaces the disk, only when the fault budget allows it. A restart
with the same disk loses the pages that a failed sync dropped.

A slow directory takes some milliseconds for each operation: longer than the threshold of slow
operations, but short enough for the clients to make progress. An operator restarts brokers that
gave up a slow directory (D13).
"""

from __future__ import annotations

import errno
from collections.abc import Container
from typing import Final

from tidelog.core.log_dir_keys import OFFLINE
from tidelog.sim.disk import SLOW_NS, Loss, SimDisk
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.sim_broker import SimBroker
from tidelog.sim.sim_cluster import SimCluster

#: The errors of a failed device or of a directory that is gone (D1).
DEVICE_ERRNOS: Final = (
    errno.EIO, errno.EROFS, errno.EACCES, errno.ENOENT, errno.ENXIO, errno.ESTALE,
)  # fmt: skip
#: Calls that a read-only mount rejects, while reads still succeed.
CHANGES: Final = frozenset(
    ("pwritev", "truncate", "rename", "unlink", "mkdir", "rmdir", "remove_tree")
)
#: Shortest and longest duration in ns of an operation on a slow directory. Both are above the
#: `log.dir.slow.threshold.ms` of the profile with slow directories.
_SLOW_OPERATION_NS: Final = (5 * NS_PER_MS, 9 * NS_PER_MS)
_LOOK_NS: Final = 500 * NS_PER_MS


class LogDirFailure:
    """The failure of a log directory; it begins after `left` calls, as soon as the budget allows
    it.
    """

    def __init__(
        self,
        cluster: SimCluster,
        broker: SimBroker,
        disk: SimDisk,
        number: int,
        left: int,
        calls: Container[str] | None = None,
    ) -> None:
        """Plan the failure with the errno `number`; the disk must have no other planned failure.

        The failure begins at a call in `calls`, or at any call if `calls` is None.
        """
        assert disk.fault is None, f"{disk.root} has a planned failure"
        self._cluster = cluster
        self._broker = broker
        self._disk = disk
        self._number = number
        self._left = left
        self._calls = calls
        disk.fault = self._fault

    @property
    def has_begun(self) -> bool:
        """Whether the directory has failed, and is not repaired yet."""
        return self._disk.fault == self._fault and self._disk.is_failed

    def _fault(self, call: str, _: str) -> int:
        if self._number == errno.EROFS and call not in CHANGES:
            return 0
        if not self._disk.is_failed:
            if self._calls is not None and call not in self._calls:
                return 0
            self._left -= 1
            if self._left > 0 or not self._may_be_lost():
                return 0
            self._set_failed(True)
            name = errno.errorcode[self._number]
            self._cluster.simulator.note(
                self._broker.node_id, "disk", f"{self._disk.root} fails with {name} at {call}"
            )
        return self._number

    def _may_be_lost(self) -> bool:
        budget = self._cluster.budget
        return budget.may_fail(self._broker.node_id, loses_data=True, disk=self._disk)

    def _set_failed(self, is_failed: bool) -> None:
        self._disk.is_failed = is_failed
        # Let checkers read the names again: after a failure or a repair, the broker may use another
        # copy of a replica.
        self._disk.names_changed = True

    def cancel(self) -> None:
        """Forget a failure that has not begun."""
        if self._disk.fault == self._fault and not self._disk.is_failed:
            self._disk.fault = None

    def repair(self, *, is_emptied: bool) -> bool:
        """Restart the broker with the same or an empty disk; return whether the disk works again.

        Returns False if the fault budget refuses the restart for now.
        """
        if not self.has_begun:
            self.cancel()
            return True
        broker, disk, cluster = self._broker, self._disk, self._cluster
        if is_emptied and not self._may_be_lost():
            return False
        if broker.life is not None and not broker.crash(Loss.NONE, f"{disk.root} is repaired"):
            return False
        disk.fault = None
        self._set_failed(False)
        what = "replaced by an empty disk" if is_emptied else "repaired"
        cluster.simulator.note(-1, "fault", f"{disk.root} of {broker.node_id} is {what}")
        if is_emptied:
            cluster.replication.crashed(broker, lossy=True, struck=[disk])
            broker.empty_disk(disk)
        return True


def slow(disk: SimDisk) -> None:
    """Slow down a disk."""
    disk.slow, disk.slow_ns = True, _SLOW_OPERATION_NS
    disk.count("slow directory")


def quicken(disk: SimDisk) -> None:
    """End the slowness of a disk."""
    disk.slow, disk.slow_ns = False, SLOW_NS


def given_up(broker: SimBroker) -> str:
    """Return the path of a directory that a broker gave up although its device works; empty if
    none.

    The broker gave up such a directory because it was slow.
    """
    if broker.broker is None:
        return ""
    failed = broker.broker.replicas.failed
    working = [disk.root for disk in broker.logs.disks if disk.fault is None]
    return next((root for root in working if root in failed), "")


def restart_given_up(cluster: SimCluster) -> None:
    """Periodically restart each broker that gave up a directory and has only quick directories.

    If the fault budget refuses a restart, the broker is restarted at a later check.
    """
    if cluster.settings.of(1).log_dir_slow_action != OFFLINE:
        return
    for broker in cluster.brokers.values():
        directory = given_up(broker)
        if directory and not any(disk.slow for disk in broker.logs.disks):
            broker.crash(Loss.NONE, f"{directory} is quick again")
    cluster.simulator.scheduler.after(_LOOK_NS, None, restart_given_up, cluster)
