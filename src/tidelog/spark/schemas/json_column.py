"""JSON records as columns, parsed by Spark itself without a Python worker.

A record is bad if it is not JSON, or if a field has another type than the schema requires. Fields
that the schema does not name are left out, and missing fields are null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.spark.option_values import OptionError
from tidelog.spark.schemas.bad_records import is_strict

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

#: A field in which Spark's parser stores the text of a bad record.
_CORRUPT: Final = "__tidelog_corrupt_record"
_SHOWN_CHARACTERS: Final = 100


def json_column(column: Column | str, schema: str | StructType, mode: str = "permissive") -> Column:
    """Return the JSON records in a column of bytes or text; `bad_records` describes the modes.

    `schema` is a DDL such as `carrier string, delay int`, or a StructType.
    """
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names the module
    from pyspark.sql.types import StringType, StructType

    strict = is_strict(mode)
    fields = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(fields, StructType) or not fields.fields:
        raise OptionError(
            f"schema is {schema!r}; expected columns with their types, for example"
            " 'carrier string, delay int'"
        )
    text = (F.col(column) if isinstance(column, str) else column).cast("string")
    read = StructType([*fields.fields]).add(_CORRUPT, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = F.from_json(text, read, options)
    # Spark returns null, without a corrupt text, for a blank record.
    is_bad = text.isNotNull() & (parsed.isNull() | parsed[_CORRUPT].isNotNull())
    error = F.when(
        is_bad,
        F.concat(
            F.lit(f"a record is not JSON of the schema {fields.simpleString()}; it begins with "),
            F.substring(text, 1, _SHOWN_CHARACTERS),
        ),
    )
    columns = [parsed[field.name].alias(field.name) for field in fields.fields]
    record = F.when(text.isNotNull() & ~is_bad, F.struct(*columns))
    if strict:
        return F.when(is_bad, F.raise_error(error).cast(fields)).otherwise(record)
    return F.struct(record.alias("record"), error.alias("error"))
