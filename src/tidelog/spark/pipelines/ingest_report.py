"""The report of an ingest: its batches and the proof of each, as tables and figures.

One report covers one run or all batches of a followed topic. The module uses neither Spark nor
files.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.spark.pipelines.compact import CompactionReport
from tidelog.spark.pipelines.continuity import PartitionProof
from tidelog.spark.pipelines.ingest import IngestReport
from tidelog.spark.pipelines.report import PipelineReport, Plot, PlotKind, Series, Table


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


def verdict_of(reports: Sequence[IngestReport]) -> str:
    """Return one sentence about all reported batches."""
    proofs = [report.proof for report in reports]
    dead = sum(proof.dead for proof in proofs)
    letters = f"{dead} dead letters, " if dead else ""
    names = [name for report in reports for name in report.new_columns]
    small = sum(report.reopened for report in reports)
    order = f" ({small} small, as rows come in no order of the partition columns)" if small else ""
    columns = f"; new columns: {', '.join(names)}" if names else ""
    return (
        f"{sum(proof.rows for proof in proofs)} records in"
        f" {sum(len(report.files) for report in reports)} files{order}, {letters}"
        f"{sum(proof.lost for proof in proofs)} lost,"
        f" {sum(proof.doubled for proof in proofs)} doubled, in"
        f" {sum(report.seconds for report in reports):.1f} s{columns}"
    )


def ingest_report(topic: str, table: str, reports: Sequence[IngestReport]) -> PipelineReport:
    """Return the report of batches of `topic` that were committed to a table."""
    done = [report for report in reports if report.version is not None]
    facts = (
        ("topic", topic),
        ("table", table),
        ("batches", len(done)),
        ("version", done[-1].version if done else None),
    )
    proofs = [(report.version, row_of(each)) for report in done for each in report.proof.partitions]
    columns = ("version", *proofs[0][1]) if proofs else ("version",)
    ranges = Table(
        "Offsets and their rows",
        columns,
        tuple((version, *row.values()) for version, row in proofs),
        "Each offset has one row, or is a dead letter, a transaction marker or compacted.",
    )
    return PipelineReport(
        title=f"Ingest of {topic}",
        verdict=verdict_of(done) if done else f"nothing new in {topic}",
        holds=all(report.proof.holds for report in done),
        facts=facts,
        tables=(ranges,),
        figures=_figures(done),
    )


def _figures(done: Sequence[IngestReport]) -> tuple[Plot, ...]:
    if not done:
        return ()
    last: dict[int, int] = {}
    for report in done:
        for each in report.proof.partitions:
            number = each.wanted.tp.partition
            last[number] = last.get(number, 0) + each.rows
    numbers = sorted(last)
    heights = {"rows": [last[number] for number in numbers]}
    rows = Plot.bars("Rows of each partition", "partition", "rows", numbers, heights)
    if len(done) == 1:
        return (rows,)
    x = tuple(float(report.version or 0) for report in done)
    rate = Series("rows/s", x, tuple(report.proof.rows / report.seconds for report in done))
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
