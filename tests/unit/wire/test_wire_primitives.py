"""Varints and their kin, at their edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import examples

from tidelog.core.errors import ProtocolError
from tidelog.wire import primitives as p


@examples(200)
@given(st.integers(0, 2**32 - 1))
def test_uvarints_round_trip(value: int) -> None:
    raw = p.encode_uvarint(value)
    assert p.decode_uvarint(b"??" + raw + b"?", 2) == (value, 2 + len(raw))
    assert len(raw) == max(1, (value.bit_length() + 6) // 7)


@examples(200)
@given(st.integers(-(2**31), 2**31 - 1))
def test_varints_round_trip(value: int) -> None:
    raw = p.encode_varint(value)
    assert p.decode_varint(raw, 0) == (value, len(raw))


@examples(200)
@given(st.integers(-(2**63), 2**63 - 1))
def test_varlongs_round_trip(value: int) -> None:
    raw = p.encode_varint(value)
    assert p.decode_varlong(raw, 0) == (value, len(raw))
    assert p.unzigzag(p.zigzag(value)) == value


@pytest.mark.parametrize(
    ("value", "raw"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32 - 1, "ffffffff0f")],
)
def test_uvarints_are_little_endian_groups_of_seven_bits(value: int, raw: str) -> None:
    assert p.encode_uvarint(value) == bytes.fromhex(raw)


@pytest.mark.parametrize(
    ("value", "raw"), [(0, "00"), (-1, "01"), (1, "02"), (-2, "03"), (64, "8001")]
)
def test_zigzag_keeps_small_magnitudes_small(value: int, raw: str) -> None:
    assert p.encode_varint(value) == bytes.fromhex(raw)


def test_a_negative_unsigned_varint_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        p.encode_uvarint(-1)


@pytest.mark.parametrize("raw", ["ffffffff1f", "ffffffffff01", "8080808080"])
def test_varints_of_more_than_32_bits_are_refused(raw: str) -> None:
    with pytest.raises(ProtocolError):
        p.decode_uvarint(bytes.fromhex(raw), 0)


@pytest.mark.parametrize("raw", ["ff" * 9 + "02", "ff" * 10 + "01"])
def test_varints_of_more_than_64_bits_are_refused(raw: str) -> None:
    with pytest.raises(ProtocolError):
        p.decode_uvarlong(bytes.fromhex(raw), 0)


def test_strings() -> None:
    assert p.encode_nullable_string(None) == b"\xff\xff"
    assert p.encode_nullable_string("ü") == b"\0\x02\xc3\xbc"
    assert p.encode_compact_string("ü") == b"\x03\xc3\xbc"
    with pytest.raises(ValueError, match="32,767"):
        p.encode_nullable_string("x" * 32_768)


def test_skipping_stops_at_the_end() -> None:
    assert p.skip_tagged_fields(2, bytes.fromhex("0001ff 0500"), 0, 5) == 5
    with pytest.raises(ProtocolError, match="beyond"):
        p.skip_tagged_fields(1, bytes.fromhex("0002ff"), 0, 3)
