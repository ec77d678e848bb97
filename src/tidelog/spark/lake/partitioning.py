"""Partition columns of a table: the permitted columns, and their values in rows and paths.

All rows of a data file have the same value in each partition column. Values are text here, as
Delta's log has them. For Delta an empty text is null. If a run has no column `day`, the column is
derived: the day, in UTC, of the record's timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from tidelog.spark.lake.row_checks import FIRST_DAY, LAST_DAY, NULL_NAME
from tidelog.spark.lake.state import TableError

if TYPE_CHECKING:
    import pyarrow as pa

#: Name of the partition column that tidelog derives: the day of the column TIMESTAMP.
DAY: Final = "day"
TIMESTAMP: Final = "timestamp"
#: Characters that a partition column's name must not have: some readers misread paths with them.
_SIGNS: Final = '/=%\\?#"{}'
#: Maximum length in bytes of `COLUMN=VALUE` in paths: the limit of file systems for names.
_PATH_BYTES: Final = 255

Values = Mapping[str, str | None]


def derives_day(names: Sequence[str], partition_by: Sequence[str]) -> bool:
    """Return whether rows of these columns get the column `day`."""
    return DAY in partition_by and DAY not in names


def with_partitions(schema: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
    """Return a run's columns, with the derived column `day` if it is a partition column.

    Raises TableError for a column that cannot be a partition column.
    """
    import pyarrow as pa

    if derives_day(schema.names, partition_by):
        schema = schema.append(pa.field(DAY, pa.date32()))
    for name in partition_by:
        if name in schema.names:
            _check_type(name, schema.field(name).type)
    return schema


def check_new(schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Raise TableError unless a new table of these columns can have the partition columns."""
    for name in partition_by:
        if name not in schema.names:
            raise TableError(
                f"no column {name!r} to partition the table by; its columns are"
                f" {', '.join(schema.names)}, and {DAY!r} is the day of the timestamp"
            )


def check_same(where: str, held: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise TableError if a run wants other partition columns than a table has."""
    if wanted and tuple(wanted) != tuple(held):
        has = f"partitioned by {', '.join(held)}" if held else "not partitioned"
        raise TableError(
            f"{where} is {has}, and this run asks for {', '.join(wanted)}: a table keeps its"
            " partition columns; leave out the option, or ingest to another table"
        )


def _check_type(name: str, kind: pa.DataType) -> None:
    import pyarrow as pa

    tests = (pa.types.is_string, pa.types.is_integer, pa.types.is_date32, pa.types.is_boolean)
    if name == "offset":
        raise TableError("a table is not partitioned by 'offset': each record would be a file")
    if any(sign in name for sign in _SIGNS):
        raise TableError(
            f"column {name!r} partitions no table, as readers seek its name in paths; rename it in"
            " the transform"
        )
    if not any(test(kind) for test in tests):
        raise TableError(
            f"column {name!r} is {kind}, and a table is partitioned by text, whole numbers, dates"
            " or booleans; cast it in the transform"
        )


def by_values(
    rows: pa.RecordBatch, names: Sequence[str], *, empty_is_null: bool = True
) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """Yield (partition values, rows) for each combination, in order of first occurrence."""
    import numpy as np
    import pyarrow as pa

    columns = [_texts(rows, name, empty_is_null=empty_is_null) for name in names]
    codes = np.zeros(rows.num_rows, np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        numbers = encoded.indices.to_numpy(zero_copy_only=False)
        codes = codes * len(encoded.dictionary) + numbers
        codes = np.unique(codes, return_inverse=True)[1]  # renumbered, so products stay small
    _, firsts, counts = np.unique(codes, return_index=True, return_counts=True)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(counts)
    for place in np.argsort(firsts):
        taken = order[ends[place] - counts[place] : ends[place]]
        part = rows if len(counts) == 1 else rows.take(pa.array(taken))
        yield tuple(column[int(firsts[place])].as_py() for column in columns), part


def _texts(rows: pa.RecordBatch, name: str, *, empty_is_null: bool) -> pa.Array:
    """Return a column's values as Delta's text; nulls for a column that the rows lack."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if name not in rows.schema.names:
        return pa.nulls(rows.num_rows, pa.string())
    texts = rows.column(name).cast(pa.string())
    if not empty_is_null:
        return texts
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def with_day(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with the column `day`, derived from their timestamps.

    The day is null for a timestamp outside the years 1 to 9999, because readers have no such days.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    times = rows.column(TIMESTAMP).cast(pa.timestamp("us", "UTC"))
    days = times.cast(pa.date32())
    numbers = days.cast(pa.int32())
    is_near = pc.and_(pc.greater_equal(numbers, FIRST_DAY), pc.less_equal(numbers, LAST_DAY))
    return rows.append_column(DAY, pc.if_else(is_near, days, pa.scalar(None, pa.date32())))


def folder_of_values(values: Values) -> str:
    """Return a file's folders below the folder of its run, such as `day=2026-01-02/`.

    Some readers take a file's partition values from its path instead of the table's log. Raises
    TableError for a value that is too long.
    """
    folders = []
    for name, value in values.items():
        folder = f"{name}={NULL_NAME if value is None else quote(value, safe='')}"
        if len(folder.encode()) > _PATH_BYTES:
            raise TableError(
                f"a value of {name!r} is too long for a partition column: {folder[:80]}... has"
                f" {len(folder.encode())} bytes in a path, of {_PATH_BYTES} at most; partition by"
                " another column"
            )
        folders.append(f"{folder}/")
    return "".join(folders)
