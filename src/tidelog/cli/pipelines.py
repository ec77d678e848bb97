"""`tidelog pipeline`: Spark jobs from the command line.

Spark and Arrow are an extra (`pip install 'tidelog[spark]'`) and are loaded by the command that
needs them.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.output import OutputFormat, OutputOption, print_json, print_table, say
from tidelog.cli.target import BootstrapOption, OptionalDirectoryOption, choose_target
from tidelog.core.errors import ConfigError

app = typer.Typer(help="Data pipelines on Spark.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    """Keeps the verb: a single command would take the group's place."""


@app.command()
def ingest(
    topic: Annotated[str, typer.Argument(help="The topic.", show_default=False)],
    table: Annotated[str, typer.Option("--to", help="Directory of the Parquet table.")],
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    headers: Annotated[bool, typer.Option("--headers", help="Keep the records' headers.")] = False,
    compacted: Annotated[
        bool, typer.Option("--compacted", help="The topic is compacted: gaps are no loss.")
    ] = False,
    cores: Annotated[int, typer.Option(min=1, help="Worker threads of Spark.")] = 2,
    memory: Annotated[str, typer.Option(help="Memory of Spark's Java process.")] = "1g",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Append what is new in a topic to a Parquet table; every offset is accounted for."""
    target = choose_target(bootstrap, directory)
    try:
        from tidelog.spark.pipelines.ingest import ingest as run_ingest
        from tidelog.spark.session import start_session
    except ImportError as error:
        raise ConfigError(
            f"pipelines need Spark ({error}): pip install 'tidelog[spark]'"
        ) from error
    spark = start_session("tidelog ingest", cores=cores, memory=memory)
    try:
        report = run_ingest(
            spark, target.bootstrap, topic, table, include_headers=headers, compacted=compacted
        )
    finally:
        spark.stop()
    rows = [
        {
            "partition": each.wanted.tp.partition,
            "from": each.wanted.start,
            "to": each.wanted.end,
            "rows": each.rows,
            "control": each.control,
            "compacted": each.compacted,
            "lost": each.lost,
            "doubled": each.doubled,
        }
        for each in report.proof.partitions
    ]
    if output is OutputFormat.JSON:
        print_json({"topic": topic, "table": table, "manifest": report.manifest, "ranges": rows})
    else:
        print_table(list(rows[0]) if rows else ("partition",), [list(row.values()) for row in rows])
    say(
        f"{report.proof.rows} records in {len(report.files)} files, {report.proof.lost} lost, "
        f"{report.proof.doubled} doubled, in {report.seconds:.1f} s"
    )
