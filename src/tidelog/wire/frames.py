"""Frames of a byte stream: four bytes of size, then that many bytes. No I/O.

A `FrameReader` owns one receive buffer, made for asyncio.BufferedProtocol. `get_buffer` returns the
room for the next bytes; `received` returns the complete frames, as views of that buffer. It copies
only the beginning of a frame that must move to fit, and a buffer that must grow. Memory follows the
received bytes, never the size that a frame claims: a buffer at most doubles, and only when it is
full. Buffers above RETAINED_BYTES are released with their frames, smaller ones after a while
without need, so that an idle connection costs little.
"""

from __future__ import annotations

import struct
from typing import Final

from tidelog.core.buffers import BufferPool
from tidelog.core.errors import ProtocolError
from tidelog.core.limits import (
    KIB,
    MAX_REQUEST_BYTES,
    MIB,
    RECEIVE_BUFFER_BYTES,
    RECEIVE_POOL_BYTES,
)

SIZE_BYTES: Final = 4
#: The first buffer of a connection. Most connections only ever send small requests, such as the
#: heartbeats and commits of a group member. With buffers of 16 KiB, thousands of members take more
#: than twice the memory.
FIRST_BUFFER_BYTES: Final = 2 * KIB
#: A frame of this size or more is read up to its end exactly, so that its successor starts clean.
BIG_FRAME_BYTES: Final = 128 * KIB
#: An incomplete frame of at most this size moves to the front: the next read has all the room.
CHEAP_MOVE_BYTES: Final = 4 * KIB
#: A buffer above this is not kept for the next frame: a connection that falls silent holds no more.
RETAINED_BYTES: Final = 2 * MIB
#: Consecutive reads that needed a quarter of the buffer or less, after which it shrinks.
QUIET_READS: Final = 64

_SIZE: Final = struct.Struct(">i")


class FrameError(ProtocolError):
    """A stream that cannot be split any further; `frames` holds the frames complete before."""

    def __init__(self, message: str, frames: list[memoryview]) -> None:
        super().__init__(message)
        self.frames = frames


class FrameTooLarge(FrameError):
    """A frame that claims more bytes than the limit in force."""


def _rounded(size: int) -> int:
    """Return a size rounded up to 64 KiB: frames of nearly one size then fit one buffer."""
    return (size + 0xFFFF) & ~0xFFFF


