"""The audit of a replica, joined from the results of its ranges.

The module makes the checks that need more than one range. The module compares file names with
offsets, and the tail of the log with the recovery point. The module also checks order and gaps
across ranges and segments, and reports index files without a log. `offset_checks` compares the
checkpoints with the joined log. Gaps are damage unless the topic is compacted. The module opens no
file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from tidelog.core.dataclass import dataclass
from tidelog.spark.pipelines.audit.findings import AuditFinding, Collector, FindingKind, Severity
from tidelog.spark.pipelines.audit.interrupted_swaps import without_replaced
from tidelog.spark.pipelines.audit.offset_checks import EpochStart, JoinedLog, check_offsets
from tidelog.spark.pipelines.audit.ranges import RangeResult
from tidelog.spark.segments import directory_files as files
from tidelog.spark.segments.listing import ListedSegment, Replica

#: Largest distance of an offset from its segment's base offset, which index entries store in 31
#: bits.
_MAX_RELATIVE: Final = 2**31 - 1


@dataclass(slots=True)
class ReplicaAudit:
    """The results of one completely read replica."""

    replica: Replica
    #: First offset of the replica's batches; `end` is the offset after their last.
    start: int
    end: int
    batches: int = 0
    records: int = 0
    epochs: list[EpochStart] = field(default_factory=list)
    buckets: dict[int, tuple[int, int]] = field(default_factory=dict)
    damaged: list[tuple[int, int]] = field(default_factory=list)
    findings: list[AuditFinding] = field(default_factory=list)
    #: Last offset and largest timestamp of each segment, in order.
    newest: list[tuple[int, int]] = field(default_factory=list)
    #: Whether a file of the replica vanished or shrank during the scan.
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
        #: Last offset of the ranges joined so far; None if damage makes this offset uncertain.
        self._last: int | None = None
        self._epoch = -1
        #: Offset below which no crash changes the log.
        self._flushed = 2**63 if replica.is_clean else replica.recovery_point or 0

    def join(self) -> ReplicaAudit:
        """Join the ranges of all segments in order."""
        audit, replica = self._audit, self._replica
        segments = without_replaced(replica.segments, self._results)
        if len(segments) < len(replica.segments):
            self._replica = audit.replica = replica = replace(replica, segments=tuple(segments))
        followers = [*segments[1:], None]
        for segment, following in zip(segments, followers, strict=False):
            ranges = sorted(self._results.get(segment.path, ()), key=lambda each: each.start)
            audit.is_gone = audit.is_gone or any(each.is_gone for each in ranges)
            self._join_segment(segment, following, ranges)
        if replica.log_start is not None and replica.log_start > audit.start:
            audit.start = min(replica.log_start, max(audit.end, audit.start))
        if replica.segments:
            audit.findings += check_offsets(replica, self._extent())
        else:
            self._report_no_log()
        self._check_other_files()
        for problem in replica.problems:
            kind = FindingKind.UNREADABLE if problem.is_refused else FindingKind.CHECKPOINT
            # A power loss before the first flush may leave an empty partition.metadata; the next
            # start restores the topic id.
            is_noted = problem.path.endswith(files.TOPIC_ID) and replica.noted_topic_id is not None
            severity = Severity.NOTICE if is_noted else Severity.DAMAGE
            audit.findings.append(
                AuditFinding(kind, problem.path, problem.sentence, severity=severity)
            )
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
        if held and not is_swapped and ranges[-1].tail is None:
            self._check_indexed_end(segment, following, held, found)
        if not is_swapped:
            self._check_segment(segment, following, ranges, found)
        if following is None:
            ends = [each.last + 1 for each in held if each.last is not None]
            audit.end = max([segment.base_offset, *ends]) if not is_swapped else audit.end
        audit.findings += found.all()

    def _check_indexed_end(
        self,
        segment: ListedSegment,
        following: ListedSegment | None,
        held: Sequence[RangeResult],
        found: Collector,
    ) -> None:
        """Compare the end of a log file with the largest offset of its offset index."""
        indexed = max((each.indexed for each in held if each.indexed is not None), default=-1)
        end = max(each.last or 0 for each in held) + 1
        if indexed < end or (following is None and not self._replica.is_clean):
            return
        expected = following.base_offset if following is not None else self._replica.recovery_point
        if expected == end:
            self._audit.findings.append(
                AuditFinding(
                    FindingKind.INDEX,
                    segment.companion("index"),
                    f"an entry has offset {indexed}, and the log file ends rightly with {end - 1}",
                    offset=indexed,
                )
            )
            return
        found.add(
            FindingKind.CUT_TAIL,
            f"the log file ends with offset {end - 1}, and its index names offset {indexed}",
            segment.size,
            end,
        )

    def _check_segment(
        self,
        segment: ListedSegment,
        following: ListedSegment | None,
        ranges: Sequence[RangeResult],
        found: Collector,
    ) -> None:
        """Check the offsets and the last timestamp of a whole segment."""
        audit, replica = self._audit, self._replica
        lasts = [each.last for each in ranges if each.last is not None]
        largest = max((each.max_timestamp for each in ranges), default=-1)
        audit.newest.append((max(lasts, default=segment.base_offset), largest))
        if lasts and max(lasts) - segment.base_offset > _MAX_RELATIVE:
            found.add(
                FindingKind.OFFSET_RANGE,
                f"the file holds offset {max(lasts)}, more than 2^31 - 1 above its base offset"
                f" {segment.base_offset}: no index entry can name such an offset",
                segment.size,
                max(lasts),
            )
        stamps = [each.stamped for each in ranges if each.stamped is not None]
        point = replica.recovery_point or 0
        is_sealed = following is not None and following.base_offset <= point
        is_whole = all(not each.damaged and each.tail is None for each in ranges)
        if stamps and largest > stamps[0] and is_whole and (is_sealed or replica.is_clean):
            audit.findings.append(
                AuditFinding(
                    FindingKind.TIME_INDEX,
                    segment.companion("timeindex"),
                    f"the last entry has timestamp {stamps[0]}, and the largest timestamp of the"
                    f" flushed segment is {largest}: lookups by time would miss records",
                )
            )
        if segment.size == 0 and following is not None and self._last is None:
            self._last = segment.base_offset - 1  # the empty file's offsets are missing

    def _add(self, each: RangeResult, is_swapped: bool) -> None:
        audit, previous = self._audit, self._last
        audit.batches += each.batches
        audit.records += each.records
        for bucket, (count, total) in each.buckets.items():
            before = audit.buckets.get(bucket, (0, 0))
            audit.buckets[bucket] = (before[0] + count, (before[1] + total) & 0xFFFF_FFFF_FFFF_FFFF)
        audit.damaged += each.damaged
        # If the log files of two segments were swapped, findings about their indexes are left out,
        # because the swap explains these findings.
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
        """Return whether the file's batches belong to another segment; if so, add a finding."""
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
                # A crash may undo the truncation of unflushed records: the previous file then has
                # the truncated records again, and the broker's next start truncates it again.
                return
            is_undone = starts_file and first == segment.base_offset and first >= self._flushed
            found.add(
                FindingKind.OFFSET_ORDER,
                f"the batch has the base offset {first}, and the one before ends at {expected - 1}",
                each.start,
                first,
                Severity.NOTICE if is_undone else Severity.DAMAGE,
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

    def _extent(self) -> JoinedLog:
        audit = self._audit
        # If segment files are swapped, the order of leader epochs in the log is unknown.
        is_swapped = any(each.kind is FindingKind.SWAPPED for each in audit.findings)
        is_cut = any(
            each.kind is FindingKind.CUT_TAIL and each.severity is Severity.DAMAGE
            for each in audit.findings
        )
        epochs = () if is_swapped else tuple(audit.epochs)
        return JoinedLog(audit.start, audit.end, audit.batches, epochs, is_cut)

    def _report_no_log(self) -> None:
        self._audit.findings.append(
            AuditFinding(
                FindingKind.ORPHAN,
                self._replica.path,
                "the directory holds no log file: its creation was interrupted, or its log is lost",
                severity=Severity.NOTICE,
            )
        )

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
