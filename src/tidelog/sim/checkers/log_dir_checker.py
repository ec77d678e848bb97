"""Invariants of failed log directories (D1, D3, D4) and of damaged logs (V68).

A broker does not serve a directory that it gave up. It traces the directory whose device failed.
From then on it leads and commits nothing with the replicas there, until it restarts. The disk
itself refuses appends. A replica that the broker creates elsewhere in their place is another log
for `replica_logs`, so that the replication checker finds the committed records that it lacks. A
broker halts for failed directories with its last one.

Damage that a running broker has read does not stay. A leader that reads damage leaves the ISR,
truncates its log before the damage and fetches the records again. So once the cluster is in sync,
no file in which a broker found damage still contains it. A broker that restarted has forgotten what
it found, so it is asked for nothing. The replication checker judges the truncation itself: no
member of the ISR may lack a committed record.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.checkers.checker import CheckedRun, Checker
from tidelog.sim.file_content import File
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.node import Incarnation
from tidelog.sim.observed.claims import ReplicaClaim

#: Time in which a broker stops to lead, in events that are due when it learns of the failure.
GRACE_NS: Final = 20 * NS_PER_MS


class LogDirChecker(Checker):
    """Checker of the failed log directories of one run."""

    def __init__(self, run: CheckedRun) -> None:
        super().__init__(run)
        #: Directories that present incarnations gave up, each with the time from which it counts.
        self._failed: dict[int, dict[str, int]] = {}
        #: Number of the incarnation that gave them up.
        self._lives: dict[int, int] = {}
        #: Number of the incarnation, and these with those that it could not use at the start.
        self._bad: dict[int, tuple[int, dict[str, None]]] = {}
        #: Brokers of which a disk has hung.
        self._hung: dict[int, None] = {}
        #: Number of failed directories that brokers have found.
        self.found = 0

    def hangs(self, node_id: int) -> None:
        """Record that a disk of a broker hangs from now on."""
        self._hung[node_id] = None

    def has_hung(self, node_id: int) -> bool:
        """Return whether a disk of a broker has hung in this run."""
        return node_id in self._hung

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
        """Record that a directory is bad for a broker, from its start on or since a failure."""
        number, bad = self._bad.get(incarnation.node_id, (0, {}))
        if number != incarnation.number:
            self._bad[incarnation.node_id] = (incarnation.number, {directory: None})
        else:
            bad[directory] = None

    def halted(self, incarnation: Incarnation) -> None:
        """Check a broker with several directories that halts for failed ones (D1)."""
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
        """Check a leader's commit."""
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
        """Return the directories that the present incarnation gave up a while ago."""
        life = self._brokers[node_id].life
        if life is None or life.number != self._lives[node_id]:
            del self._failed[node_id]
            return []
        now_ns = self._now_ns()
        return [path for path, due_ns in self._failed[node_id].items() if due_ns <= now_ns]


class DamageChecker(Checker):
    """Checker of the damage that brokers have read."""

    def __init__(self, run: CheckedRun) -> None:
        super().__init__(run)
        #: Files in which a process found damage, by broker and number of its incarnation.
        self._found: dict[tuple[int, int, str], None] = {}
        #: Number of files in which damage was found.
        self.found_count = 0

    def found(self, incarnation: Incarnation, path: str) -> None:
        """Note that a broker has read damage of a file, or of a log (its directory)."""
        name = (incarnation.node_id, incarnation.number, path)
        if name not in self._found:
            self._found[name] = None
            self.found_count += 1

    def unrepaired(self) -> str:
        """Return the first file whose damage is known to its broker; empty without any."""
        for node_id, number, path in self._found:
            broker = self._brokers[node_id]
            if broker.life is None or broker.life.number != number:
                continue
            files = [disk.find(path) for disk in broker.logs.disks]
            if any(isinstance(file, File) and file.is_damaged for file in files):
                return f"broker {node_id} has read damage of {path}, which is still there"
        return ""