class FrameReader:
    """The frames of one connection's bytes; see the module's docstring for its memory."""

    __slots__ = (
        "_buffer",
        "_end",
        "_expected",
        "_full",
        "_kept",
        "_pool",
        "_quiet",
        "_start",
        "_usual_bytes",
        "_view",
        "max_frame_bytes",
        "needed_bytes",
    )

    def __init__(
        self,
        max_frame_bytes: int = MAX_REQUEST_BYTES,
        *,
        first_buffer_bytes: int = FIRST_BUFFER_BYTES,
        usual_bytes: int = RECEIVE_BUFFER_BYTES,
        pool: BufferPool | None = None,
    ) -> None:
        """`max_frame_bytes` may be changed at any time (it rises after authentication).

        Readers that share a `pool` reuse each other's former buffers.
        """
        self.max_frame_bytes = max_frame_bytes
        #: Reads that fill the buffer make it grow up to here, whatever the frames' size.
        self._usual_bytes = usual_bytes
        self._pool = pool if pool is not None else BufferPool(RECEIVE_POOL_BYTES)
        self._buffer = bytearray(first_buffer_bytes)
        self._view = memoryview(self._buffer)
        #: The bytes from `_start` to `_end` belong to a frame that is not complete.
        self._start = 0
        self._end = 0
        #: Bytes of that frame, its size included, as far as known.
        self.needed_bytes = SIZE_BYTES
        #: Length of the last big frame: the size of the next read where nothing is known yet.
        self._expected = 0
        self._kept = False
        #: The last read filled the buffer: more bytes were waiting.
        self._full = False
        self._quiet = 0

    @property
    def buffer_bytes(self) -> int:
        """The present size of the receive buffer."""
        return len(self._buffer)

    @property
    def pending_bytes(self) -> int:
        """Received bytes of an incomplete frame; if not 0 at the stream's end, it was cut off."""
        return self._end - self._start

    def pending_frame(self) -> tuple[int, int] | None:
        """Return size and first two bytes (of a request: its API key) of the incomplete frame.

        None where fewer bytes have come.
        """
        start = self._start
        if self._end - start < SIZE_BYTES + 2:
            return None
        key = int.from_bytes(self._view[start + SIZE_BYTES : start + SIZE_BYTES + 2], "big")
        return self.needed_bytes - SIZE_BYTES, key

    def keep(self) -> None:
        """Leave the frames returned last to their holders: their bytes will not change.

        Call it before the next `get_buffer`; the reader continues with another buffer.
        """
        self._kept = True

    def shrink(self) -> None:
        """Continue with the smallest buffer, unless part of a frame is in the present one.

        Between two reads only.
        """
        if self._end == self._start and len(self._buffer) > FIRST_BUFFER_BYTES:
            self._expected = 0
            self._replace(FIRST_BUFFER_BYTES)

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Return the room for the next bytes, never empty. Invalidates frames that are not kept."""
        capacity = len(self._buffer)
        held = self._end - self._start
        if self._full and capacity < self._usual_bytes:
            capacity = min(2 * capacity, self._usual_bytes)
            self._replace(capacity)
        elif self._kept:
            self._replace(capacity)
        if held == 0:
            self._start = self._end = 0
            if self._expected:
                return self._view[: self._expected]
            return self._view
        need = self.needed_bytes
        if self._start and (held <= CHEAP_MOVE_BYTES or self._start + need > capacity):
            self._view[:held] = self._view[self._start : self._end]
            self._start, self._end = 0, held
        if self._end == len(self._buffer):
            self._replace(min(_rounded(need), 2 * capacity) if need > capacity else 2 * capacity)
        if need >= BIG_FRAME_BYTES:
            return self._view[self._end : self._start + need]
        return self._view[self._end :]

    def _replace(self, capacity: int) -> None:
        """Continue with a fresh buffer that begins with the bytes of the incomplete frame."""
        fresh = self._pool.take(capacity)
        held = self._end - self._start
        if held:
            fresh[:held] = self._view[self._start : self._end]
        self._buffer = fresh
        self._view = memoryview(fresh)
        self._start, self._end = 0, held
        self._kept = self._full = False
        self._quiet = 0

    def received(self, nbytes: int) -> list[memoryview]:
        """Return the frames complete after `nbytes` more, without their sizes, in order.

        They are valid until the next `get_buffer`, or for good after `keep`. Raises FrameError
        (FrameTooLarge) for a size that no frame can have.
        """
        self._kept = False
        buffer, view = self._buffer, self._view
        position, end = self._start, self._end + nbytes
        unpack = _SIZE.unpack_from
        frames: list[memoryview] = []
        need = SIZE_BYTES
        total = 0
        while end - position >= SIZE_BYTES:
            (size,) = unpack(buffer, position)
            if not 0 <= size <= self.max_frame_bytes:
                raise self._refused(size, frames)
            total = size + SIZE_BYTES
            stop = position + total
            if stop > end:
                need = total
                break
            frames.append(view[position + SIZE_BYTES : stop])
            position = stop
        self._start, self._end, self.needed_bytes = position, end, need
        self._full = end == len(buffer)
        if frames and need == SIZE_BYTES:
            self._expected = total if total >= BIG_FRAME_BYTES else 0
        if position == end:
            self._let_go(end)
        return frames

    def _refused(self, size: int, frames: list[memoryview]) -> FrameError:
        if size < 0:
            return FrameError(f"a frame of the size {size}", frames)
        return FrameTooLarge(
            f"a frame of {size} bytes, more than the {self.max_frame_bytes} allowed", frames
        )

    def _let_go(self, used: int) -> None:
        """Shrink between frames: at once above the retained size, or after many small reads.

        The frames just returned hold the old buffer as long as they live.
        """
        capacity = len(self._buffer)
        self._start = self._end = 0
        if capacity > RETAINED_BYTES:
            self._expected = 0
            self._replace(FIRST_BUFFER_BYTES)
        elif capacity > FIRST_BUFFER_BYTES and used <= capacity // 4:
            self._quiet += 1
            if self._quiet >= QUIET_READS:
                self._expected = 0
                self._replace(max(FIRST_BUFFER_BYTES, capacity // 2))
        else:
            self._quiet = 0
