"""Decisions whether a log directory's volume is full or writable again (D14).

A directory is full when a write was refused for lack of space, or when the usable bytes of its
volume fall below a reserve. The broker needs the reserve for checkpoints, producer snapshots,
indexes and leader epochs, which it must write even if the directory is full. A full directory
becomes writable only when the volume has twice the reserve free, so that a directory at the limit
does not flap.

A check of the volume costs a system call, so not every write causes a check. A check is due when
half of the room above the reserve has been written since the last check. Because other programs
write to the volume, too, a write also causes a check if the last check is older than `LOOK_MS`.
This module reads no clock and makes no system call. Only tidelog has these rules (D14); in Kafka, a
full disk makes the directory fail.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.ports import VolumeSize

#: The reserve is at most a twentieth of the volume, so that a small volume keeps room for records.
_LARGEST_SHARE: Final = 20
#: If the last check is older than this, the next write causes another check.
LOOK_MS: Final = 10_000
#: Number of bytes that a test write (probe) must write before the directory counts as writable.
PROBE_BYTES: Final = 64 * 1024


class FreeSpace:
    """The free space of one log directory, as of the last check."""

    __slots__ = ("_allowance_bytes", "_looked_ms", "full_since_ms", "reserve_bytes", "volume")

    def __init__(self, reserve_bytes: int) -> None:
        """With `reserve_bytes` 0, the directory is full only after a write was refused."""
        self.reserve_bytes = reserve_bytes
        #: The size of the volume at the last check; None before the first check.
        self.volume: VolumeSize | None = None
        #: Monotonic time at which the directory became full; None while it is writable.
        self.full_since_ms: int | None = None
        #: Number of bytes that may still be written before the next check of the volume.
        self._allowance_bytes = 0
        self._looked_ms = 0

    @property
    def is_full(self) -> bool:
        """Whether the directory is full, and so accepts no records and no replicas."""
        return self.full_since_ms is not None

    def reserve_of(self, volume: VolumeSize) -> int:
        """Return the reserve of a volume in bytes."""
        return min(self.reserve_bytes, volume.total_bytes // _LARGEST_SHARE)

    def is_look_due(self, written_bytes: int, now_ms: int) -> bool:
        """Count written bytes; return whether the volume must be checked now."""
        if self.full_since_ms is not None or not self.reserve_bytes:
            return False
        left_bytes = self._allowance_bytes = self._allowance_bytes - written_bytes
        return left_bytes < 0 or now_ms - self._looked_ms >= LOOK_MS

    def looked(self, volume: VolumeSize, now_ms: int) -> bool:
        """Record a check of the volume; return whether the directory becomes full."""
        self.volume = volume
        self._looked_ms = now_ms
        room_bytes = volume.usable_bytes - self.reserve_of(volume)
        self._allowance_bytes = room_bytes // 2
        if room_bytes >= 0 or self.full_since_ms is not None or self.reserve_bytes == 0:
            return False
        self.full_since_ms = now_ms
        return True

    def refused(self, now_ms: int) -> bool:
        """Note a write refused for lack of space; return whether the directory becomes full."""
        if self.full_since_ms is not None:
            return False
        self.full_since_ms = now_ms
        return True

    def may_be_writable(self, volume: VolumeSize) -> bool:
        """Return whether a full directory has enough room to probe it with a write.

        Room on the volume does not prove that writes succeed, because a quota may refuse them.
        """
        return volume.usable_bytes >= max(2 * self.reserve_of(volume), PROBE_BYTES)

    def healed(self, now_ms: int) -> int:
        """Make a full directory writable again; return for how many ms it was full."""
        since_ms, self.full_since_ms = self.full_since_ms, None
        assert since_ms is not None, "the directory was not full"
        return now_ms - since_ms
