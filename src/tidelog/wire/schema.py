"""Declarations of messages: the fields of structs, with types and versions.

A message is a `@dataclass(slots=True)` whose fields the functions below declare. One class declares
all versions of a message, and the codecs of a version are generated from the declarations
(`decoding.py`, `encoding.py`). This module handles no bytes and no API keys. Versions are written
as in Kafka: "3+" means 3 and above, "0-12" includes both ends, "5" means only 5. A field with a tag
is in the tagged section of all its versions, which must be flexible. Structs that are usually
absent, such as tagged structs, are frozen, so that all messages share one default instance.
"""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Iterable
from dataclasses import field
from typing import Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError

ZERO_UUID: Final = bytes(16)
_OPEN_END: Final = 0x7FFF
_METADATA_KEY: Final = "wire"
#: The value of `first_flexible_version` for a message without flexible versions.
NEVER_FLEXIBLE: Final = _OPEN_END + 1

#: Fixed-width types, with their format characters of Python's struct (big endian on the wire).
FIXED_FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}


class SchemaError(TidelogError):
    """A message that the requested version cannot carry, which is a programming error."""


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions, which is empty if `high < low`."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Parse "3+", "0-12", "5" or "none"; raise SchemaError otherwise."""
        if text == "none":
            return NO_VERSIONS
        match = re.fullmatch(r"(\d+)(?:(\+)|-(\d+))?", text)
        if match is None:
            raise SchemaError(f"not a range of versions: {text!r}")
        low = int(match[1])
        if match[2]:
            return cls(low, _OPEN_END)
        return cls(low, int(match[3]) if match[3] else low)

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high


NO_VERSIONS: Final = Versions(0, -1)


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """The encoding of one field.

    `kind` is a key of FIXED_FORMATS, or "string", "bytes", "records", "array" or "struct".

    `element` is the class of a struct; for an array, it is a class or the name of a primitive.
    `default` is the value of an absent field; arrays get a new list, structs a shared instance.
    `rare` marks a field that is nearly always empty or null, for which the codecs have a fast path.
    `shared` marks an array whose encoding is reused if the array is a SharedList.
    """

    kind: str
    versions: Versions
    nullable: Versions
    default: object
    ignorable: bool
    tag: int | None = None
    element: type | str | None = None
    rare: bool = False
    shared: bool = False

    @property
    def is_shared_empty(self) -> bool:
        """Whether absent arrays of this field are one empty tuple, not a new list for each struct.

        Tagged arrays of primitives are mostly absent, and a controller with 100,000 structs would
        need much memory for empty lists.
        """
        return self.tag is not None and isinstance(self.element, str) and self.default == ()


class SharedList(list[Any]):
    """A list of structs that several messages contain; do not change it after an encoding.

    The encoder keeps the list's encoding for the next message of the same version.
    """

    __slots__ = ("encoded",)

    def __init__(self, structs: Iterable[Any] = ()) -> None:
        super().__init__(structs)
        #: The encoded form of this SharedList, by the version of the message that contains the
        #: list.
        self.encoded: dict[int, bytes] = {}


def _field(
    type_name: str,
    versions: str,
    default: object,
    *,
    nullable: str = "none",
    ignorable: bool = False,
    tag: int | None = None,
    element: type | str | None = None,
    rare: bool = False,
    shared: bool = False,
) -> Any:
    spec = FieldSpec(
        kind=type_name,
        versions=Versions.parse(versions),
        nullable=Versions.parse(nullable),
        default=default,
        ignorable=ignorable,
        tag=tag,
        element=element,
        rare=rare,
        shared=shared,
    )
    metadata = {_METADATA_KEY: spec}
    if type_name == "array" and default is not None and not spec.is_shared_empty:
        return field(default_factory=list, metadata=metadata)
    return field(default=default, metadata=metadata)


def boolean(
    versions: str, default: bool = False, *, ignorable: bool = False, tag: int | None = None
) -> Any:
    """Return a field of one byte, which is true if not zero."""
    return _field("bool", versions, default, ignorable=ignorable, tag=tag)


def int8(
    versions: str, default: int = 0, *, ignorable: bool = False, tag: int | None = None
) -> Any:
    """Return a field of a signed byte."""
    return _field("int8", versions, default, ignorable=ignorable, tag=tag)


def int16(
    versions: str, default: int = 0, *, ignorable: bool = False, tag: int | None = None
) -> Any:
    """Return a field of two bytes, signed, big endian."""
    return _field("int16", versions, default, ignorable=ignorable, tag=tag)


def int32(
    versions: str, default: int = 0, *, ignorable: bool = False, tag: int | None = None
) -> Any:
    """Return a field of four bytes, signed, big endian."""
    return _field("int32", versions, default, ignorable=ignorable, tag=tag)


def int64(
    versions: str, default: int = 0, *, ignorable: bool = False, tag: int | None = None
) -> Any:
    """Return a field of eight bytes, signed, big endian."""
    return _field("int64", versions, default, ignorable=ignorable, tag=tag)


def float64(versions: str, default: float = 0.0, *, ignorable: bool = False) -> Any:
    """Return a field of eight bytes, a double of IEEE 754, big endian."""
    return _field("float64", versions, default, ignorable=ignorable)


def uuid(versions: str, *, ignorable: bool = False, tag: int | None = None) -> Any:
    """Return a field of sixteen bytes, by default ZERO_UUID."""
    return _field("uuid", versions, ZERO_UUID, ignorable=ignorable, tag=tag)


