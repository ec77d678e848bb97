"""`tidelog pipeline prove`: a table's records counted again, by offsets or by a numbered column.

A proof that finds a lost, doubled or differing record gives exit code 1, like any failure.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.documents import prints
from tidelog.cli.help import CommandGroup
from tidelog.cli.output import OutputFormat, OutputOption
from tidelog.cli.pipelines.places import StorageOption, storage_options
from tidelog.cli.pipelines.record_forms import DebeziumOption, JsonOption, RecordForm
from tidelog.cli.pipelines.running import CoresOption, MemoryOption, session

_TopicOption = Annotated[
    str | None, typer.Option(help="The topic of --partition-column, for --bootstrap-server.")
]
_TopicColumnOption = Annotated[
    str | None, typer.Option(help="Column of the topic: rows of other topics are left out.")
]
_BrokersOption = Annotated[
    str | None, typer.Option("--bootstrap-server", "-b", help="Brokers with the log: host:port.")
]
_DeepOption = Annotated[
    bool, typer.Option("--deep", help="Compare rows with the log's records, as far as it reaches.")
]
_CompareOption = Annotated[
    list[str] | None, typer.Option(help="A column for --deep; default: all that are as in the log.")
]


def add_to(app: CommandGroup) -> None:
    """Add the verb of this module to `tidelog pipeline`."""
    app.command(epilog="Example: tidelog pipeline prove flights --sequence number --produced 1000")(
        prove
    )


@prints(
    "an object with `table`, `version`, `holds`, `faults` (`path` and `reason` of each wrong file),"
    " `offsets` (missing, doubled and stray ranges: `kind`, `partition`, `start`, `end`, `exact`,"
    " which is false if only some offsets of the range are at fault, `landed`, the versions whose"
    " commits landed missing offsets, and `files` with the versions that added them, or the ids of"
    " Iceberg's snapshots), `rollback` (a sentence if another tool restored an earlier version)"
    " and `ranges` as of ingest, with `stray`, or with --partition-column each partition's `rows`,"
    " `missing`, `doubled`, `control`, `absent`, `lost`; with --sequence"
    " `count`, `distinct`, `sum`, `minimum`, `maximum`, `lost`, `doubled`, `foreign`. With --deep"
    " also `content`: `holds`, the compared `columns`, each partition's `ranges`, `differences`"
    " (ranges of offsets with the `columns` that differ, none without a record, and `path`). A"
    " table of latest rows has `rows`, `unreached`, a count of each kind of fault, and `keys` with"
    " `kind`, `key`, `partition`, `offset`, `log_offset` instead of offsets and ranges."
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
    topic: _TopicOption = None,
    topic_column: _TopicColumnOption = None,
    bootstrap: _BrokersOption = None,
    deep: _DeepOption = False,
    compare: _CompareOption = None,
    json_columns: JsonOption = None,
    debezium: DebeziumOption = None,
    storage: StorageOption = None,
    cores: CoresOption = 2,
    memory: MemoryOption = "1g",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Count a table's records again: compare offsets with commits, or check a numbered column.

    The last line is the verdict; the exit code is 1 if a record is lost or doubled, or if a file of
    the table is missing or differs from the table's log. Tables of other tools are proved with
    --partition-column and --offset-column; the topic's log explains gaps in the offsets. With
    --deep each row must also have its record's content. A table of `ingest --upsert` is compared
    with a replay of its topic; give --json or --debezium as for the ingest.
    """
    if (partition_column is None) != (offset_column is None):
        raise typer.BadParameter("--partition-column and --offset-column belong together")
    _check_options(partition_column, sequence, topic, topic_column, bootstrap)
    _check_deep(sequence, bootstrap, compare, deep=deep)
    keys = storage_options(storage)
    if (sequence is None) != (produced is None):
        raise typer.BadParameter("--sequence and --produced belong together")
    columns = None
    if partition_column is not None and offset_column is not None:
        columns = (partition_column, offset_column, topic_column, topic)
    with session("tidelog prove", cores, memory) as spark:
        from tidelog.cli.pipelines.verdicts import Proofs

        proofs = Proofs(spark, table, keys, columns, bootstrap)
        is_upsert = columns is None and sequence is None and proofs.is_upsert
        form = RecordForm(json_columns, debezium)
        _check_mode(bootstrap, form, is_upsert=is_upsert, has_log=deep or columns is not None)
        # A table whose content cannot be compared is refused before it is counted.
        content = proofs.of_content(compare or ()) if deep else None
        if sequence is not None and produced is not None:
            verdict = proofs.of_sequence(sequence, produced)
        elif is_upsert:
            verdict = proofs.of_latest_rows(form.transform(spark))
        else:
            verdict = proofs.of_offsets() if columns is None else proofs.of_columns()
    if content is not None:
        verdict = verdict.and_content(content)
    verdict.show(output)
    if not verdict.holds:
        raise typer.Exit(1)


def _check_options(
    partition_column: str | None,
    sequence: str | None,
    topic: str | None,
    topic_column: str | None,
    bootstrap: str | None,
) -> None:
    """Raise BadParameter for options that do not belong together."""
    if partition_column is None and (topic or topic_column):
        raise typer.BadParameter("--topic and --topic-column belong to --partition-column")
    if partition_column is not None and sequence is not None:
        raise typer.BadParameter("--partition-column and --sequence exclude each other")
    if partition_column is not None and topic is None and (topic_column or bootstrap):
        raise typer.BadParameter("--topic-column and --bootstrap-server need --topic")
    if topic is not None and not (topic_column or bootstrap):
        raise typer.BadParameter("--topic needs --topic-column or --bootstrap-server")


def _check_deep(
    sequence: str | None,
    bootstrap: str | None,
    compare: list[str] | None,
    *,
    deep: bool,
) -> None:
    """Raise BadParameter for options that do not belong to --deep."""
    if deep and bootstrap is None:
        raise typer.BadParameter("--deep needs --bootstrap-server, whose log it reads")
    if deep and sequence is not None:
        raise typer.BadParameter("--deep and --sequence exclude each other")
    if compare and not deep:
        raise typer.BadParameter("--compare belongs to --deep")


def _check_mode(bootstrap: str | None, form: RecordForm, *, is_upsert: bool, has_log: bool) -> None:
    """Raise BadParameter for options that do not fit the kind of table.

    A table has either the latest row of each key (`is_upsert`) or a row for each record. `has_log`
    is whether another option, such as --deep, compares the table with the topic's log.
    """
    if is_upsert and bootstrap is None:
        raise typer.BadParameter(
            "the table has the latest row of each key, which a replay of its topic proves:"
            " --bootstrap-server names the brokers"
        )
    if not is_upsert and not form.is_raw:
        raise typer.BadParameter("--json and --debezium belong to a table of ingest --upsert")
    if not is_upsert and bootstrap is not None and not has_log:
        raise typer.BadParameter("--bootstrap-server needs --deep or --partition-column")
