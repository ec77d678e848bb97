"""Invariant of damaged logs (V68): damage that a running broker has read does not stay.

A leader that reads damage leaves the ISR, truncates its log before the damage and fetches the
records again. So once the cluster is in sync, no file in which a broker found damage still contains
it. A broker that restarted has forgotten what it found, so it is asked for nothing. The replication
checker judges the truncation itself: no member of the ISR may lack a committed record.
"""

from __future__ import annotations

from tidelog.sim.checkers.checker import Checked, Checker
from tidelog.sim.file_content import File
from tidelog.sim.node import Incarnation


class DamageChecker(Checker):
    """Checker of the damage that brokers have read."""

    def __init__(self, run: Checked) -> None:
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
