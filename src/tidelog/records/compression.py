"""The compression codecs of record batches, each with a mandatory bound on its output.

Kafka's clients write gzip, snappy in xerial's framing, LZ4 frames with independent blocks, and zstd
with windows of up to 128 MiB. The decompressor also reads raw snappy, because librdkafka writes it.
The decompressor also reads LZ4 frames that Kafka's clients cannot read, because old logs may have
them; `foreign_frames` finds such frames. A decompression bomb costs no more memory than the bound:
the output buffer grows from a guess, and larger output is rejected. Design rule 10 of tidelog
demands bounded memory for any input.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import cramjam

from tidelog.core.errors import ProtocolError
from tidelog.core.limits import KIB
from tidelog.core.ports import Buffer
from tidelog.records import lz4_frames
from tidelog.records.walk import uninitialised

NONE = 0
GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4

NAMES = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
IDS = {name: codec for codec, name in NAMES.items()}

#: The levels with which Kafka compresses by default (CompressionType in 3.9).
LZ4_DEFAULT = 9
ZSTD_DEFAULT = 3
#: The level that zlib uses for its default level -1.
_GZIP_DEFAULT = 6

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * KIB
_BLOCK_SIZE = struct.Struct(">i")
#: The message of the compression library cramjam for an output buffer that is too small.
_TOO_SMALL = "failed to write whole buffer"
#: First guess of the output's size as a multiple of the input's size; at least `_GUESS_BYTES`.
_GUESS_RATIO = 6
_GUESS_BYTES = 64 * KIB
_GROWTH = 4


class CompressionError(ProtocolError):
    """The error for compressed bytes that are damaged, of an unknown codec, or too large when
    decompressed.
    """


class OversizedError(CompressionError):
    """The error for compressed bytes that decompress to more bytes than allowed."""


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress bytes as a Kafka client does. Raises CompressionError for an unknown codec.

    `level` is Kafka's number for the codec (KIP-390), None for the codec's default; snappy has no
    levels.
    """
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data, _GZIP_DEFAULT if level in (None, -1) else level))
    if codec == SNAPPY:
        return _compress_xerial(memoryview(data))
    if codec == LZ4:
        compressor = cramjam.lz4.Compressor(
            level=_lz4_level(level), content_checksum=False, block_linked=False
        )
        compressor.compress(bytes(data))
        return bytes(compressor.finish())
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, ZSTD_DEFAULT if level is None else level))
    raise CompressionError(f"unknown compression codec {codec}")


def _lz4_level(level: int | None) -> int | None:
    """Return liblz4's compression level for a level of lz4-java.

    At the default LZ4 level 9 Kafka uses LZ4's fast compressor. At any other level Kafka uses LZ4's
    high compressor, whose levels in liblz4 are 3 to 12.
    """
    if level is None:
        return None
    return 0 if level == LZ4_DEFAULT else min(max(level, 3), 12)


def decompress(codec: int, data: Buffer, max_bytes: int) -> Buffer:
    """Return the decompressed bytes, never more than `max_bytes`.

    Raises CompressionError for damaged bytes, for an unknown codec, and for more output than
    `max_bytes`.
    """
    if codec == NONE:
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
        return data
    if codec == SNAPPY:
        return _decompress_snappy(memoryview(data), max_bytes)
    into = _INTO.get(codec)
    if into is None:
        raise CompressionError(f"unknown compression codec {codec}")
    return _decompress_growing(NAMES[codec], into, data, max_bytes)


_INTO: dict[int, Callable[[Any, Any], int]] = {
    GZIP: cramjam.gzip.decompress_into,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}


def foreign_frames(codec: int, data: Buffer, max_bytes: int) -> str:
    """Return why Kafka's clients cannot read data that `decompress` can; "" if they can.

    LZ4 is the only codec with data that Kafka's clients cannot read (`lz4_frames`). Raises
    CompressionError for damaged data.
    """
    if codec != LZ4:
        return ""
    reason = lz4_frames.unreadable_header(data)
    if reason:
        return reason
    end = lz4_frames.end_of_first_frame(data)
    if end < len(data):
        first = len(decompress(LZ4, data[:end], max_bytes))
        if first < len(decompress(LZ4, data, max_bytes)):
            return f"they read the first LZ4 frame alone, and records follow it at byte {end}"
    return ""


def _too_large(max_bytes: int) -> OversizedError:
    return OversizedError(f"decompresses to more than {max_bytes} bytes")


def _decompress_growing(
    name: str, into: Callable[[Any, Any], int], data: Buffer, max_bytes: int
) -> Buffer:
    """Decompress `data` by `into`; return the decompressed bytes, at most `max_bytes`.

    The buffer for the result grows until `into` finds it large enough. `name` is the codec's name
    in errors. Raises CompressionError for damaged or too much data.
    """
    size = min(max_bytes, max(_GUESS_BYTES, len(data) * _GUESS_RATIO))
    while True:
        output = uninitialised(size)
        try:
            return memoryview(output)[: into(data, output)]
        except cramjam.DecompressionError as error:
            if _TOO_SMALL not in str(error):
                raise CompressionError(f"damaged {name} data: {error}") from None
        if size >= max_bytes:
            raise _too_large(max_bytes)
        size = min(max_bytes, size * _GROWTH)


def _compress_xerial(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_BLOCK_SIZE.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, max_bytes: int) -> Buffer:
    blocks = _snappy_blocks(data)
    sizes: list[int] = []
    total = 0
    for block in blocks:
        size = _snappy_size(block)
        total += size
        if total > max_bytes:
            raise _too_large(max_bytes)
        # Snappy makes at most 64 bytes out of 3; a larger claimed size is false and would cost
        # memory.
        if size > len(block) * 32:
            raise CompressionError(f"damaged snappy data: {len(block)} bytes cannot hold {size}")
        sizes.append(size)
    # All blocks go into one buffer, because a join of 95 MB would stop other threads for 0.2 s.
    output = memoryview(uninitialised(total))
    position = 0
    for block, size in zip(blocks, sizes, strict=True):
        try:
            part = output[position : position + size]
            written = cramjam.snappy.decompress_raw_into(block, part)
        except cramjam.DecompressionError as error:
            raise CompressionError(f"damaged snappy data: {error}") from None
        if written != size:
            raise CompressionError(f"damaged snappy data: {written} bytes, not {size}")
        position += size
    return output


def _snappy_blocks(data: memoryview) -> list[memoryview]:
    """Return the raw blocks of xerial's framing, or all of `data` if it has no framing."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return [data]
    position = len(_XERIAL_HEADER)
    blocks: list[memoryview] = []
    while position < len(data):
        if position + _BLOCK_SIZE.size > len(data):
            raise CompressionError("damaged snappy data: a block's size is cut off")
        (size,) = _BLOCK_SIZE.unpack_from(data, position)
        position += _BLOCK_SIZE.size
        if size < 0 or position + size > len(data):
            raise CompressionError(f"damaged snappy data: a block of {size} bytes does not fit")
        blocks.append(data[position : position + size])
        position += size
    return blocks


def _snappy_size(block: memoryview) -> int:
    """Return the decompressed size that a raw snappy block claims."""
    try:
        return int(cramjam.snappy.decompress_raw_len(block))
    except cramjam.DecompressionError as error:
        raise CompressionError(f"damaged snappy data: {error}") from None
