"""Frames of a byte stream: four bytes of size, then as many bytes of content; without I/O.

A `FrameReader` owns one receive buffer, for asyncio.BufferedProtocol. `get_buffer` returns the room
for the next bytes, and `received` returns complete frames as views of the buffer. The reader copies
bytes only if an incomplete frame must move or the buffer must grow. Memory depends on the received
bytes, never on the size that a frame claims: a full buffer at most doubles. Only a client, which
limits the responses that it asks for, believes the size of a frame and makes room for all of the
frame at once. Buffers above RETAINED_BYTES are released with their frames. Smaller buffers shrink
after many small reads, so that an idle connection costs little memory.
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
#: Size of a connection's first buffer. Most connections send only small requests, such as the
#: heartbeats and commits of a group member. With first buffers of 16 KiB instead of 2 KiB,
#: thousands of group members would take more than twice the memory.
FIRST_BUFFER_BYTES: Final = 2 * KIB
#: Size from which a frame is read exactly up to its end, so that the next frame starts at the
#: buffer's beginning.
BIG_FRAME_BYTES: Final = 128 * KIB
#: Size up to which an incomplete frame moves to the buffer's front, so that the next read has more
#: room.
CHEAP_MOVE_BYTES: Final = 4 * KIB
#: Size up to which a buffer is kept for the next frame, and so the most that an idle connection
#: holds.
RETAINED_BYTES: Final = 2 * MIB
#: Number of consecutive reads of at most a quarter of the buffer, after which the buffer shrinks.
QUIET_READS: Final = 64

_SIZE: Final = struct.Struct(">i")


class FrameError(ProtocolError):
    """The error for a stream that cannot be divided into frames any further; `frames` has the
    complete frames before.
    """

    def __init__(self, message: str, frames: list[memoryview]) -> None:
        super().__init__(message)
        self.frames = frames


class FrameTooLarge(FrameError):
    """The error for a frame that claims more bytes than the current limit."""


def _rounded(size: int) -> int:
    """Round a size up to 64 KiB, so that frames of similar sizes fit one buffer."""
    return (size + 0xFFFF) & ~0xFFFF


class FrameReader:
    """The splitter of one connection's bytes into frames, with its receive buffer."""

    __slots__ = (
        "_believed_bytes",
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
        believed_bytes: int = 0,
        pool: BufferPool | None = None,
    ) -> None:
        """`max_frame_bytes` may change at any time, for example after authentication.

        A frame that claims at most `believed_bytes` gets a buffer for all of its bytes at once.
        Readers that share a `pool` reuse each other's released buffers.
        """
        self.max_frame_bytes = max_frame_bytes
        #: Size up to which the buffer grows when reads fill it, for frames of any size.
        self._usual_bytes = usual_bytes
        self._believed_bytes = believed_bytes
        self._pool = pool if pool is not None else BufferPool(RECEIVE_POOL_BYTES)
        self._buffer = bytearray(first_buffer_bytes)
        self._view = memoryview(self._buffer)
        #: The bytes from `_start` to `_end` belong to a frame that is not complete.
        self._start = 0
        self._end = 0
        #: Number of bytes of the incomplete frame including its size, as far as known.
        self.needed_bytes = SIZE_BYTES
        #: Size of the last big frame. Between frames, a read takes at most this size, so that a
        #: frame of equal size begins and ends with the read; 0 for no limit.
        self._expected = 0
        self._kept = False
        #: Whether the last read filled the buffer, so that more bytes may be waiting.
        self._full = False
        self._quiet = 0

    @property
    def buffer_bytes(self) -> int:
        """The current size of the receive buffer."""
        return len(self._buffer)

    @property
    def pending_bytes(self) -> int:
        """Number of received bytes of the incomplete frame; an end of the stream loses them."""
        return self._end - self._start

    def pending_frame(self) -> tuple[int, int] | None:
        """Return the size of the incomplete frame and its first two bytes, a request's API key.

        Returns None before the size and the API key have arrived.
        """
        start = self._start
        if self._end - start < SIZE_BYTES + 2:
            return None
        key = int.from_bytes(self._view[start + SIZE_BYTES : start + SIZE_BYTES + 2], "big")
        return self.needed_bytes - SIZE_BYTES, key

    def keep(self) -> None:
        """Keep the last returned frames valid: the reader continues with another buffer.

        The caller must call `keep` before the next `get_buffer`.
        """
        self._kept = True

    def shrink(self) -> None:
        """Continue with the smallest buffer, unless the current buffer has part of a frame.

        The caller may call this method only between two reads of the stream.
        """
        if self._end == self._start and len(self._buffer) > FIRST_BUFFER_BYTES:
            self._expected = 0
            self._replace(FIRST_BUFFER_BYTES)

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Return non-empty room for the next bytes; frames that are not kept become invalid."""
        capacity = len(self._buffer)
        held = self._end - self._start
        if self._full and capacity < self.needed_bytes <= self._believed_bytes:
            # A power of two, so that the pool's buffer of an earlier frame fits a larger frame.
            capacity = 1 << (self.needed_bytes - 1).bit_length()
            self._replace(capacity)
        elif self._full and capacity < self._usual_bytes:
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
        """Continue with another buffer, which begins with the bytes of the incomplete frame."""
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
        """Return the frames, without sizes, that are complete after `nbytes` more bytes.

        The frames are valid until the next `get_buffer`, or for good after `keep`. Raises
        FrameError (FrameTooLarge) for a size that no frame can have.
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
        """Shrink the buffer between frames: at once if it is large, or after many small reads.

        Views of the last returned frames keep the old buffer alive.
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
