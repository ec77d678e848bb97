"""JSON records as columns, parsed by Spark itself without a Python worker.

A record is bad if it is not one JSON object, or if a field has another type than the schema
requires. Fields that the schema does not name are left out, and missing fields are null.

Spark's parser ends with the first JSON value of a text and ignores the rest, as in
`{"delay": 1} {"delay": 2}`. A record with such a rest is not JSON, so it is bad, too.
"""

from __future__ import annotations

import secrets
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
    parsed = parsed_json(text, fields)
    is_bad = text.isNotNull() & parsed.isNull()
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


def parsed_json(text: Column, fields: StructType) -> Column:
    """Return structs that have `fields`; null for a bad record, and for null.

    Spark parses the record as the first element of an array, `{"K": [record, {"K": 0}]}`, with a
    random key K that no record has. If the array has not just these two elements, the text of the
    record is more or less than one JSON value.

    Sail's parser treats a bad record like a record whose fields are null. The query therefore first
    parses a text that is certainly bad, and fails if the engine's parser accepts this text. Spark
    makes this check once, when it plans the query.
    """
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names the module
    from pyspark.sql.types import ArrayType, IntegerType, StringType, StructType

    key = f"key-{secrets.token_hex(8)}"
    elements = ArrayType(StructType([*fields.fields]).add(key, IntegerType()))
    schema = StructType().add(key, elements).add(_CORRUPT, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    is_silent = F.from_json(F.lit("["), schema, options)[_CORRUPT].isNull()
    failure = F.raise_error(F.lit(_SILENT_PARSER)).cast("string")
    framed = F.concat(F.lit(f'{{"{key}":['), text, F.lit(f',{{"{key}":0}}]}}'))
    parsed = F.from_json(F.when(is_silent, failure).otherwise(framed), schema, options)
    found = parsed[key]
    has_end = (F.size(found) == 2) & F.get(found, F.lit(1))[key].isNotNull()
    return F.when(parsed[_CORRUPT].isNull() & has_end, F.get(found, F.lit(0)))
