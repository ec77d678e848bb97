"""Upserts: the rows of new records in place of the rows with the same keys (copy-on-write).

A run has staged all new records. The rows that leave the table (`latest_rows`) are dropped from the
table's files and from the staged ones: a file with such rows is written again without them. The
commit removes the former files, adds the new ones and carries the offsets, so that the change lands
once or not at all. Files without the key of a new record stay as they are.

The driver compares the keys of small runs. Spark's tasks compare the keys of larger runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.spark.lake.field_ids import check_field_ids
from tidelog.spark.lake.staging import FilePlan, TaskFiles, in_columns, partitions_of
from tidelog.spark.lake.state import LakeFile, TableError
from tidelog.spark.lake.stores import reason_of
from tidelog.spark.pipelines.latest_rows import (
    PLACE,
    TOMBSTONE_COLUMN,
    UpsertKeyError,
    key_names,
    superseded,
)
from tidelog.spark.pipelines.task_rows import Row, run_tasks
from tidelog.spark.shipping import shipped

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    from pyarrow import parquet
    from pyspark.sql import DataFrame, SparkSession

#: Maximum number of keys that the driver compares itself; it writes at most DRIVER_ROWS rows
#: itself.
DRIVER_KEYS: Final = 1_000_000
DRIVER_ROWS: Final = 100_000
#: Maximum number of files that the driver reads or writes, because each file costs a request to an
#: object store.
DRIVER_FILES: Final = 64
#: Approximate number of keys that one task compares, in memory.
KEYS_PER_TASK: Final = 1_000_000
_FAILED: Final = "failed"


@dataclass(frozen=True, slots=True)
class UpsertFiles:
    """The files that an upsert's commit adds and removes."""

    added: tuple[LakeFile, ...]
    removed: tuple[LakeFile, ...]


@dataclass(frozen=True, slots=True)
class _Upsert:
    """What the tasks of an upsert need: the table's files and the staged files, numbered in this
    order.
    """

    plan: FilePlan
    keys: tuple[str, ...]
    files: tuple[LakeFile, ...]
    #: The number of the first staged file.
    staged_from: int
    #: Whether staged files have the column of tombstones, which the table does not have. Without
    #: this column, a staged row without a value is a tombstone.
    is_marked: bool

    @property
    def staged(self) -> range:
        """The numbers of the staged files, as positions in `files`."""
        return range(self.staged_from, len(self.files))


@dataclass(frozen=True, slots=True)
class _Rewrite:
    """The work of a task: write one file again without the rows at some places.

    Another tool's compaction may have merged partitions of the topic, so an offset alone does not
    identify a row of a file.
    """

    upsert: _Upsert
    number: int
    partitions: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]


def upsert_files(
    spark: SparkSession,
    plan: FilePlan,
    keys: Sequence[str],
    table: Sequence[LakeFile],
    staged: Sequence[LakeFile],
    *,
    is_marked: bool,
) -> UpsertFiles:
    """Return the change that makes the staged records the latest rows of their keys.

    `table` has all files of the version that the commit builds on. `is_marked` states that the
    staged files have the column of tombstones. Raises UpsertKeyError, TableError, or Spark's
    errors.
    """
    if not staged:
        return UpsertFiles((), ())
    files = (*table, *staged)
    upsert = _Upsert(plan, tuple(keys), files, len(table), is_marked)
    if _is_small(staged, DRIVER_KEYS):
        written = _written_of_few(spark, upsert)
    else:
        written = _written_by_tasks(spark, upsert)
    numbers = dict.fromkeys(row["number"] for row in written)
    added = [LakeFile(**row["file"]) for row in written if row["file"] is not None]
    added += [files[number] for number in upsert.staged if number not in numbers]
    removed = tuple(files[number] for number in sorted(numbers) if number < upsert.staged_from)
    return UpsertFiles(tuple(added), removed)


