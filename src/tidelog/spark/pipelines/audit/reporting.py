"""The report of an audit: facts, findings, divergences with epoch histories, bytes by broker.

`audit` is the function for programs and for the command line: directories in, a Report out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.core.limits import MIB
from tidelog.spark.pipelines.audit.auditing import Audit, audit_directories
from tidelog.spark.pipelines.audit.findings import Finding, Severity
from tidelog.spark.pipelines.audit.ranges import BUCKET_BITS, RANGE_BYTES
from tidelog.spark.pipelines.audit.spark_tasks import SparkTasks
from tidelog.spark.pipelines.job_progress import Progress
from tidelog.spark.pipelines.report import Cell, Plot, PlotKind, Report, Series, Table
from tidelog.spark.segments.batch_scan import is_compiled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Rows of a table in the report; the counts are of all.
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
) -> Report:
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


def report_of(done: Audit) -> Report:
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
        _directories(done),
        _topics(done),
    ]
    return Report(
        "Audit of log directories",
        verdict,
        not damage,
        _facts(done, damage, notices),
        tuple(each for each in tables if each.rows or each.title in ("Damage", "Log directories")),
        tuple(_figures(done, findings)),
    )


def _facts(
    done: Audit, damage: Sequence[Finding], notices: Sequence[Finding]
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


def _findings_table(title: str, findings: Sequence[Finding]) -> Table:
    note = ""
    if len(findings) > ROWS:
        note = f"{len(findings) - ROWS} more are not listed."
    return Table(
        title,
        ("kind", "broker", "partition", "file", "byte", "offset", "finding"),
        tuple(
            (
                each.kind.value,
                each.broker,
                each.partition,
                each.path,
                each.position,
                each.offset,
                each.sentence + (f" (and {each.also} more like it)" if each.also else ""),
            )
            for each in findings[:ROWS]
        ),
        note,
    )


def _divergences(done: Audit) -> Table:
    rows = [each for partition in done.partitions for each in partition.divergences]
    return Table(
        "Divergences",
        (
            "partition",
            "first offset",
            "replica",
            "its leader epochs",
            "other replica",
            "its leader epochs there",
            "digests that differ",
        ),
        tuple(
            (
                each.partition,
                each.offset,
                each.broker,
                each.history,
                each.other,
                each.other_history,
                each.buckets,
            )
            for each in rows[:ROWS]
        ),
        f"Leader epochs are epoch@first offset, from the batches. A digest covers"
        f" {1 << BUCKET_BITS:,} offsets."
        if rows
        else "",
    )


def _directories(done: Audit) -> Table:
    return Table(
        "Log directories",
        ("directory", "broker", "replicas", "log files", "bytes", "shutdown"),
        tuple(
            (
                each.path,
                each.broker,
                len(each.replicas),
                sum(len(replica.segments) for replica in each.replicas),
                sum(replica.bytes for replica in each.replicas),
                "clean" if each.is_clean else "none, or the broker runs",
            )
            for each in done.directories
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


def _figures(done: Audit, findings: Sequence[Finding]) -> list[Plot]:
    by_broker: Counter[str] = Counter()
    for directory in done.directories:
        name = directory.path if directory.broker is None else f"broker {directory.broker}"
        by_broker[name] += sum(replica.bytes for replica in directory.replicas)
    figures = [
        Plot(
            "Bytes by broker",
            "",
            "MiB",
            (
                Series(
                    "bytes",
                    tuple(float(place) for place in range(len(by_broker))),
                    tuple(size / MIB for size in by_broker.values()),
                ),
            ),
            PlotKind.BAR,
            ticks=tuple(by_broker),
        )
    ]
    kinds: Counter[str] = Counter()
    for each in findings:
        kinds[each.kind.value] += 1 + each.also
    if kinds:
        figures.append(
            Plot(
                "Findings by kind",
                "",
                "count",
                (
                    Series(
                        "findings",
                        tuple(float(place) for place in range(len(kinds))),
                        tuple(float(count) for count in kinds.values()),
                    ),
                ),
                PlotKind.BAR,
                ticks=tuple(kinds),
            )
        )
    return figures
