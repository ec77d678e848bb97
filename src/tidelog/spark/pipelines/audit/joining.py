"""The audit of a replica, joined from the results of its ranges.

The module makes the checks that need more than one range. The module compares file names with
offsets, the tail of the log with the recovery point, and the leader-epoch checkpoint with the
batches. The module also checks order and gaps across ranges and segments, and reports index files
without a log. Gaps are damage unless the topic is compacted. The module opens no file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from tidelog.core.dataclass import dataclass
from tidelog.spark.pipelines.audit.findings import AuditFinding, Collector, FindingKind, Severity
from tidelog.spark.pipelines.audit.ranges import RangeResult
from tidelog.spark.segments import directory_files as files
from tidelog.spark.segments.listing import ListedSegment, Replica

#: A leader epoch, its first offset in the log, and the last offset of the batch before that offset
#: (None if unknown).
EpochStart = tuple[int, int, int | None]


@dataclass(slots=True)
class ReplicaAudit:
    """The results of one completely read replica."""

    replica: Replica
    #: The offsets `[start, end)` of the replica's batches.
    start: int
    end: int
    batches: int = 0
    records: int = 0
    epochs: list[EpochStart] = field(default_factory=list)
    buckets: dict[int, tuple[int, int]] = field(default_factory=dict)
    damaged: list[tuple[int, int]] = field(default_factory=list)
    findings: list[AuditFinding] = field(default_factory=list)
    #: Whether a file vanished or shrank during the scan.
    is_gone: bool = False

    @property
    def last_epoch(self) -> int:
        """Leader epoch of the last batch; -1 without a batch."""
        return self.epochs[-1][0] if self.epochs else -1

    def history(self) -> str:
        """Return the leader epochs of the replica's batches, each with its first offset."""
        return " ".join(f"{epoch}@{start}" for epoch, start, _ in self.epochs) or "none"


@dataclass(frozen=True, slots=True)
class Gaps:
    """Whether compaction explains missing offsets; if `below` is set, only the offsets below it."""

    is_compacted: bool = False
    below: int | None = None

    def explain(self, last_missing: int) -> bool:
        """Return whether compaction may have removed all missing offsets up to `last_missing`."""
        return self.is_compacted and (self.below is None or last_missing < self.below)


def join(
    replica: Replica, results: Mapping[str, Sequence[RangeResult]], gaps: Gaps
) -> ReplicaAudit:
    """Return the audit of a replica; `results` has the results of ranges by log file."""
    return _Joining(replica, results, gaps).join()