def _is_small(files: Sequence[LakeFile], rows: int) -> bool:
    """Return whether the driver handles these files itself.

    The files must be at most DRIVER_FILES, with at most `rows` rows together.
    """
    return len(files) <= DRIVER_FILES and sum(file.rows for file in files) <= rows


def _written_of_few(spark: SparkSession, upsert: _Upsert) -> list[Row]:
    """Compare keys on the driver; return the files that were written again."""
    import pyarrow as pa

    new = pa.concat_tables([_key_rows(upsert, number) for number in upsert.staged])
    leaving = superseded(pa.concat_tables([new, *_matching(spark, upsert, new)]))
    jobs = _rewrites(upsert, leaving)
    jobs += _unmarked(upsert, {job.number for job in jobs})
    if _is_small([upsert.files[job.number] for job in jobs], DRIVER_ROWS):
        return [row for job in jobs for row in _rewrite(job)]
    return run_tasks(spark, jobs, _rewrite)


def _matching(spark: SparkSession, upsert: _Upsert, new: pa.Table) -> list[pa.Table]:
    """Return the table's rows with the keys of new rows, and possibly rows with other keys."""
    wanted = [new.column(name).unique() for name in key_names(len(upsert.keys))]
    if _is_small(upsert.files[: upsert.staged_from], DRIVER_KEYS):
        return [_key_rows(upsert, number, wanted) for number in range(upsert.staged_from)]
    found = _key_frame(spark, upsert, upsert.staged_from, wanted).toArrow()
    _raise_failure(found.column(_FAILED))
    return [found.drop([_FAILED]).cast(new.schema)]


