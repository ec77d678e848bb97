"""Progress of reassignments: copied and remaining bytes, rate, remaining time, state (R16).

`ProgressMeter` is pure: its input is what brokers report, with the time of the sample. Progress
compares the bytes of a copy with the leader's bytes. The progress is wrong if only the leader, or
only the broker of the copy, has deleted or compacted segments. Rates are averages over the last
`window_ms`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from tidelog.client.moving import MoveUnderWay
from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition

WINDOW_MS: Final = 10_000


class MoveState(StrEnum):
    """The step that a move has reached."""

    #: The added replicas are copying the partition.
    ADDING = "adding"
    #: Added replicas pause their copies, because too few replicas are in sync.
    PAUSED = "paused"
    #: All added replicas are in sync; the replicas to remove are being removed.
    COMPLETING = "completing"
    #: The move removes replicas and adds none.
    REMOVING = "removing"
    #: The partition returns to its former replicas (R3).
    CANCELLING = "cancelling"


@dataclass(frozen=True, slots=True)
class MoveSample:
    """One sample of a move. `sizes` has bytes by broker, without brokers that did not report."""

    move: MoveUnderWay
    leader: int
    isr: tuple[int, ...]
    sizes: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """A move and its progress; None means unknown."""

    tp: TopicPartition
    state: MoveState
    move: MoveUnderWay
    #: Copied bytes of all added replicas together.
    done_bytes: int | None
    left_bytes: int | None
    #: Copied bytes a second; None before the second sample.
    rate: float | None
    #: Remaining ms of the move, at the current rates of the copy and of the leader's growth.
    left_ms: int | None
    #: Whether the leader grows at least as fast as its copies, so that the move cannot end.
    is_never: bool
    #: The lowest configured throttle of the copies, in bytes a second (KIP-73); None for no
    #: throttle, or before the throttles were read.
    configured_rate: int | None = None

    @property
    def total_bytes(self) -> int | None:
        """Copied and remaining bytes together."""
        if self.done_bytes is None or self.left_bytes is None:
            return None
        return self.done_bytes + self.left_bytes


def state_of(sample: MoveSample) -> MoveState:
    """Return the step that a move has reached."""
    move = sample.move
    if move.adding:
        in_sync = all(broker in sample.isr for broker in move.adding)
        if move.paused and not in_sync:
            return MoveState.PAUSED
        return MoveState.COMPLETING if in_sync else MoveState.ADDING
    return MoveState.CANCELLING if move.target == move.original else MoveState.REMOVING


@dataclass(frozen=True, slots=True)
class _Point:
    at_ms: int
    done_bytes: int
    total_bytes: int


class ProgressMeter:
    """Conversion of samples into progress, for all moves of a cluster."""

    def __init__(self, window_ms: int = WINDOW_MS) -> None:
        self._window_ms = window_ms
        self._points: dict[tuple[TopicPartition, tuple[int, ...]], deque[_Point]] = {}

    def observe(
        self, now_ms: int, samples: Mapping[TopicPartition, MoveSample]
    ) -> list[MoveProgress]:
        """Return the progress of each move, in the order of the moves' partitions.

        `now_ms` is a monotonic time. A move without a sample is over, and its earlier samples are
        dropped. If the added replicas of a move change, the move's progress starts from zero.
        """
        kept = {(tp, sample.move.adding) for tp, sample in samples.items()}
        self._points = {key: points for key, points in self._points.items() if key in kept}
        return [self._progress(now_ms, tp, samples[tp]) for tp in sorted(samples)]

    def _progress(self, now_ms: int, tp: TopicPartition, sample: MoveSample) -> MoveProgress:
        state = state_of(sample)
        point = _measured(now_ms, sample)
        if point is None:
            return MoveProgress(tp, state, sample.move, None, None, None, None, False)
        points = self._points.setdefault((tp, sample.move.adding), deque())
        points.append(point)
        while len(points) > 2 and points[1].at_ms <= now_ms - self._window_ms:
            points.popleft()
        left = point.total_bytes - point.done_bytes
        first = points[0]
        passed_ms = point.at_ms - first.at_ms
        rate = left_ms = None
        is_never = False
        if passed_ms > 0:
            copied = max(0, point.done_bytes - first.done_bytes)
            gained = copied - (point.total_bytes - first.total_bytes)
            rate = copied * 1000 / passed_ms
            if gained > 0:
                left_ms = left * passed_ms // gained
            elif left:
                # Copies begin with a delay, so a short observation cannot show that a move never
                # ends.
                is_never = 2 * passed_ms >= self._window_ms
        if not left:
            left_ms = 0
        return MoveProgress(tp, state, sample.move, point.done_bytes, left, rate, left_ms, is_never)


def _measured(now_ms: int, sample: MoveSample) -> _Point | None:
    """Return the bytes of a move; None if the leader or an added replica reported none."""
    adding = sample.move.adding
    if not adding:
        return _Point(now_ms, 0, 0)
    whole = sample.sizes.get(sample.leader)
    if whole is None:
        return None
    done = 0
    for broker in adding:
        if broker in sample.isr:
            done += whole
        elif broker in sample.sizes:
            done += min(whole, sample.sizes[broker])
        else:
            return None
    return _Point(now_ms, done, whole * len(adding))
