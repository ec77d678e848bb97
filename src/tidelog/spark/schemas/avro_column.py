"""Avro records in Confluent's wire format as columns, with fastavro.

The writer's schema comes from the registry, by the id in each record. The reader's schema decides
the columns: the newest schema of a subject when the query is planned, or the text that the caller
gives. Avro resolves the writer's schema to the reader's, so that old and new records of a topic
have the same columns. Records without the wire format are read with `registry=None` and have the
given schema.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelog.core.errors import ConfigError, TidelogError
from tidelog.records.confluent_format import BadRecordError, split_schema_id
from tidelog.runtime.extras import install_command
from tidelog.runtime.schema_registry import (
    RegisteredSchema,
    RegistryError,
    SchemaRegistry,
    UnknownSchemaError,
)
from tidelog.spark.option_values import OptionError
from tidelog.spark.schemas.avro_types import arrow_type_of, without_other_logical_types
from tidelog.spark.schemas.decoded_column import decoded_column

if TYPE_CHECKING:
    from pyspark.sql import Column


def avro_column(
    column: Column | str,
    registry: str | SchemaRegistry | None,
    *,
    subject: str | None = None,
    schema: str | None = None,
    mode: str = "permissive",
) -> Column:
    """Return the Avro records in a column of bytes; `bad_records` describes the modes.

    `registry` is an address. Exactly one of `subject` (such as `flights-value`) and `schema` (the
    reader's schema, as JSON) must be given. Raises OptionError, RegistryError.
    """
    decoder = avro_decoder(registry, subject=subject, schema=schema)
    return decoded_column(column, decoder, mode)


def avro_decoder(
    registry: str | SchemaRegistry | None,
    *,
    subject: str | None = None,
    schema: str | None = None,
) -> AvroDecoder:
    """Return the decoder of `avro_column`."""
    if isinstance(registry, str):
        try:
            registry = SchemaRegistry(registry)
        except ConfigError as error:
            raise OptionError(str(error)) from None
    if (subject is None) == (schema is None):
        raise OptionError("exactly one of subject and schema must be given")
    if schema is not None:
        return AvroDecoder(registry, RegisteredSchema("AVRO", schema))
    if registry is None:
        raise OptionError(f"subject {subject!r} needs a registry; give its address")
    assert subject is not None
    found = registry.latest(subject)
    if found.schema_type != "AVRO":
        raise OptionError(
            f"subject {subject!r} at {registry.url} has a schema of type {found.schema_type},"
            " expected AVRO"
        )
    return AvroDecoder(registry, found)


class AvroDecoder:
    """A decoder of records to a reader's schema; parsed schemas are cached in each process."""

    def __init__(self, registry: SchemaRegistry | None, reader: RegisteredSchema) -> None:
        self._registry = registry
        self._reader = reader
        parsed, named = _parse(reader)
        self._arrow_type = arrow_type_of(parsed, named)
        self._parsed_reader = parsed
        self._writers: dict[int, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroDecoder, (self._registry, self._reader)

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the reader's schema."""
        return self._arrow_type

    def decode(self, data: bytes) -> Any:
        """Return the record in `data`. Raises BadRecordError, RegistryError."""
        import fastavro

        writer, start = self._parsed_reader, 0
        if self._registry is not None:
            schema_id, start = split_schema_id(data)
            writer = self._writers.get(schema_id)
            if writer is None:
                writer = self._writers[schema_id] = self._writer(self._registry, schema_id)
        stream = io.BytesIO(data)
        stream.seek(start)
        reader = None if writer is self._parsed_reader else self._parsed_reader
        try:
            record = fastavro.schemaless_reader(stream, writer, reader)
        except (
            ValueError,
            TypeError,
            LookupError,
            EOFError,
            OverflowError,
            ArithmeticError,
        ) as bad:
            raise BadRecordError(f"a record is not of its Avro schema: {_reason(bad)}") from bad
        except fastavro.read.SchemaResolutionError as bad:
            raise BadRecordError(
                f"the schema of a record does not fit the reader's: {_reason(bad)}"
            ) from bad
        left = len(data) - stream.tell()
        if left:
            raise BadRecordError(f"{left} bytes follow a record of its Avro schema")
        return record

    def _writer(self, registry: SchemaRegistry, schema_id: int) -> Any:
        try:
            found = registry.by_id(schema_id)
        except UnknownSchemaError as error:
            raise BadRecordError(str(error)) from error
        if found.schema_type != "AVRO":
            raise BadRecordError(
                f"schema {schema_id} at {registry.url} is of type {found.schema_type}, not AVRO"
            )
        try:
            parsed = _parse(found)[0]
        except OptionError as error:
            raise RegistryError(f"schema {schema_id} at {registry.url}: {error}") from error
        # Schema resolution takes time, so equal schemas of writer and reader are not resolved.
        return self._parsed_reader if parsed == self._parsed_reader else parsed


def _parse(schema: RegisteredSchema) -> tuple[Any, dict[str, Any]]:
    """Return a schema as fastavro parses it, and its named types. Raises OptionError."""
    try:
        import fastavro
    except ImportError as error:
        raise TidelogError(
            f"Avro needs the package fastavro: {install_command('schemas')}"
        ) from error

    named: dict[str, Any] = {}
    try:
        for each in (*schema.references, schema.text):
            plain = without_other_logical_types(json.loads(each))
            parsed = fastavro.parse_schema(plain, named_schemas=named)
    except (ValueError, TypeError, KeyError, fastavro.schema.SchemaParseException) as error:
        raise OptionError(f"an Avro schema cannot be read: {_reason(error)}") from error
    return parsed, named


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__} {error}".strip()
