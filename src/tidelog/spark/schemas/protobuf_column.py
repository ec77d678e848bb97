"""Protobuf records as columns, decoded by descriptor with Google's runtime.

The message is a generated class, or a name in a descriptor set (`protoc --include_imports
--descriptor_set_out`). Records are in Confluent's wire format unless `framed=False`. The decoder
does not query the registry, whose Protobuf schemas are text, for which this package has no parser.
The decoder only compares the message indexes of each record with the place of the message in its
`.proto` file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelog.core.errors import TidelogError
from tidelog.records.confluent_format import (
    BadRecordError,
    split_message_path,
    split_schema_id,
)
from tidelog.runtime.extras import install_command
from tidelog.spark.option_values import OptionError
from tidelog.spark.schemas.decoded_column import decoded_column
from tidelog.spark.schemas.protobuf_types import message_getter, message_type

if TYPE_CHECKING:
    from pyspark.sql import Column


def protobuf_column(
    column: Column | str,
    message: Any,
    *,
    descriptors: bytes | None = None,
    framed: bool = True,
    mode: str = "permissive",
) -> Column:
    """Return the Protobuf records in a column of bytes; `bad_records` describes the modes.

    `message` is a generated class, or a full name such as `flights.Flight` with `descriptors`, the
    bytes of a descriptor set. Raises OptionError.
    """
    decoder = protobuf_decoder(message, descriptors=descriptors, framed=framed)
    return decoded_column(column, decoder, mode)


def protobuf_decoder(
    message: Any, *, descriptors: bytes | None = None, framed: bool = True
) -> ProtobufDecoder:
    """Return the decoder of `protobuf_column`."""
    _need_protobuf()
    if not isinstance(message, str):
        if descriptors is not None:
            raise OptionError("descriptors are for a message by name; a class has its own")
        return ProtobufDecoder(
            _descriptor_set(message.DESCRIPTOR), message.DESCRIPTOR.full_name, framed
        )
    if descriptors is None:
        raise OptionError(
            f"message {message!r} is a name; give descriptors, the bytes of a descriptor set, too"
        )
    return ProtobufDecoder(descriptors, message, framed)


class ProtobufDecoder:
    """A decoder of records of one message type."""

    def __init__(self, descriptors: bytes, name: str, framed: bool) -> None:
        self._arguments = (descriptors, name, framed)
        descriptor = _find(descriptors, name)
        self._name = name
        self._framed = framed
        self._path = _path_of(descriptor)
        self._arrow_type = message_type(descriptor)
        self._getter = message_getter(descriptor)
        self._class = _class_of(descriptor)

    def __reduce__(self) -> tuple[Any, ...]:
        return ProtobufDecoder, self._arguments

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the message."""
        return self._arrow_type

    def decode(self, data: bytes) -> Any:
        """Return the record in `data`. Raises BadRecordError."""
        from google.protobuf.message import DecodeError

        start = 0
        if self._framed:
            _, start = split_schema_id(data)
            path, start = split_message_path(data, start)
            if path != self._path:
                raise BadRecordError(
                    f"a record is of the message with indexes {list(path)} in its schema; message"
                    f" {self._name} has {list(self._path)}"
                )
        try:
            message = self._class.FromString(data[start:])
            return self._getter(message)
        except (DecodeError, OverflowError) as error:
            raise BadRecordError(
                f"a record is not of the Protobuf message {self._name}: {error}"
            ) from error


def _need_protobuf() -> None:
    try:
        import google.protobuf  # noqa: F401 - whether it is there
    except ImportError as error:
        raise TidelogError(
            f"Protobuf needs the package protobuf: {install_command('schemas')}"
        ) from error


def _find(descriptors: bytes, name: str) -> Any:
    """Return the descriptor of a message in a descriptor set. Raises OptionError."""
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError

    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
        for file in files.file:
            pool.Add(file)
    except (DecodeError, TypeError) as error:
        raise OptionError(
            f"descriptors are not a descriptor set ({error}); make one with protoc"
            " --include_imports --descriptor_set_out=FILE"
        ) from error
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError as error:
        names = ", ".join(
            f"{file.package}.{each.name}".lstrip(".")
            for file in files.file
            for each in file.message_type
        )
        raise OptionError(
            f"message {name!r} is not in the descriptors, which have {names or 'none'}"
        ) from error


def _class_of(descriptor: Any) -> Any:
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(descriptor)


def _path_of(descriptor: Any) -> tuple[int, ...]:
    """Return the indexes of a message in its file, in the form of Confluent's wire format."""
    if descriptor.containing_type is not None:
        siblings = [each.full_name for each in descriptor.containing_type.nested_types]
        outer = _path_of(descriptor.containing_type)
    else:
        siblings = [each.full_name for each in descriptor.file.message_types_by_name.values()]
        outer = ()
    return (*outer, siblings.index(descriptor.full_name))


def _descriptor_set(descriptor: Any) -> bytes:
    """Return a serialized FileDescriptorSet: a message's `.proto` file and the imported files."""
    from google.protobuf import descriptor_pb2

    found = descriptor_pb2.FileDescriptorSet()
    seen: set[str] = set()

    def add(file: Any) -> None:
        if file.name in seen:
            return
        seen.add(file.name)
        for imported in file.dependencies:
            add(imported)
        file.CopyToProto(found.file.add())

    add(descriptor.file)
    data: bytes = found.SerializeToString()
    return data
