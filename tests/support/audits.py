"""Audits in the test's own process, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.log_files import Disk, batches

from tidelog.spark.pipelines.audit.auditing import Audit, audit_directories
from tidelog.spark.pipelines.audit.detail import DetailJob, DetailResult
from tidelog.spark.pipelines.audit.findings import AuditFinding, Severity
from tidelog.spark.pipelines.audit.kept_results import KeptResults
from tidelog.spark.pipelines.audit.ranges import RangeJob, RangeResult
from tidelog.spark.pipelines.audit.spark_tasks import compare_to_row, scan_and_keep


class OwnProcess:
    """Tasks that run here; results pass through their JSON as those of Spark do."""

    def __init__(self) -> None:
        self.scanned: list[RangeJob] = []

    def scan(self, jobs: Sequence[RangeJob], kept: KeptResults | None) -> list[RangeResult]:
        self.scanned += jobs
        rows = (json.dumps(scan_and_keep(job, kept)) for job in jobs)
        return [RangeResult.from_json(json.loads(row)) for row in rows]

    def compare(self, jobs: Sequence[DetailJob]) -> list[DetailResult]:
        rows = (json.dumps(compare_to_row(job)) for job in jobs)
        return [DetailResult.from_json(json.loads(row)) for row in rows]


def history() -> list[bytes]:
    """Return 600 records in 60 batches of two leader epochs."""
    return batches(30) + batches(30, first=300, epoch=2)


def three_brokers(root: Path, held: Sequence[bytes] | None = None) -> list[Disk]:
    """Write three brokers with one replica each of the same log: segments at 0, 200, 400."""
    disks = [Disk.made(root / f"broker-{number}", number) for number in (1, 2, 3)]
    for disk in disks:
        disk.replica(history() if held is None else held)
    return disks


def audited(root: Path, tasks: OwnProcess | None = None, **options: Any) -> Audit:
    """Audit all brokers below a directory."""
    return audit_directories(tasks or OwnProcess(), [str(root / "broker-*")], **options)


def damage(audit: Audit) -> list[AuditFinding]:
    """Return the findings that make the audit fail."""
    return [each for each in audit.all_findings() if each.severity is Severity.DAMAGE]


def notices(audit: Audit) -> list[AuditFinding]:
    """Return the other findings."""
    return [each for each in audit.all_findings() if each.severity is Severity.NOTICE]
