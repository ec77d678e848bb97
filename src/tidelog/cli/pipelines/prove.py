"""`tidelog pipeline prove`: a table's records counted again, by offsets or by a numbered column.

A proof that finds a lost or doubled record gives exit code 1, like any failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.documents import prints
from tidelog.cli.help import CommandGroup
from tidelog.cli.output import (
    OutputFormat,
    OutputOption,
    print_json,
    print_line,
    print_table,
)
from tidelog.cli.pipelines.places import StorageOption, storage_options
from tidelog.cli.pipelines.running import CoresOption, MemoryOption, session
from tidelog.cli.target import choose_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.pipelines.counting import FileFault, OffsetColumns
    from tidelog.spark.pipelines.offset_faults import OffsetFault

#: Number of faulty ranges of offsets that are printed as lines; JSON has all.
_SHOWN_FAULTS = 100


def add_to(app: CommandGroup) -> None:
    """Add the verb of this module to `tidelog pipeline`."""
    app.command(epilog="Example: tidelog pipeline prove flights --sequence number --produced 1000")(
        prove
    )


@prints(
    "an object with `table`, `version`, `holds`, `faults` (`path` and `reason` of each wrong file),"
    " `offsets` (missing and doubled ranges: `kind`, `partition`, `start`, `end`, `exact`, which is"
    " false if only some offsets of the range are doubled, and `files` with the versions that added"
    " them)"
    " and `ranges` as of ingest, with `stray`, or with --partition-column each partition's `rows`,"
    " `missing`, `doubled`, `control`, `absent`, `lost`; with --sequence"
    " `count`, `distinct`, `sum`, `minimum`, `maximum`, `lost`, `doubled`, `foreign`."
)
def prove(
    table: Annotated[
        str,
        typer.Argument(help="Directory or URI of the table; with --sequence also Parquet files."),
    ],
    sequence: Annotated[
        str | None,
        typer.Option(help="A column that must hold 0, 1, 2 ... once each, in any order."),
    ] = None,
    produced: Annotated[
        int | None, typer.Option(min=0, help="Count of numbers that the column must hold.")
    ] = None,
    partition_column: Annotated[
        str | None,
        typer.Option(help="Column of the partition, in a table that another tool has landed."),
    ] = None,
    offset_column: Annotated[str | None, typer.Option(help="Column of the offset.")] = None,
    topic: Annotated[
        str | None, typer.Option(help="The topic, whose log is read with --bootstrap-server.")
    ] = None,
    topic_column: Annotated[
        str | None, typer.Option(help="Column of the topic: rows of other topics are left out.")
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server", "-b", help="Brokers whose log explains gaps: host:port."
        ),
    ] = None,
    storage: StorageOption = None,
    cores: CoresOption = 2,
    memory: MemoryOption = "1g",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Count a table's records again: compare offsets with commits, or check a numbered column.

    The last line is the verdict; the exit code is 1 if a record is lost or doubled, or if a file of
    the table is missing or differs from the table's log. Delta tables of other tools are
    proved with --partition-column and --offset-column.
    """
    if (partition_column is None) != (offset_column is None):
        raise typer.BadParameter("--partition-column and --offset-column belong together")
    _check_options(partition_column, sequence, topic, topic_column, bootstrap)
    keys = storage_options(storage)
    if (sequence is None) != (produced is None):
        raise typer.BadParameter("--sequence and --produced belong together")
    with session("tidelog prove", cores, memory) as spark:
        if partition_column is not None and offset_column is not None:
            from tidelog.spark.pipelines.counting import OffsetColumns

            columns = OffsetColumns(partition_column, offset_column, topic_column, topic)
            good = _prove_columns(spark, (table, keys), columns, bootstrap, output)
        elif sequence is not None and produced is not None:
            good = _prove_sequence(spark, (table, keys), sequence, produced, output)
        else:
            good = _prove_offsets(spark, (table, keys), output)
    if not good:
        raise typer.Exit(1)


def _check_options(
    partition_column: str | None,
    sequence: str | None,
    topic: str | None,
    topic_column: str | None,
    bootstrap: str | None,
) -> None:
    """Raise BadParameter for options that do not belong together."""
    if partition_column is None and (topic or topic_column or bootstrap):
        raise typer.BadParameter(
            "--topic, --topic-column and --bootstrap-server belong to --partition-column"
        )
    if partition_column is not None and sequence is not None:
        raise typer.BadParameter("--partition-column and --sequence exclude each other")
    if topic is None and (topic_column or bootstrap):
        raise typer.BadParameter("--topic-column and --bootstrap-server need --topic")
    if topic is not None and not (topic_column or bootstrap):
        raise typer.BadParameter("--topic needs --topic-column or --bootstrap-server")


