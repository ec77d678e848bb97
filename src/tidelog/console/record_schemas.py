"""Keys and values of records in Confluent's wire format, decoded with a schema registry.

A record in this format begins with a zero byte and the id of its schema. Avro is decoded by
fastavro and Protobuf by Google's runtime, which are in tidelog's extra "schemas". For Protobuf, the
registry must return the schema as a serialized descriptor, because neither library reads the text
of a `.proto` file. Without a registry, or where decoding fails, a page shows the bytes as hex
together with the reason.
"""

from __future__ import annotations

import base64
import importlib
import io
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.records.confluent_format import BadRecordError, split_message_path, split_schema_id
from tidelog.runtime.extras import install_command
from tidelog.runtime.schema_registry import (
    RegisteredSchema,
    RegistryError,
    SchemaRegistry,
    UnknownSchemaError,
)

#: Time limit in s of a request to the registry, because a viewer waits for it.
_TIMEOUT_S: Final = 3.0
#: Maximum number of bytes of a value that is decoded: a larger value is shown as hex.
MAX_DECODED_BYTES: Final = 1 << 20
_OPTION: Final = "--schema-registry"
#: Google's own files, which schemas import although the registry does not list them as references.
_WELL_KNOWN: Final = ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")

#: A function that returns a record as JSON; its second argument is the position after the id.
_Decode = Callable[[bytes, int], str]


@dataclass(frozen=True, slots=True)
class DecodedValue:
    """A value with a schema: its JSON text, or the reason why it is not decoded."""

    schema_id: int
    #: `avro`, `protobuf` or `json`; empty if the value is not decoded.
    form: str
    text: str
    reason: str


def registry_at(url: str) -> SchemaRegistry:
    """Return the registry at an address; raise ConfigError for a text that is no address."""
    return SchemaRegistry(url, _TIMEOUT_S, keeps_unknown=False)


class SchemaReader:
    """The decoders of one lookup.

    The registry is asked once for each id. After a request that failed, it is not asked again, so
    that a registry that hangs delays a page by one time limit only.
    """

    def __init__(self, registry: SchemaRegistry | None) -> None:
        self._registry = registry
        self._decoders: dict[int, tuple[str, _Decode] | TidelogError] = {}
        self._failed: RegistryError | None = None

    def decoded(self, data: bytes) -> DecodedValue | None:
        """Return a value that looks like Confluent's wire format; None for any other value."""
        try:
            schema_id, start = split_schema_id(data)
        except BadRecordError:
            return None
        if schema_id <= 0:  # registries count from 1
            return None
        if self._registry is None:
            reason = (
                f"it may be a record of schema {schema_id} in Confluent's wire format: start the"
                f" console with {_OPTION} to decode it"
            )
            return DecodedValue(schema_id, "", "", reason)
        if len(data) > MAX_DECODED_BYTES:
            reason = f"it has more than {MAX_DECODED_BYTES:,} bytes, and is not decoded"
            return DecodedValue(schema_id, "", "", reason)
        try:
            form, decode = self._decoder(self._registry, schema_id)
            return DecodedValue(schema_id, form, decode(data, start), "")
        except TidelogError as error:
            return DecodedValue(schema_id, "", "", str(error))

    def _decoder(self, registry: SchemaRegistry, schema_id: int) -> tuple[str, _Decode]:
        found = self._decoders.get(schema_id)
        if found is None:
            found = self._decoders[schema_id] = self._made(registry, schema_id)
        if isinstance(found, TidelogError):
            raise found
        return found

    def _made(self, registry: SchemaRegistry, schema_id: int) -> tuple[str, _Decode] | TidelogError:
        if self._failed is not None:
            return self._failed
        try:
            schema = registry.by_id(schema_id)
            if schema.schema_type == "AVRO":
                return "avro", _avro(schema)
            if schema.schema_type == "PROTOBUF":
                return "protobuf", _protobuf(registry.serialized(schema_id))
            if schema.schema_type == "JSON":
                return "json", _json
            return BadRecordError(f"schema {schema_id} is of type {schema.schema_type!r}")
        except RegistryError as error:
            if not isinstance(error, UnknownSchemaError):
                self._failed = error
            return error
        except TidelogError as error:
            return error


