"""When the volume of a log directory counts as full, and when as writable again (D14).

A directory is full when a write was refused for lack of space, or when the usable bytes of its
volume fall below a reserve. The reserve is for checkpoints, snapshots, indexes and leader epochs,
which must still be written. Full ends only when the volume has twice the reserve again, so that a
directory at the limit does not alternate.

A look at the volume costs a system call, so looks depend on the bytes written since the last one.
At most half of the room above the reserve is written without a look, and no look is older than
`LOOK_MS` when a write comes: other programs write to the volume, too. Decides only: reads no clock,
makes no call. Source: D14 (open ground); Kafka fails the directory.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.ports import VolumeSize

#: The reserve is at most this share of the volume: a small volume is not all reserve.
_LARGEST_SHARE: Final = 20
#: Age of the last look from which the next write causes another one.
LOOK_MS: Final = 10_000
#: Bytes that the directory must be able to write before it counts as writable.
PROBE_BYTES: Final = 64 * 1024


class FreeSpace:
    """The free space of one log directory, as last seen."""

    __slots__ = ("_allowance_bytes", "_looked_ms", "full_since_ms", "reserve_bytes", "volume")

    def __init__(self, reserve_bytes: int) -> None:
        """`reserve_bytes` 0: the directory is full only when a write was refused."""
        self.reserve_bytes = reserve_bytes
        #: The volume at the last look; None before the first one.
        self.volume: VolumeSize | None = None
        #: Since when the directory is full, monotonic; None while it is writable.
        self.full_since_ms: int | None = None
        #: Bytes that may still be written before the next look.
        self._allowance_bytes = 0
        self._looked_ms = 0

    @property
    def is_full(self) -> bool:
        """Whether the directory takes no records and no replicas."""
        return self.full_since_ms is not None

    def reserve_of(self, volume: VolumeSize) -> int:
        """Return the reserve of a volume in bytes."""
        return min(self.reserve_bytes, volume.total_bytes // _LARGEST_SHARE)

    def is_look_due(self, written_bytes: int, now_ms: int) -> bool:
        """Count written bytes; return whether the volume must be looked at now."""
        if self.full_since_ms is not None or not self.reserve_bytes:
            return False
        left_bytes = self._allowance_bytes = self._allowance_bytes - written_bytes
        return left_bytes < 0 or now_ms - self._looked_ms >= LOOK_MS

    def looked(self, volume: VolumeSize, now_ms: int) -> bool:
        """Take over a look at the volume; return whether the directory turns full by it."""
        self.volume = volume
        self._looked_ms = now_ms
        room_bytes = volume.usable_bytes - self.reserve_of(volume)
        self._allowance_bytes = room_bytes // 2
        if room_bytes >= 0 or self.full_since_ms is not None or self.reserve_bytes == 0:
            return False
        self.full_since_ms = now_ms
        return True

    def refused(self, now_ms: int) -> bool:
        """Note a write that was refused for lack of space; return whether that turns it full."""
        if self.full_since_ms is not None:
            return False
        self.full_since_ms = now_ms
        return True

    def may_be_writable(self, volume: VolumeSize) -> bool:
        """Return whether a full directory has room enough to try a write.

        A quota refuses writes of which the volume knows nothing, so the room alone proves nothing.
        """
        return volume.usable_bytes >= max(2 * self.reserve_of(volume), PROBE_BYTES)

    def healed(self, now_ms: int) -> int:
        """Take a full directory as writable again; return for how many ms it was full."""
        since_ms, self.full_since_ms = self.full_since_ms, None
        assert since_ms is not None, "the directory was not full"
        return now_ms - since_ms
