"""The audit itself: list, scan, join and compare replicas, and repeat this for suspect partitions.

Brokers may append, roll, delete and compact during an audit. The audit therefore lists a partition
again if it shows damage or vanished files. If the files of the partition are unchanged, its
findings stand; otherwise the audit scans the new files, at most ROUNDS times. Ranges of unchanged
files keep their results. The audit runs on the driver, and `spark_tasks` runs its tasks.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Final, Protocol

from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.spark.pipelines.audit import comparing
from tidelog.spark.pipelines.audit.detail import DetailJob, DetailResult, Divergence
from tidelog.spark.pipelines.audit.findings import AuditFinding, FindingKind, Severity
from tidelog.spark.pipelines.audit.identity_checks import (
    TopicIds,
    check_identity,
    check_owners,
    check_renamed,
    comparable,
)
from tidelog.spark.pipelines.audit.interrupted_swaps import with_swapped
from tidelog.spark.pipelines.audit.joining import Gaps, ReplicaAudit, join
from tidelog.spark.pipelines.audit.kept_results import KeptResults
from tidelog.spark.pipelines.audit.metadata import ClusterAssignments, ask_cluster, check_assignment
from tidelog.spark.pipelines.audit.ranges import (
    RANGE_BYTES,
    RangeJob,
    RangeResult,
    broken_chains,
    plan_jobs,
)
from tidelog.spark.pipelines.audit.start_checks import TopicStarts, check_starts
from tidelog.spark.segments.listing import (
    Aside,
    ListedLogDir,
    Replica,
    expand,
    list_again,
    list_aside_again,
    list_directories,
)

#: Maximum number of listings of a partition whose files change during the audit.
ROUNDS: Final = 4


class AuditTasks(Protocol):
    """A runner of an audit's tasks: Spark, or a test's own process."""

    def scan(self, jobs: Sequence[RangeJob], kept: KeptResults | None) -> list[RangeResult]: ...
    def compare(self, jobs: Sequence[DetailJob]) -> list[DetailResult]: ...


@dataclass(slots=True)
class PartitionAudit:
    """The audit of one partition: the audits of its replicas, and the findings of the comparison of
    these replicas.
    """

    tp: TopicPartition
    high: int
    audits: list[ReplicaAudit]
    #: The replicas that must agree. Replicas of another topic and older copies of a moved replica
    #: are left out.
    compared: list[ReplicaAudit] = field(default_factory=list)
    findings: list[AuditFinding] = field(default_factory=list)
    divergences: list[Divergence] = field(default_factory=list)
    is_gone: bool = False

    def all_findings(self) -> list[AuditFinding]:
        """Return the findings of the replicas and of their comparison."""
        return [*(each for audit in self.audits for each in audit.findings), *self.findings]

    @property
    def is_suspect(self) -> bool:
        """Whether the partition has damage, or its files changed between listing and reading."""
        return self.is_gone or any(each.severity is Severity.DAMAGE for each in self.all_findings())


@dataclass(slots=True)
class Audit:
    """The outcome of an audit of log directories."""

    directories: tuple[ListedLogDir, ...]
    partitions: list[PartitionAudit]
    #: Findings about log directories and about the placement of replicas.
    findings: list[AuditFinding]
    seconds: float
    bytes_read: int
    bytes_kept: int
    #: Number of partitions that were listed again, because brokers changed their files.
    listed_again: int

    def all_findings(self) -> list[AuditFinding]:
        """Return all findings, damage first."""
        every = [*self.findings, *(f for each in self.partitions for f in each.all_findings())]
        return sorted(every, key=lambda each: (each.severity, each.partition, each.path))

    @property
    def holds(self) -> bool:
        """Whether no damage was found."""
        return all(each.severity is not Severity.DAMAGE for each in self.all_findings())


def audit_directories(
    tasks: AuditTasks,
    directories: Sequence[str],
    *,
    bootstrap: str | None = None,
    compacted: Iterable[str] = (),
    keep: str | None = None,
    range_bytes: int = RANGE_BYTES,
) -> Audit:
    """Audit log directories, given as paths or globs.

    `bootstrap` names a running cluster, whose metadata is used. `compacted` names compacted topics,
    in which gaps are no damage. `keep` is a directory for results, so that a stopped audit can
    continue. Raises ConfigError, KafkaError, Spark's errors.
    """
    started = time.monotonic()
    paths = expand(directories, "directories")
    kept = None if keep is None else KeptResults.opened(keep)
    view = ClusterAssignments() if bootstrap is None else ask_cluster(bootstrap)
    listed = list_directories(paths)
    run = _Auditing(tasks, view, frozenset(compacted), kept, range_bytes)
    replicas: dict[TopicPartition, list[Replica]] = {}
    for directory in listed:
        for replica in directory.replicas:
            replicas.setdefault(replica.tp, []).append(replica)
    partitions = run.audit_until_stable(replicas)
    asides = [each for directory in listed for each in directory.asides]
    return Audit(
        listed,
        [partitions[tp] for tp in sorted(partitions)],
        check_directories(listed, view) + run.audit_asides(asides),
        time.monotonic() - started,
        run.bytes_read,
        run.bytes_kept,
        run.listed_again,
    )


def check_directories(
    directories: Sequence[ListedLogDir], view: ClusterAssignments
) -> list[AuditFinding]:
    """Return findings about directories, and about replicas that are missing or not assigned."""
    found = [*check_owners(directories, view.cluster), *check_renamed(directories)]
    for directory in directories:
        for problem in directory.problems:
            kind = FindingKind.UNREADABLE if problem.is_refused else FindingKind.CHECKPOINT
            found.append(AuditFinding(kind, problem.path, problem.sentence, broker=directory.name))
        found += [
            AuditFinding(
                FindingKind.ORPHAN,
                other.path,
                f"no broker writes such a file or directory, {other.size:,} bytes",
                severity=Severity.NOTICE,
                broker=directory.name,
            )
            for other in directory.unknown
        ]
    return found + (check_assignment(view, directories) if view.partitions else [])


class _Auditing:
    def __init__(
        self,
        tasks: AuditTasks,
        view: ClusterAssignments,
        compacted: frozenset[str],
        kept: KeptResults | None,
        range_bytes: int,
    ) -> None:
        self._tasks = tasks
        self._view = view
        self._compacted = compacted | view.compacted
        self._kept = kept
        self._range_bytes = range_bytes
        self._results: dict[str, RangeResult] = {}
        self._ids = TopicIds()
        self._starts = TopicStarts(())
        self.bytes_read = 0
        self.bytes_kept = 0
        self.listed_again = 0

    def audit_until_stable(
        self, replicas: Mapping[TopicPartition, list[Replica]]
    ) -> dict[TopicPartition, PartitionAudit]:
        """Audit all partitions; audit damaged partitions again while their files change."""
        current = {tp: list(each) for tp, each in replicas.items()}
        every = [each for some in replicas.values() for each in some]
        self._ids = TopicIds.of(every, self._view.topic_ids)
        self._starts = TopicStarts(every)
        done = self._audit(current)
        for _ in range(ROUNDS - 1):
            changed: dict[TopicPartition, list[Replica]] = {}
            for tp, each in done.items():
                if each.is_suspect:
                    now = list(list_again(current[tp]))
                    if now != current[tp]:
                        changed[tp] = now
            if not changed:
                break
            self.listed_again += len(changed)
            current.update(changed)
            done.update(self._audit(changed))
        for tp, each in done.items():
            if each.is_gone:
                each.findings.append(
                    AuditFinding(
                        FindingKind.CHANGING,
                        current[tp][0].path if current[tp] else "",
                        f"files changed in all of {ROUNDS} listings; audit the partition again when"
                        f" its brokers are less busy",
                        severity=Severity.NOTICE,
                        partition=str(tp),
                    )
                )
        return done

    def _audit(
        self, replicas: Mapping[TopicPartition, list[Replica]]
    ) -> dict[TopicPartition, PartitionAudit]:
        replicas = {tp: [with_swapped(each) for each in some] for tp, some in replicas.items()}
        alike = {tp: comparable(each, self._ids) for tp, each in replicas.items()}
        highs = {tp: comparing.high_watermark(each) for tp, each in alike.items()}
        results = self._scan(replicas, highs)
        done: dict[TopicPartition, PartitionAudit] = {}
        gaps: dict[TopicPartition, Gaps] = {}
        for tp, each in replicas.items():
            assigned = self._view.partitions.get(tp)
            gaps[tp] = comparing.gaps_of(each, tp.topic in self._compacted, assigned)
            audits = [join(replica, results, gaps[tp]) for replica in each]
            paths = [replica.path for replica in alike[tp]]
            compared = [audit for audit in audits if audit.replica.path in paths]
            partition = PartitionAudit(tp, highs[tp], audits, compared)
            partition.is_gone = any(audit.is_gone for audit in audits)
            partition.findings += comparing.check_ends(compared, highs[tp], assigned)
            partition.findings += check_identity(audits, self._ids)
            view = self._view
            partition.findings += check_starts(
                compared, self._starts, view.retention, view.earliest
            )
            done[tp] = partition
        self._compare(done, gaps)
        return done

    def audit_asides(self, asides: Sequence[Aside]) -> list[AuditFinding]:
        """Return the damage in strays and future replicas whose files stayed unchanged."""
        replicas: dict[TopicPartition, list[Replica]] = {}
        for aside in asides:
            if aside.content is not None:
                replica = with_swapped(aside.content)
                replicas.setdefault(replica.tp, []).append(replica)
        results = self._scan(replicas, dict.fromkeys(replicas, 0))
        found: list[AuditFinding] = []
        for aside in asides:
            if aside.content is None:
                continue
            # The cleaner's checkpoint has no entry of a renamed replica: gaps may be no damage.
            audit = join(with_swapped(aside.content), results, Gaps(is_compacted=True))
            damage = [each for each in audit.findings if each.severity is Severity.DAMAGE]
            if damage and not audit.is_gone and list_aside_again(aside) == aside:
                found += damage
        return found

    def _scan(
        self,
        replicas: Mapping[TopicPartition, list[Replica]],
        highs: Mapping[TopicPartition, int],
    ) -> dict[str, list[RangeResult]]:
        """Return all ranges' results by path.

        If a range does not begin where the previous range ended, the whole file is scanned again.
        """
        results = self._scan_ranges(replicas, highs, ())
        again = broken_chains(results)
        return self._scan_ranges(replicas, highs, again) if again else results

    def _scan_ranges(
        self,
        replicas: Mapping[TopicPartition, list[Replica]],
        highs: Mapping[TopicPartition, int],
        whole: Sequence[str],
    ) -> dict[str, list[RangeResult]]:
        """Return the results of all ranges by path; scan ranges without a result."""
        jobs = [
            job
            for tp, each in replicas.items()
            for replica in each
            for job in plan_jobs(replica, highs[tp], range_bytes=self._range_bytes, whole=whole)
        ]
        missing: list[RangeJob] = []
        for job in jobs:
            known = self._results.get(job.key)
            if known is not None and known.is_valid_for(job.high):
                continue
            found = None if self._kept is None else self._kept.read(job)
            if found is None:
                missing.append(job)
            else:
                self._results[job.key] = found
                self.bytes_kept += job.end - job.start
        scanned = self._tasks.scan(missing, self._kept)
        for job, result in zip(missing, scanned, strict=True):
            self._results[job.key] = result
            self.bytes_read += job.end - job.start
        by_path: dict[str, list[RangeResult]] = {}
        for job in jobs:
            by_path.setdefault(job.path, []).append(self._results[job.key])
            if self._results[job.key].is_gone:
                del self._results[job.key]
        return by_path

    def _compare(
        self, done: Mapping[TopicPartition, PartitionAudit], gaps: Mapping[TopicPartition, Gaps]
    ) -> None:
        """Compare replicas batch by batch if their digests differ."""
        wanted = []
        for tp, partition in done.items():
            swapped = {
                each.broker for each in partition.all_findings() if each.kind is FindingKind.SWAPPED
            }
            audits = [
                each
                for each in partition.compared
                if not each.is_gone and each.replica.name not in swapped
            ]
            buckets = comparing.differing_buckets(audits)
            if buckets:
                assigned = self._view.partitions.get(tp)
                job = comparing.detail_job(audits, buckets, partition.high, gaps[tp], assigned)
                wanted.append((tp, job))
        details = self._tasks.compare([job for _, job in wanted])
        for (tp, _), detail in zip(wanted, details, strict=True):
            done[tp].findings += [replace(each, partition=str(tp)) for each in detail.findings]
            done[tp].divergences += detail.divergences
            done[tp].is_gone = done[tp].is_gone or detail.is_gone