def _avro(schema: RegisteredSchema) -> _Decode:
    """Return the decoder of an Avro schema; raise BadRecordError for any other text."""
    try:
        import fastavro
        from fastavro.schema import SchemaParseException
    except ImportError:
        raise _missing("Avro", "fastavro") from None
    named: dict[str, Any] = {}
    try:
        for each in (*schema.references, schema.text):
            parsed = fastavro.parse_schema(json.loads(each), named_schemas=named)
    except (ValueError, TypeError, LookupError, SchemaParseException, RecursionError) as error:
        raise BadRecordError(f"its Avro schema cannot be read: {_reason(error)}") from error

    def decode(data: bytes, start: int) -> str:
        stream = io.BytesIO(data)
        stream.seek(start)
        try:
            record = fastavro.schemaless_reader(stream, parsed, None)
        except Exception as error:
            # fastavro raises errors of many kinds for bytes that do not fit the schema.
            raise BadRecordError(f"it is not of its Avro schema: {_reason(error)}") from error
        left = len(data) - stream.tell()
        if left:
            raise BadRecordError(f"{left} bytes follow a record of its Avro schema")
        return json.dumps(record, indent=2, ensure_ascii=False, default=_plain)

    return decode


def _plain(value: Any) -> Any:
    """Return text for a value that JSON cannot hold: hex for bytes, else Python's `str`."""
    if isinstance(value, bytes | bytearray):
        return value.hex(" ")
    return str(value)


def _protobuf(schema: RegisteredSchema) -> _Decode:
    """Return the decoder of a serialized Protobuf schema; raise BadRecordError for any other."""
    try:
        from google.protobuf import descriptor_pb2, json_format, message_factory
        from google.protobuf.message import DecodeError
    except ImportError:
        raise _missing("Protobuf", "protobuf") from None
    pool = _pool()
    try:
        for text in (*schema.references, schema.text):
            file = descriptor_pb2.FileDescriptorProto.FromString(
                base64.b64decode(text, validate=True)
            )
            pool.Add(file)
        described = pool.FindFileByName(file.name)
    except (ValueError, TypeError, LookupError, DecodeError) as error:
        raise BadRecordError(
            "its Protobuf schema cannot be used: the registry must return a serialized descriptor"
            f" with all imported files ({_reason(error)})"
        ) from error

    def decode(data: bytes, start: int) -> str:
        path, start = split_message_path(data, start)
        descriptor = _message(described, path)
        try:
            message = message_factory.GetMessageClass(descriptor).FromString(data[start:])
            return str(
                json_format.MessageToJson(
                    message, preserving_proto_field_name=True, ensure_ascii=False
                )
            )
        except (DecodeError, json_format.Error, ValueError, TypeError) as error:
            raise BadRecordError(
                f"it is not of the Protobuf message {descriptor.full_name}: {_reason(error)}"
            ) from error

    return decode


def _pool() -> Any:
    """Return a pool of descriptors with Google's own files, which schemas import."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    for name in _WELL_KNOWN:
        known = importlib.import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR
        file = descriptor_pb2.FileDescriptorProto()
        known.CopyToProto(file)
        pool.Add(file)
    return pool


def _message(file: Any, path: Sequence[int]) -> Any:
    """Return the message type that a record's message indexes name. Raises BadRecordError."""
    # A descriptor keeps messages by name, in the order of the file.
    messages = list(file.message_types_by_name.values())
    found = None
    for index in path:
        if not 0 <= index < len(messages):
            raise BadRecordError(f"its schema has no message with indexes {list(path)}")
        found = messages[index]
        messages = list(found.nested_types)
    return found


def _json(data: bytes, start: int) -> str:
    try:
        return json.dumps(json.loads(data[start:]), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError) as error:
        raise BadRecordError(f"it is no JSON: {_reason(error)}") from error


def _missing(what: str, package: str) -> TidelogError:
    return TidelogError(f"{what} needs the package {package}: {install_command('schemas')}")


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__} {error}".strip()[:300]
