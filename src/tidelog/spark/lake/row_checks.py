"""Rows that no reader of a table could read: ambiguous partition values, and text that is not
UTF-8.

A user's transform can produce rows that no reader could read; these rows are refused before they
are written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidelog.spark.lake.state import TableError

if TYPE_CHECKING:
    import pyarrow as pa

#: Hive's name for a null in paths.
NULL_NAME: Final = "__HIVE_DEFAULT_PARTITION__"
#: 0001-01-01 in days since 1970; LAST_DAY is 9999-12-31. All readers support the dates in between.
FIRST_DAY: Final = -719_162
LAST_DAY: Final = 2_932_896


def check_rows(
    partition: int, rows: pa.RecordBatch, names: Iterable[str], partition_by: Iterable[str]
) -> None:
    """Raise TableError for a row that readers of the table could not read.

    `partition` is for the message. `names` are the columns of data files, and `partition_by` are
    the columns whose values are in paths.
    """
    by = tuple(partition_by)
    for name in dict.fromkeys([*names, *by]):
        if name in rows.schema.names:
            _check_text(partition, rows, name)
    for name in by:
        if name in rows.schema.names:
            _check_date(partition, rows, name)
            _check_name(partition, rows, name)


def _check_text(partition: int, rows: pa.RecordBatch, name: str) -> None:
    import pyarrow as pa

    column = rows.column(name)
    if "string" not in str(column.type):
        return
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        place = _first_invalid(column)
        if place is None:
            # The invalid text lies outside of this slice, whose buffer Arrow validates as a whole.
            # The check of the slice that has the invalid text reports the text.
            return
        raise TableError(
            f"column {name!r} of {_place(partition, rows, place)} is no text in UTF-8, and readers"
            " would fail; keep it as binary in the transform, or mark the record as bad"
        ) from error


def _first_invalid(column: pa.Array) -> int | None:
    import pyarrow as pa

    for place in range(len(column)):
        try:
            column.take(pa.array([place])).validate(full=True)
        except pa.ArrowInvalid:
            return place
    return None


def _check_date(partition: int, rows: pa.RecordBatch, name: str) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = rows.column(name)
    if not pa.types.is_date32(column.type):
        return
    days = column.cast(pa.int32())
    is_far = pc.or_(pc.less(days, FIRST_DAY), pc.greater(days, LAST_DAY))
    if pc.any(is_far).as_py():
        place = pc.index(is_far, True).as_py()
        raise TableError(
            f"the date in partition column {name!r} of {_place(partition, rows, place)} is outside"
            " the years 1 to 9999, and readers would fail; make it null in the transform"
        )


def _check_name(partition: int, rows: pa.RecordBatch, name: str) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = rows.column(name)
    place = pc.index(column, NULL_NAME).as_py() if pa.types.is_string(column.type) else -1
    if place >= 0:
        raise TableError(
            f"partition column {name!r} of {_place(partition, rows, place)} is {NULL_NAME!r}, which"
            " some readers take for null; change it in the transform"
        )


def _place(partition: int, rows: pa.RecordBatch, place: int) -> str:
    return f"partition {partition}, offset {rows.column('offset')[place].as_py()},"
