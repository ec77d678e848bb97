"""A ready transform of Debezium's envelopes: change data capture of a database table, for upserts.

A value is an object with `before`, `after` and `op`, alone or as the `payload` beside a `schema`.
The operations r (read by a snapshot), c (create) and u (update) set a row to `after`; d (delete) is
a tombstone. After a delete, Debezium also writes a tombstone: a record with the key and without a
value. A changed key comes as a delete of the old key and a create of the new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.spark.pipelines.latest_rows import BEFORE_COLUMN, TOMBSTONE_COLUMN
from tidelog.spark.pipelines.parsing import (
    OWN_COLUMNS,
    RECORD_COLUMNS,
    fields_of,
    utf8_text,
)
from tidelog.spark.schemas.json_column import parsed_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from tidelog.spark.pipelines.landing import Transform

#: Operations after which the row in the database equals `after`.
_SETTING: Final = ("r", "c", "u")


def debezium_columns(spark: SparkSession, ddl: str) -> Transform:
    """Return a transform of Debezium's JSON envelopes into the columns of `ddl`, for upserts.

    `ddl` names columns of the database's table, such as `id long, name string`; a row gets their
    values in `after`. The row of a delete or tombstone gets the values in the record's JSON key, or
    else in `before`. Other operations, such as t (truncate), are bad records. A value that Debezium
    does not have, such as an unchanged TOAST column of PostgreSQL, is its placeholder
    `__debezium_unavailable_value`. BEFORE_COLUMN has the row before an update; no table gets this
    column. Raises OptionError for an invalid `ddl`, and if `ddl` names a column that the transform
    itself makes: one of OWN_COLUMNS (such as `offset`), `tombstone` or BEFORE_COLUMN.
    """
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names it
    from pyspark.sql.types import StringType, StructType

    row = fields_of(ddl, (*OWN_COLUMNS, TOMBSTONE_COLUMN, BEFORE_COLUMN))
    envelope = StructType().add("before", row).add("after", row).add("op", StringType())
    # The fields of both forms of a value: an envelope alone, and an envelope as `payload`.
    both = StructType([*envelope.fields]).add("payload", envelope)

    def transform(frame: DataFrame) -> DataFrame:
        value = parsed_json(utf8_text(F.col("value")), both)
        key = utf8_text(F.col("key"))
        op = F.coalesce(F.col("_value.op"), F.col("_value.payload.op"))
        is_delete = F.col("value").isNull() | F.coalesce(op == "d", F.lit(False))
        inner_key = F.from_json(key, StructType().add("payload", row))["payload"]
        parsed = frame.select(*RECORD_COLUMNS, value.alias("_value")).select(
            *RECORD_COLUMNS,
            "_value",
            F.when(is_delete, F.from_json(key, row)).alias("_key"),  # only deletes need the key
            F.when(is_delete, inner_key).alias("_inner_key"),
        )
        columns = []
        for name in row.names:
            after, before = (
                F.coalesce(_field("_value", image, name), _field("_value", "payload", image, name))
                for image in ("after", "before")
            )
            of_key = F.coalesce(_field("_inner_key", name), _field("_key", name), before)
            columns.append(F.when(is_delete, of_key).otherwise(after).alias(name))
        has_row = F.coalesce(F.col("_value.after"), F.col("_value.payload.after")).isNotNull()
        no_envelope = f"the value is no envelope of Debezium with {ddl}"
        error = (
            F.when(F.col("value").isNull(), F.lit(None))
            .when(utf8_text(F.col("value")).isNull(), F.lit("the value is no UTF-8"))
            .when(op.isNull(), F.lit(no_envelope))
            .when(op == "t", F.lit("op t truncates the database's table, which no upsert does"))
            .when(~op.isin(*_SETTING, "d"), F.concat(F.lit("op "), op, F.lit(" changes no row")))
            .when(~is_delete & ~has_row, F.concat(F.lit("op "), op, F.lit(" has no after")))
        )
        before = F.coalesce(F.col("_value.before"), F.col("_value.payload.before"))
        marks = (
            is_delete.alias(TOMBSTONE_COLUMN),
            error.alias("error"),
            F.when(op == "u", before).alias(BEFORE_COLUMN),
        )
        return parsed.select(*RECORD_COLUMNS, *columns, *marks)

    return transform


def _field(column: str, *names: str) -> Column:
    """Return a field of a column of structs, by names that may have dots."""
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names it

    found = F.col(column)
    for name in names:
        found = found.getField(name)
    return found
