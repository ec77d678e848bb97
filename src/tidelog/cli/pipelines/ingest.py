"""`tidelog pipeline ingest` and `compact`: a table of a topic's records, and its compaction.

Only commands that need Spark load it, when they run.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.documents import prints
from tidelog.cli.help import CommandGroup
from tidelog.cli.output import (
    OutputFormat,
    OutputOption,
    print_json,
    print_table,
    say,
    say_in_handler,
)
from tidelog.cli.pipelines.places import StorageOption, TableArgument, storage_options
from tidelog.cli.pipelines.record_forms import (
    DebeziumOption,
    JsonOption,
    KeyOption,
    RecordForm,
    UpsertOption,
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
from tidelog.core.limits import MIB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.pipelines.ingest import IngestReport
    from tidelog.spark.pipelines.ingest_report import IngestSums
    from tidelog.spark.pipelines.landing import LandingOptions


_TableOption = Annotated[
    str,
    typer.Option(
        "--to",
        help="Directory or URI (s3://, gs://, az://) of a Delta table, or iceberg:NAMESPACE.NAME.",
        show_default=False,
    ),
]
_IntervalOption = Annotated[
    float | None,
    typer.Option(min=0.01, help="With --follow: seconds between batches; 1, for Iceberg 60."),
]
_CompactAfterOption = Annotated[
    int | None,
    typer.Option(
        min=0, help="With --follow: merge so many small files of a partition; 32. 0: never."
    ),
]
_KeepHoursOption = Annotated[
    int | None,
    typer.Option(min=0, help="With --follow: keep replaced files for readers for so long; 168."),
]
_DeadLetterOption = Annotated[
    str | None, typer.Option(help="With --json or --debezium: a path for records that do not fit.")
]
_PartitionByOption = Annotated[
    list[str] | None,
    typer.Option(
        "--partition-by",
        metavar="COLUMN",
        help="Partition a new table by a column: partition, day (in UTC) or another; repeatable.",
    ),
]
_TargetOption = Annotated[
    int, typer.Option("--target-file-bytes", min=1, help="Size of a full data file.")
]


def add_to(app: CommandGroup) -> None:
    """Add the verbs of this module to `tidelog pipeline`."""
    app.command(epilog="Example: tidelog pipeline ingest --topic flights --to flights")(ingest)
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
    interval: _IntervalOption = None,
    compact_after: _CompactAfterOption = None,
    keep_hours: _KeepHoursOption = None,
    upsert: UpsertOption = False,
    key: KeyOption = None,
    json_columns: JsonOption = None,
    debezium: DebeziumOption = None,
    dead_letter: _DeadLetterOption = None,
    partition_by: _PartitionByOption = None,
    target_file_bytes: _TargetOption = 128 * MIB,
    storage: StorageOption = None,
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
    a proof of completeness. With --upsert a record replaces the row of its key.
    """
    form = RecordForm.of(json_columns, debezium, key, upsert=upsert)
    if dead_letter is not None and form.is_raw:
        raise typer.BadParameter("--dead-letter needs --json: without it every record fits")
    given = {"interval_s": interval, "compact_after": compact_after, "keep_hours": keep_hours}
    cadence = _cadence(given, follow=follow)
    if headers and not form.is_raw:
        raise typer.BadParameter("--headers and --json exclude each other")
    target = choose_target(bootstrap, directory)
    keys = storage_options(storage)
    with session("tidelog ingest", cores, memory) as spark:
        from tidelog.spark.pipelines.ingest_report import IngestSums, ingest_report
        from tidelog.spark.pipelines.landing import LandingOptions

        with progress(f"ingesting {topic}") as show_progress:
            options = LandingOptions(
                include_headers=headers,
                transform=form.transform(spark),
                without=form.without,
                dead_letter=dead_letter,
                compacted=compacted,
                target_file_bytes=target_file_bytes,
                progress=show_progress,
                upsert_by=form.keys,
                partition_by=tuple(partition_by or ()),
            )
            where = (target.bootstrap, topic, table)
            if follow:
                sums = _follow(spark, where, cadence, options, keys, output)
            else:
                report = _run(spark, where, options, keys)
                sums = IngestSums([report])
        if not follow:
            _print_run(report, output)
        whole = ingest_report(topic, table, sums)
    if html is not None:
        write_page(whole, html)
    say(whole.verdict)


def _cadence(given: dict[str, float | None], *, follow: bool) -> dict[str, Any]:
    """Return the options that belong to --follow; refuse them without --follow."""
    cadence = {name: value for name, value in given.items() if value is not None}
    if cadence and not follow:
        raise typer.BadParameter("--interval, --compact-after and --keep-hours belong to --follow")
    return cadence


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
    cadence: dict[str, Any],
    options: LandingOptions,
    storage: dict[str, str],
    output: OutputFormat,
) -> IngestSums:
    """Ingest until Ctrl-C or SIGTERM; print each batch, and return the sums over all batches."""
    from tidelog.spark.pipelines.ingest import follow
    from tidelog.spark.pipelines.ingest_report import IngestSums

    sums = IngestSums()

    def show_batch(report: IngestReport) -> None:
        sums.add(report)
        _print_run(report, output)
        say(f"version {report.version}: {IngestSums([report]).verdict}")

    with _stopping() as stop:
        follow(
            spark,
            *where,
            stop=stop,
            on_batch=show_batch,
            options=options,
            storage_options=storage,
            **cadence,
        )
    return sums


def _print_run(report: IngestReport, output: OutputFormat) -> None:
    """Print the offset ranges that a run of the ingest appended to the table."""
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
    table: TableArgument,
    target_file_bytes: _TargetOption = 128 * MIB,
    keep_hours: Annotated[
        int, typer.Option(min=0, help="Keep replaced files, for running readers and time travel.")
    ] = 168,
    storage: StorageOption = None,
    cores: CoresOption = 2,
    memory: MemoryOption = "1g",
    output: OutputOption = OutputFormat.TABLE,
    html: HtmlOption = None,
) -> None:
    """Merge the small files of a table into larger ones by one commit, then delete old files.

    The command checks that the merged files have the records of the files that they replace. The
    command deletes files that were replaced at least --keep-hours ago, and files of ingests that
    died at least a day ago. A reader that started less than --keep-hours ago still finds its files.
    Ingests may run meanwhile.
    """
    keys = storage_options(storage)
    with session("tidelog compact", cores, memory) as spark:
        from tidelog.spark.pipelines.compact import compact as run_compaction
        from tidelog.spark.pipelines.ingest_report import compaction_report

        report = run_compaction(
            spark,
            table,
            target_file_bytes=target_file_bytes,
            keep_hours=keep_hours,
            storage_options=keys,
        )
        show(compaction_report(report), output, html)
