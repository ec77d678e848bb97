"""Ready transforms, which parse values into columns and give reasons for bad records.

The command line uses the transforms; they are also examples for users.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from tidelog.spark.options import OptionError
from tidelog.spark.pipelines.latest_rows import TOMBSTONE_COLUMN
from tidelog.spark.schemas.json_column import parsed_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tidelog.spark.pipelines.landing import Transform

#: Columns of records that the transforms keep.
RECORD_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value")
#: Columns that the transforms themselves make, so that a user's DDL must not name them.
OWN_COLUMNS: Final = (*RECORD_COLUMNS, "error")


def json_columns(spark: SparkSession, ddl: str, *, tombstones: bool = False) -> Transform:
    """Return a transform that parses values as JSON objects with the columns of `ddl`.

    `ddl` is like `carrier string, distance long`. With `tombstones`, a record without a value is a
    tombstone instead of a bad record. A tombstone has the columns of its key, if the key is a JSON
    object. Raises OptionError for an invalid `ddl`, and if `ddl` names a column that the transform
    itself makes: one of OWN_COLUMNS, or `tombstone` with `tombstones`.
    """
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names it

    fields = fields_of(ddl, (*OWN_COLUMNS, TOMBSTONE_COLUMN) if tombstones else OWN_COLUMNS)

    def transform(frame: DataFrame) -> DataFrame:
        source = F.coalesce("value", "key") if tombstones else F.col("value")
        # Spark would replace bytes that are not UTF-8, and two keys could become equal.
        text = utf8_text(source)
        parsed = frame.withColumn("_parsed", parsed_json(text, fields))
        without = None if tombstones else "the record has no value"
        error = (
            F.when(F.col("value").isNull(), F.lit(without))
            .when(utf8_text(F.col("value")).isNull(), F.lit("the value is no UTF-8"))
            .when(F.col("_parsed").isNull(), F.lit(f"the value is no JSON object with {ddl}"))
        )
        return parsed.select(
            *RECORD_COLUMNS,
            *[F.col("_parsed").getField(name).alias(name) for name in fields.names],
            *([F.col("value").isNull().alias(TOMBSTONE_COLUMN)] if tombstones else []),
            error.alias("error"),
        )

    return transform


def utf8_text(column: Column) -> Column:
    """Return bytes as text; null if the bytes are not UTF-8."""
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names it

    text = column.cast("string")
    return F.when(F.is_valid_utf8(text), text)


def fields_of(ddl: str, own: Collection[str]) -> StructType:
    """Return the columns of a DDL. Raises OptionError, also for a name that is in `own`."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        fields = StructType.fromDDL(ddl)
        if not isinstance(fields, StructType) or not fields.names:
            raise OptionError(f"columns {ddl!r} are not like 'carrier string, distance long'")
    except PySparkException as error:
        # Spark's message for a syntax error begins with an empty line.
        reason = next((line for line in str(error).splitlines() if line.strip()), "no DDL")
        raise OptionError(
            f"columns {ddl!r} are not like 'carrier string, distance long': {reason}"
        ) from error
    taken = [name for name in fields.names if name in own]
    if taken:
        raise OptionError(
            f"columns {ddl!r}: the table has a column {taken[0]!r} of its own; choose another name"
        )
    lowered = [name.lower() for name in fields.names]
    twice = [name for name in fields.names if lowered.count(name.lower()) > 1]
    if twice:
        raise OptionError(
            f"columns {ddl!r} have {twice[0]!r} twice; Spark ignores the case of names"
        )
    return fields
