"""Compressed records as clients, other tools and broken programs make them, for each codec."""

from __future__ import annotations

import gzip
import io
import random
import struct
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import lz4.frame  # type: ignore[import-untyped]  # has no stubs
import snappy  # type: ignore[import-untyped]  # has no stubs
import zstandard

from tidelog.records import compression

#: Compressible and incompressible bytes: several blocks of each codec.
DATA = b"".join(
    b"record %d of a batch, with some text in it; " % number for number in range(9_000)
) + random.Random(5).randbytes(70_000)
MORE = b"more of it"
_SKIPPABLE = struct.pack("<II", 0x184D2A50, 4) + b"skip"
_XERIAL = b"\x82SNAPPY\x00"
_WINDOWS = (10, 23, 27, 28, 30, 31)


class Case(NamedTuple):
    codec: int
    data: bytes


@cache
def cases() -> dict[str, Case]:
    """Every case by its name, which ends with that of its codec."""
    made = {
        compression.GZIP: _gzip,
        compression.SNAPPY: _snappy,
        compression.LZ4: _lz4,
        compression.ZSTD: _zstd,
    }
    found = {}
    for codec, make in made.items():
        for name, data in (*_own(codec), *make()):
            found[f"{name}-{compression.NAMES[codec]}"] = Case(codec, data)
    return found


def _own(codec: int) -> Iterator[tuple[str, bytes]]:
    own = compression.compress(codec, DATA)
    yield "own", own
    yield "own-empty", compression.compress(codec, b"")
    yield "own-small", compression.compress(codec, b"abc")
    yield "nothing", b""
    yield "cut", own[:-3]
    yield "cut-header", own[:5]


def frame(data: bytes = DATA, **options: Any) -> bytes:
    """An LZ4 frame; independent blocks and no size of the content, unless options say otherwise."""
    made = lz4.frame.compress(data, **{"block_linked": False, "store_size": False, **options})
    assert isinstance(made, bytes)
    return made


def _lz4() -> Iterator[tuple[str, bytes]]:
    plain = frame()
    yield "linked", frame(block_linked=True)
    yield "linked-with-sums", frame(block_linked=True, content_checksum=True, block_checksum=True)
    yield "content-checksum", frame(content_checksum=True)
    yield "block-checksum", frame(block_checksum=True)
    yield "content-size", frame(store_size=True)
    for number in (4, 5, 6, 7):
        yield f"block-size-{number}", frame(block_size=number)
    yield "high", frame(compression_level=12)
    yield "two-frames", plain + frame(MORE)
    yield "two-frames-with-sums", frame(block_checksum=True, content_checksum=True) + frame(MORE)
    yield "two-sized-frames", frame(store_size=True) + frame(MORE, store_size=True)
    yield "frame-and-empty", plain + frame(b"")
    yield "trailing-zeros", plain + bytes(8)
    yield "trailing-bytes", plain + b"garbage!"
    yield "skippable-first", _SKIPPABLE + plain
    yield "skippable-last", plain + _SKIPPABLE
    yield "no-end-mark", plain[:-4]
    yield "legacy", struct.pack("<I", 0x184C2102) + plain[7:]


def _member(data: bytes = DATA, name: str = "") -> bytes:
    into = io.BytesIO()
    with gzip.GzipFile(filename=name, fileobj=into, mode="wb", mtime=0) as file:
        file.write(data)
    return into.getvalue()


