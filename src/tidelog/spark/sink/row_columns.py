"""The columns that the sink reads: their presence and types, and their Arrow arrays.

The driver checks the schema before a task starts. The rules are those of Spark's Kafka connector:
`value` is required, `key`, `topic`, `partition` and `headers` are optional, and all other columns
are ignored. The task checks the values of rows (a null topic, a partition that does not exist).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError
from tidelog.spark.sink.settings import SinkSettings

_BYTES: Final = ("string", "binary")
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_TYPES: Final = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": ("string",),
    "partition": ("int",),
    "headers": (_HEADERS,),
}
_TIMES: Final = ("timestamp",)


class SinkError(ConfigError):
    """The error for rows or a schema that cannot be written; the message names the column or the
    row.
    """


def check_columns(types: Mapping[str, str], settings: SinkSettings) -> None:
    """Raise SinkError unless the sink can write rows of the given columns.

    `types` are the names of Spark's types, by the column's name.
    """
    if "value" not in types:
        raise SinkError(
            f"column value is required, and the columns are {_listed(types)}; for example"
            " df.selectExpr('to_json(struct(*)) as value')"
        )
    if settings.topic is None and "topic" not in types:
        raise SinkError(
            f"no topic is named: set the option topic, or add a column topic to {_listed(types)}"
        )
    wanted = dict(_TYPES)
    if settings.timestamps_from_column:
        if "timestamp" not in types:
            raise SinkError(
                "option tidelog.timestamps is column, and there is no column timestamp in"
                f" {_listed(types)}"
            )
        wanted["timestamp"] = _TIMES
    for name, allowed in wanted.items():
        if (
            name in types
            and types[name] not in allowed
            and not (name == "topic" and settings.topic is not None)
        ):
            raise SinkError(
                f"column {name} is of type {types[name]}; expected {' or '.join(allowed)}"
            )


def _listed(types: Mapping[str, str]) -> str:
    return ", ".join(types) or "none"


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The rows of one chunk; all arrays have the same length, and none is sliced."""

    count: int
    #: Place of the chunk's first row among the rows of its task.
    first_row: int
    keys: pa.BinaryArray | None
    values: pa.BinaryArray
    topics: pa.StringArray | None
    partitions: pa.Int32Array | None
    headers: pa.ListArray | None
    timestamps: pa.TimestampArray | None


def columns_of(
    batches: Sequence[pa.RecordBatch], first_row: int, settings: SinkSettings
) -> RowColumns:
    """Return the sink's columns of Arrow batches, with strings as bytes."""
    names = batches[0].schema.names

    def column(name: str, kind: pa.DataType | None = None) -> pa.Array | None:
        if name not in names:
            return None
        place = names.index(name)
        joined = pa.concat_arrays([batch.column(place) for batch in batches])
        return joined if kind is None or joined.type == kind else pc.cast(joined, kind)

    values = column("value", pa.binary())
    assert values is not None, "the schema was checked on the driver"
    return RowColumns(
        count=len(values),
        first_row=first_row,
        keys=column("key", pa.binary()),
        values=values,
        topics=None if settings.topic is not None else column("topic", pa.string()),
        partitions=column("partition", pa.int32()),
        headers=column("headers"),
        timestamps=(
            column("timestamp", pa.timestamp("us", tz="UTC"))
            if settings.timestamps_from_column
            else None
        ),
    )
