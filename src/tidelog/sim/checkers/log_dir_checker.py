"""Invariants of failed log directories (D1, D3, D4) and of damaged logs (V68).

A broker must not use the replicas of a failed log directory: until its restart, it must neither
lead with them nor commit records in them. Appends need no check, because a failed simulated disk
refuses them. The broker's trace names the directory whose device failed. If the broker creates such
a replica again in another directory, the replication checker notices committed records that the new
replica lacks. A broker halts only when its last log directory fails.

A running broker repairs the damage that it has read. A leader that reads damage leaves the ISR,
truncates its log before the damage and fetches the records again. Once the cluster is in sync, no
file in which a broker found damage is still damaged. The checker expects no repair after a restart,
because the broker no longer knows of the damage. The truncation itself is checked by the
replication checker: no member of the ISR may lack a committed record.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.checkers.checker import CheckedRun, Checker
from tidelog.sim.file_content import File
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.node import Incarnation
from tidelog.sim.observed.claims import ReplicaClaim

#: Maximum time in ns until a broker stops leading after it learns that a directory failed.
GRACE_NS: Final = 20 * NS_PER_MS


class LogDirChecker(Checker):
    """Checker of the failed log directories of one run."""

    def __init__(self, run: CheckedRun) -> None:
        super().__init__(run)
        #: By broker: the directories that failed in the broker's current incarnation, each with the
        #: time from which no replica in the directory may lead.
        self._failed: dict[int, dict[str, int]] = {}
        #: By broker: the number of the incarnation in which the directories of `_failed` failed.
        self._lives: dict[int, int] = {}
        #: For each broker, the number of its incarnation, and the log directories that failed or
        #: were unusable when this incarnation started.
        self._bad: dict[int, tuple[int, dict[str, None]]] = {}
        #: Brokers of which a disk has hung in this run.
        self.hung: dict[int, None] = {}
        #: Number of failed directories that brokers have found.
        self.found = 0

    def failed(self, incarnation: Incarnation, directory: str) -> None:
        """Record that a broker gave up a log directory."""
        node_id = incarnation.node_id
        if self._lives.get(node_id) != incarnation.number:
            self._lives[node_id] = incarnation.number
            self._failed[node_id] = {}
        self._failed[node_id].setdefault(directory, self._now_ns() + GRACE_NS)
        self.found += 1
        self.unusable(incarnation, directory)

    def unusable(self, incarnation: Incarnation, directory: str) -> None:
        """Record that a broker's log directory failed, or was unusable when the broker started."""
        number, bad = self._bad.get(incarnation.node_id, (0, {}))
        if number != incarnation.number:
            self._bad[incarnation.node_id] = (incarnation.number, {directory: None})
        else:
            bad[directory] = None

    def halted(self, incarnation: Incarnation) -> None:
        """Check that a broker with several directories halts only if all of them failed (D1)."""
        number, bad = self._bad.get(incarnation.node_id, (0, {}))
        roots = [disk.root for disk in self._brokers[incarnation.node_id].logs.disks]
        good = [root for root in roots if number != incarnation.number or root not in bad]
        if good and len(roots) > 1:
            self._violate(
                f"broker {incarnation.node_id} halts for failed log directories, and"
                f" {', '.join(good)} of {', '.join(roots)} has not failed (D1)"
            )

    def after_event(self, node_id: int) -> None:
        """Check a broker after one of its events."""
        if node_id not in self._failed:
            return
        failed = self._due(node_id)
        if not failed:
            return
        broker = self._brokers[node_id]
        for name, key in broker.leading():
            log = broker.logs.logs.get(key)
            if log is not None and log.disk.root in failed:
                self._violate(
                    f"{name}: broker {node_id} leads with its replica in {log.disk.root}, which"
                    " has failed (D4)"
                )
                return

    def committed(self, node_id: int, claim: ReplicaClaim, _: int) -> None:
        """Check that a leader which commits records has its replica in no failed directory."""
        if node_id not in self._failed:
            return
        log = self._brokers[node_id].logs.logs.get(claim.key)
        if log is not None and log.disk.root in self._due(node_id):
            self._violate(
                f"{claim.name}: leader {node_id} of epoch {claim.leader_epoch} committed up to"
                f" {claim.high_watermark} with its replica in {log.disk.root}, which has failed"
                " (D4)"
            )

    def _due(self, node_id: int) -> list[str]:
        """Return the broker's failed directories in which no replica may lead any more."""
        life = self._brokers[node_id].life
        if life is None or life.number != self._lives[node_id]:
            del self._failed[node_id]
            return []
        now_ns = self._now_ns()
        return [path for path, due_ns in self._failed[node_id].items() if due_ns <= now_ns]


class DamageChecker(Checker):
    """Checker that brokers repair the damage that they have read."""

    def __init__(self, run: CheckedRun) -> None:
        super().__init__(run)
        #: Files in which a broker found damage: (broker id, number of the incarnation, path).
        self._found: dict[tuple[int, int, str], None] = {}
        #: Number of files in which damage was found.
        self.found_count = 0

    def found(self, incarnation: Incarnation, path: str) -> None:
        """Note that a broker has found damage in a file, or in a log (`path` is its directory)."""
        name = (incarnation.node_id, incarnation.number, path)
        if name not in self._found:
            self._found[name] = None
            self.found_count += 1

    def unrepaired(self) -> str:
        """Return the first file whose damage its broker has found and not repaired; empty if
        none.
        """
        for node_id, number, path in self._found:
            broker = self._brokers[node_id]
            if broker.life is None or broker.life.number != number:
                continue
            files = [disk.find(path) for disk in broker.logs.disks]
            if any(isinstance(file, File) and file.is_damaged for file in files):
                return f"broker {node_id} has read damage of {path}, which is still there"
        return ""
