"""Spark tasks that do a pipeline's work and return rows of JSON values, or Arrow tables.

A task returns an error of tidelog as a row, so that the driver raises one sentence instead of a
worker's traceback. Exceptions that are not tidelog's own are defects, which Spark reports.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from tidelog.core.errors import TidelogError
from tidelog.spark.shipping import shipped

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Row = dict[str, Any]
_FAILED: Final = "failed"


class TaskFailedError(TidelogError):
    """The error of a task, with the task's message."""


def run_tasks(
    spark: SparkSession, specs: Sequence[Any], work: Callable[[Any], Iterable[Row]]
) -> list[Row]:
    """Run `work` on each element of `specs` in a task of its own; return the rows in order.

    `work` must be importable on executors, and `specs` must pickle. Raises TaskFailedError with the
    first error, after all tasks have ended, or PySparkException if an executor lacks a package.
    """
    if not specs:
        return []
    frame = spark.range(0, len(specs), 1, len(specs)).mapInArrow(
        shipped(_task(list(specs), work)), "number long, row string"
    )
    # Spark keeps the order of tasks; Sail returns rows in the order in which tasks end.
    rows = [json.loads(row["row"]) for row in sorted(frame.collect(), key=itemgetter("number"))]
    for row in rows:
        if _FAILED in row:
            raise TaskFailedError(row[_FAILED])
    return rows


def _task(
    specs: list[Any], work: Callable[[Any], Iterable[Row]]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                rows: list[Row] = []
                try:
                    rows.extend(work(specs[number]))
                except TidelogError as error:
                    rows.append({_FAILED: str(error)})
                texts = [json.dumps(row) for row in rows]
                yield pa.RecordBatch.from_arrays(
                    [pa.array([number] * len(texts), pa.int64()), pa.array(texts, pa.string())],
                    ["number", "row"],
                )

    return run


def arrow_table(rows: Sequence[tuple[Any, ...]], ddl: str) -> pa.Table:
    """Return rows as an Arrow table with the names and types of a DDL."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "long": pa.int64(),
        "double": pa.float64(),
        "array<int>": pa.list_(pa.int32()),
    }
    fields = [each.split() for each in ddl.split(", ")]
    schema = pa.schema([(name, types[kind]) for name, kind in fields])
    columns = zip(*rows, strict=True) if rows else [()] * len(fields)
    arrays = [
        pa.array(list(values), field.type) for values, field in zip(columns, schema, strict=True)
    ]
    return pa.table(arrays, schema=schema)
