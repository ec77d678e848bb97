"""The budget for checks of clients' batches on the event loop; checks beyond the budget run on a
thread.

One batch of a few KiB can decompress to 100 MB, and a hundred such batches can arrive in one turn
of the event loop. The checks of one log directory therefore share a budget of decompressed bytes:
each check on the event loop spends from the budget, and time refills the budget. When the event
loop's budget is used up, a thread of the directory checks compressed batches and batches of many
records. The batches of a partition stay in order, even if some are checked on the event loop and
some on the thread (`broker/replicas/hosting/late_appends`).
"""

from __future__ import annotations

import struct

from tidelog.core import limits
from tidelog.core.ports import Buffer, Clock
from tidelog.records.batch import ATTRIBUTES_POSITION, COMPRESSION_MASK, HEADER_BYTES
from tidelog.records.checking import RECORD_EFFORT_BYTES, Effort

#: Format that reads two fields of a batch header, the attributes and the record count; it starts at
#: the attributes.
_ATTRIBUTES_AND_COUNT = struct.Struct(">h34xi")


class LoopBudget(Effort):
    """The remaining budget for checks on the event loop, in decompressed bytes."""

    __slots__ = ("_clock", "_refilled_ms", "left_bytes")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refilled_ms = clock.monotonic_ms()
        #: The remaining budget, below 0 if the last check cost more than remained.
        self.left_bytes = limits.LOOP_CHECK_BURST_BYTES

    def spend(self, effort_bytes: int) -> None:
        """Subtract the cost of a check on the event loop."""
        self.left_bytes -= effort_bytes

    def takes(self, records: Buffer, limit_bytes: int) -> bool:
        """Return whether the event loop may check a batch.

        The decision reads only the batch header. The event loop checks no batch that costs more
        than `limit_bytes`. Too few bytes for a header cost nothing: the check rejects them at once.
        """
        if len(records) < HEADER_BYTES:
            return True
        attributes, count = _ATTRIBUTES_AND_COUNT.unpack_from(records, ATTRIBUTES_POSITION)
        effort = count * RECORD_EFFORT_BYTES
        is_compressed = bool(attributes & COMPRESSION_MASK)
        if is_compressed:
            effort += len(records)
        if effort > limit_bytes:
            return False
        if is_compressed or effort > limits.LOOP_CHECK_FREE_BYTES:
            return self.left_bytes > 0 or self._refill()
        return True

    def _refill(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        earned = (now_ms - self._refilled_ms) * limits.LOOP_CHECK_BYTES_PER_MS
        self.left_bytes = min(limits.LOOP_CHECK_BURST_BYTES, self.left_bytes + earned)
        self._refilled_ms = now_ms
        return self.left_bytes > 0