class _Joining:
    def __init__(
        self, replica: Replica, results: Mapping[str, Sequence[RangeResult]], gaps: Gaps
    ) -> None:
        self._replica = replica
        self._results = results
        self._gaps = gaps
        first = replica.segments[0].base_offset if replica.segments else 0
        self._audit = ReplicaAudit(replica, first, first)
        #: Last offset of the ranges joined so far; None if damage makes it uncertain.
        self._last: int | None = None
        self._epoch = -1

    def join(self) -> ReplicaAudit:
        """Join the ranges of all segments in order."""
        audit, replica = self._audit, self._replica
        followers: list[ListedSegment | None] = [*replica.segments[1:], None]
        for segment, following in zip(replica.segments, followers, strict=True):
            ranges = sorted(self._results.get(segment.path, ()), key=lambda each: each.start)
            audit.is_gone = audit.is_gone or any(each.is_gone for each in ranges)
            self._join_segment(segment, following, ranges)
        if replica.log_start is not None and replica.log_start > audit.start:
            audit.start = min(replica.log_start, max(audit.end, audit.start))
        self._check_log_end()
        self._check_epochs()
        self._check_other_files()
        for problem in replica.problems:
            kind = FindingKind.UNREADABLE if problem.is_refused else FindingKind.CHECKPOINT
            audit.findings.append(AuditFinding(kind, problem.path, problem.sentence))
        audit.findings = [
            replace(each, partition=str(replica.tp), broker=replica.name) for each in audit.findings
        ]
        return audit

    def _join_segment(
        self, segment: ListedSegment, following: ListedSegment | None, ranges: list[RangeResult]
    ) -> None:
        found = Collector(segment.path)
        audit = self._audit
        held = [each for each in ranges if each.first is not None]
        is_swapped = bool(held) and self._check_name(segment, following, held, found)
        for each in ranges:
            if not is_swapped:
                if each.first is not None:
                    self._check_join(segment, each, found, starts_file=each is held[0])
                self._check_gaps(each, found)
                self._check_epoch_order(each, found)
            self._add(each, is_swapped)
        if is_swapped:
            self._last = None if following is None else following.base_offset - 1
        if ranges and ranges[-1].tail is not None and not is_swapped:
            self._check_tail(segment, following, ranges[-1], found)
        indexed = [each.indexed for each in held if each.indexed is not None]
        flushed = following is not None or self._replica.is_clean
        if indexed and not is_swapped and flushed and ranges[-1].tail is None:
            last = max(each.last or 0 for each in held)
            if max(indexed) > last:
                found.add(
                    FindingKind.CUT_TAIL,
                    f"the log file ends with offset {last}, and its index names offset"
                    f" {max(indexed)}",
                    segment.size,
                    last + 1,
                )
        if following is None:
            ends = [each.last + 1 for each in held if each.last is not None]
            audit.end = max([segment.base_offset, *ends]) if not is_swapped else audit.end
        audit.findings += found.all()

    def _add(self, each: RangeResult, is_swapped: bool) -> None:
        audit, previous = self._audit, self._last
        audit.batches += each.batches
        audit.records += each.records
        for bucket, (count, total) in each.buckets.items():
            before = audit.buckets.get(bucket, (0, 0))
            audit.buckets[bucket] = (before[0] + count, (before[1] + total) & 0xFFFF_FFFF_FFFF_FFFF)
        audit.damaged += each.damaged
        # Findings about the indexes of a segment whose file belongs elsewhere in the log are left
        # out: the swap of the files explains them.
        audit.findings += [
            finding
            for finding in each.findings
            if not (is_swapped and finding.kind in (FindingKind.INDEX, FindingKind.TIME_INDEX))
        ]
        if each.last is not None:
            audit.end = max(audit.end, each.last + 1)
            self._last = each.last if not each.tail else None
        if not is_swapped:
            for epoch, start, before_it in each.epochs:
                if not audit.epochs or audit.epochs[-1][0] != epoch:
                    audit.epochs.append(
                        (epoch, start, previous if before_it is None else before_it)
                    )

    def _check_name(
        self,
        segment: ListedSegment,
        following: ListedSegment | None,
        held: Sequence[RangeResult],
        found: Collector,
    ) -> bool:
        """Return whether the file's batches belong elsewhere in the log; if so, add a finding."""
        first, first_last = held[0].first, held[0].first_last
        if first is None or first_last is None:
            return False
        # If a replica's log starts inside a batch, its first file has the whole batch.
        reaches = first_last >= segment.base_offset and segment is self._replica.segments[0]
        below = first < segment.base_offset and not reaches
        above = following is not None and first >= following.base_offset
        if not (below or above):
            return False
        last = max(each.last for each in held if each.last is not None)
        whose = [each for each in self._replica.segments if each.base_offset == first]
        place = (
            f"they belong into {os.path.basename(whose[0].path)}"
            if whose
            else f"a file of them would be {files.log_name(first)}"
        )
        found.add(
            FindingKind.SWAPPED,
            f"the file holds offsets {first} to {last}, and its name says that it begins at"
            f" {segment.base_offset}; {place}",
            0,
            first,
        )
        return True

    def _check_join(
        self, segment: ListedSegment, each: RangeResult, found: Collector, *, starts_file: bool
    ) -> None:
        """Check the first batch of a range against the end of the previous range."""
        expected = self._last + 1 if self._last is not None else None
        if expected is None and starts_file and segment is self._replica.segments[0]:
            expected = segment.base_offset
        first = each.first
        if expected is None or first is None or first == expected:
            return
        if first < expected:
            if each.first_last is not None and self._last is None:
                return  # the log begins in the middle of this batch
            found.add(
                FindingKind.OFFSET_ORDER,
                f"the batch has the base offset {first}, and the one before ends at {expected - 1}",
                each.start,
                first,
            )
        else:
            self._check_missing(expected, first - 1, each.start, found)

    def _check_gaps(self, each: RangeResult, found: Collector) -> None:
        for low, high, position in each.gaps:
            self._check_missing(low, high, position, found)
        if each.hollow and not self._gaps.is_compacted:
            found.add(
                FindingKind.GAP,
                f"{each.hollow} offsets inside batches have no record, from this batch on, and the"
                f" topic is not known to be compacted",
                each.hollow_at,
            )

    def _check_missing(self, low: int, high: int, position: int, found: Collector) -> None:
        """Report offsets without a batch, unless compaction explains them."""
        if self._gaps.explain(high):
            return
        found.add(
            FindingKind.GAP,
            f"offsets {low} to {high} are missing before this batch, and the topic is not known to"
            f" be compacted that far",
            position,
            low,
        )
        self._audit.damaged.append((low, high))

    def _check_epoch_order(self, each: RangeResult, found: Collector) -> None:
        if not each.epochs:
            return
        first, start, _ = each.epochs[0]
        if 0 <= first < self._epoch:
            found.add(
                FindingKind.EPOCH_ORDER,
                f"the batch has leader epoch {first}, and the one before has {self._epoch}",
                each.start,
                start,
            )
        self._epoch = each.epochs[-1][0]

    def _check_tail(
        self,
        segment: ListedSegment,
        following: ListedSegment | None,
        each: RangeResult,
        found: Collector,
    ) -> None:
        """Judge bytes at the end of a file that are not a whole batch."""
        if each.tail is None:
            return
        position, reason, zeros = each.tail
        offset = max(segment.base_offset, self._audit.end)
        point = self._replica.recovery_point
        left = segment.size - position
        what = f"the last {left:,} bytes are no whole batch: {reason}"
        if zeros:
            what = f"the last {left:,} bytes are zeros"
        severity = Severity.DAMAGE
        if following is not None:
            what += f"; the next segment begins at offset {following.base_offset}"
            self._audit.damaged.append((offset, max(offset, following.base_offset - 1)))
            self._last = following.base_offset - 1
        elif self._replica.is_clean and not zeros:
            what += ", although the broker shut down cleanly"
        elif point is not None and point > offset:
            what += f", and records up to the recovery point {point} had been flushed"
        else:
            what += (
                f", beyond the recovery point {0 if point is None else point}: a crash during a"
                " write leaves that, and the next start truncates it"
            )
            severity = Severity.NOTICE
        found.add(FindingKind.CUT_TAIL, what, position, offset, severity)

    def _check_log_end(self) -> None:
        audit, replica = self._audit, self._replica
        if not replica.segments:
            self._audit.findings.append(
                AuditFinding(
                    FindingKind.ORPHAN,
                    replica.path,
                    "the directory holds no log file: its creation was interrupted, or its log is"
                    " lost",
                    severity=Severity.NOTICE,
                )
            )
            return
        point = replica.recovery_point
        if point is not None and point > audit.end and not _has_tail(audit):
            audit.findings.append(
                AuditFinding(
                    FindingKind.LOG_END,
                    replica.segments[-1].path,
                    f"the log ends at offset {audit.end}, and records up to the recovery point"
                    f" {point} had been flushed",
                    replica.segments[-1].size,
                    audit.end,
                )
            )

    def _check_epochs(self) -> None:
        """Compare the leader-epoch checkpoint with the batches that are surely flushed."""
        audit, replica = self._audit, self._replica
        if not replica.epochs or not audit.epochs:
            return
        if any(each.kind is FindingKind.SWAPPED for each in audit.findings):
            return  # swapped files hide the order of the epochs
        limit = audit.end if replica.is_clean else min(audit.end, replica.recovery_point or 0)
        path = f"{replica.path}/{files.LEADER_EPOCHS}"
        found = Collector(path)
        for epoch, start, _ in audit.epochs:
            said = [each for each, at in replica.epochs if at <= start]
            if start < limit and epoch >= 0 and said and said[-1] != epoch:
                found.add(
                    FindingKind.EPOCH_CHECKPOINT,
                    f"offset {start} is of leader epoch {epoch} in the log, and of {said[-1]} in"
                    f" the checkpoint",
                    offset=start,
                )
        for place, (epoch, start) in enumerate(replica.epochs):
            if place == 0 or start >= limit or start <= audit.start:
                continue
            later = [each for each in audit.epochs if each[1] >= start]
            if later and (later[0][2] is None or later[0][2] < start):
                continue  # log and checkpoint agree, or compaction removed this epoch's batches
            inside = [each for each in audit.epochs if each[1] < start]
            if (inside and inside[-1][0] != epoch) or (later and later[0][0] == epoch):
                found.add(
                    FindingKind.EPOCH_CHECKPOINT,
                    f"leader epoch {epoch} begins at offset {start} in the checkpoint, and the"
                    f" batch there is of epoch {inside[-1][0] if inside else -1}",
                    offset=start,
                )
        audit.findings += found.all()

    def _check_other_files(self) -> None:
        """Report index files without a log, and files that no broker writes."""
        replica = self._replica
        bases = {segment.base_offset for segment in replica.segments}
        for other in replica.others:
            name = os.path.basename(other.path)
            parsed = files.segment_file_of(name)
            if name in files.OF_REPLICAS or name.endswith(files.PASSING):
                continue
            if name.endswith(files.METADATA_SNAPSHOT):
                continue
            if parsed is not None and (parsed[0] in bases or parsed[1] == "snapshot"):
                continue
            what = "a segment's file without its log" if parsed else "no broker writes such a file"
            self._audit.findings.append(
                AuditFinding(
                    FindingKind.ORPHAN,
                    other.path,
                    f"{what}, {other.size:,} bytes",
                    severity=Severity.NOTICE,
                )
            )


def _has_tail(audit: ReplicaAudit) -> bool:
    return any(
        each.kind is FindingKind.CUT_TAIL and each.severity is Severity.DAMAGE
        for each in audit.findings
    )
