"""Offsets in the files of a table, counted on the driver or by Spark's tasks.

A count opens each file, as readers do. It names a file that is missing, unreadable, or differs from
its description in the table's log. The driver counts a small run faster than Spark starts a job:
two columns of a million rows are read in some 20 ms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.spark.lake.state import LakeFile
from tidelog.spark.lake.stores import LakeStore, reason_of
from tidelog.spark.pipelines.task_rows import run_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Maximum number of rows that the driver counts itself.
DRIVER_ROWS: Final = 4_000_000
_COLUMNS: Final = ("partition", "offset")


@dataclass(frozen=True, slots=True)
class FileFault:
    """A file that readers cannot read, or whose content is not what the table's log says."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class FileCounts:
    """The spans of offsets in files, and the files with faults."""

    spans: pa.Table
    faults: tuple[FileFault, ...] = ()


@dataclass(frozen=True, slots=True)
class _CountJob:
    store: LakeStore
    file: LakeFile


def count_files(spark: SparkSession, store: LakeStore, files: Sequence[LakeFile]) -> FileCounts:
    """Count the offsets in Parquet files of a store. Raises TaskFailedError."""
    import pyarrow as pa

    from tidelog.spark.pipelines.spans import SPANS

    jobs = [_CountJob(store, file) for file in files]
    if sum(file.rows for file in files) <= DRIVER_ROWS:
        rows = [row for job in jobs for row in _count(job)]
    else:
        rows = run_tasks(spark, jobs, _count)
    faults = tuple(FileFault(**row["fault"]) for row in rows if "fault" in row)
    spans = [span for row in rows for span in row.get("spans", ())]
    columns = zip(*spans, strict=True) if spans else [()] * len(SPANS)
    arrays = [
        pa.array(list(values), field.type) for values, field in zip(columns, SPANS, strict=True)
    ]
    return FileCounts(pa.table(arrays, schema=SPANS), faults)


def _count(job: _CountJob) -> Iterator[dict[str, Any]]:
    """Yield the spans of a file, and its fault, if it has one."""
    import pyarrow as pa
    from pyarrow import parquet

    from tidelog.spark.pipelines.spans import spans_of

    spans: list[tuple[int, ...]] = []
    file = job.file
    try:
        with (
            job.store.open().open_input_file(file.path) as source,
            parquet.ParquetFile(source) as opened,
        ):
            size_bytes = source.size()
            for batch in spans_of(opened.iter_batches(columns=list(_COLUMNS))):
                spans += zip(*(column.to_pylist() for column in batch.columns), strict=True)
        reason = _difference(file, size_bytes, spans)
    except FileNotFoundError:
        reason = "is missing"
    except (pa.ArrowException, OSError) as error:
        reason = f"cannot be read: {reason_of(error)}"
    yield {"spans": spans}
    if reason is not None:
        yield {"fault": {"path": file.path, "reason": reason}}


def _difference(file: LakeFile, size_bytes: int, spans: Sequence[tuple[int, ...]]) -> str | None:
    """Return how a file differs from its description, whose unknown numbers are -1."""
    rows = sum(end - start + doubled for _, start, end, doubled in spans)
    if rows != file.rows >= 0:
        return f"has {rows} rows; the table's log says {file.rows}"
    numbers = sorted({span[0] for span in spans})
    if file.partition >= 0 and numbers not in ([], [file.partition]):
        return f"has rows of partitions {numbers}; the table's log says {file.partition}"
    if spans and file.start >= 0:
        start, end = min(span[1] for span in spans), max(span[2] for span in spans)
        if (start, end) != (file.start, file.end):
            return f"has offsets {start} to {end}; the table's log says {file.start} to {file.end}"
    if size_bytes != file.size_bytes:
        return f"has {size_bytes} bytes; the table's log says {file.size_bytes}"
    return None
