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
_SILENT_PARSER: Final = (
    "from_json of this engine does not report bad records (Sail), which would become rows of nulls:"
    " parse the values with Spark, or with from_json itself if all records are JSON of the schema"
)


def json_column(column: Column | str, schema: str | StructType, mode: str = "permissive") -> Column:
    """Return the JSON records in a column of bytes or text; `bad_records` describes the modes.

    `schema` is a DDL such as `carrier string, delay int`, or a StructType.
    """
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names the module
    from pyspark.sql.types import StructType

    strict = is_strict(mode)
    fields = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(fields, StructType) or not fields.fields:
        raise OptionError(
            f"schema is {schema!r}; expected columns with their types, for example"
            " 'carrier string, delay int'"
        )
    text = (F.col(column) if isinstance(column, str) else column).cast("string")
    parsed = parsed_json(text, fields, _CORRUPT)
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


def parsed_json(text: Column, fields: StructType, corrupt: str) -> Column:
    """Return structs of `fields`, and of a field `corrupt` that has the text of a bad record.

    Sail's parser treats a bad record like a record whose fields are null. The query therefore first
    parses a text that is certainly bad, and fails if the engine's parser accepts this text. Spark
    makes this check once, when it plans the query.
    """
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names the module
    from pyspark.sql.types import StringType, StructType

    schema = StructType([*fields.fields]).add(corrupt, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": corrupt}
    is_silent = F.from_json(F.lit("["), schema, options)[corrupt].isNull()
    failure = F.raise_error(F.lit(_SILENT_PARSER)).cast("string")
    return F.from_json(F.when(is_silent, failure).otherwise(text), schema, options)
