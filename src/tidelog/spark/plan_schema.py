"""Schemas with which engines plan queries: Spark's own, and Sail's Arrow schemas.

Sail is a Spark Connect server without Java. Sail gives readers and writers an Arrow schema instead
of a StructType. In Sail, a schema that a source returns as DDL loses its arrays and its time zones,
and a StructType with a timestamp fails.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tidelog.spark.columns import arrow_schema

#: A schema as Spark or Sail gives it.
PlanSchema: TypeAlias = StructType | pa.Schema


class SourceSchema(StructType):
    """The source's columns as Spark's schema, which Sail imports as Arrow's."""

    def __init__(self, columns: Iterable[str]) -> None:
        super().__init__(from_arrow_schema(arrow_schema(columns)).fields)

    @classmethod
    def typeName(cls) -> str:  # noqa: N802 - Spark's name
        """Return the type's name in JSON; Spark would otherwise derive it from the class's name."""
        return StructType.typeName()

    def __arrow_c_schema__(self) -> Any:
        """Return the schema by Arrow's C data interface, which Sail looks for first."""
        return arrow_schema(self.names).__arrow_c_schema__()


def types_of(schema: PlanSchema) -> dict[str, str]:
    """Return the names of Spark's types by column."""
    known = from_arrow_schema(schema) if is_arrow(schema) else schema
    return {field.name: field.dataType.simpleString() for field in known.fields}


def is_arrow(schema: PlanSchema) -> bool:
    """Return whether a schema is Arrow's, which only Sail gives."""
    return isinstance(schema, pa.Schema)


def frame_schema(schema: pa.Schema) -> StructType:
    """Return the schema of a frame of Arrow data; times without time zone stay without one."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)