def _prove_sequence(
    spark: SparkSession,
    where: tuple[str, dict[str, str]],
    column: str,
    produced: int,
    output: OutputFormat,
) -> bool:
    from tidelog.spark.pipelines.landed import read_rows
    from tidelog.spark.pipelines.sequence import prove_sequence

    proof = prove_sequence(read_rows(spark, *where), column, produced)
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


def _prove_offsets(
    spark: SparkSession, where: tuple[str, dict[str, str]], output: OutputFormat
) -> bool:
    from tidelog.spark.pipelines.ingest_report import row_of
    from tidelog.spark.pipelines.landed import prove_table

    table, keys = where
    proof = prove_table(spark, table, storage_options=keys)
    offsets = proof.offsets
    rows = [{**row_of(each), "stray": each.stray} for each in offsets.partitions]
    if output is OutputFormat.JSON:
        document = {"table": table, "version": proof.version, "holds": proof.holds}
        faults = _fault_documents(proof.faults, proof.ranges, {})
        print_json({**document, **faults, "ranges": rows})
        return proof.holds
    if rows:
        print_table(list(rows[0]), [list(row.values()) for row in rows])
    _print_faults(proof.faults, proof.ranges, {})
    wrong = f", {len(proof.faults)} wrong files" if proof.faults else ""
    print_line(
        f"{offsets.rows} rows, {offsets.lost} lost, {offsets.doubled} doubled,"
        f" {offsets.stray} stray{wrong}"
    )
    return proof.holds


def _prove_columns(
    spark: SparkSession,
    where: tuple[str, dict[str, str]],
    columns: OffsetColumns,
    bootstrap: str | None,
    output: OutputFormat,
) -> bool:
    from tidelog.spark.pipelines.column_proof import prove_columns

    table, keys = where
    if bootstrap is None:
        proof = prove_columns(spark, table, columns, storage_options=keys)
    else:
        with choose_target(bootstrap, None).client(30.0) as client:
            proof = prove_columns(spark, table, columns, client=client, storage_options=keys)
    rows = [
        {
            "partition": each.partition,
            "from": each.start,
            "to": each.end,
            "rows": each.rows,
            "missing": each.missing,
            "doubled": each.doubled,
            "control": each.control,
            "absent": each.absent,
            "lost": each.lost,
            "log from": each.log_start,
            "log to": each.log_end,
        }
        for each in proof.partitions
    ]
    if output is OutputFormat.JSON:
        document = {"table": table, "version": proof.version, "holds": proof.holds}
        faults = _fault_documents(proof.files, proof.offsets, proof.added_in)
        print_json({**document, **faults, "ranges": rows})
        return proof.holds
    if rows:
        print_table(list(rows[0]), [list(row.values()) for row in rows])
    _print_faults(proof.files, proof.offsets, proof.added_in)
    unread = ""
    if bootstrap is None and any(each.lost for each in proof.partitions):
        unread = " (the log was not asked: markers and aborted records count as lost)"
    print_line(
        f"{sum(each.rows for each in proof.partitions)} rows,"
        f" {sum(each.lost for each in proof.partitions)} lost{unread},"
        f" {sum(each.doubled for each in proof.partitions)} doubled"
    )
    return proof.holds


def _print_faults(
    files: Sequence[FileFault], offsets: Sequence[OffsetFault], added_in: Mapping[str, int]
) -> None:
    """Print wrong files and ranges of offsets, with the versions that added the files."""
    for fault in offsets[:_SHOWN_FAULTS]:
        named = [
            f"{name} (version {added_in[name]})" if name in added_in else name
            for name in fault.files
        ]
        place = "between" if fault.kind == "missing" else "in"
        where = f", {place} {' and '.join(named)}" if named else ""
        some = "" if fault.is_exact else "some of "
        print_line(
            f"partition {fault.partition}: {some}offsets {fault.start} to {fault.end} are"
            f" {fault.kind}{where}"
        )
    if len(offsets) > _SHOWN_FAULTS:
        print_line(f"{len(offsets) - _SHOWN_FAULTS} more ranges: see -o json")
    for file in files:
        print_line(f"{file.path} {file.reason}")


def _fault_documents(
    files: Sequence[FileFault], offsets: Sequence[OffsetFault], added_in: Mapping[str, int]
) -> dict[str, Any]:
    """Return the same as part of a document."""
    ranges = [
        {
            "kind": each.kind,
            "partition": each.partition,
            "start": each.start,
            "end": each.end,
            "exact": each.is_exact,
            "files": [{"path": name, "version": added_in.get(name)} for name in each.files],
        }
        for each in offsets
    ]
    return {
        "faults": [{"path": each.path, "reason": each.reason} for each in files],
        "offsets": ranges,
    }
