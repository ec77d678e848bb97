"""The columns of `format("tidelog")`: those of Spark's Kafka connector, in its order.

One definition for both sides. Spark plans with the DDL, and the reader yields Arrow batches of
exactly this schema: Spark compares names and types and rejects any other.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_DDL: Final = (
    "key binary, value binary, topic string, partition int, offset bigint,"
    " timestamp timestamp, timestampType int"
)
_HEADERS_DDL: Final = ", headers array<struct<key:string,value:binary>>"

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

_FIELDS: Final = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
]

_PLAIN_SCHEMA: Final = pa.schema(_FIELDS)
_HEADERS_SCHEMA: Final = pa.schema(
    [*_FIELDS, pa.field("headers", pa.list_(pa.field("element", HEADER_TYPE)))]
)


def spark_ddl(include_headers: bool) -> str:
    """Return the schema as Spark's DDL."""
    return _DDL + _HEADERS_DDL if include_headers else _DDL


def arrow_schema(include_headers: bool) -> pa.Schema:
    """Return the same schema for Arrow."""
    return _HEADERS_SCHEMA if include_headers else _PLAIN_SCHEMA
