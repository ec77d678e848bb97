"""`tidelog pipeline ingest` and `prove`: a topic into a table, and the proof repeated.

A failed proof is exit code 1, like any failure. Spark is loaded by the commands that need it, when
they run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.documents import prints
from tidelog.cli.help import CommandGroup
from tidelog.cli.output import OutputFormat, OutputOption, print_json, print_line, print_table, say
from tidelog.cli.pipelines.running import CoresOption, MemoryOption, progress, session
from tidelog.cli.target import BootstrapOption, OptionalDirectoryOption, choose_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.pipelines.continuity import PartitionProof


def add_to(app: CommandGroup) -> None:
    """Add the verbs of this module to `tidelog pipeline`."""
    app.command(epilog="Example: tidelog pipeline ingest --topic flights --to flights.parquet")(
        ingest
    )
    app.command(
        epilog="Example: tidelog pipeline prove flights.parquet --sequence number --produced 1000"
    )(prove)


@prints(
    "an object with `topic`, `table`, `manifest` (null where nothing was new) and `ranges`: offsets"
    " of each partition with `rows`, `control`, `compacted`, `lost`, `doubled`."
)
def ingest(
    topic: Annotated[str, typer.Option("--topic", help="The topic.", show_default=False)],
    table: Annotated[
        str, typer.Option("--to", help="Directory of the Parquet table.", show_default=False)
    ],
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    headers: Annotated[bool, typer.Option("--headers", help="Keep the records' headers.")] = False,
    compacted: Annotated[
        bool, typer.Option("--compacted", help="The topic is compacted: count gaps as no loss.")
    ] = False,
    cores: CoresOption = 2,
    memory: MemoryOption = "1g",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Append new records of a topic to a Parquet table, with a proof about every offset.

    A rerun continues at the end of the last one. Records without a proof of completeness are not
    added.
    """
    target = choose_target(bootstrap, directory)
    with session("tidelog ingest", cores, memory) as spark:
        from tidelog.spark.pipelines.ingest import ingest as run_ingest

        with progress(f"ingesting {topic}") as show_progress:
            report = run_ingest(
                spark,
                target.bootstrap,
                topic,
                table,
                include_headers=headers,
                compacted=compacted,
                progress=show_progress,
            )
    rows = [_row(each) for each in report.proof.partitions]
    if output is OutputFormat.JSON:
        print_json({"topic": topic, "table": table, "manifest": report.manifest, "ranges": rows})
    elif rows:
        print_table(list(rows[0]), [list(row.values()) for row in rows])
    if report.manifest is None:
        say(f"nothing new in {topic}")
        return
    say(
        f"{report.proof.rows} records in {len(report.files)} files, {report.proof.lost} lost, "
        f"{report.proof.doubled} doubled, in {report.seconds:.1f} s"
    )


@prints(
    "an object with `table`, `holds` and `ranges` as of ingest, with `stray`; with --sequence"
    " `count`, `distinct`, `sum`, `minimum`, `maximum`, `lost`, `doubled`, `foreign`."
)
def prove(
    table: Annotated[str, typer.Argument(help="Directory of the Parquet table.")],
    sequence: Annotated[
        str | None,
        typer.Option(help="A column that must hold 0, 1, 2 ... once each, in any order."),
    ] = None,
    produced: Annotated[
        int | None, typer.Option(min=0, help="Count of numbers that the column must hold.")
    ] = None,
    cores: CoresOption = 2,
    memory: MemoryOption = "1g",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Count a table again: its offsets against its manifests, or a numbered column.

    The last line is the verdict; the exit code is 1 if a record is lost or doubled.
    """
    if (sequence is None) != (produced is None):
        raise typer.BadParameter("--sequence and --produced belong together")
    with session("tidelog prove", cores, memory) as spark:
        if sequence is not None and produced is not None:
            good = _prove_sequence(spark, table, sequence, produced, output)
        else:
            good = _prove_offsets(spark, table, output)
    if not good:
        raise typer.Exit(1)


def _prove_sequence(
    spark: SparkSession, table: str, column: str, produced: int, output: OutputFormat
) -> bool:
    from tidelog.spark.pipelines.sequence import prove_sequence

    proof = prove_sequence(spark.read.parquet(table), column, produced)
    values = {
        "count": proof.count,
        "distinct": proof.distinct,
        "sum": proof.total,
        "minimum": proof.smallest,
        "maximum": proof.largest,
        "lost": proof.lost,
        "doubled": proof.doubled,
        "foreign": proof.foreign,
    }
    if output is OutputFormat.JSON:
        print_json(values)
        return proof.holds
    print_table(("of " + column, "value"), list(values.items()))
    print_line(proof.verdict())
    return proof.holds


def _prove_offsets(spark: SparkSession, table: str, output: OutputFormat) -> bool:
    from tidelog.spark.pipelines.ingest import prove_table

    proof = prove_table(spark, table)
    rows = [{**_row(each), "stray": each.stray} for each in proof.partitions]
    if output is OutputFormat.JSON:
        print_json({"table": table, "holds": proof.holds, "ranges": rows})
        return proof.holds
    if rows:
        print_table(list(rows[0]), [list(row.values()) for row in rows])
    print_line(
        f"{proof.rows} rows, {proof.lost} lost, {proof.doubled} doubled, {proof.stray} stray"
    )
    return proof.holds


def _row(proof: PartitionProof) -> dict[str, int]:
    return {
        "partition": proof.wanted.tp.partition,
        "from": proof.wanted.start,
        "to": proof.wanted.end,
        "rows": proof.rows,
        "control": proof.control,
        "compacted": proof.compacted,
        "lost": proof.lost,
        "doubled": proof.doubled,
    }
