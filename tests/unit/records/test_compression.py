"""Compressions: as Kafka's clients write them, and no more output than allowed."""

from __future__ import annotations

import gzip
import os
import struct

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.records import compression as c
from tidelog.records.compression import CompressionError, compress, decompress

CODECS = [c.NONE, c.GZIP, c.SNAPPY, c.LZ4, c.ZSTD]
REAL = CODECS[1:]


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=5000))
def test_what_is_compressed_comes_back(codec: int, data: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data), 5000)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_large_and_random_data_come_back(codec: int) -> None:
    for data in (bytes(3_000_000), os.urandom(300_000), b"abc" * 100_000):
        assert bytes(decompress(codec, compress(codec, data), len(data))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_one_byte_more_than_allowed_is_refused(codec: int) -> None:
    data = os.urandom(70_000)
    packed = compress(codec, data)
    assert len(decompress(codec, packed, 70_000)) == 70_000
    with pytest.raises(CompressionError, match="more than 69999 bytes"):
        decompress(codec, packed, 69_999)


@pytest.mark.parametrize("codec", REAL)
def test_a_bomb_is_refused(codec: int) -> None:
    bomb = compress(codec, bytes(50_000_000))
    with pytest.raises(CompressionError, match="more than"):
        decompress(codec, bomb, 1_000_000)


@pytest.mark.parametrize("codec", REAL)
@given(data=st.binary(max_size=300))
def test_any_bytes_give_bytes_or_compression_error(codec: int, data: bytes) -> None:
    try:
        assert len(decompress(codec, data, 10_000)) <= 10_000
    except CompressionError:
        return


@pytest.mark.parametrize("codec", REAL)
def test_cut_off_data_is_damaged(codec: int) -> None:
    packed = compress(codec, os.urandom(1000))
    with pytest.raises(CompressionError, match="damaged"):
        decompress(codec, packed[:-5], 10_000)


def test_unknown_codecs_are_named() -> None:
    with pytest.raises(CompressionError, match="codec 7"):
        decompress(7, b"", 10)
    with pytest.raises(CompressionError, match="codec 5"):
        compress(5, b"")


def test_snappy_is_framed_as_xerial_does_it() -> None:
    packed = compress(c.SNAPPY, bytes(40_000))
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    (first,) = struct.unpack_from(">i", packed, 16)
    assert len(bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first]))) == 32_768


def test_raw_snappy_is_read_too() -> None:
    raw = bytes(cramjam.snappy.compress_raw(b"hello hello hello"))
    assert bytes(decompress(c.SNAPPY, raw, 100)) == b"hello hello hello"


def test_a_snappy_length_that_lies_allocates_nothing() -> None:
    lie = bytes([0xFF, 0xFF, 0xFF, 0x7F]) + b"abc"
    with pytest.raises(CompressionError, match="cannot hold"):
        decompress(c.SNAPPY, lie, 1 << 30)


def test_xerial_blocks_must_fit() -> None:
    packed = compress(c.SNAPPY, b"hello")
    with pytest.raises(CompressionError, match="cut off"):
        decompress(c.SNAPPY, packed + b"\x00", 100)
    with pytest.raises(CompressionError, match="does not fit"):
        decompress(c.SNAPPY, packed + struct.pack(">i", 9), 100)
    with pytest.raises(CompressionError, match="does not fit"):
        decompress(c.SNAPPY, packed + struct.pack(">i", -9), 100)


def test_lz4_frames_have_independent_blocks() -> None:
    """Kafka's reader takes no others; bit 5 of the frame's flags says so."""
    packed = compress(c.LZ4, bytes(200_000))
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0x20


def test_gzip_is_plain_gzip() -> None:
    assert gzip.decompress(compress(c.GZIP, b"data")) == b"data"
    assert bytes(decompress(c.GZIP, gzip.compress(b"data"), 10)) == b"data"
