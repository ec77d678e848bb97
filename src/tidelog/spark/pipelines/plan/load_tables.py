"""Loads from samples taken over days: the percentile of each partition's rate, computed by Spark.

Samples are a directory of JSON lines that `load_samples` wrote, or a Parquet table with the same
columns. A Spark task computes the rates of each partition from all its samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.core.types import TopicPartition
from tidelog.spark.pipelines.plan.cluster_model import GoalError
from tidelog.spark.pipelines.plan.load_samples import SAMPLE_DDL, LoadSample, kept_samples, rates
from tidelog.spark.pipelines.task_rows import arrow_table
from tidelog.spark.shipping import shipped

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_RATES_DDL: Final = "topic string, partition int, rate double"


def rate_percentiles(
    spark: SparkSession, path: str, percentile: float
) -> Mapping[TopicPartition, float]:
    """Return a percentile (0 to 100) of the rates of each partition with at least two samples.

    Raises GoalError for a path without samples.
    """
    from pyspark.sql import functions as sf

    samples = _samples(spark, path)
    grouped = samples.groupBy("topic", "partition").applyInArrow(shipped(_rates), _RATES_DDL)
    loads = grouped.groupBy("topic", "partition").agg(
        sf.percentile("rate", percentile / 100).alias("rate")
    )
    found = {TopicPartition(row.topic, row.partition): row.rate for row in loads.collect()}
    if not found:
        raise GoalError(
            f"{path} has no two samples of any partition: take more, as with --sample 60s"
        )
    return found


def _rates(rows: pa.Table) -> pa.Table:
    samples = [LoadSample(**row) for row in rows.to_pylist()]
    first = samples[0]
    found = [(first.topic, first.partition, rate) for rate in rates(samples)]
    return arrow_table(found, _RATES_DDL)


def _samples(spark: SparkSession, path: str) -> DataFrame:
    """Return the samples at a path, with the columns of SAMPLE_DDL."""
    from pyspark.errors import AnalysisException

    columns = [each.split()[0] for each in SAMPLE_DDL.split(", ")]
    if any(Path(path).glob("*.jsonl")):
        for _ in kept_samples(path):
            pass  # raises an error for an invalid line, which Spark would read as nulls
        lines = spark.read.schema(SAMPLE_DDL).json(path, pathGlobFilter="*.jsonl")
        return lines.where("topic is not null and end_offset is not null").select(*columns)
    try:
        table = spark.read.parquet(path)
    except AnalysisException as error:
        raise GoalError(
            f"{path} has no samples: a directory that --sample wrote, or a Parquet table with the"
            f" columns {', '.join(columns)} expected"
        ) from error
    missing = [each for each in columns if each not in table.columns]
    if missing:
        raise GoalError(f"{path} has no column {missing[0]}: {', '.join(columns)} expected")
    types = dict(each.split() for each in SAMPLE_DDL.split(", "))
    return table.selectExpr(*[f"cast({name} as {types[name]}) as {name}" for name in columns])