def _gzip() -> Iterator[tuple[str, bytes]]:
    plain = _member()
    rest = plain[10:]
    yield "two-members", plain + _member(MORE)
    yield "member-and-empty", plain + _member(b"")
    yield "trailing-zeros", plain + bytes(16)
    yield "trailing-few", plain + bytes(3)
    yield "trailing-bytes", plain + b"garbage behind the member, of some length"
    yield "named", _member(name="x.txt")

    def header(flags: int) -> bytes:
        return bytes([0x1F, 0x8B, 8, flags, 0, 0, 0, 0, 0, 3])

    yield "extra", header(4) + struct.pack("<H", 5) + b"hello" + rest
    summed = header(2)
    yield "header-crc", summed + struct.pack("<H", zlib.crc32(summed) & 0xFFFF) + rest
    yield "header-crc-wrong", summed + struct.pack("<H", ~zlib.crc32(summed) & 0xFFFF) + rest
    yield "comment", header(16) + b"hi\0" + rest
    yield "reserved-flag", header(32) + rest
    yield "wrong-crc", plain[:-8] + struct.pack("<I", zlib.crc32(DATA) ^ 1) + plain[-4:]
    yield "wrong-size", plain[:-4] + struct.pack("<I", len(DATA) + 1)
    yield "zlib", zlib.compress(DATA)
    yield "deflate", zlib.compress(DATA)[2:-4]


def _blocks(*blocks: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def _snappy() -> Iterator[tuple[str, bytes]]:
    raw, own = snappy.compress(DATA), compression.compress(compression.SNAPPY, DATA)
    header, empty = own[:16], snappy.compress(b"")
    yield "raw", raw
    yield "raw-small", snappy.compress(b"abc")
    yield "raw-empty", empty
    for new, old in ((2, 1), (2, 2), (0, 0), (1, 0), (0, 1)):
        yield f"version-{new}-{old}", _XERIAL + struct.pack(">ii", new, old) + own[16:]
    yield "one-block", header + _blocks(raw)
    yield "empty-block", header + _blocks(empty) + own[16:]
    yield "empty-block-last", own + _blocks(empty)
    yield "zero-block", header + _blocks(b"") + own[16:]
    yield "zero-block-last", own + _blocks(b"")
    yield "two-streams", own + compression.compress(compression.SNAPPY, MORE)
    yield "trailing-one", own + b"\0"
    yield "trailing-four", own + b"\0\0\0\7"
    yield "header-only", header
    yield "raw-trailing", raw + b"\0"
    yield "framed", snappy.StreamCompressor().compress(DATA)


def _zstd_frame(*, sized: bool = True, dictionary: Any = None, **options: Any) -> bytes:
    parameters = zstandard.ZstdCompressionParameters(write_content_size=sized, **options)
    more = {} if dictionary is None else {"dict_data": dictionary}
    compressor = zstandard.ZstdCompressor(compression_params=parameters, **more)
    if sized:
        return compressor.compress(DATA)
    stream = compressor.compressobj()
    return stream.compress(DATA) + stream.flush()


def _zstd() -> Iterator[tuple[str, bytes]]:
    own = compression.compress(compression.ZSTD, DATA)
    yield "sized", _zstd_frame()
    yield "unsized", _zstd_frame(sized=False)
    summed = _zstd_frame(write_checksum=True)
    yield "checksum", summed
    yield "wrong-checksum", summed[:-1] + bytes([summed[-1] ^ 1])
    for window in _WINDOWS:
        yield f"window-{window}", _zstd_frame(sized=False, window_log=window)
    yield "two-frames", own + compression.compress(compression.ZSTD, MORE)
    yield "skippable-first", _SKIPPABLE + own
    yield "skippable-last", own + _SKIPPABLE
    yield "skippable-only", _SKIPPABLE
    yield "trailing-zeros", own + bytes(8)
    yield "trailing-bytes", own + b"garbage!"
    yield "magicless", own[4:]
    samples: list[Any] = [
        b"record %d of a batch, with some text in it; " % n * 3 for n in range(3_000)
    ]
    yield "dictionary", _zstd_frame(dictionary=zstandard.train_dictionary(4096, samples))
    content = b"record 1 of a batch, with some text in it; " * 50
    nameless = zstandard.ZstdCompressionDict(content, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    yield "dictionary-without-id", _zstd_frame(dictionary=nameless)
