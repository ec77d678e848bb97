"""The outcome of a copy's run, and its report.

The report's verdict is good if every range that was read back is equal in both clusters, and no
coordinator failed. Compaction may have removed copied records in either cluster; the report gives
the numbers of such records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from operator import methodcaller
from typing import Final, NamedTuple

from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.spark.pipelines.copy.group_offsets import TranslatedOffset
from tidelog.spark.pipelines.copy.offset_map import ABORTED, ABSENT, DELETED, MARKERS, OffsetTable
from tidelog.spark.pipelines.report import Cell, PipelineReport, Table
from tidelog.spark.pipelines.task_rows import Row

#: Maximum number of rows of the offset table in a report.
_SHOWN_PIECES: Final = 100
_WITHOUT_COPY: Final = (MARKERS, ABORTED, ABSENT, DELETED)


@dataclass(slots=True)
class CopyOutcome:
    """The data for the report of a copy."""

    topics: Mapping[str, str]
    maps: dict[TopicPartition, OffsetTable]
    #: Ends of the source's partitions at the last round of the copy.
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    groups: list[TranslatedOffset] = field(default_factory=list)
    #: Rows of the verification; None if no range was read back.
    checks: list[Row] | None = None
    #: Number of records that this run copied; `found` counts the records already in the target,
    #: `sent_bytes` the bytes sent.
    records: int = 0
    found: int = 0
    sent_bytes: int = 0
    rounds: int = 0
    copy_seconds: float = 0.0
    verify_seconds: float = 0.0


def report_of(outcome: CopyOutcome) -> PipelineReport:
    """Return the report of a run of the copy."""
    wrong = [row for row in outcome.checks or () if not is_equal(row)]
    failed = [row for row in outcome.groups if row.is_failed]
    verdict = _verdict(outcome, wrong)
    if failed:
        verdict += f"; group {failed[0].group!r} was not translated: {failed[0].outcome}"
    tables = [_partitions(outcome), _pieces(outcome)]
    if outcome.checks is not None:
        tables.append(_checks(outcome.checks))
    if outcome.groups:
        tables.append(_groups(outcome))
    return PipelineReport("Copy", verdict, not wrong and not failed, _facts(outcome), tuple(tables))


def is_equal(row: Row) -> bool:
    """Return whether a range has the same records at the mapped offsets in both clusters."""
    return bool(
        row["source_records"] == row["target_records"]
        and row["source_digest"] == row["target_digest"]
    )


def _verdict(outcome: CopyOutcome, wrong: list[Row]) -> str:
    copied = f"{outcome.records} records copied"
    if outcome.checks is None:
        return f"{copied}, not verified"
    if not wrong:
        checked = sum(row["target_records"] for row in outcome.checks)
        return f"{copied}, {checked} read back on both sides and equal"
    first = wrong[0]
    return (
        f"{copied}, but {len(wrong)} of {len(outcome.checks)} ranges differ:"
        f" {first['topic']}-{first['partition']} first at target offset {first['first']}"
        f" ({sum(row['missing'] for row in wrong)} missing in the target,"
        f" {sum(row['surplus'] for row in wrong)} missing in the source,"
        f" {sum(row['changed'] for row in wrong)} changed)"
    )


def _facts(outcome: CopyOutcome) -> tuple[tuple[str, Cell], ...]:
    seconds = max(outcome.copy_seconds, 0.001)
    return (
        ("topics", ", ".join(f"{source} to {to}" for source, to in outcome.topics.items())),
        ("topics created", ", ".join(outcome.created) or "none"),
        ("records copied", outcome.records),
        ("found in the target after an ended run", outcome.found),
        ("bytes sent", outcome.sent_bytes),
        ("rounds", outcome.rounds),
        ("seconds of the copy", round(outcome.copy_seconds, 1)),
        ("records/s", round(outcome.records / seconds)),
        ("seconds of the verification", round(outcome.verify_seconds, 1)),
    )


class _CopiedPartition(NamedTuple):
    """A row of the report: a source partition, and its offset table."""

    tp: TopicPartition
    known: OffsetTable


def _partitions(outcome: CopyOutcome) -> Table:
    return Table.of(
        "Partitions",
        [_CopiedPartition(*each) for each in sorted(outcome.maps.items())],
        (
            ("source", "tp", str),
            ("target topic", lambda row: outcome.topics[row.tp.topic]),
            ("from", lambda row: row.known.start),
            ("to", lambda row: row.known.end),
            ("target from", lambda row: row.known.pieces[0].target if row.known.pieces else None),
            ("target to", lambda row: row.known.target_end),
            ("records", lambda row: row.known.records),
            *((kind, "known", methodcaller("count", kind)) for kind in _WITHOUT_COPY),
            ("lag", lambda row: max(0, outcome.ends.get(row.tp, 0) - (row.known.end or 0))),
        ),
        "Every source offset is a record, or in one of the four columns behind it.",
    )


def _pieces(outcome: CopyOutcome) -> Table:
    every = [(tp, piece) for tp, known in sorted(outcome.maps.items()) for piece in known.pieces]
    hidden = len(every) - _SHOWN_PIECES
    return Table(
        "Offset table",
        ("source", "from", "to", "target from", "target to", "kind"),
        tuple(
            (str(tp), piece.start, piece.end, piece.target, piece.target_end, piece.kind)
            for tp, piece in every[:_SHOWN_PIECES]
        ),
        f"{hidden} more rows are in the directory of the copy." * (hidden > 0),
    )


def _checks(checks: list[Row]) -> Table:
    return Table.of(
        "Read back",
        checks,
        (
            ("source", lambda row: f"{row['topic']}-{row['partition']}"),
            ("from", "source_from"),
            ("to", "source_to"),
            "target from",
            "target to",
            "source records",
            "target records",
            ("source digest", lambda row: row["source_digest"][:12]),
            ("target digest", lambda row: row["target_digest"][:12]),
            ("equal", is_equal),
        ),
        "Digests cover target offset, timestamp, key, value and headers of every record.",
    )


def _groups(outcome: CopyOutcome) -> Table:
    source = ("source", lambda row: str(row.source_partition or ""))
    offset, target = ("offset", "source"), ("target offset", "target")
    return Table.of("Groups", outcome.groups, ("group", source, offset, target, "outcome"))
