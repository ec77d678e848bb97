"""Comparison of one partition's replicas: digests, ends, topic ids, and offset buckets that differ.

Records below any checkpointed high watermark are committed: replicas in the ISR must have them, and
all replicas must agree on them. Without metadata the ISR is unknown, and a shorter replica counts
as damage. With metadata, a shorter replica outside the ISR is only behind. The functions are pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.client.cluster import PartitionMetadata
from tidelog.spark.pipelines.audit.detail import DetailJob, Side
from tidelog.spark.pipelines.audit.findings import AuditFinding, FindingKind, Severity
from tidelog.spark.pipelines.audit.joining import Gaps, ReplicaAudit
from tidelog.spark.pipelines.audit.ranges import BUCKET_BITS
from tidelog.spark.segments.listing import Replica


def high_watermark(replicas: Sequence[Replica]) -> int:
    """Return the largest checkpointed high watermark, below which all records are committed."""
    return max((each.high_watermark or 0 for each in replicas), default=0)


def gaps_of(
    replicas: Sequence[Replica], is_compacted: bool, assigned: PartitionMetadata | None
) -> Gaps:
    """Return the explanation of gaps in a partition's logs.

    A cleaner's checkpoint proves that a topic is compacted. The offset up to which compaction
    removed records is known only if all replicas are audited, because a follower copies the gaps of
    its leader.
    """
    cleaned = [each.cleaned_to for each in replicas if each.cleaned_to is not None]
    all_here = assigned is not None and len(replicas) >= len(assigned.replicas)
    below = max(cleaned) if cleaned and all_here else None
    return Gaps(is_compacted or bool(cleaned), below)


def check_ends(
    audits: Sequence[ReplicaAudit], high: int, assigned: PartitionMetadata | None
) -> list[AuditFinding]:
    """Return findings about replicas that end below the partition's high watermark."""
    found: list[AuditFinding] = []
    for audit in audits:
        replica = audit.replica
        if audit.end >= high:
            continue
        outside = (
            assigned is not None
            and replica.broker is not None
            and replica.broker not in assigned.isr
        )
        last = replica.segments[-1] if replica.segments else None
        where = "it is not in the ISR, and behind" if outside else "committed records are missing"
        found.append(
            AuditFinding(
                FindingKind.SHORT,
                replica.path if last is None else last.path,
                f"the replica ends at offset {audit.end}, below the high watermark {high}: {where}",
                None if last is None else last.size,
                audit.end,
                Severity.NOTICE if outside else Severity.DAMAGE,
                partition=str(replica.tp),
                broker=replica.name,
            )
        )
    return found


def check_identity(replicas: Sequence[Replica]) -> list[AuditFinding]:
    """Return findings about replicas with differing topic ids, and brokers with two replicas."""
    found: list[AuditFinding] = []
    ids = [each.topic_id for each in replicas if each.topic_id is not None]
    usual = max(ids, key=ids.count) if ids else None
    seen: dict[int, Replica] = {}
    for replica in replicas:
        if replica.topic_id is not None and replica.topic_id != usual:
            found.append(
                AuditFinding(
                    FindingKind.OTHER_TOPIC,
                    replica.path,
                    f"its topic id is {replica.topic_id}, other replicas have {usual}: it is a"
                    f" replica of a deleted topic of this name",
                    partition=str(replica.tp),
                    broker=replica.name,
                )
            )
        if replica.broker is None:
            continue
        if replica.broker in seen:
            found.append(
                AuditFinding(
                    FindingKind.DUPLICATE,
                    replica.path,
                    f"broker {replica.broker} has a second replica of this partition in"
                    f" {seen[replica.broker].path}",
                    partition=str(replica.tp),
                    broker=replica.name,
                )
            )
        seen[replica.broker] = replica
    return found


def differing_buckets(audits: Sequence[ReplicaAudit]) -> list[int]:
    """Return the offset buckets whose digests differ between the replicas that reach the bucket."""
    every: set[int] = set()
    for audit in audits:
        every.update(audit.buckets)
    differing = []
    for bucket in sorted(every):
        low, high = bucket << BUCKET_BITS, (bucket + 1) << BUCKET_BITS
        digests = {
            audit.buckets.get(bucket, (0, 0))
            for audit in audits
            if audit.start < high and audit.end > low
        }
        if len(digests) > 1:
            differing.append(bucket)
    return differing


def detail_job(
    audits: Sequence[ReplicaAudit], buckets: Sequence[int], high: int, gaps: Gaps
) -> DetailJob:
    """Return the task that compares the given offset buckets batch by batch."""
    return DetailJob(
        str(audits[0].replica.tp),
        tuple(buckets),
        high,
        gaps.is_compacted,
        gaps.below,
        tuple(
            Side(
                audit.replica.name,
                tuple((each.path, each.base_offset, each.size) for each in audit.replica.segments),
                audit.start,
                audit.end,
                audit.last_epoch,
                audit.history(),
                tuple(audit.damaged),
            )
            for audit in audits
            if audit.replica.segments
        ),
    )
