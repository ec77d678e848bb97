"""Invariant of `flush.before.ack`: committed records are on the disks of the maximal ISR (V69).

At the instant at which a leader commits records, the checker reads the simulated disks. The
batches, the names of the log files, and the name of the replica's directory must survive a power
loss. The checker does not use the brokers' recovery points. A commit is checked if the leader has
`flush.before.ack` at this instant; the setting may change while the cluster runs.
"""

from __future__ import annotations

from tidelog.sim.checkers.checker import Checker
from tidelog.sim.disk import Directory
from tidelog.sim.file_content import Fate, File, UnsyncedWrite
from tidelog.sim.observed.claims import ReplicaClaim
from tidelog.sim.observed.replica_logs import ReplicaLog


class SyncedChecker(Checker):
    """Checker of the commits of all leaders in one run."""

    #: Number of checked commits.
    checked = 0

    def committed(self, node_id: int, claim: ReplicaClaim, first: int) -> None:
        """Check a leader's commit of the offsets from `first` up to its high watermark."""
        broker = self._brokers[node_id].broker
        partition = None if broker is None else broker.replicas.get(claim.name)
        leadership = None if partition is None else partition.leadership
        if leadership is None or not leadership.flush_before_ack:
            return
        self.checked += 1
        for member in claim.maximal_isr:
            logs = self._brokers[member].logs
            log = logs.logs.get(claim.key)
            end = 0 if log is None else durable_end(log, str(claim.name))
            if end < claim.high_watermark:
                self._violate(
                    f"{claim.name}: leader {node_id} of epoch {claim.leader_epoch} committed up to"
                    f" {claim.high_watermark} with flush.before.ack; member {member} of its ISR"
                    f" {claim.maximal_isr} has synced up to {end} (V69)"
                )
                return


def durable_end(log: ReplicaLog, directory_name: str) -> int:
    """Return the offset up to which a replica's records survive a power loss."""
    disk = log.disk
    root = disk.directory(disk.root)
    directory = root.durable.get(directory_name)
    if not isinstance(directory, Directory):
        return log.start
    end = log.start
    for _, segment in log.segments:
        if not any(entry is segment.file for entry in directory.durable.values()):
            return end
        position = _first_unsynced(segment.file)
        for batch, batch_end in zip(segment.batches, segment.ends, strict=True):
            if batch_end > position:
                return end
            end = batch.next_offset
    return end


def _first_unsynced(file: File) -> int:
    """Return the lowest position of a file that a power loss may change."""
    return min(
        (
            change.position if isinstance(change, UnsyncedWrite) else change.size
            for change in file.pending
            if change.fate is not Fate.DURABLE
        ),
        default=len(file.data),
    )
