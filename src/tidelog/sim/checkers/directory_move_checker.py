"""Invariants of moves between the log directories of a broker, on the simulated disks (D11).

A future replica that replaces the current replica must have the same records with the same offsets
and leader epochs. Its records, file names and directory name must survive a power loss right after
the replacement. Records that were synced before the move are synced after it (V69, E7). The two
replicas may differ in records that compaction removed. At the end of a run, no disk has a future
replica or a second copy of a replica.

A broker plans some moves itself, for drains and for balancing (D12, D15). A planned move never goes
to a cordoned or drained directory, and balancing moves nothing out of a drained directory. Planned
moves must stop after the sizes of logs stop changing; balancing that moved too much each time would
never stop.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.config import BrokerConfig
from tidelog.core.log_dir_keys import takes_no_new
from tidelog.sim.batches import GONE
from tidelog.sim.checkers.checker import CheckedRun, Checker
from tidelog.sim.checkers.synced_checker import durable_end
from tidelog.sim.disk import Directory, SimDisk
from tidelog.sim.loop import NS_PER_S
from tidelog.sim.observed.replica_logs import ReplicaLog

_FUTURE: Final = "-future"
#: Suffixes of directories of replicas that their broker does not serve: deleted, set aside, or not
#: yet moved completely.
_ASIDE: Final = ("-delete", "-stray", _FUTURE)
#: Planned moves count as over after this time in ns without one; brokers check the balance each
#: second.
_REST_NS: Final = 4 * NS_PER_S
#: Maximum number of moves of one replica by balancing, after the sizes of logs have stopped
#: changing.
_MOST_MOVES: Final = 4


class DirectoryMoveChecker(Checker):
    """Checker of moves between log directories in one run."""

    #: Number of moves that were checked at their end.
    checked = 0

    def swapped(self, node_id: int, partition: str, source: str, target: str) -> None:
        """Check a future replica just after it replaced the current replica, before the broker uses
        it.
        """
        logs = self._brokers[node_id].logs
        disks = {disk.root: disk for disk in logs.disks}
        former = logs.copy_on(disks[source], partition)
        log = logs.copy_on(disks[target], partition)
        self.checked += 1
        name = f"{partition} of broker {node_id}, moved from {source} to {target},"
        if log is None or former is None:
            self._violate(f"{name} is not in both directories at its end (D11)")
            return
        problem = _difference(former, log)
        if problem:
            self._violate(f"{name} {problem} (D11)")
        elif durable_end(log, partition) < log.end:
            end = durable_end(log, partition)
            self._violate(f"{name} ends at {log.end}, and is on the disk up to {end} (D11)")

    def left_over(self) -> str:
        """Describe a copy of a replica that should have been removed from its disk; empty if none.

        An empty directory is allowed: it stays until the next start if a full disk prevented the
        creation of a replica.
        """
        for node_id, broker in self._brokers.items():
            found: dict[str, str] = {}
            for disk in broker.logs.disks:
                for name in _directories(disk):
                    if name.endswith(_FUTURE):
                        return f"broker {node_id} has {disk.root}/{name}"
                    copy = None if name.endswith(_ASIDE) else broker.logs.copy_on(disk, name)
                    if copy is None or not copy.numbers:
                        continue
                    if found.setdefault(name, disk.root) != disk.root:
                        return f"broker {node_id} has {name} in {found[name]} and {disk.root}"
        return ""


def _directories(disk: SimDisk) -> list[str]:
    root = disk.find(disk.root)
    entries = root.entries if isinstance(root, Directory) else {}
    return [name for name, entry in entries.items() if isinstance(entry, Directory)]


def _difference(former: ReplicaLog, log: ReplicaLog) -> str:
    """Return the difference between a copy and its source log; empty if they agree."""
    if former.end != log.end and (former.numbers or log.numbers):
        return f"ends at {log.end}, the former replica at {former.end}"
    for offset in range(max(former.start, log.start), former.end):
        was = former.epochs[offset - former.start], former.numbers[offset - former.start]
        now = log.epochs[offset - log.start], log.numbers[offset - log.start]
        if was != now and GONE not in (was[1], now[1]):
            return f"has record {now} at offset {offset}, the former replica {was}"
    return ""


class PlannedMoveChecker(Checker):
    """Checker of the planned moves of one run."""

    def __init__(self, run: CheckedRun) -> None:
        super().__init__(run)
        self._latest_ns: int | None = None
        #: Description of the planned move that began last; empty before the first.
        self.latest = ""
        #: Number of planned moves that began, by kind of move, such as `balance`.
        self.counts: dict[str, int] = {}
        #: How often balancing has moved each replica since the sizes of logs stopped changing; None
        #: before that.
        self._since_last: dict[tuple[int, str], int] | None = None

    def begun(
        self,
        node_id: int,
        config: BrokerConfig,
        *,
        kind: str,
        partition: str,
        source: str,
        target: str,
        size_bytes: int,
    ) -> None:
        """Check a planned move when it begins, under the broker's current configuration."""
        self._latest_ns = self._now_ns()
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.latest = (
            f"{kind} of broker {node_id}: {partition} of {size_bytes} bytes, {source} to {target}"
        )
        if takes_no_new(target, config.cordoned_log_dirs, config.draining_log_dirs):
            self._violate(f"{self.latest}, which takes no new replicas (D12)")
        elif kind == "balance" and source in config.draining_log_dirs:
            self._violate(f"{self.latest}: its directory is drained (D15)")
        elif kind == "balance" and self._since_last is not None:
            count = self._since_last[node_id, partition] = 1 + self._since_last.get(
                (node_id, partition), 0
            )
            if count > _MOST_MOVES:
                self._violate(f"{self.latest}, {count} times since nothing grows (D15)")

    def nothing_grows(self) -> None:
        """Limit the number of moves from now on; called when the sizes of logs no longer change."""
        self._since_last = {}

    def restless(self) -> str:
        """Describe the latest planned move if it began within the last `_REST_NS`; else return an
        empty text.
        """
        is_late = self._latest_ns is not None and self._now_ns() - self._latest_ns < _REST_NS
        return self.latest if is_late else ""
