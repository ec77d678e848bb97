"""Hypothesis strategies: messages of any API from its declaration, frames, batches, and all of them
slightly wrong.

Values are few and telling, so that examples are small and what fails shrinks to what matters.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

from hypothesis import strategies as st
from tests.fuzz.mutation import NUMBERS, fixed
from tests.fuzz.record_targets import with_crc
from tests.support.requests.by_version import SERVED, versions_of

from tidelog.records import compression
from tidelog.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.wire import codec, schema
from tidelog.wire.primitives import encode_uvarint
from tidelog.wire.registry import API

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXTS = st.sampled_from(["", "a", "g", "abused", "ü\0\n", "../..", "x" * 130, "y" * 1001])
BLOBS = st.one_of(st.binary(max_size=12), st.sampled_from([b"\0" * 130, b"\xff" * 9]))
UUIDS = st.sampled_from([bytes(16), bytes(range(16)), b"\xff" * 16])


@cache
def integers(kind: str) -> st.SearchStrategy[int]:
    """Numbers of a type: those where something changes, and any."""
    top = 1 << (_BITS[kind] - 1)
    telling = [number for number in NUMBERS if -top <= number < top]
    return st.one_of(st.sampled_from(telling), st.integers(-top, top - 1))


def _primitives(kind: str) -> st.SearchStrategy[Any]:
    if kind in _BITS:
        return integers(kind)
    if kind == "bool":
        return st.booleans()
    if kind == "float64":
        return st.floats(allow_nan=False)  # a NaN is unequal to itself
    if kind == "uuid":
        return UUIDS
    return TEXTS if kind == "string" else BLOBS


def _values(spec: schema.FieldSpec, version: int) -> st.SearchStrategy[Any]:
    found: st.SearchStrategy[Any]
    if spec.kind == "struct":
        assert isinstance(spec.element, type)
        found = messages(spec.element, version)
    elif spec.kind == "array" and isinstance(spec.element, type):
        found = st.lists(messages(spec.element, version), max_size=2)
    elif spec.kind == "array":
        found = st.lists(_primitives(str(spec.element)), max_size=3)
        if spec.is_shared_empty:
            found = found.map(lambda values: values or ())
    else:
        found = _primitives(spec.kind)
    return st.one_of(st.none(), found) if version in spec.nullable else found


@cache
def messages(struct_class: type, version: int) -> st.SearchStrategy[Any]:
    """Messages with the fields that the version has; others keep their defaults."""
    fields = {
        field.name: _values(field.spec, version)
        for field in schema.fields_of(struct_class)
        if version in field.spec.versions
    }
    return st.fixed_dictionaries(fields).map(lambda values: struct_class(**values))


CASES = [(key, version) for key in SERVED for version in versions_of(key)]


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, int, str | None, Any]:
    """API key, version, client id and message of anything that is served."""
    key, version = draw(st.sampled_from(CASES))
    client_id = draw(st.one_of(st.none(), st.sampled_from(["", "c", "\n", "ü" * 300])))
    return key, version, client_id, draw(messages(API[key].request, version))


def framed(request: tuple[int, int, str | None, Any]) -> bytes:
    """A request's frame without its size."""
    key, version, client_id, message = request
    return b"".join(map(bytes, codec.encode_request(key, version, 7, client_id, message)))[4:]


#: What a length or a count may be that cannot be backed by bytes, or is null where it may not.
WRONG_LENGTHS = st.one_of(
    st.sampled_from(NUMBERS).map(lambda number: fixed(number, 4)),
    st.sampled_from(NUMBERS).map(lambda number: fixed(number, 2)),
    st.sampled_from([0, 1, 2, 127, 128, 2**21, 2**31, 2**32 - 1]).map(encode_uvarint),
    st.just(b"\xff" * 12),
)


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes], first: int = 0) -> bytes:
    """The bytes with one to three places wrong, none before `first`."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(min(first, len(data)), len(data)))
        match draw(st.sampled_from(["cut", "length", "put", "take", "bit", "more"])):
            case "cut":
                del data[at:]
            case "length":
                wrong = draw(WRONG_LENGTHS)
                data[at : at + len(wrong)] = wrong
            case "put":
                data[at:at] = draw(st.binary(min_size=1, max_size=6))
            case "take":
                del data[at : at + draw(st.integers(1, 8))]
            case "bit" if at < len(data):
                data[at] ^= 1 << draw(st.integers(0, 7))
            case _:
                data += draw(st.binary(max_size=20))
    return bytes(data)


# Batches.

RECORDS = st.lists(
    st.builds(
        NewRecord,
        st.one_of(st.none(), st.binary(max_size=6)),
        st.one_of(st.none(), st.binary(max_size=6), st.just(b"v" * 300)),
        st.sampled_from([-1, 0, 1_700_000_000_000, 2**62]),
        st.lists(st.tuples(st.sampled_from(["", "h"]), st.one_of(st.none(), BLOBS)), max_size=2),
    ),
    min_size=1,
    max_size=4,
)
PRODUCERS = st.builds(
    Producer,
    st.sampled_from([-1, 5]),
    st.sampled_from([-1, 0]),
    st.sampled_from([-1, 0, 2**31 - 1]),
)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A well-formed batch, of any compression."""
    codec_id = draw(st.sampled_from(list(compression.NAMES)))
    records, producer = draw(RECORDS), draw(PRODUCERS)
    return bytes(build_batch(records, codec=codec_id, producer=producer))


#: Position and width of what a batch's header tells.
HEADER_FIELDS = {
    "base offset": (0, 8),
    "length": (8, 4),
    "magic": (16, 1),
    "attributes": (21, 2),
    "last offset delta": (23, 4),
    "base timestamp": (27, 8),
    "max timestamp": (35, 8),
    "producer id": (43, 8),
    "producer epoch": (51, 2),
    "base sequence": (53, 4),
    "count": (57, 4),
}


@st.composite
def wrong_batches(draw: st.DrawFn) -> bytes:
    """A batch with a header or records that lie, usually under a right checksum."""
    data = bytearray(draw(batches()))
    for name in draw(st.lists(st.sampled_from(sorted(HEADER_FIELDS)), max_size=2)):
        at, width = HEADER_FIELDS[name]
        number = draw(st.one_of(st.sampled_from(NUMBERS), st.integers(0, 70)))
        data[at : at + width] = fixed(number, width)
    match draw(st.sampled_from(["records", "payload", "truncated", "more", "as it is"])):
        case "records":
            data[HEADER_BYTES:] = draw(damaged(st.just(bytes(data[HEADER_BYTES:]))))
        case "payload":
            data = _with_payload(data, draw)
        case "truncated":
            del data[draw(st.integers(0, len(data))) :]
        case "more":
            data += draw(st.binary(max_size=80))
    if len(data) >= HEADER_BYTES and draw(st.booleans()):
        struct.pack_into(">i", data, 8, len(data) - LOG_OVERHEAD_BYTES)
    return with_crc(bytes(data)) if draw(st.integers(0, 4)) else bytes(data)


def _with_payload(data: bytearray, draw: st.DrawFn) -> bytearray:
    """Wrong records that are compressed rightly."""
    codec_id = draw(st.sampled_from(list(compression.NAMES)))
    plain = bytes(build_batch(draw(RECORDS))[HEADER_BYTES:])
    body = compression.compress(codec_id, draw(damaged(st.just(plain))))
    made = data[:HEADER_BYTES] + body
    struct.pack_into(">h", made, 21, codec_id)
    struct.pack_into(">i", made, 8, len(made) - LOG_OVERHEAD_BYTES)
    return made