def string(
    versions: str,
    default: str | None = "",
    *,
    nullable: str = "none",
    ignorable: bool = False,
    tag: int | None = None,
    rare: bool = False,
) -> Any:
    """Return a field of UTF-8 text of at most 32,767 bytes; a compact string may fill the frame."""
    return _field(
        "string", versions, default, nullable=nullable, ignorable=ignorable, tag=tag, rare=rare
    )


def records(versions: str, *, nullable: str = "none", ignorable: bool = False) -> Any:
    """Return a field of record batches, which decoding returns as a view of the frame."""
    return _field("records", versions, None, nullable=nullable, ignorable=ignorable)


def binary(
    versions: str, default: bytes | None = b"", *, nullable: str = "none", ignorable: bool = False
) -> Any:
    """Return a field of opaque bytes, which decoding copies from the frame."""
    return _field("bytes", versions, default, nullable=nullable, ignorable=ignorable)


def array(
    element: type | str,
    versions: str,
    default: tuple[()] | None = (),
    *,
    nullable: str = "none",
    ignorable: bool = False,
    tag: int | None = None,
    rare: bool = False,
    shared: bool = False,
) -> Any:
    """Return a field of a list of structs, or of primitives by name ("int32", "string", ...)."""
    return _field(
        "array",
        versions,
        default,
        nullable=nullable,
        ignorable=ignorable,
        tag=tag,
        element=element,
        rare=rare,
        shared=shared,
    )


def nested(
    element: type,
    versions: str,
    *,
    nullable: str = "none",
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Return a field of a frozen class, by default one shared instance with all defaults.

    A nullable struct has a byte before it, -1 for null and 1 otherwise, and its default is None.
    """
    return _field(
        "struct",
        versions,
        element() if nullable == "none" else None,
        nullable=nullable,
        ignorable=ignorable,
        tag=tag,
        element=element,
    )


@dataclass(frozen=True, slots=True)
class NamedField:
    """A declared field with its attribute name."""

    name: str
    spec: FieldSpec


def fields_of(struct_class: type) -> tuple[NamedField, ...]:
    """Return the fields of a struct in wire order; raise SchemaError for an undeclared field."""
    named = []
    for each in dataclasses.fields(struct_class):
        spec = each.metadata.get(_METADATA_KEY)
        if not isinstance(spec, FieldSpec):
            raise SchemaError(
                f"{struct_class.__name__}.{each.name} is not declared as a wire field"
            )
        named.append(NamedField(each.name, spec))
    return tuple(named)


def plain_fields(struct_class: type, version: int) -> list[NamedField]:
    """Return the untagged fields of this version, in wire order."""
    return [f for f in fields_of(struct_class) if f.spec.tag is None and version in f.spec.versions]


def tagged_fields(struct_class: type, version: int) -> list[NamedField]:
    """Return the tagged fields of this version, sorted by tag."""
    tagged = [
        f for f in fields_of(struct_class) if f.spec.tag is not None and version in f.spec.versions
    ]
    return sorted(tagged, key=lambda f: f.spec.tag or 0)


def absent_fields(struct_class: type, version: int) -> list[NamedField]:
    """Return the fields that this version does not have."""
    return [f for f in fields_of(struct_class) if version not in f.spec.versions]


def is_frozen(struct_class: type) -> bool:
    """Return whether the class is frozen, so that messages can share an instance as a default."""
    params = getattr(struct_class, "__dataclass_params__")  # noqa: B009 - untyped attribute
    return bool(params.frozen)


def min_size(spec_type: str, element: type | str | None, version: int, flexible: bool) -> int:
    """Return the minimum size in bytes of a value of this type at this version."""
    if spec_type in FIXED_FORMATS:
        return struct.calcsize(">" + FIXED_FORMATS[spec_type])
    if spec_type == "struct":
        assert isinstance(element, type)
        return struct_min_size(element, version, flexible)
    if flexible:
        return 1
    return 2 if spec_type == "string" else 4


def struct_min_size(struct_class: type, version: int, flexible: bool) -> int:
    """Return the minimum size in bytes of an instance of this class at this version."""
    total = 1 if flexible else 0
    for each in plain_fields(struct_class, version):
        if each.spec.kind == "struct" and version in each.spec.nullable:
            total += 1
        else:
            total += min_size(each.spec.kind, each.spec.element, version, flexible)
    return total


@dataclass(frozen=True, slots=True)
class Api:
    """One API, with its key, its messages and the implemented versions.

    `inter_broker` marks APIs between brokers, whose versions are not negotiated.
    """

    key: int
    name: str
    request: type
    response: type
    min_version: int
    max_version: int
    first_flexible_version: int
    inter_broker: bool = False

    def supports(self, version: int) -> bool:
        """Return whether this version is implemented."""
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        """Return whether this version has compact lengths and tagged fields (KIP-482)."""
        return version >= self.first_flexible_version

    def request_header_version(self, version: int) -> int:
        """Return the header version: 2 if flexible, else 1; 0 for ControlledShutdown version 0."""
        if self.key == CONTROLLED_SHUTDOWN_KEY and version == 0:
            return 0
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """Return the header version: 1 if flexible, else 0; always 0 for ApiVersions (KIP-511)."""
        return 1 if self.is_flexible(version) and self.key != API_VERSIONS_KEY else 0


#: The key of ApiVersions, whose responses never have a flexible header.
API_VERSIONS_KEY: Final = 18
#: The key of ControlledShutdown, whose requests of version 0 have no client id in the header.
CONTROLLED_SHUTDOWN_KEY: Final = 7
