"""LZ4 frames that Kafka's clients cannot read, although an LZ4 library can.

Kafka's reader takes one frame with independent blocks, and ignores all bytes after it. The LZ4
library also reads frames with linked blocks, several frames in a row, and skippable frames between
them. A leader that appended a batch with an unreadable frame would block every Java consumer of the
partition for good. Codecs other than LZ4 need no check for Kafka's clients, because their libraries
read only data that Kafka's clients also read (`tests/clients/test_codecs.py`). This module
decompresses nothing. Source: Lz4BlockInputStream.
"""

from __future__ import annotations

import struct
from typing import Final

from tidelog.core.ports import Buffer

_MAGIC: Final = 0x184D2204
#: Magic numbers of skippable frames, without their last four bits.
_SKIPPABLE: Final = 0x184D2A50
_SKIPPABLE_MASK: Final = 0xFFFFFFF0
_WORD: Final = struct.Struct("<I")
_WORD_BYTES: Final = 4
#: Size of the magic, the flags, the block size and the checksum of the shortest header.
_SHORTEST_HEADER: Final = 7
#: Bits of the flags byte in a frame's header: each stands for a property of the frame.
_INDEPENDENT: Final = 0x20
_BLOCK_CHECKSUMS: Final = 0x10
_CONTENT_SIZE: Final = 0x08
_CONTENT_CHECKSUM: Final = 0x04
_DICTIONARY: Final = 0x01
_CONTENT_SIZE_BYTES: Final = 8
#: Bit of a block's size that marks an uncompressed block.
_STORED: Final = 0x80000000


def end_of_first_frame(data: Buffer) -> int:
    """Return where the first frame ends, or the size of the data if the frame is cut off.

    The data must begin with a frame that is not skippable.
    """
    view = memoryview(data)
    size = len(view)
    flags = view[_WORD_BYTES]
    position = _SHORTEST_HEADER + (_CONTENT_SIZE_BYTES if flags & _CONTENT_SIZE else 0)
    behind_block = _WORD_BYTES if flags & _BLOCK_CHECKSUMS else 0
    while position + _WORD_BYTES <= size:
        (block,) = _WORD.unpack_from(view, position)
        position += _WORD_BYTES
        if block == 0:
            return min(size, position + (_WORD_BYTES if flags & _CONTENT_CHECKSUM else 0))
        position += (block & ~_STORED) + behind_block
    return size


def unreadable_header(data: Buffer) -> str:
    """Return why Kafka's clients cannot read data with this header, or "" if they can.

    Data that is too short for a frame also gives "", because the decompressor rejects it anyway.
    """
    view = memoryview(data)
    if len(view) < _SHORTEST_HEADER:
        return ""
    (magic,) = _WORD.unpack_from(view)
    if magic & _SKIPPABLE_MASK == _SKIPPABLE:
        return "it begins with a skippable LZ4 frame"
    flags = view[_WORD_BYTES]
    if magic != _MAGIC:
        return ""
    if not flags & _INDEPENDENT:
        return "the blocks of its LZ4 frame are linked; independent ones expected"
    if flags & _DICTIONARY:
        return "its LZ4 frame needs a dictionary"
    return ""
