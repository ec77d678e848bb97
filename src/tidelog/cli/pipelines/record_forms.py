"""Options for the form of a topic's records: how values become columns, and the key columns.

Ingests and proofs of tables with the latest row of each key share these parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.core.dataclass import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.pipelines.landing import Transform

JsonOption = Annotated[
    str | None,
    typer.Option("--json", help="Parse values as JSON objects: 'carrier string, distance long'."),
]
DebeziumOption = Annotated[
    str | None,
    typer.Option(
        "--debezium", help="Parse Debezium's JSON envelopes of rows: 'id long, name string'."
    ),
]
UpsertOption = Annotated[
    bool, typer.Option("--upsert", help="Keep the latest row of each key; tombstones delete.")
]
KeyOption = Annotated[
    str | None,
    typer.Option("--key", help="With --upsert: columns of the key, with commas; the record's key."),
]


@dataclass(frozen=True, slots=True)
class RecordForm:
    """How `tidelog pipeline` turns records into rows, and the key columns of a table of latest
    rows.
    """

    json: str | None = None
    debezium: str | None = None
    #: Columns of the key; empty for a table with a row for each record.
    keys: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, json: str | None, debezium: str | None, key: str | None, *, upsert: bool
    ) -> RecordForm:
        """Return the form that options select; raise BadParameter if options exclude each other."""
        if key is not None and not upsert:
            raise typer.BadParameter("--key belongs to --upsert")
        if debezium is not None and not upsert:
            raise typer.BadParameter("--debezium needs --upsert: its records change rows")
        if debezium is not None and json is not None:
            raise typer.BadParameter("--debezium and --json exclude each other")
        keys = tuple(name.strip() for name in (key or "key").split(","))
        return cls(json, debezium, keys if upsert else ())

    @property
    def is_raw(self) -> bool:
        """Whether rows have the columns of records, unchanged."""
        return self.json is None and self.debezium is None

    @property
    def without(self) -> tuple[str, ...]:
        """Columns of records that the table omits: key and value, if values are parsed."""
        parsed = () if self.is_raw else ("key", "value")
        return tuple(name for name in parsed if name not in self.keys)

    def transform(self, spark: SparkSession) -> Transform | None:
        """Return the transform of records into rows. Raises OptionError."""
        from tidelog.spark.pipelines.debezium import debezium_columns
        from tidelog.spark.pipelines.parsing import json_columns

        if self.debezium is not None:
            return debezium_columns(spark, self.debezium)
        if self.json is not None:
            return json_columns(spark, self.json, tombstones=bool(self.keys))
        return None