def _written_by_tasks(spark: SparkSession, upsert: _Upsert) -> list[Row]:
    """Compare keys and write files again in one job; only the new files come to the driver."""
    import pyarrow as pa

    tasks = -(-sum(file.rows for file in upsert.files) // KEYS_PER_TASK)
    leaving = pa.schema([("file", pa.int32()), ("partition", pa.int32()), ("offset", pa.int64())])

    def written(rows: pa.Table) -> Iterator[pa.Table]:
        import pyarrow as pa

        for job in _rewrites(upsert, rows):
            yield from (pa.table({"row": [json.dumps(row)]}) for row in _rewrite(job))

    keys = _key_frame(spark, upsert, len(upsert.files), None)
    by_key = keys.repartition(tasks, *key_names(len(upsert.keys)))
    places = _step(spark, by_key, leaving, lambda rows: [superseded(rows)])
    by_file = places.repartition(tasks, "file")
    found = _step(spark, by_file, pa.schema([("row", pa.string())]), written).toArrow()
    _raise_failure(found.column(_FAILED))
    files: list[Row] = [json.loads(text) for text in found.column("row").to_pylist()]
    known = {row["number"] for row in files}
    return [*files, *run_tasks(spark, _unmarked(upsert, known), _rewrite)]


def _key_frame(
    spark: SparkSession, upsert: _Upsert, files: int, wanted: Sequence[pa.Array] | None
) -> DataFrame:
    """Return the keys and places of the rows of the first `files` files, a task for each file."""
    import pyarrow as pa

    kinds = [upsert.plan.schema.field(name).type for name in upsert.keys]
    keys = zip(key_names(len(kinds)), kinds, strict=True)
    places = zip(PLACE, (pa.int32(), pa.int32(), pa.int64(), pa.bool_()), strict=True)

    def rows(numbers: pa.Table) -> Iterator[pa.Table]:
        for number in numbers.column(0).to_pylist():
            yield _key_rows(upsert, number, wanted)

    numbers = spark.range(0, files, 1, files)
    return _step(spark, numbers, pa.schema([*keys, *places]), rows)


def _step(
    spark: SparkSession,
    frame: DataFrame,
    schema: pa.Schema,
    work: Callable[[pa.Table], Iterable[pa.Table]],
) -> DataFrame:
    """Apply `work` to the rows of each Spark partition, and return the resulting rows.

    The resulting rows have an additional column of failures. If this step or an earlier step fails,
    the task returns only the failure as a row, so that the driver raises one sentence instead of a
    worker's traceback.
    """
    import pyarrow as pa

    whole = schema.append(pa.field(_FAILED, pa.string()))
    serialized = whole.serialize().to_pybytes()

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        columns = pa.ipc.read_schema(pa.py_buffer(serialized))
        held = list(batches)
        if not held:
            return
        rows = pa.Table.from_batches(held)
        failures: list[str] = []
        if _FAILED in rows.column_names:
            failures = rows.column(_FAILED).drop_null().to_pylist()
            rows = rows.drop([_FAILED])
        made: list[pa.Table] = []
        if not failures:
            try:
                made = list(work(rows))
            except TidelogError as error:
                failures = [str(error)]
        for table in made:
            nothing = pa.nulls(table.num_rows, pa.string())
            yield from table.append_column(_FAILED, nothing).cast(columns).to_batches()
        for failure in failures[:1]:
            nulls = [pa.nulls(1, field.type) for field in columns][:-1]
            yield pa.RecordBatch.from_arrays([*nulls, pa.array([failure])], schema=columns)

    from tidelog.spark.plan_schema import frame_schema

    return frame.mapInArrow(shipped(run), frame_schema(whole))


def _raise_failure(failures: pa.ChunkedArray) -> None:
    for failure in failures.drop_null().to_pylist():
        raise UpsertKeyError(failure)


def _rewrites(upsert: _Upsert, leaving: pa.Table) -> list[_Rewrite]:
    """Return the files to write again without the rows that leave the table."""
    files, partitions, offsets = (
        leaving.column(name).to_numpy() for name in ("file", "partition", "offset")
    )
    return [
        _Rewrite(upsert, number, partitions[files == number], offsets[files == number])
        for number in dict.fromkeys(files.tolist())
    ]


def _unmarked(upsert: _Upsert, known: Collection[int]) -> list[_Rewrite]:
    """Return the staged files that are written again only to drop their column of tombstones."""
    import numpy as np

    numbers = upsert.staged if upsert.is_marked else ()
    none = np.array([], np.int32), np.array([], np.int64)
    return [_Rewrite(upsert, number, *none) for number in numbers if number not in known]


def _key_rows(upsert: _Upsert, number: int, wanted: Sequence[pa.Array] | None = None) -> pa.Table:
    """Return keys and places of a file's rows; with `wanted`, only of rows whose keys may match.

    Raises TableError for an unusable file, and UpsertKeyError for a new record without a key.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    file = upsert.files[number]
    mark = None
    with _opened(upsert, file) as opened:
        if number in upsert.staged:
            mark = TOMBSTONE_COLUMN if upsert.is_marked else _nullable_value(opened)
        named = [*upsert.keys, "partition", "offset", *([mark] if mark else [])]
        rows = opened.read(list(dict.fromkeys(named)))
    for name in [each for each in file.values if each in named and each not in rows.column_names]:
        value = pa.scalar(file.values[name], pa.string()).cast(upsert.plan.schema.field(name).type)
        rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
    # Files of other tools may have the same columns in other Arrow types, such as string views.
    keys = [rows.column(name).cast(upsert.plan.schema.field(name).type) for name in upsert.keys]
    for name, column in zip(upsert.keys, keys, strict=True):
        for bad in rows.filter(pc.is_null(column)).slice(0, 1).to_pylist():
            raise UpsertKeyError(
                f"{upsert.plan.topic}-{bad['partition']} at offset {bad['offset']} has no key"
                f" ({name} is null), and an upsert needs one. Nothing was committed"
            )
    if mark is None:
        tombstones = pa.repeat(pa.scalar(False), rows.num_rows)
    else:
        tombstones = rows.column(mark) if upsert.is_marked else pc.is_null(rows.column(mark))
    places = [
        pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows),
        rows.column("partition").cast(pa.int32()),
        rows.column("offset").cast(pa.int64()),
        tombstones,
    ]
    found = pa.table([*keys, *places], names=[*key_names(len(keys)), *PLACE])
    for place, values in enumerate(wanted or ()):
        found = found.filter(pc.is_in(found.column(place), value_set=values))
    return found


def _nullable_value(opened: parquet.ParquetFile) -> str | None:
    """Return "value" if that column may have nulls; None if the file's footer rules out nulls."""
    names = opened.schema_arrow.names
    groups = [opened.metadata.row_group(number) for number in range(opened.num_row_groups)]
    # Each record column before `value` is one Parquet column, so `value` has the same place in the
    # file.
    parts = [group.column(names.index("value")).statistics for group in groups]
    has_none = all(part is not None and part.null_count == 0 for part in parts)
    return None if has_none else "value"


def _rewrite(job: _Rewrite) -> Iterator[Row]:
    """Write a file again without some rows; yield the new files, or None if no row is left.

    There is one new file, or one new file for each topic partition with rows in the old file.
    """
    import numpy as np

    upsert, file = job.upsert, job.upsert.files[job.number]
    files = TaskFiles(upsert.plan)
    leaving = {
        int(partition): np.sort(job.offsets[job.partitions == partition])
        for partition in np.unique(job.partitions)
    }
    dropped = 0
    try:
        with _opened(upsert, file) as opened:
            check_field_ids(opened.schema_arrow, upsert.plan.place.field_ids, file.path)
            for batch in opened.iter_batches():
                rows = in_columns(batch, upsert.plan.schema, file.values)
                kept = rows.filter(_stays(rows, leaving))
                dropped += rows.num_rows - kept.num_rows
                if file.partition < 0:
                    kept = kept.sort_by([("partition", "ascending"), ("offset", "ascending")])
                for partition, part in partitions_of(kept):
                    files.append(partition, part)
        if dropped != len(job.offsets):
            raise TableError(
                f"{upsert.plan.place.store.url(file.path)} has an offset twice;"
                " `tidelog pipeline prove` lists what is wrong with the table"
            )
        found = files.close()
    except BaseException:
        files.abandon()
        raise
    for each in found:
        yield {"number": job.number, "file": asdict(each)}
    if not found:
        yield {"number": job.number, "file": None}


def _stays(rows: pa.RecordBatch, leaving: Mapping[int, npt.NDArray[np.int64]]) -> pa.Array:
    """Return whether each row stays in its file; the rows may be in any order.

    `leaving` has, by partition, the ascending offsets of the rows that leave the file.
    """
    import numpy as np
    import pyarrow as pa

    partitions = rows.column("partition").to_numpy()
    offsets = rows.column("offset").to_numpy()
    stays = np.ones(rows.num_rows, bool)
    for partition in np.unique(partitions).tolist():
        if (gone := leaving.get(partition)) is not None:
            # A search for each row costs less than `isin`, which sorts all offsets for each batch.
            nearest = gone[np.minimum(np.searchsorted(gone, offsets), len(gone) - 1)]
            stays &= (partitions != partition) | (nearest != offsets)
    return pa.array(stays)


@contextmanager
def _opened(upsert: _Upsert, file: LakeFile) -> Iterator[parquet.ParquetFile]:
    """Open a file for a `with` block. Raises TableError for a file that is missing or damaged."""
    import pyarrow as pa
    from pyarrow import parquet

    store = upsert.plan.place.store
    try:
        with (
            store.open().open_input_file(file.path) as source,
            parquet.ParquetFile(source, coerce_int96_timestamp_unit="us") as opened,
        ):
            yield opened
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        is_missing = isinstance(error, FileNotFoundError)
        reason = "is missing" if is_missing else f"cannot be read: {reason_of(error)}"
        raise TableError(
            f"{store.url(file.path)} {reason}. `tidelog pipeline prove` lists what is wrong with"
            " the table"
        ) from error
