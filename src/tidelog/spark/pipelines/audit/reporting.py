"""The report of an audit: facts, findings, divergences with epoch histories, bytes by broker.

Programs and the command line call `audit`, which takes log directories and returns a
PipelineReport.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.core.limits import MIB
from tidelog.spark.pipelines.audit.auditing import Audit, audit_directories
from tidelog.spark.pipelines.audit.findings import AuditFinding, Severity
from tidelog.spark.pipelines.audit.invariants import INVARIANTS
from tidelog.spark.pipelines.audit.ranges import BUCKET_BITS, RANGE_BYTES
from tidelog.spark.pipelines.audit.spark_tasks import SparkTasks
from tidelog.spark.pipelines.job_progress import Progress
from tidelog.spark.pipelines.report import Cell, PipelineReport, Plot, Table
from tidelog.spark.segments.batch_scan import is_compiled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Maximum number of rows of a table in the report; counts cover all rows.
ROWS: Final = 500


def audit(
    spark: SparkSession,
    directories: Sequence[str],
    *,
    bootstrap: str | None = None,
    compacted: Iterable[str] = (),
    keep: str | None = None,
    range_bytes: int = RANGE_BYTES,
    progress: Progress | None = None,
) -> PipelineReport:
    """Audit log directories and return the report; see `audit_directories`."""
    return report_of(
        audit_directories(
            SparkTasks(spark, progress),
            directories,
            bootstrap=bootstrap,
            compacted=compacted,
            keep=keep,
            range_bytes=range_bytes,
        )
    )


def _counted(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def report_of(done: Audit) -> PipelineReport:
    """Return the report of a finished audit."""
    findings = done.all_findings()
    damage = [each for each in findings if each.severity is Severity.DAMAGE]
    notices = [each for each in findings if each.severity is Severity.NOTICE]
    replicas = sum(len(each.audits) for each in done.partitions)
    batches = sum(audit.batches for each in done.partitions for audit in each.audits)
    scope = (
        f"{_counted(batches, 'batch', 'batches')} of {_counted(replicas, 'replica')} of"
        f" {_counted(len(done.partitions), 'partition')}"
    )
    if damage:
        count = sum(1 + each.also for each in damage)
        places = len({each.path for each in damage})
        verdict = f"{scope}: {_counted(count, 'damaged place')} in {_counted(places, 'file')}"
    else:
        verdict = f"{scope}: every checksum is right and all replicas agree"
    tables = [
        _findings_table("Damage", damage),
        _divergences(done),
        _findings_table("Notices", notices),
        _invariants(findings),
        _directories(done),
        _topics(done),
    ]
    return PipelineReport(
        "Audit of log directories",
        verdict,
        not damage,
        _facts(done, damage, notices),
        tuple(each for each in tables if each.rows or each.title in ("Damage", "Log directories")),
        tuple(_figures(done, findings)),
    )


def _facts(
    done: Audit, damage: Sequence[AuditFinding], notices: Sequence[AuditFinding]
) -> tuple[tuple[str, Cell], ...]:
    audits = [audit for each in done.partitions for audit in each.audits]
    asides = [each for directory in done.directories for each in directory.asides]
    passing = [
        other for audit in audits for other in audit.replica.others if _is_passing(other.path)
    ]
    rate = done.bytes_read / max(done.seconds, 1e-9) / MIB
    return (
        ("log directories", len(done.directories)),
        ("replicas", len(audits)),
        ("log files", sum(len(each.replica.segments) for each in audits)),
        ("bytes read", done.bytes_read),
        ("bytes known from a former run", done.bytes_kept),
        ("batches", sum(each.batches for each in audits)),
        ("records", sum(each.records for each in audits)),
        ("seconds", round(done.seconds, 2)),
        ("MiB per second", round(rate, 1)),
        ("damage", sum(1 + each.also for each in damage)),
        ("notices", sum(1 + each.also for each in notices)),
        ("partitions listed again", done.listed_again),
        ("replicas set aside (deleted, stray, future)", len(asides)),
        ("files on their way in or out", len(passing)),
        ("scan", "compiled" if is_compiled() else "in Python"),
    )


def _is_passing(path: str) -> bool:
    return path.endswith((".deleted", ".cleaned", ".swap", ".tmp"))


def _findings_table(title: str, findings: Sequence[AuditFinding]) -> Table:
    note = ""
    if len(findings) > ROWS:
        note = f"{len(findings) - ROWS} more are not listed."
    columns = (
        ("kind", lambda each: each.kind.value),
        "broker",
        "partition",
        ("file", "path"),
        ("byte", "position"),
        "offset",
        ("finding", _sentence),
    )
    return Table.of(title, findings[:ROWS], columns, note)


def _sentence(finding: AuditFinding) -> str:
    return finding.sentence + (f" (and {finding.also} more like it)" if finding.also else "")


def _invariants(findings: Sequence[AuditFinding]) -> Table:
    """Return the invariants of a healthy log directory, for the kinds of the findings."""
    kinds = dict.fromkeys(each.kind for each in findings)
    rows = tuple((kind.value, INVARIANTS[kind].replace("`", "")) for kind in kinds)
    return Table("What holds in a healthy log directory", ("kind", "invariant"), rows)


def _divergences(done: Audit) -> Table:
    rows = [each for partition in done.partitions for each in partition.divergences]
    return Table.of(
        "Divergences",
        rows[:ROWS],
        (
            "partition",
            ("first offset", "offset"),
            ("replica", "broker"),
            ("its leader epochs", "history"),
            ("other replica", "other"),
            ("its leader epochs there", "other_history"),
            ("digests that differ", "buckets"),
        ),
        f"Leader epochs are epoch@first offset, from the batches. A digest covers"
        f" {1 << BUCKET_BITS:,} offsets."
        if rows
        else "",
    )


def _directories(done: Audit) -> Table:
    return Table.of(
        "Log directories",
        done.directories,
        (
            ("directory", "path"),
            "broker",
            ("replicas", "replicas", len),
            ("log files", lambda each: sum(len(it.segments) for it in each.replicas)),
            ("bytes", lambda each: sum(it.bytes for it in each.replicas)),
            ("shutdown", lambda each: "clean" if each.is_clean else "none, or the broker runs"),
        ),
    )


def _topics(done: Audit) -> Table:
    rows: dict[str, list[int]] = {}
    for partition in done.partitions:
        row = rows.setdefault(partition.tp.topic, [0, 0, 0, 0, 0, 0])
        row[0] += 1
        row[1] += len(partition.audits)
        row[2] += max((audit.records for audit in partition.audits), default=0)
        row[3] += sum(audit.replica.bytes for audit in partition.audits)
        for finding in partition.all_findings():
            row[4 if finding.severity is Severity.DAMAGE else 5] += 1 + finding.also
    return Table(
        "Topics",
        ("topic", "partitions", "replicas", "records", "bytes", "damage", "notices"),
        tuple((topic, *row) for topic, row in sorted(rows.items())[:ROWS]),
    )


def _figures(done: Audit, findings: Sequence[AuditFinding]) -> list[Plot]:
    by_broker: Counter[str] = Counter()
    for directory in done.directories:
        name = directory.path if directory.broker is None else f"broker {directory.broker}"
        by_broker[name] += sum(replica.bytes for replica in directory.replicas)
    sizes = {"bytes": [size / MIB for size in by_broker.values()]}
    figures = [Plot.bars("Bytes by broker", "", "MiB", list(by_broker), sizes)]
    kinds: Counter[str] = Counter()
    for each in findings:
        kinds[each.kind.value] += 1 + each.also
    if kinds:
        counts = {"findings": kinds.values()}
        figures.append(Plot.bars("Findings by kind", "", "count", list(kinds), counts))
    return figures
