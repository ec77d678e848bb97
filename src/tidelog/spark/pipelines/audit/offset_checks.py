"""Checks of a replica's checkpointed offsets, leader epochs and snapshots against its log.

Checkpoints of a broker that runs or crashed may be behind the log. A broker writes all checkpoints
at a clean shutdown, so after a clean shutdown they must agree with the log. Truncation and a power
loss leave leader epochs and snapshots beyond the log end, which the next start drops. Leader epochs
and snapshots beyond the log end are damage only after a clean shutdown or below the recovery point.
The functions are pure.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.spark.pipelines.audit.findings import AuditFinding, Collector, FindingKind, Severity
from tidelog.spark.segments import directory_files as files
from tidelog.spark.segments.listing import Replica

#: A leader epoch, its first offset in the log, and the last offset of the batch before that offset
#: (None if unknown).
EpochStart = tuple[int, int, int | None]


@dataclass(frozen=True, slots=True)
class JoinedLog:
    """The offsets and leader epochs of a replica's log, taken from its batches."""

    #: First offset of the log's batches; `end` is the offset after their last, and `batches` their
    #: number.
    start: int
    end: int
    batches: int
    epochs: tuple[EpochStart, ...]
    #: Whether damage at the tail explains why the log ends early.
    is_cut: bool


def check_offsets(replica: Replica, log: JoinedLog) -> list[AuditFinding]:
    """Return findings about the checkpointed offsets of a replica that has a log file."""
    found: list[AuditFinding] = []
    _check_log_start(replica, log, found)
    _check_recovery_point(replica, log, found)
    if replica.is_clean:
        _check_clean(replica, log, found)
    cleaned = replica.cleaned_to
    if cleaned is not None and cleaned > log.end and not log.is_cut:
        found.append(
            AuditFinding(
                FindingKind.CHECKPOINTED_OFFSET,
                f"{replica.directory}/{files.CLEANED}",
                f"the log is compacted up to offset {cleaned}, and ends at {log.end}",
                offset=cleaned,
                severity=_after_crash(replica),
            )
        )
    _check_snapshots(replica, log, found)
    return found + _check_epochs(replica, log)


def _after_crash(replica: Replica) -> Severity:
    """Return the severity of a mismatch that a crash may cause.

    The mismatch is damage after a clean shutdown, and otherwise a notice.
    """
    return Severity.DAMAGE if replica.is_clean else Severity.NOTICE


def _check_log_start(replica: Replica, log: JoinedLog, found: list[AuditFinding]) -> None:
    path, start = f"{replica.directory}/{files.LOG_STARTS}", replica.log_start
    first = replica.segments[0].base_offset
    if start is None:
        return
    if start > log.end:
        found.append(
            AuditFinding(
                FindingKind.LOG_START,
                path,
                f"the log start {start} lies beyond the log end {log.end}, so the next start of the"
                f" broker would begin an empty log there",
                offset=start,
                severity=_after_crash(replica),
            )
        )
    elif start < first and replica.is_clean:
        found.append(
            AuditFinding(
                FindingKind.LOG_START,
                replica.segments[0].path,
                f"the first log file begins at offset {first}, and the log start is {start}: the"
                f" segments in between are missing",
                0,
                start,
            )
        )


def _check_recovery_point(replica: Replica, log: JoinedLog, found: list[AuditFinding]) -> None:
    point, last = replica.recovery_point, replica.segments[-1]
    if point is not None and point > log.end and not log.is_cut:
        found.append(
            AuditFinding(
                FindingKind.LOG_END,
                last.path,
                f"the log ends at offset {log.end}, and records up to the recovery point {point}"
                f" had been flushed",
                last.size,
                log.end,
            )
        )


def _check_clean(replica: Replica, log: JoinedLog, found: list[AuditFinding]) -> None:
    """Check that every checkpoint agrees with the log, as a clean shutdown leaves it."""
    point, high = replica.recovery_point, replica.high_watermark

    def add(name: str, sentence: str, offset: int | None) -> None:
        kind, path = FindingKind.CHECKPOINTED_OFFSET, f"{replica.directory}/{name}"
        found.append(AuditFinding(kind, path, sentence, offset=offset))

    if not log.batches:
        return
    if point is None or point < log.end:
        said = "no recovery point" if point is None else f"the recovery point {point}"
        add(
            files.RECOVERY_POINTS,
            f"the replica has {said}, and its log ends at {log.end}: a clean shutdown flushes all"
            f" records",
            point,
        )
    if high is None or high < log.start:
        said = "no high watermark" if high is None else f"the high watermark {high}"
        add(
            files.HIGH_WATERMARKS,
            f"the replica has {said}, and its log begins at {log.start}: a clean shutdown writes"
            f" the high watermark of every replica",
            high,
        )


def _check_snapshots(replica: Replica, log: JoinedLog, found: list[AuditFinding]) -> None:
    flushed = replica.recovery_point or 0
    for offset in replica.snapshots:
        if offset <= log.end or log.is_cut:
            continue
        found.append(
            AuditFinding(
                FindingKind.SNAPSHOT,
                f"{replica.path}/{files.log_name(offset, 'snapshot')}",
                f"the producer snapshot is of offset {offset}, and the log ends at {log.end}",
                offset=offset,
                severity=Severity.DAMAGE if offset <= flushed else _after_crash(replica),
            )
        )


def _check_epochs(replica: Replica, log: JoinedLog) -> list[AuditFinding]:
    """Compare the leader-epoch checkpoint with the batches that are surely flushed."""
    limit = log.end if replica.is_clean else min(log.end, replica.recovery_point or 0)
    found = Collector(f"{replica.path}/{files.LEADER_EPOCHS}")
    entries = replica.epochs or ()
    for epoch, start in entries:
        if start > log.end and not log.is_cut:
            found.add(
                FindingKind.EPOCH_CHECKPOINT,
                f"leader epoch {epoch} begins at offset {start} in the checkpoint, and the log ends"
                f" at {log.end}",
                None,
                start,
                _after_crash(replica),
            )
    is_readable = not any(each.path.endswith(files.LEADER_EPOCHS) for each in replica.problems)
    for epoch, start, _ in log.epochs:
        said = [each for each, at in entries if at <= start]
        if start >= limit or epoch < 0 or (said and said[-1] == epoch):
            continue
        if said or (is_readable and start >= log.start):
            what = f"of {said[-1]}" if said else "of none"
            # A power loss may restore segments whose epochs retention removed from the checkpoint.
            is_restored = not said and replica.epochs is not None
            found.add(
                FindingKind.EPOCH_CHECKPOINT,
                f"offset {start} is of leader epoch {epoch} in the log, and {what} in the"
                f" checkpoint",
                None,
                start,
                _after_crash(replica) if is_restored else Severity.DAMAGE,
            )
    for place, (epoch, start) in enumerate(entries):
        if place == 0 or start >= limit or start <= log.start:
            continue
        later = [each for each in log.epochs if each[1] >= start]
        if later and (later[0][2] is None or later[0][2] < start):
            continue  # log and checkpoint agree, or compaction removed this epoch's batches
        inside = [each for each in log.epochs if each[1] < start]
        if (inside and inside[-1][0] != epoch) or (later and later[0][0] == epoch):
            found.add(
                FindingKind.EPOCH_CHECKPOINT,
                f"leader epoch {epoch} begins at offset {start} in the checkpoint, and the batch"
                f" there is of epoch {inside[-1][0] if inside else -1}",
                None,
                start,
            )
    return found.all()
