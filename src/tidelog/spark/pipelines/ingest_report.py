"""The report of an ingest: its batches and the proof of each, as tables and figures.

One report covers one run or all batches of a followed topic. The module uses neither Spark nor
files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from tidelog.spark.pipelines.compact import CompactionReport
from tidelog.spark.pipelines.continuity import PartitionProof
from tidelog.spark.pipelines.ingest import IngestReport
from tidelog.spark.pipelines.report import PipelineReport, Plot, PlotKind, Series, Table

#: Number of last batches of `follow` whose offset ranges are kept.
_LAST_BATCHES: Final = 1_000
#: Number of files of one batch above which a report says how to get fewer files.
_MANY_FILES: Final = 1_000


def row_of(proof: PartitionProof) -> dict[str, int]:
    """Return a partition's proof as the named values of a report's row."""
    return {
        "partition": proof.wanted.tp.partition,
        "from": proof.wanted.start,
        "to": proof.wanted.end,
        "rows": proof.rows,
        "dead": proof.dead,
        "control": proof.control,
        "compacted": proof.compacted,
        "lost": proof.lost,
        "doubled": proof.doubled,
    }


class IngestSums:
    """Sums over all batches of a run, and the offset ranges of the last batches.

    `tidelog pipeline follow` may run for years, so the ranges of all batches would fill the memory.
    """

    def __init__(self, reports: Iterable[IngestReport] = ()) -> None:
        self.batches = self.rows = self.files = 0
        self.version: int | None = None
        self.holds = True
        #: Names of the columns that batches have added to the table.
        self.new_columns: dict[str, None] = {}
        self.seconds = 0.0
        #: Largest number of files of one batch.
        self.most_files = 0
        self.partition_rows: dict[int, int] = {}
        #: For each of the last batches: its table version, its offset ranges, and its rows per
        #: second.
        self.last: deque[tuple[int, list[dict[str, int]], float]] = deque(maxlen=_LAST_BATCHES)
        self._dead = self._lost = self._doubled = self._small = 0
        for report in reports:
            self.add(report)

    def add(self, report: IngestReport) -> None:
        """Add the report of a batch to the sums."""
        proof = report.proof
        self.rows += proof.rows
        self.files += len(report.files)
        self.most_files = max(self.most_files, len(report.files))
        self._dead += proof.dead
        self._lost += proof.lost
        self._doubled += proof.doubled
        self._small += report.reopened
        self.seconds += report.seconds
        self.new_columns |= dict.fromkeys(report.new_columns)
        if report.version is None:
            return
        self.batches += 1
        self.version = report.version
        self.holds = self.holds and proof.holds
        for each in proof.partitions:
            number = each.wanted.tp.partition
            self.partition_rows[number] = self.partition_rows.get(number, 0) + each.rows
        ranges = [row_of(each) for each in proof.partitions]
        self.last.append((report.version, ranges, proof.rows / report.seconds))

    @property
    def verdict(self) -> str:
        """One sentence that sums up all batches of the ingest."""
        letters = f"{self._dead} dead letters, " if self._dead else ""
        order = "rows come in no order of the partition columns"
        small = f" ({self._small} small, as {order})" if self._small else ""
        names = f"; new columns: {', '.join(self.new_columns)}" if self.new_columns else ""
        many = (
            f"; {self.most_files} files in one batch slow readers down: partition the table by a"
            " column with fewer values, or compact it"
            if self.most_files > _MANY_FILES
            else ""
        )
        return (
            f"{self.rows} records in {self.files} files{small}, {letters}{self._lost} lost,"
            f" {self._doubled} doubled, in {self.seconds:.1f} s{names}{many}"
        )


def ingest_report(topic: str, table: str, sums: IngestSums) -> PipelineReport:
    """Return the report of batches of `topic` that were committed to a table."""
    facts = (
        ("topic", topic),
        ("table", table),
        ("batches", sums.batches),
        ("version", sums.version),
    )
    proofs = [(version, row) for version, rows, _ in sums.last for row in rows]
    columns = ("version", *proofs[0][1]) if proofs else ("version",)
    note = "Each offset has one row, or is a dead letter, a transaction marker or compacted."
    if len(sums.last) < sums.batches:
        note += f" These are the last {len(sums.last)} batches of {sums.batches}."
    ranges = Table(
        "Offsets and their rows",
        columns,
        tuple((version, *row.values()) for version, row in proofs),
        note,
    )
    return PipelineReport(
        title=f"Ingest of {topic}",
        verdict=sums.verdict if sums.batches else f"nothing new in {topic}",
        holds=sums.holds,
        facts=facts,
        tables=(ranges,),
        figures=_figures(sums),
    )


def _figures(sums: IngestSums) -> tuple[Plot, ...]:
    if not sums.batches:
        return ()
    numbers = sorted(sums.partition_rows)
    heights = {"rows": [sums.partition_rows[number] for number in numbers]}
    rows = Plot.bars("Rows of each partition", "partition", "rows", numbers, heights)
    if sums.batches == 1:
        return (rows,)
    x = tuple(float(version) for version, _, _ in sums.last)
    rate = Series("rows/s", x, tuple(rate for _, _, rate in sums.last))
    return (rows, Plot("Rate of each batch", "version", "rows/s", (rate,), PlotKind.POINTS))


def compaction_report(report: CompactionReport) -> PipelineReport:
    """Return the report of a compaction."""
    before, after = len(report.before), len(report.after)
    rows = sum(each.rows for each in report.after)
    columns = (("file", "path"), "partition", ("from", "start"), ("to", "end"), "rows")
    return PipelineReport(
        title=f"Compaction of {report.table}",
        verdict=(
            f"{before} files became {after} with the same {rows} rows, in {report.seconds:.1f} s"
            if report.version is not None
            else f"{before} files, and no small neighbours to merge"
        ),
        holds=True,
        facts=(
            ("table", report.table),
            ("files before", before),
            ("files after", after),
            ("rows", rows),
            ("replaced files deleted", report.deleted),
            ("files of dead runs deleted", report.abandoned),
            ("version", report.version),
        ),
        tables=(Table.of("Files", report.after, columns),),
    )
