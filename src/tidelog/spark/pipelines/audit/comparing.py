"""Comparison of one partition's replicas: ends, and digests of offset buckets (2^16 offsets).

Records below any checkpointed high watermark are committed: replicas in the ISR must have them, and
all replicas must agree on them. A replica that ends below its own high watermark has lost records.
A replica that ends below another replica's high watermark is damage if metadata say that the
replica is in the ISR; otherwise the replica is only behind. The functions are pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.client.cluster import PartitionMetadata
from tidelog.spark.pipelines.audit.detail import DetailJob, Side
from tidelog.spark.pipelines.audit.findings import AuditFinding, FindingKind, Severity
from tidelog.spark.pipelines.audit.interrupted_swaps import is_compacting
from tidelog.spark.pipelines.audit.joining import Gaps, ReplicaAudit
from tidelog.spark.pipelines.audit.ranges import BUCKET_BITS
from tidelog.spark.segments.listing import Replica


def high_watermark(replicas: Sequence[Replica]) -> int:
    """Return the largest checkpointed high watermark, below which all records are committed."""
    return max((each.high_watermark or 0 for each in replicas), default=0)


def gaps_of(
    replicas: Sequence[Replica], is_compacted: bool, assigned: PartitionMetadata | None
) -> Gaps:
    """Return whether, and below which offset, compaction explains gaps in a partition's logs.

    A cleaner's checkpoint proves that a topic is compacted. The offset up to which compaction
    removed records is known only if all replicas are audited, because a follower copies the gaps of
    its leader.
    """
    cleaned = [each.cleaned_to for each in replicas if each.cleaned_to is not None]
    all_here = assigned is not None and len(replicas) >= len(assigned.replicas)
    below = max(cleaned) if cleaned and all_here else None
    # The first compaction of a log has no checkpoint yet when it replaces segments.
    is_begun = any(is_compacting(each) for each in replicas)
    return Gaps(is_compacted or bool(cleaned) or is_begun, None if is_begun else below)


def check_ends(
    audits: Sequence[ReplicaAudit], high: int, assigned: PartitionMetadata | None
) -> list[AuditFinding]:
    """Return findings about replicas that end below the partition's high watermark."""
    found: list[AuditFinding] = []
    for audit in audits:
        replica = audit.replica
        if audit.end >= high:
            continue
        last = replica.segments[-1] if replica.segments else None
        in_isr = assigned is not None and replica.broker in assigned.isr
        outside = assigned is not None and not in_isr
        is_lost = in_isr or (not outside and audit.end < (replica.high_watermark or 0))
        where = "committed records are missing"
        if not is_lost:
            where = f"it is {'' if outside else 'perhaps '}not in the ISR, and behind"
        found.append(
            AuditFinding(
                FindingKind.SHORT,
                replica.path if last is None else last.path,
                f"the replica ends at offset {audit.end}, below the high watermark {high}: {where}",
                None if last is None else last.size,
                audit.end,
                Severity.DAMAGE if is_lost else Severity.NOTICE,
                partition=str(replica.tp),
                broker=replica.name,
            )
        )
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
    audits: Sequence[ReplicaAudit],
    buckets: Sequence[int],
    high: int,
    gaps: Gaps,
    assigned: PartitionMetadata | None,
) -> DetailJob:
    """Return the task that compares the given offset buckets batch by batch."""
    isr = () if assigned is None else assigned.isr
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
                high if audit.replica.broker in isr else audit.replica.high_watermark or 0,
            )
            for audit in audits
            if audit.replica.segments
        ),
    )
