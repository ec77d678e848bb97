"""Big buffers for reuse, because a fresh megabyte costs more than filling it.

A new `bytearray` is zeroed and its pages are faulted in. That costs about 290 µs per MiB, twice a
read of the same bytes from the page cache. A pool remembers the buffers that it made and returns a
buffer again once no other code holds it. Callers return nothing by hand. Each view of a buffer
holds a reference to it, so the reference count shows whether the last response or frame made of it
is gone.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Final

from tidelog.core.limits import KIB

#: Below this a fresh buffer costs less than the search for a used one.
POOLED_BYTES: Final = 64 * KIB


def _references(buffer: bytearray) -> int:
    return sys.getrefcount(buffer)


def _references_of_unused() -> int:
    buffer = bytearray()
    return _references(buffer)


#: The result of `_references` for a buffer that only a local variable holds; Pythons differ.
_UNUSED: Final = _references_of_unused()


class BufferPool:
    """The buffers of one owner; remembers at most `max_bytes` of them.

    Safe between threads: a thread takes a buffer out, in one step, before it looks at it.
    """

    __slots__ = ("_buffers", "_max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        #: The least recently checked first.
        self._buffers: deque[bytearray] = deque()

    @property
    def held_bytes(self) -> int:
        """Bytes of the remembered buffers, in use or not."""
        return sum(map(len, tuple(self._buffers)))

    def release(self) -> None:
        """Remember no buffer: each is freed with its last reference."""
        self._buffers.clear()

    def take(self, size_bytes: int) -> bytearray:
        """Return a buffer of exactly this size, with the bytes of its last use.

        It is the caller's alone as long as the caller, or any view of it, holds a reference.
        """
        if size_bytes < POOLED_BYTES or size_bytes > self._max_bytes:
            return bytearray(size_bytes)
        buffers = self._buffers
        for _ in range(len(buffers)):
            try:
                buffer = buffers.popleft()
            except IndexError:
                break  # another thread has taken the rest
            is_unused = len(buffer) == size_bytes and _references(buffer) == _UNUSED
            buffers.append(buffer)
            if is_unused:
                return buffer
        buffer = bytearray(size_bytes)
        buffers.append(buffer)
        while self.held_bytes > self._max_bytes:
            buffers.popleft()
        return buffer
