"""Big buffers used again and again, because a fresh megabyte costs more than filling it.

A new `bytearray` is zeroed and its pages are faulted in: about 290 µs per MiB, twice what reading
the same bytes from the page cache costs. A pool remembers the buffers that it made and hands one
out again once nobody else holds it. Nothing is given back by hand: each view of a buffer holds a
reference to it, so the reference count says whether the last answer or frame made of it is gone.
"""

from __future__ import annotations

import sys
import threading
from typing import Final

from tidelog.core.limits import KIB

#: Below this a fresh buffer costs less than the search for a used one.
POOLED_BYTES: Final = 64 * KIB


def _references(buffers: list[bytearray], number: int) -> int:
    return sys.getrefcount(buffers[number])


#: What `_references` says of a buffer that only its list holds; it differs between Pythons.
_UNUSED: Final = _references([bytearray()], 0)


class BufferPool:
    """The buffers of one owner; remembers at most `max_bytes` of them. Safe between threads."""

    __slots__ = ("_buffers", "_held_bytes", "_lock", "_max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        #: The least recently handed out first.
        self._buffers: list[bytearray] = []
        self._held_bytes = 0
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """Bytes of the buffers remembered, in use or not."""
        return self._held_bytes

    def take(self, size_bytes: int) -> bytearray:
        """A buffer of exactly this size, with whatever bytes it was left with.

        It is the caller's alone as long as the caller, or any view of it, holds a reference.
        """
        if size_bytes < POOLED_BYTES or size_bytes > self._max_bytes:
            return bytearray(size_bytes)
        with self._lock:
            buffers = self._buffers
            for number in range(len(buffers)):
                if len(buffers[number]) == size_bytes and _references(buffers, number) == _UNUSED:
                    buffer = buffers.pop(number)
                    break
            else:
                buffer = bytearray(size_bytes)
                self._held_bytes += size_bytes
            buffers.append(buffer)
            while self._held_bytes > self._max_bytes:
                self._held_bytes -= len(buffers.pop(0))
            return buffer
