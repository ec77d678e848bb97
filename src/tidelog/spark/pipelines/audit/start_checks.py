"""Checks of the first segments: whether retention explains that a replica begins late.

Every replica applies retention to its own log, so replicas may begin at different offsets. A late
begin is damage if another replica has the records from the late replica's checkpointed log start
offset on. Without a running cluster, retention is unknown. A late begin is then also damage if
every replica of the topic on the other brokers begins at offset 0. Any other late begin is a
notice. If a cluster was asked, the cluster's retention settings and the leader's log start decide.
The functions are pure.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.spark.pipelines.audit.findings import AuditFinding, FindingKind, Severity
from tidelog.spark.pipelines.audit.joining import ReplicaAudit
from tidelog.spark.segments.listing import Replica


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention of a topic, as a running cluster reports it; -1 means no limit."""

    is_deleting: bool
    time_ms: int
    size_bytes: int


class TopicStarts:
    """For each topic: the brokers on which a replica begins at an offset above 0."""

    def __init__(self, replicas: Iterable[Replica]) -> None:
        self._late: dict[str, dict[str, None]] = {}
        for replica in replicas:
            if replica.segments and replica.segments[0].base_offset > 0:
                self._late.setdefault(replica.tp.topic, {})[replica.name] = None

    def is_late_only_at(self, replica: Replica) -> bool:
        """Return whether all replicas of the topic on other brokers begin at offset 0."""
        return all(name == replica.name for name in self._late.get(replica.tp.topic, {}))


def check_starts(
    audits: Sequence[ReplicaAudit],
    starts: TopicStarts,
    retention: Mapping[str, Retention],
    earliest: Mapping[TopicPartition, int],
) -> list[AuditFinding]:
    """Return findings about replicas that begin after records that other replicas have."""
    found: list[AuditFinding] = []
    for audit in audits:
        replica = audit.replica
        if not replica.segments:
            continue
        first = replica.segments[0].base_offset
        holders = [each for each in audits if _holds_before(each, audit, first)]
        if not holders or (replica.is_clean and (replica.log_start or first) < first):
            continue  # `offset_checks` reports this case
        limits, log_start = retention.get(replica.tp.topic), earliest.get(replica.tp)
        peer = min(holders, key=lambda each: each.start)
        severity = Severity.DAMAGE
        why = "every replica of the topic on other brokers begins at offset 0"
        if replica.log_start is not None and peer.start <= replica.log_start < first:
            why = f"the replica's own log start is {replica.log_start}"
        elif limits is not None and log_start is not None:
            if first <= log_start or _explains(limits, audit, holders, first):
                continue
            why = f"neither retention nor the leader's log start {log_start} explains that"
        elif not starts.is_late_only_at(replica) or not _ends_at(peer, first):
            severity = Severity.NOTICE
            why = "either retention has run here alone, or the first segments are lost"
        found.append(
            AuditFinding(
                FindingKind.LOG_START,
                replica.segments[0].path,
                f"the first log file begins at offset {first}, and {peer.replica.name} has the"
                f" records from offset {peer.start} on: {why}",
                0,
                first,
                severity,
                partition=str(replica.tp),
                broker=replica.name,
            )
        )
    return found


def _holds_before(other: ReplicaAudit, audit: ReplicaAudit, first: int) -> bool:
    """Return whether `other` has the records directly below `first`, where `audit` begins."""
    return other is not audit and bool(other.batches) and other.start < first <= other.end


def _ends_at(peer: ReplicaAudit, first: int) -> bool:
    """Return whether a segment of the peer replica begins, so another ends, at offset `first`."""
    return any(segment.base_offset == first for segment in peer.replica.segments)


def _explains(
    limits: Retention, audit: ReplicaAudit, holders: Sequence[ReplicaAudit], first: int
) -> bool:
    """Return whether retention may have removed the records below this replica's first segment.

    `holders` are the replicas that still have these records.
    """
    if not limits.is_deleting:
        return False
    if limits.size_bytes >= 0 and audit.replica.bytes >= limits.size_bytes:
        return True
    stamps = [stamp for each in holders for last, stamp in each.newest if last < first]
    newest_ms = max(stamps, default=-1)
    return limits.time_ms >= 0 and time.time() * 1000 - newest_ms > limits.time_ms
