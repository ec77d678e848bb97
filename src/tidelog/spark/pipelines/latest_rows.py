"""The latest row of each key: finds the rows that later records of the same keys replace.

A row is identified by its file, its partition and its offset. Within a partition, a record
replaces all earlier records of its key; a tombstone leaves no row. Offsets of two partitions have
no order, so a key must not be in two partitions. The module uses Arrow and numpy, not Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from tidelog.core.errors import TidelogError
from tidelog.spark.lake.state import TableError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

#: The column with which a transform marks a row as a tombstone, which deletes the row's key.
TOMBSTONE_COLUMN: Final = "tombstone"
#: A struct of a row's former columns, with which a transform shows that an update changes a key. No
#: table gets this column.
BEFORE_COLUMN: Final = "_tidelog_before"
#: Columns that say where a row lies (file, partition, offset) and whether it is a tombstone, beside
#: the columns of its key (`key_names`).
PLACE: Final = ("file", "partition", "offset", "tombstone")


class UpsertKeyError(TidelogError):
    """The error for records whose keys do not fit an upsert; nothing was committed."""


def check_key(schema: pa.Schema, keys: Sequence[str]) -> None:
    """Raise TableError for a key of columns that the table lacks, or that cannot be compared."""
    import pyarrow as pa

    for name in keys:
        if name not in schema.names:
            raise TableError(
                f"the key's column {name!r} is no column of the table, which has"
                f" {', '.join(schema.names)}"
            )
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind):
            raise TableError(
                f"the key's column {name!r} is {kind}: a key is of texts, bytes, whole numbers,"
                " decimals, dates or times"
            )


def key_names(count: int) -> list[str]:
    """Return this module's own names for a key's columns, which no column of a user has."""
    return [f"k{number}" for number in range(count)]


def superseded(rows: pa.Table) -> pa.Table:
    """Return the places (`file`, `partition`, `offset`) of the rows that leave the table.

    The rows that leave are the rows with a later row of the same key, and all tombstones. `rows`
    has the columns of PLACE and at least one key column; key columns have no nulls. Raises
    UpsertKeyError for a key in two partitions.
    """
    import numpy as np
    import pyarrow as pa

    if rows.num_rows == 0:
        return rows.select(list(PLACE[:3]))
    names = [name for name in rows.column_names if name not in PLACE]
    files, partitions, offsets, tombstones = (
        rows.column(name).to_numpy(zero_copy_only=False) for name in PLACE
    )
    codes = _codes(rows.select(names))
    order = np.lexsort((offsets, codes))[::-1]
    sorted_codes, sorted_partitions = codes[order], partitions[order]
    is_same = np.concatenate(([False], sorted_codes[1:] == sorted_codes[:-1]))
    moves = np.concatenate(([False], sorted_partitions[1:] != sorted_partitions[:-1]))
    split = np.flatnonzero(is_same & moves)
    if len(split):
        pair = rows.take(order[[split[0] - 1, split[0]]]).to_pylist()
        first, second = sorted(pair, key=itemgetter("partition"))
        raise UpsertKeyError(_two_partitions([first[name] for name in names], first, second))
    leaving = order[is_same | tombstones[order]]
    places = (files[leaving], partitions[leaving], offsets[leaving])
    return pa.table(dict(zip(PLACE[:3], places, strict=True)))


def _codes(keys: pa.Table) -> npt.NDArray[np.int64]:
    """Return a number for each row; rows have the same number if their keys are equal."""
    import numpy as np
    import pyarrow.compute as pc

    codes: npt.NDArray[np.int64] | None = None
    for column in keys.columns:
        encoded = pc.dictionary_encode(column.combine_chunks())
        numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if codes is not None:
            # Renumber the codes before each product. Both factors are then at most the number of
            # rows, and no product reaches 2**63.
            _, codes = np.unique(codes, return_inverse=True)
            numbers = codes.astype(np.int64) * len(encoded.dictionary) + numbers
        codes = numbers
    assert codes is not None
    return codes


def _two_partitions(key: list[Any], first: dict[str, Any], second: dict[str, Any]) -> str:
    shown = ", ".join(repr(value) for value in key)
    return (
        f"key {shown} is in partitions {first['partition']} (offset {first['offset']}) and"
        f" {second['partition']} (offset {second['offset']}): their offsets have no order. An"
        " upsert needs each key in one partition; partitions were added to the topic, or producers"
        " choose them differently. Nothing was committed"
    )
