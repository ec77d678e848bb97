"""`tidelog pipeline ingest`, `prove` and `compact`: a table of a topic's records, and its proof and
compaction.

A proof that finds a lost or doubled record gives exit code 1, like any failure. Only commands that
need Spark load it, when they run.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.documents import prints
from tidelog.cli.help import CommandGroup
from tidelog.cli.output import (
    OutputFormat,
    OutputOption,
    print_json,
    print_line,
    print_table,
    say,
    say_in_handler,
)
from tidelog.cli.pipelines.running import (
    CoresOption,
    HtmlOption,
    MemoryOption,
    progress,
    session,
)
from tidelog.cli.pipelines.showing import REPORT_DOCUMENT, show, write_page
from tidelog.cli.target import BootstrapOption, OptionalDirectoryOption, choose_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.pipelines.ingest import IngestReport
    from tidelog.spark.pipelines.landing import LandingOptions


_TableOption = Annotated[
    str,
    typer.Option(
        "--to",
        help="Directory of the Delta table, or its URI in an object store: s3://, gs:// or az://.",
        show_default=False,
    ),
]
_PlaceArgument = Annotated[str, typer.Argument(help="Directory of the Delta table, or its URI.")]
_StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="Option of the object store, such as AWS_ENDPOINT_URL=...; default: the environment.",
    ),
]
_IntervalOption = Annotated[
    float, typer.Option(min=0.01, help="With --follow: seconds between looks for new records.")
]
_CompactAfterOption = Annotated[
    int,
    typer.Option(min=0, help="With --follow: merge small files when there are so many; 0: never."),
]
_JsonOption = Annotated[
    str | None,
    typer.Option("--json", help="Parse values as JSON objects: 'carrier string, distance long'."),
]


def add_to(app: CommandGroup) -> None:
    """Add the verbs of this module to `tidelog pipeline`."""
    app.command(epilog="Example: tidelog pipeline ingest --topic flights --to flights")(ingest)
    app.command(epilog="Example: tidelog pipeline prove flights --sequence number --produced 1000")(
        prove
    )
    app.command(epilog="Example: tidelog pipeline compact flights --keep-hours 24")(compact)


@prints(
    "an object with `topic`, `table`, `version` (null where nothing was new) and `ranges`: offsets"
    " of each partition with `rows`, `dead`, `control`, `compacted`, `lost`, `doubled`. With"
    " --follow one such object for each batch."
)
def ingest(
    topic: Annotated[str, typer.Option("--topic", help="The topic.", show_default=False)],
    table: _TableOption,
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on until Ctrl-C, which ends after the batch.")
    ] = False,
    interval: _IntervalOption = 1.0,
    compact_after: _CompactAfterOption = 0,
    json_columns: _JsonOption = None,
    dead_letter: Annotated[
        str | None,
        typer.Option("--dead-letter", help="With --json: a path for records that do not fit."),
    ] = None,
    storage: _StorageOption = None,
    headers: Annotated[bool, typer.Option("--headers", help="Keep the records' headers.")] = False,
    compacted: Annotated[
        bool, typer.Option("--compacted", help="The topic is compacted: count gaps as no loss.")
    ] = False,
    cores: CoresOption = 2,
    memory: MemoryOption = "1g",
    output: OutputOption = OutputFormat.TABLE,
    html: HtmlOption = None,
) -> None:
    """Append new records of a topic to a Delta table, with a proof about every offset.

    A rerun continues at the end of the last run. The command appends records to the table only with
    a proof of completeness.
    """
    if dead_letter is not None and json_columns is None:
        raise typer.BadParameter("--dead-letter needs --json: without it every record fits")
    if headers and json_columns is not None:
        raise typer.BadParameter("--headers and --json exclude each other")
    target = choose_target(bootstrap, directory)
    keys = _storage_options(storage)
    with session("tidelog ingest", cores, memory) as spark:
        from tidelog.spark.pipelines.ingest_report import ingest_report
        from tidelog.spark.pipelines.landing import LandingOptions
        from tidelog.spark.pipelines.parsing import json_columns as parser

        with progress(f"ingesting {topic}") as show_progress:
            options = LandingOptions(
                include_headers=headers,
                transform=None if json_columns is None else parser(spark, json_columns),
                without=() if json_columns is None else ("key", "value"),
                dead_letter=dead_letter,
                compacted=compacted,
                progress=show_progress,
            )
            where = (target.bootstrap, topic, table)
            if follow:
                reports = _follow(spark, where, interval, compact_after, options, keys, output)
            else:
                reports = [_run(spark, where, options, keys)]
        if not follow:
            _print_run(reports[0], output)
        whole = ingest_report(topic, table, reports)
    if html is not None:
        write_page(whole, html)
    say(whole.verdict)


def _storage_options(words: list[str] | None) -> dict[str, str]:
    """Return `KEY=VALUE` words as a mapping; raise BadParameter for other words."""
    options = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"--storage-option {word!r} is not like KEY=VALUE")
        options[key] = value
    return options


def _run(
    spark: SparkSession,
    where: tuple[str, str, str],
    options: LandingOptions,
    storage: dict[str, str],
) -> IngestReport:
    from tidelog.spark.pipelines.ingest import topic_ingest

    with topic_ingest(spark, *where, options, storage) as runs:
        return runs.run()


def _follow(
    spark: SparkSession,
    where: tuple[str, str, str],
    interval_s: float,
    compact_after: int,
    options: LandingOptions,
    storage: dict[str, str],
    output: OutputFormat,
) -> list[IngestReport]:
    """Ingest until Ctrl-C or SIGTERM; print each batch."""
    from tidelog.spark.pipelines.ingest import follow
    from tidelog.spark.pipelines.ingest_report import verdict_of

    reports: list[IngestReport] = []

    def show_batch(report: IngestReport) -> None:
        reports.append(report)
        _print_run(report, output)
        say(f"version {report.version}: {verdict_of([report])}")

    with _stopping() as stop:
        follow(
            spark,
            *where,
            stop=stop,
            interval_s=interval_s,
            compact_after=compact_after,
            on_batch=show_batch,
            options=options,
            storage_options=storage,
        )
    return reports


def _print_run(report: IngestReport, output: OutputFormat) -> None:
    """Print a run's ranges."""
    from tidelog.spark.pipelines.ingest_report import row_of

    rows = [row_of(each) for each in report.proof.partitions]
    if output is OutputFormat.JSON:
        print_json(
            {
                "topic": report.topic,
                "table": report.table,
                "version": report.version,
                "ranges": rows,
            }
        )
    elif rows:
        print_table(list(rows[0]), [list(row.values()) for row in rows])


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set; a second Ctrl-C interrupts the batch at once."""
    stop = threading.Event()

    def ask(_number: int, _frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        say_in_handler("ending after this batch")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@prints(REPORT_DOCUMENT)
def compact(
    table: _PlaceArgument,
    rows_per_file: Annotated[
        int, typer.Option(min=2, help="Rows of a merged file at most.")
    ] = 2_000_000,
    keep_hours: Annotated[
        int, typer.Option(min=0, help="Keep replaced files for readers and earlier versions.")
    ] = 168,
    storage: _StorageOption = None,
    cores: CoresOption = 2,
    memory: MemoryOption = "1g",
    output: OutputOption = OutputFormat.TABLE,
    html: HtmlOption = None,
) -> None:
    """Merge the small files of a table into larger ones, by one commit.

    The command checks that the merged files have the records of the files that they replace. A
    later compaction deletes the replaced files once the time to keep them has passed, and with them
    the files of ingests that died a day ago or earlier. Ingests may run meanwhile.
    """
    keys = _storage_options(storage)
    with session("tidelog compact", cores, memory) as spark:
        from tidelog.spark.pipelines.compact import compact as run_compaction
        from tidelog.spark.pipelines.ingest_report import compaction_report

        report = run_compaction(
            spark, table, rows_per_file=rows_per_file, keep_hours=keep_hours, storage_options=keys
        )
        show(compaction_report(report), output, html)


@prints(
    "an object with `table`, `version`, `holds`, `faults` (`path` and `reason` of each wrong file)"
    " and `ranges` as of ingest, with `stray`; with --sequence"
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
    storage: _StorageOption = None,
    cores: CoresOption = 2,
    memory: MemoryOption = "1g",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Count a table's records again: compare offsets with commits, or check a numbered column.

    The last line is the verdict; the exit code is 1 if a record is lost or doubled, or if a file of
    the table is missing or differs from the table's log.
    """
    keys = _storage_options(storage)
    if (sequence is None) != (produced is None):
        raise typer.BadParameter("--sequence and --produced belong together")
    with session("tidelog prove", cores, memory) as spark:
        if sequence is not None and produced is not None:
            good = _prove_sequence(spark, (table, keys), sequence, produced, output)
        else:
            good = _prove_offsets(spark, (table, keys), output)
    if not good:
        raise typer.Exit(1)


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
        faults = [{"path": each.path, "reason": each.reason} for each in proof.faults]
        document = {"table": table, "version": proof.version, "holds": proof.holds}
        print_json({**document, "faults": faults, "ranges": rows})
        return proof.holds
    if rows:
        print_table(list(rows[0]), [list(row.values()) for row in rows])
    for fault in proof.faults:
        print_line(f"{fault.path} {fault.reason}")
    wrong = f", {len(proof.faults)} wrong files" if proof.faults else ""
    print_line(
        f"{offsets.rows} rows, {offsets.lost} lost, {offsets.doubled} doubled,"
        f" {offsets.stray} stray{wrong}"
    )
    return proof.holds
