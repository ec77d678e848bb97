"""Draws messages of every API at every version, from the declarations and a seeded source.

A message drawn for a version sets exactly the fields that the version has; others keep defaults.
`tame` keeps to values that typed oracles can hold (known error codes, times after 1970). Drawn by
hand and not by hypothesis, which needs a hundred times as long for messages of this depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any, NamedTuple

from tidelog.core.errors import ErrorCode
from tidelog.wire import codec, schema
from tidelog.wire.codec import RequestHeader, encode_request, encode_response
from tidelog.wire.data import consumer_offsets, consumer_protocol
from tidelog.wire.encoding import OWN_PART_BYTES
from tidelog.wire.primitives import Buffer
from tidelog.wire.registry import API
from tidelog.wire.versioned import Versioned

INT_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}

#: Around the one-byte varint, past it, and past two bytes of varint.
LONG_TEXTS = ["x" * 126, "y" * 127, "z" * 128, "ü" * 200, "w" * 17_000]
#: Around the size from which records are handed over uncopied.
LONG_RECORDS = [
    b"r" * (OWN_PART_BYTES - 1),
    b"r" * OWN_PART_BYTES,
    b"s" * 5000,
    bytes(range(256)) * 70,
]

#: The structs that travel behind their version.
VERSIONED: list[Versioned[Any]] = [
    consumer_offsets.OFFSET_COMMIT_KEY,
    consumer_offsets.OFFSET_COMMIT_VALUE,
    consumer_offsets.GROUP_METADATA_KEY,
    consumer_offsets.GROUP_METADATA_VALUE,
    consumer_protocol.SUBSCRIPTION,
    consumer_protocol.ASSIGNMENT,
]


class Case(NamedTuple):
    """One codec: a message of an API, in one direction, at one version."""

    api_key: int
    version: int
    direction: str

    @property
    def message(self) -> type:
        api = API[self.api_key]
        return api.request if self.direction == "request" else api.response

    @property
    def flexible(self) -> bool:
        return API[self.api_key].is_flexible(self.version)

    def __str__(self) -> str:
        return f"{self.message.__name__}-{self.version}"


def all_cases() -> Iterator[Case]:
    """Every codec of the registry."""
    for api in API.values():
        for version in range(api.min_version, api.max_version + 1):
            yield Case(api.key, version, "request")
            yield Case(api.key, version, "response")


class DataCase(NamedTuple):
    """One codec of a struct that travels behind its version."""

    versioned: Versioned[Any]
    version: int

    def __str__(self) -> str:
        return f"{self.versioned.name}-{self.version}"

    def draw(self, draw: Random) -> Any:
        """An instance for this version."""
        return message(draw, self.versioned.struct_class, self.version)


def data_cases() -> list[DataCase]:
    """Every codec of these structs."""
    return [DataCase(each, version) for each in VERSIONED for version in each.versions]


def _integer(draw: Random, kind: str) -> int:
    top = 1 << (INT_BITS[kind] - 1)
    if draw.random() < 0.5:
        return draw.choice([0, 1, -1, top - 1, -top])
    return draw.randrange(-top, top) >> draw.randrange(INT_BITS[kind])


def text(draw: Random, longest: int = 12) -> str:
    """Any characters but surrogates, which UTF-8 does not have."""
    highest = draw.choice(["~", "ÿ", "\uffff", "\U0010ffff"])
    points = [draw.randrange(ord(highest) + 1) for _ in range(draw.randint(0, longest))]
    return "".join(chr(point) for point in points if not 0xD800 <= point < 0xE000)


def _primitive(draw: Random, kind: str, name: str, tame: bool) -> Any:
    if tame and name.endswith("error_code"):
        return int(draw.choice(list(ErrorCode)))
    if tame and name in ("log_append_time_ms", "retention_time_ms"):
        return draw.choice([-1, draw.randint(0, 4_000_000_000) * 1000])
    if tame and kind == "int64" and name.endswith("_ms"):
        return draw.randint(0, 4_000_000_000) * 1000
    if kind in INT_BITS:
        return _integer(draw, kind)
    if kind == "float64":
        return draw.choice([0.0, -1.5, 1e300, draw.random()])
    if kind == "bool":
        return draw.random() < 0.5
    if kind == "uuid":
        return draw.choice([schema.ZERO_UUID, draw.randbytes(16)])
    if kind == "string":
        return draw.choice(LONG_TEXTS) if draw.random() < 0.15 else text(draw)
    assert kind in ("bytes", "records")
    return draw.choice([draw.randbytes(draw.randint(0, 40)), draw.choice(LONG_RECORDS)])


def _value(draw: Random, name: str, spec: schema.FieldSpec, version: int, tame: bool) -> Any:
    if version in spec.nullable and draw.random() < 0.3:
        return None
    if spec.kind == "struct":
        assert isinstance(spec.element, type)
        if draw.random() < 0.3:
            return spec.element()
        return message(draw, spec.element, version, tame=tame)
    if spec.kind != "array":
        return _primitive(draw, spec.kind, name, tame)
    if isinstance(spec.element, type):
        return [message(draw, spec.element, version, tame=tame) for _ in range(draw.randint(0, 3))]
    if spec.element == "int32" and draw.random() < 0.1:
        return list(range(draw.choice([126, 300])))
    found = [_primitive(draw, str(spec.element), name, tame) for _ in range(draw.randint(0, 4))]
    return () if spec.is_shared_empty and not found else found


def message(draw: Random, struct_class: type, version: int, *, tame: bool = False) -> Any:
    """An instance with all fields of this version drawn, the others at their defaults."""
    present = {
        name: _value(draw, name, spec, version, tame)
        for name, spec in _fields(struct_class, version)
    }
    return struct_class(**present)


@cache
def _fields(struct_class: type, version: int) -> tuple[tuple[str, schema.FieldSpec], ...]:
    return tuple(
        (field.name, field.spec)
        for field in schema.fields_of(struct_class)
        if version in field.spec.versions
    )


def joined(parts: list[Buffer]) -> memoryview:
    """The frame without its size, after checking the size."""
    whole = b"".join(parts)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    return memoryview(whole)[4:]


def decode(case: Case, body: bytes) -> Any:
    """Decodes a body; anything but a message or a ProtocolError fails the test."""
    if case.direction == "request":
        header = RequestHeader(case.api_key, case.version, 0, None)
        return codec.decode_body(header, memoryview(body), 0)
    flexible = API[case.api_key].response_header_version(case.version) > 0
    frame = memoryview(bytes(4 + flexible) + body)
    return codec.decode_response(case.api_key, case.version, frame)[1]


def encode(case: Case, message: object) -> bytes:
    """The body alone."""
    if case.direction == "request":
        frame = joined(encode_request(case.api_key, case.version, 0, None, message))
        header_bytes = (8, 10, 11)[API[case.api_key].request_header_version(case.version)]
        return bytes(frame[header_bytes:])
    flexible = API[case.api_key].response_header_version(case.version) > 0
    return bytes(joined(encode_response(case.api_key, case.version, 0, message))[4 + flexible :])
