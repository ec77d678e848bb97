"""The columns of `format("tidelog")`: the columns of Spark's Kafka connector, or a selection of
them.

Spark's schema is made from Arrow's (`plan_schema`). The reader yields Arrow batches of exactly this
schema: Spark compares names and types and rejects any other schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from tidelog.spark.options import COLUMNS

__all__ = ["COLUMNS", "HEADER_TYPE", "TIMESTAMP_TYPE", "arrow_schema"]

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

TIMESTAMP_TYPE: Final = pa.timestamp("us", tz="UTC")

_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP_TYPE,
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER_TYPE)),
}


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """Return the Arrow schema of the given columns."""
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])
