"""The log directory of each new replica: by free bytes and expected growth, not by count (D2).

A replica goes where the volume will have most room: its usable bytes, without those that replicas
placed before still have to copy, and without the growth of the replicas that are there. Directories
of one volume share its room; among them, and where the room of some volume is not known, the one
whose replicas hold and will hold least is chosen. Ties go to the directory with fewer replicas,
then to the earlier one of `log.dirs`.

An expected size is a guess: the mean of the broker's replicas, and no less than a thousandth of the
smallest volume, up to a segment. So a command with many replicas spreads them over equal disks.
Pure. Source: D2 (open ground); Kafka chooses the directory with the fewest replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

#: Part of the smallest volume that a replica takes at least, as a guess.
_SMALLEST_PART: Final = 1_000


@dataclass(frozen=True, slots=True)
class LogDirRoom:
    """One log directory that may take new replicas."""

    #: Usable bytes of its volume; None where that is not known.
    usable_bytes: int | None
    #: Equal for directories of the same volume.
    volume: int
    #: Bytes of the replicas in it.
    held_bytes: int
    #: Bytes that these replicas are expected to grow by.
    growth_bytes: int
    #: Bytes that replicas placed here lately still have to copy.
    promised_bytes: int
    replicas: int


def expected_bytes(
    replica_bytes: Iterable[int], usable_bytes: Iterable[int | None], segment_bytes: int
) -> int:
    """Return the expected size of a new replica, by the sizes of those that the broker has."""
    sizes = list(replica_bytes)
    mean = sum(sizes) // len(sizes) if sizes else 0
    known = [each for each in usable_bytes if each is not None]
    least = min(segment_bytes, min(known) // _SMALLEST_PART) if known else segment_bytes
    return max(mean, least, 1)


def choose(count: int, expected: int, directories: Sequence[LogDirRoom]) -> list[int]:
    """Return the index of the directory of each of `count` replicas of the `expected` size.

    `directories` are the good, writable ones without a cordon, in the order of `log.dirs`, at least
    one.
    """
    assigned = [0] * len(directories)
    usable: dict[int, int] = {}
    taken: dict[int, int] = {}
    for each in directories:
        # Two looks at one volume differ by what others wrote between them.
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
    """Bytes that replicas placed lately are expected to take, and have not yet."""

    #: A promise ends after this time: its size was a guess.
    LIFE_MS: Final = 3_600_000

    __slots__ = ("_made",)

    def __init__(self) -> None:
        #: By log directory and replica: the expected bytes, and when it was placed.
        self._made: dict[tuple[str, object], tuple[int, int]] = {}

    def make(self, path: str, replica: object, size_bytes: int, now_ms: int) -> None:
        """Note a replica that was placed now."""
        self._made[path, replica] = (size_bytes, now_ms)

    def left(self, path: str, sizes: dict[object, int], now_ms: int) -> int:
        """Return the bytes still to come in a directory; `sizes` are those of its replicas.

        Promises of replicas that are gone, whole, or old end here.
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
    """How fast the replicas of one log directory have grown lately."""

    #: Time between two samples, their number, and the time for which growth is expected to go on.
    SAMPLE_MS: Final = 60_000
    SAMPLES: Final = 60
    HORIZON_MS: Final = 3_600_000

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        #: (time, bytes held), oldest first.
        self._samples: list[tuple[int, int]] = []

    def sample(self, held_bytes: int, now_ms: int) -> None:
        """Note the bytes that the directory holds; soon after the last sample nothing is noted."""
        if not self._samples or now_ms - self._samples[-1][0] >= self.SAMPLE_MS:
            self._samples.append((now_ms, held_bytes))
            del self._samples[: -self.SAMPLES]

    def restart(self) -> None:
        """Forget the past: a replica has moved here, or away, which is no growth."""
        self._samples.clear()

    def expected_bytes(self, held_bytes: int, now_ms: int, least_ms: int = SAMPLE_MS) -> int:
        """Return the growth to expect, 0 where the directory shrinks or is not known for long.

        `least_ms` is the time for which it must be known.
        """
        if not self._samples:
            return 0
        since_ms, before = self._samples[0]
        if now_ms - since_ms < least_ms:
            return 0
        return max(0, held_bytes - before) * self.HORIZON_MS // (now_ms - since_ms)
