"""The number of bytes of a log before or after an offset, computed without reading files.

The number of bytes is exact if the offset is the base offset of a segment. Within a segment whose
index is in memory, the error is at most one index interval. The leader measures in bytes how far a
follower lags (V62). A waiting consumer fetch measures the bytes of the active segment that it can
already read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.log.partition_log import PartitionLog


def bytes_from(log: PartitionLog, offset: int) -> int:
    """Return the number of bytes from `offset` to the log end; 0 for an unknown offset.

    An older segment whose index is not in memory counts as 0 bytes. The result may thus be too
    small but never too large, so the leader never takes a follower for slower than it is.
    """
    if offset < 0 or offset >= log.log_end_offset:
        return 0
    total = 0
    for segment in reversed(log.segments):
        if segment.base_offset > offset:
            total += segment.size_bytes
            continue
        if segment.index is not None:
            total += segment.size_bytes - segment.index.floor(offset)
        break
    return total


def active_bytes_below(log: PartitionLog, offset: int) -> int:
    """Return the bytes of the active segment below `offset`.

    The result is too small by at most one index interval if the index is in memory; it is never too
    large.
    """
    segment = log.active_segment
    if offset >= log.log_end_offset:
        return segment.size_bytes
    if offset <= segment.base_offset or segment.index is None:
        return 0
    return segment.index.floor(offset)
