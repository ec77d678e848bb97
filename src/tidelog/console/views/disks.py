"""The page of log directories: health, used space, drain, and number of replicas in each.

If a broker does not report its directories, the page names the broker and the reason. Only
tidelog's brokers report whether a directory is slow, full, cordoned or draining.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.client.upkeep import LogDirDescription
from tidelog.console.readings import ClusterReading, Samples
from tidelog.console.views.findings import findings_of, of_log_dirs
from tidelog.console.views.tables import Document, TableQuery, window


def disks_view(reading: ClusterReading, samples: Samples, params: Mapping[str, str]) -> Document:
    """Return the page of all log directories."""
    rows = [_row(each) for each in reading.log_dirs]
    return {
        "findings": findings_of(of_log_dirs(reading)),
        "silent": [
            {"broker": broker, "text": text} for broker, text in reading.silent_disks.items()
        ],
        "table": window(rows, TableQuery.from_params(params, "broker")),
    }


def health_of(directory: LogDirDescription) -> tuple[str, str]:
    """Return the level and the text of a directory's health, with the worst problem first."""
    if directory.error:
        return "bad", f"failed: {directory.error.name}"
    if directory.is_read_only:
        return "bad", "full, reads only"
    if directory.is_slow:
        return "warn", "slow"
    if directory.is_draining:
        return "note", "draining"
    if directory.is_cordoned:
        return "note", "cordoned"
    return "good", "healthy"


def _row(directory: LogDirDescription) -> Document:
    level, health = health_of(directory)
    is_known = directory.total_bytes > 0 and directory.usable_bytes >= 0
    used = directory.total_bytes - directory.usable_bytes if is_known else None
    present = [each for each in directory.replicas if not each.future]
    return {
        "broker": directory.broker_id,
        "path": directory.path,
        "level": level,
        "health": health,
        "replicas": len(present),
        "arriving": len(directory.replicas) - len(present),
        "lost": len(directory.last_known),
        "size": directory.size_bytes,
        "used": used,
        "usable": directory.usable_bytes if is_known else None,
        "total": directory.total_bytes if is_known else None,
        "fill": None if used is None else used / directory.total_bytes,
    }
