"""Mutants of frames over a byte stream, whose reads and sends end anywhere.

A lost or repeated part of a frame breaks every promise of order within a connection, as that of the
controller's commands (V81).
"""

from __future__ import annotations

from typing import Any, Final

from tests.support.mutants.mutant import mutant

_READER: Final = "tidelog.wire.frames:FrameReader"
_TRANSPORT: Final = "tidelog.wire.transport:FrameTransport"


@mutant("V81", f"{_READER}.received", profile="swarm", world="split_reads reset_connections")
def beginning_behind_frames_dropped(received: Any) -> Any:
    """The beginning of a frame that came in one read with a whole one before it is dropped."""

    def reading(self: Any, nbytes: int) -> Any:
        frames = received(self, nbytes)
        if frames:
            self._end = self._start
        return frames

    return reading


@mutant("V81", f"{_TRANSPORT}._enqueue", profile="swarm", world="split_reads")
def partial_send_begun_again(enqueue: Any) -> Any:
    """A response of which the kernel has taken a part is sent again from its beginning."""

    def queue(self: Any, parts: Any) -> None:
        # A tuple holds the rest of one response.
        is_rest = isinstance(parts, tuple) and isinstance(parts[0].obj, bytes | bytearray)
        enqueue(self, (parts[0].obj,) if is_rest else parts)

    return queue
