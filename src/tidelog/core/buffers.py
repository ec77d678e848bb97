"""Pools of large buffers, reused because allocating a megabyte costs more than filling it.

Zeroing a new `bytearray` and faulting in its pages costs about 290 µs per MiB. Reading a MiB from
the page cache takes half as long as allocating a MiB. A pool remembers the buffers that it made and
reuses a buffer once no other code refers to the buffer. Callers never give buffers back explicitly.
Each view of a buffer holds a reference to the buffer, so the buffer's reference count shows whether
a response or frame still uses it.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Final

from tidelog.core.limits import KIB

#: Size below which a new buffer costs less than the search for an unused buffer in the pool.
POOLED_BYTES: Final = 64 * KIB


def _references(buffer: bytearray) -> int:
    return sys.getrefcount(buffer)


def _references_of_unused() -> int:
    buffer = bytearray()
    return _references(buffer)


#: The result of `_references` for a buffer that only a local variable holds; the number depends on
#: the Python version.
_UNUSED: Final = _references_of_unused()


class BufferPool:
    """A pool of the buffers of one owner, which remembers at most `max_bytes` of buffers.

    Thread-safe: a thread removes a buffer from the pool atomically before checking whether the
    buffer is unused.
    """

    __slots__ = ("_buffers", "_max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        #: The remembered buffers, the least recently checked for reuse first.
        self._buffers: deque[bytearray] = deque()

    @property
    def held_bytes(self) -> int:
        """Total size of the buffers that the pool remembers, in use or not."""
        return sum(map(len, tuple(self._buffers)))

    def release(self) -> None:
        """Forget all buffers; each buffer is freed with its last reference."""
        self._buffers.clear()

    def take(self, size_bytes: int) -> bytearray:
        """Return a buffer of exactly this size; a reused buffer still contains its old bytes.

        No other caller gets the buffer while this caller, or any view of the buffer, holds a
        reference.
        """
        if size_bytes < POOLED_BYTES or size_bytes > self._max_bytes:
            return bytearray(size_bytes)
        buffers = self._buffers
        for _ in range(len(buffers)):
            try:
                buffer = buffers.popleft()
            except IndexError:
                break  # other threads have taken the remaining buffers
            is_unused = len(buffer) == size_bytes and _references(buffer) == _UNUSED
            buffers.append(buffer)
            if is_unused:
                return buffer
        buffer = bytearray(size_bytes)
        buffers.append(buffer)
        while self.held_bytes > self._max_bytes:
            buffers.popleft()
        return buffer
