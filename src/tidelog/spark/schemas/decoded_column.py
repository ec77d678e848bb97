"""A decoder of records as a column function of Spark: an Arrow UDF that handles many rows per call.

This module decides the type of the column. The module depends on Spark and on no format: decoders
come from `avro_column` and `protobuf_column`. Spark pickles the decoder and sends it to each task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelog.spark.schemas.bad_records import (
    RecordDecoder,
    decode_column,
    is_strict,
    result_type,
)
from tidelog.spark.shipping import shipped

if TYPE_CHECKING:
    from pyspark.sql import Column


def decoded_column(column: Column | str, decoder: RecordDecoder, mode: str) -> Column:
    """Return the records in a column of bytes; `bad_records` describes the modes."""
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.pandas.types import from_arrow_type

    from tidelog.spark.worker_errors import sentence_first

    strict = is_strict(mode)
    arrow_type = decoder.arrow_type if strict else result_type(decoder.arrow_type)

    def decode(values: pa.Array) -> pa.Array:
        with sentence_first():
            return decode_column(values, decoder, strict=strict)

    udf: Any = arrow_udf(shipped(decode), from_arrow_type(arrow_type))  # type: ignore[call-overload]
    result: Column = udf(column)
    return result
