"""Findings with remedies as pages show them: of the cluster, of its log directories, of its moves.

`tidelog health` and `tidelog doctor` make the same findings, with the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Final

from tidelog.client.move_progress import WINDOW_MS
from tidelog.console.readings import ClusterReading
from tidelog.console.views.tables import Document
from tidelog.local.doctor.cluster_facts import ClusterFacts
from tidelog.local.doctor.move_findings import of_moves
from tidelog.local.health import ClusterPlace, Finding, of_log_dir

#: How findings name the cluster in their commands: without an option, so as the default cluster.
NO_PLACE: Final = ClusterPlace("", None)
#: Maximum number of partitions or brokers of one finding that a page gets.
_NAMED: Final = 20


def findings_of(findings: Iterable[Finding]) -> list[Document]:
    """Return findings for a page."""
    found = [asdict(each) for each in findings]
    for each in found:
        each["partitions"] = each["partitions"][:_NAMED]
        each["brokers"] = each["brokers"][:_NAMED]
    return found


def of_log_dirs(reading: ClusterReading) -> Iterator[Finding]:
    """Yield a finding for each log directory that has failed, is full or is slow."""
    for each in reading.log_dirs:
        if each.error or each.is_read_only or each.is_slow:
            yield of_log_dir(each)


def of_moves_under_way(reading: ClusterReading) -> Iterator[Finding]:
    """Yield a finding for each move that cannot end, cannot begin, or pauses."""
    if reading.metadata is not None:
        facts = ClusterFacts(
            "",
            reading.metadata,
            moves=reading.moves,
            progress=reading.progress,
            watched_s=WINDOW_MS / 1000,
        )
        yield from of_moves(facts, NO_PLACE)
