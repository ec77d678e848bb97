"""The choice of a log directory for each new replica, by free bytes and expected growth (D2).

A new replica goes to the volume that will have most free space. A volume's future free space is its
usable bytes, less the bytes that recently placed replicas have yet to copy, less the expected
growth of existing replicas. Directories on one volume share its free space. Among the directories
of one volume, and among all directories if the free space of any volume is unknown, the replica
goes to the directory whose replicas will hold the fewest bytes. Ties go to the directory with fewer
replicas, then to the earlier directory in `log.dirs`.

The expected size of a new replica is the mean size of the broker's replicas. The expected size is
at least a thousandth of the smallest volume's usable bytes, or one segment if a segment is smaller.
Because the expected size has this minimum, the new replicas of one command spread over equal disks
even if all existing replicas are empty. This module does no I/O. Only tidelog chooses by bytes
(D2); Kafka chooses the directory with the fewest replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.core.dataclass import dataclass

#: The smallest volume's usable bytes, divided by this number, are the minimum expected size of a
#: replica.
_SMALLEST_PART: Final = 1_000


@dataclass(frozen=True, slots=True)
class LogDirRoom:
    """One log directory that may take new replicas."""

    #: Usable bytes of the directory's volume; None if unknown.
    usable_bytes: int | None
    #: Number of the volume, equal for directories on the same volume.
    volume: int
    #: Bytes of the replicas in the directory.
    held_bytes: int
    #: Bytes by which the directory's replicas are expected to grow.
    growth_bytes: int
    #: Bytes still to be copied to recently placed replicas.
    promised_bytes: int
    replicas: int


def expected_bytes(
    replica_bytes: Iterable[int], usable_bytes: Iterable[int | None], segment_bytes: int
) -> int:
    """Return the expected size of a new replica, from the sizes of the broker's replicas."""
    sizes = list(replica_bytes)
    mean = sum(sizes) // len(sizes) if sizes else 0
    known = [each for each in usable_bytes if each is not None]
    least = min(segment_bytes, min(known) // _SMALLEST_PART) if known else segment_bytes
    return max(mean, least, 1)


def choose(count: int, expected: int, directories: Sequence[LogDirRoom]) -> list[int]:
    """Choose a directory for each of `count` replicas of the `expected` size; return indexes into
    `directories`.

    `directories` are the directories that are online, writable and not cordoned, in the order of
    `log.dirs`; there must be at least one.
    """
    assigned = [0] * len(directories)
    usable: dict[int, int] = {}
    taken: dict[int, int] = {}
    for each in directories:
        # Directories on one volume may report different free space, because other programs write
        # between their checks: use the smallest.
        usable_bytes = each.usable_bytes or 0
        usable[each.volume] = min(usable_bytes, usable.get(each.volume, usable_bytes))
        taken[each.volume] = taken.get(each.volume, 0) + each.promised_bytes + each.growth_bytes
    is_known = all(each.usable_bytes is not None for each in directories)

    def rank(index: int) -> tuple[int, int, int, int]:
        each = directories[index]
        room = usable[each.volume] - taken[each.volume] if is_known else 0
        will_hold = each.held_bytes + each.promised_bytes + expected * assigned[index]
        return -room, will_hold, each.replicas + assigned[index], index

    chosen = []
    for _ in range(count):
        index = min(range(len(directories)), key=rank)
        assigned[index] += 1
        taken[directories[index].volume] += expected
        chosen.append(index)
    return chosen


class Promises:
    """Promised bytes: bytes that recently placed replicas are expected to use, but do not use
    yet.
    """

    #: Time after which the promised bytes of a replica expire, because the replica may never reach
    #: the expected size.
    LIFE_MS: Final = 3_600_000

    __slots__ = ("_made",)

    def __init__(self) -> None:
        #: By (log directory, replica): the expected bytes, and the time when the replica was
        #: placed.
        self._made: dict[tuple[str, object], tuple[int, int]] = {}

    def make(self, path: str, replica: object, size_bytes: int, now_ms: int) -> None:
        """Note the expected size of a replica that is placed now."""
        self._made[path, replica] = (size_bytes, now_ms)

    def left(self, path: str, sizes: dict[object, int], now_ms: int) -> int:
        """Return the bytes that replicas are still expected to add to a directory.

        `sizes` are the present sizes of the directory's replicas. The sum leaves out replicas that
        were removed, have reached their expected size, or were placed long ago.
        """
        total = 0
        for key, (expected, since_ms) in list(self._made.items()):
            if key[0] != path:
                continue
            size_bytes = sizes.get(key[1])
            if size_bytes is None or size_bytes >= expected or now_ms - since_ms >= self.LIFE_MS:
                del self._made[key]
            else:
                total += expected - size_bytes
        return total


class GrowthRate:
    """The recent growth rate of the replicas in one log directory."""

    #: A sample is taken each `SAMPLE_MS`, and only the last `SAMPLES` samples are used. Growth is
    #: expected to continue for `HORIZON_MS`.
    SAMPLE_MS: Final = 60_000
    SAMPLES: Final = 60
    HORIZON_MS: Final = 3_600_000

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        #: Samples (time, bytes held), oldest first.
        self._samples: list[tuple[int, int]] = []

    def sample(self, held_bytes: int, now_ms: int) -> None:
        """Sample the bytes that the directory holds, unless the last sample is younger than
        `SAMPLE_MS`.
        """
        if not self._samples or now_ms - self._samples[-1][0] >= self.SAMPLE_MS:
            self._samples.append((now_ms, held_bytes))
            del self._samples[: -self.SAMPLES]

    def restart(self) -> None:
        """Drop the samples, because a replica moved into or out of the directory: a move is no
        growth.
        """
        self._samples.clear()

    def expected_bytes(self, held_bytes: int, now_ms: int, least_ms: int = SAMPLE_MS) -> int:
        """Return the expected growth, or 0 if the directory shrinks or has too few samples.

        The oldest sample must be at least `least_ms` old.
        """
        if not self._samples:
            return 0
        since_ms, before = self._samples[0]
        if now_ms - since_ms < least_ms:
            return 0
        return max(0, held_bytes - before) * self.HORIZON_MS // (now_ms - since_ms)
