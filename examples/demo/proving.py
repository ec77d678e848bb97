"""The demo's path from the log through a table to a verdict: an ingest, a proof and an audit.

`prove_flights` uses nothing but the Delta table; `tidelog pipeline prove` runs the same function.
`audit_logs` reads the files of all brokers, as `tidelog pipeline audit` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from examples.demo.flights import COLUMNS, SEQUENCE
from examples.demo.story import Story

from tidelog.local import LocalCluster
from tidelog.spark.pipelines import html
from tidelog.spark.pipelines.audit.reporting import audit
from tidelog.spark.pipelines.ingest import IngestReport, ingest, read_landed
from tidelog.spark.pipelines.report import PipelineReport
from tidelog.spark.pipelines.sequence import SequenceProof, prove_sequence

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession


def flights_of(frame: DataFrame) -> DataFrame:
    """Return the source's rows as flights: JSON becomes typed columns; offsets stay beside them."""
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names it

    flight = F.from_json(F.col("value").cast("string"), COLUMNS)
    return frame.withColumn("flight", flight).select(
        "topic", "partition", "offset", "timestamp", "flight.*"
    )


def ingest_flights(
    spark: SparkSession, story: Story, bootstrap: str, topic: str, directory: str
) -> IngestReport:
    """Ingest the topic into a Delta table; prove the offsets' continuity on the way."""
    with story.bar("tasks of Spark", 1) as bar:
        report = ingest(
            spark,
            bootstrap,
            topic,
            directory,
            transform=flights_of,
            progress=lambda done, total: bar.at(done, total=total),
        )
    for each in report.proof.partitions:
        story.line(
            f"{each.wanted.tp}: offsets {each.wanted.start} to {each.wanted.end},"
            f" {each.rows:,} rows, {each.lost} lost, {each.doubled} doubled"
        )
    return report


def prove_flights(spark: SparkSession, directory: str, produced: int) -> SequenceProof:
    """Return count, sum, minimum, maximum, distinct of the sequence in the table."""
    return prove_sequence(read_landed(spark, directory), SEQUENCE, produced)


def distance_of(spark: SparkSession, directory: str) -> int:
    """Return the sum of all miles flown, to compare with the source's."""
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names it

    return int(read_landed(spark, directory).agg(F.sum("distance")).collect()[0][0] or 0)


@contextmanager
def duckdb_with_delta() -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield DuckDB with its extension for Delta, which a package brings."""
    import duckdb
    import duckdb_extension_delta

    package = os.path.dirname(duckdb_extension_delta.__file__)
    extension = f"{package}/extensions/v{duckdb.__version__}/delta.duckdb_extension"
    with duckdb.connect() as connection:
        connection.load_extension(extension)
        yield connection


def counts_in_duckdb(directory: str) -> tuple[int, int, int]:
    """Return the table's rows, distinct sequence numbers and miles, as DuckDB reads them."""
    counts = f"count(*), count(distinct {SEQUENCE}), sum(distance)"
    with duckdb_with_delta() as connection:
        row = connection.execute(f"select {counts} from delta_scan(?)", [directory]).fetchone()
    assert row is not None
    return int(row[0]), int(row[1]), int(row[2] or 0)


def audit_logs(
    spark: SparkSession, story: Story, cluster: LocalCluster, page: str
) -> PipelineReport:
    """Read every log file of all brokers, compare the replicas, and write the report's page."""
    with story.bar("tasks of the audit", 1) as bar:
        report = audit(
            spark,
            cluster.log_directories(),
            bootstrap=cluster.bootstrap,
            progress=lambda done, total: bar.at(done, total=total),
        )
    with open(page, "w", encoding="utf-8") as file:
        file.write(html.page(report))
    story.line(report.verdict)
    story.line(f"its report: {page}")
    return report
