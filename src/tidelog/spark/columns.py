"""The columns of `format("tidelog")`, which are those of Spark's Kafka connector, all or some.

Spark and Arrow use the same definition of the columns. Spark plans with the DDL, and the reader
yields Arrow batches of exactly this schema: Spark compares names and types and rejects any other
schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from tidelog.spark.options import COLUMNS

__all__ = ["COLUMNS", "HEADER_TYPE", "TIMESTAMP_TYPE", "arrow_schema", "spark_ddl"]

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

TIMESTAMP_TYPE: Final = pa.timestamp("us", tz="UTC")

#: Types by column, for Spark and for Arrow.
_TYPES: Final = {
    "key": ("binary", pa.binary()),
    "value": ("binary", pa.binary()),
    "topic": ("string", pa.string()),
    "partition": ("int", pa.int32()),
    "offset": ("bigint", pa.int64()),
    "timestamp": ("timestamp", TIMESTAMP_TYPE),
    "timestampType": ("int", pa.int32()),
    "headers": (
        "array<struct<key:string,value:binary>>",
        pa.list_(pa.field("element", HEADER_TYPE)),
    ),
}


def spark_ddl(columns: Iterable[str]) -> str:
    """Return the schema of the given columns as Spark's DDL."""
    return ", ".join(f"{name} {_TYPES[name][0]}" for name in columns)


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """Return the Arrow schema of the given columns."""
    return pa.schema([pa.field(name, _TYPES[name][1]) for name in columns])
