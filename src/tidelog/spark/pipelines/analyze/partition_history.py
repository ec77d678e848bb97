"""The states of a partition over time, from its events, without Spark.

The module decides the state between two events: the leader, the in-sync replicas, and whether
acks=all was served. Events may start late, be missing or duplicated, and have times by the clocks
of several brokers. A state that the events do not prove is unknown. Epochs, not clocks, order the
events of a partition.

No event reports the deletion of a topic. After the last event of a deleted topic, the state is
unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.types import NO_LEADER

LEADER_CHANGE: Final = "leader_change"
ISR_CHANGE: Final = "isr_change"
_CREATED: Final = "created"
#: The cause of an ISR departure whose event states no cause.
UNKNOWN_CAUSE: Final = "unknown"


class State(StrEnum):
    """The service that a partition offers to its clients."""

    #: A leader that serves acks=all.
    ACKNOWLEDGING = "acknowledging"
    #: A leader with fewer in-sync replicas than min.insync.replicas: acks=all is refused.
    UNDER_MIN_ISR = "under min ISR"
    #: The time from the first sign of the leader's death until the new leader has taken its role.
    FAILING_OVER = "failing over"
    NO_LEADER = "no leader"
    #: The state is unknown, because no event proves it.
    UNKNOWN = "unknown"
    #: The partition did not exist yet.
    ABSENT = "absent"


#: States in which a partition has no responding leader.
LEADERLESS: Final = (State.FAILING_OVER, State.NO_LEADER)
#: States whose time counts for the availability of a partition.
KNOWN: Final = (State.ACKNOWLEDGING, State.UNDER_MIN_ISR, *LEADERLESS)


@dataclass(frozen=True, slots=True)
class ObservedChange:
    """A change of leader or ISR; `previous_leader` is None if the event has none."""

    topic_id: str
    time_ms: int
    leader: int
    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    previous_leader: int | None
    previous_isr: tuple[int, ...]
    cause: str
    left: tuple[tuple[int, str], ...] = ()

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> ObservedChange:
        """Return the change in an event; raise KeyError, TypeError or ValueError if invalid.

        ISR departures without a stated cause get the cause `unknown`.
        """
        isr = tuple(int(each) for each in event["isr"])
        previous = tuple(int(each) for each in event["previous_isr"])
        stated = {int(each["broker"]): str(each["cause"]) for each in event.get("left", ())}
        stated |= {
            member: UNKNOWN_CAUSE
            for member in previous
            if member not in isr and member not in stated
        }
        is_leader_change = event["kind"] == LEADER_CHANGE
        return cls(
            topic_id=str(event["topic_id"]),
            time_ms=int(event["time_ms"]),
            leader=int(event["leader"]),
            isr=isr,
            leader_epoch=int(event["leader_epoch"]),
            partition_epoch=int(event["partition_epoch"]),
            previous_leader=int(event["previous_leader"]) if is_leader_change else None,
            previous_isr=previous,
            cause=str(event["cause"]),
            left=tuple(sorted(stated.items())),
        )

    @property
    def leader_before(self) -> int:
        """The leader that the partition had before this change."""
        return self.leader if self.previous_leader is None else self.previous_leader


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A partition as the cluster described it at `time_ms`."""

    topic_id: str
    time_ms: int
    leader: int
    isr: tuple[int, ...]
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Handover:
    """The time from the first sign of a leader's death until its successor has taken its role."""

    leader_epoch: int
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Scope:
    """The time to analyse, and the time from which the events are complete.

    `is_snapshot_known` is whether the cluster was queried for its partitions; if so, a partition
    without a snapshot no longer exists.
    """

    start_ms: int
    end_ms: int
    complete_from_ms: int
    is_snapshot_known: bool


@dataclass(frozen=True, slots=True)
class Interval:
    """A time `[start, end)` in which a partition is in one state."""

    topic_id: str
    start_ms: int
    end_ms: int
    state: State
    leader: int = NO_LEADER
    isr: tuple[int, ...] = ()

    @property
    def length_ms(self) -> int:
        """Length in milliseconds."""
        return self.end_ms - self.start_ms


@dataclass(frozen=True, slots=True)
class IsrAbsence:
    """A replica's absence from the ISR, until its return or the end of the analysed time."""

    start_ms: int
    end_ms: int
    broker: int
    #: The leader when the replica left the ISR; the replica's own broker if the replica was the
    #: leader that died.
    leader: int
    cause: str


@dataclass(frozen=True, slots=True)
class PartitionHistory:
    """The states of one partition in the analysed time, as its events prove them.

    Also counts events that are missing or have a wrong time.
    """

    intervals: tuple[Interval, ...]
    departures: tuple[IsrAbsence, ...]
    #: Number of missing events. An event is missing where the previous state in an event differs
    #: from the state after the preceding event.
    missed: int
    #: The largest number of ms by which an event's time lies before the previous event's time.
    clock_step_ms: int


def partition_history(
    changes: Iterable[ObservedChange],
    snapshot: Snapshot | None,
    handovers: Sequence[Handover],
    scope: Scope,
    min_isr: int,
) -> PartitionHistory:
    """Return one partition's states in the analysed time, over all incarnations of its topic."""
    by_topic_id: dict[str, list[ObservedChange]] = {}
    for change in changes:
        by_topic_id.setdefault(change.topic_id, []).append(change)
    if snapshot is not None:
        by_topic_id.setdefault(snapshot.topic_id, [])
    intervals: list[Interval] = []
    departures: list[IsrAbsence] = []
    missed = step_ms = 0
    known_from = scope.complete_from_ms
    # Incarnations are handled oldest first, because the known time of an incarnation begins after
    # the last event of the previous incarnation.
    topic_ids = sorted(by_topic_id, key=lambda each: _order(by_topic_id[each]))
    for place, topic_id in enumerate(topic_ids):
        ordered, step = in_order(by_topic_id[topic_id])
        step_ms = max(step_ms, step)
        own = snapshot if snapshot is not None and snapshot.topic_id == topic_id else None
        successor = by_topic_id[topic_ids[place + 1]] if place + 1 < len(topic_ids) else None
        life = _TopicLife(
            topic_id=topic_id,
            changes=ordered,
            snapshot=own,
            known_from_ms=known_from,
            end_ms=scope.end_ms if successor is None else _first_ms(successor, snapshot, scope),
            is_gone=own is None and (scope.is_snapshot_known or successor is not None),
            has_predecessor=place > 0,
            min_isr=min_isr,
        )
        found, gaps = _of_life(life)
        missed += gaps
        intervals += found
        departures += _departures(life)
        if ordered:
            known_from = max(known_from, ordered[-1].time_ms)
    intervals = _with_handovers(intervals, handovers, by_topic_id)
    return PartitionHistory(
        tuple(_clipped(joined(intervals), scope)), tuple(departures), missed, step_ms
    )


def in_order(changes: Iterable[ObservedChange]) -> tuple[list[ObservedChange], int]:
    """Return changes in order of epochs, with rising times, and the largest correction of a time in
    ms.
    """
    unique = {(each.leader_epoch, each.partition_epoch): each for each in changes}
    ordered: list[ObservedChange] = []
    step_ms = 0
    for _, change in sorted(unique.items()):
        if ordered and change.time_ms < ordered[-1].time_ms:
            step_ms = max(step_ms, ordered[-1].time_ms - change.time_ms)
            change = replace(change, time_ms=ordered[-1].time_ms)
        ordered.append(change)
    return ordered, step_ms


def state_of(leader: int, isr: Sequence[int], min_isr: int) -> State:
    """Return the state of a partition with this leader and ISR."""
    if leader == NO_LEADER:
        return State.NO_LEADER
    return State.ACKNOWLEDGING if len(isr) >= min_isr else State.UNDER_MIN_ISR


def windowed(intervals: Iterable[Interval], start_ms: int, window_ms: int) -> list[Interval]:
    """Return the intervals split at the borders of windows that begin at `start_ms`."""
    parts: list[Interval] = []
    for interval in intervals:
        at = interval.start_ms
        while at < interval.end_ms:
            border = start_ms + ((at - start_ms) // window_ms + 1) * window_ms
            end = min(border, interval.end_ms)
            parts.append(replace(interval, start_ms=at, end_ms=end))
            at = end
    return parts


@dataclass(frozen=True, slots=True)
class _TopicLife:
    """One incarnation of a topic, with the changes of the partition in order of epochs."""

    topic_id: str
    changes: Sequence[ObservedChange]
    snapshot: Snapshot | None
    known_from_ms: int
    #: The end of the analysed time, or the first event of the topic's next incarnation.
    end_ms: int
    #: Whether the topic was deleted; the time of the deletion is unknown.
    is_gone: bool
    has_predecessor: bool
    min_isr: int

    def interval(self, start_ms: int, end_ms: int, leader: int, isr: tuple[int, ...]) -> Interval:
        """Return an interval with the given leader and ISR, under this incarnation of the topic."""
        state = state_of(leader, isr, self.min_isr)
        return Interval(self.topic_id, start_ms, end_ms, state, leader, isr)


def _order(changes: Sequence[ObservedChange]) -> float:
    """Return the time of a topic's first event; a topic without events counts as the newest."""
    return min((each.time_ms for each in changes), default=float("inf"))


def _first_ms(changes: Sequence[ObservedChange], snapshot: Snapshot | None, scope: Scope) -> int:
    """Return the time of a topic's first event; without events, the time of the snapshot."""
    seen_ms = scope.end_ms if snapshot is None else min(snapshot.time_ms, scope.end_ms)
    return min((each.time_ms for each in changes), default=seen_ms)


def _of_life(life: _TopicLife) -> tuple[list[Interval], int]:
    """Return the state intervals under one topic id, and the number of changes without an event."""
    if not life.changes:
        return _without_events(life)
    intervals = [_before_first(life)]
    missed = 0
    for change, following in zip(life.changes, life.changes[1:], strict=False):
        interval = life.interval(change.time_ms, following.time_ms, change.leader, change.isr)
        if not _follows(change, following):
            missed += 1
            interval = replace(interval, state=State.UNKNOWN)
        intervals.append(interval)
    last, snapshot = life.changes[-1], life.snapshot
    end_ms = max(life.end_ms, last.time_ms)
    final = life.interval(last.time_ms, end_ms, last.leader, last.isr)
    if snapshot is None:
        intervals.append(replace(final, state=State.UNKNOWN) if life.is_gone else final)
    elif _agrees(last, snapshot):
        intervals.append(final)
    else:
        missed += 1
        seen_ms = min(max(snapshot.time_ms, last.time_ms), end_ms)
        intervals.append(replace(final, end_ms=seen_ms, state=State.UNKNOWN))
        intervals.append(life.interval(seen_ms, end_ms, snapshot.leader, snapshot.isr))
    return [each for each in intervals if each.length_ms > 0], missed


def _without_events(life: _TopicLife) -> tuple[list[Interval], int]:
    """Return the state intervals of a partition without events, by the state of its snapshot.

    If the topic had an earlier incarnation, the state begins at the time of the snapshot, because
    no event reports the creation.
    """
    snapshot = life.snapshot
    if snapshot is None:
        return [], 0
    known_ms = snapshot.time_ms if life.has_predecessor else life.known_from_ms
    interval = life.interval(known_ms, life.end_ms, snapshot.leader, snapshot.isr)
    return ([interval] if interval.length_ms > 0 else []), int(life.has_predecessor)


def _before_first(life: _TopicLife) -> Interval:
    """Return the state before the first event, as the event itself reports it."""
    first = life.changes[0]
    begun = min(life.known_from_ms, first.time_ms)
    if life.has_predecessor:
        begun = first.time_ms  # before this event, an earlier topic of the same name existed
    if first.cause == _CREATED:
        state = State.UNKNOWN if life.has_predecessor else State.ABSENT
        return Interval(life.topic_id, begun, first.time_ms, state)
    return life.interval(begun, first.time_ms, first.leader_before, first.previous_isr)


def _follows(change: ObservedChange, following: ObservedChange) -> bool:
    return following.leader_before == change.leader and sorted(following.previous_isr) == sorted(
        change.isr
    )


def _agrees(last: ObservedChange, snapshot: Snapshot) -> bool:
    """Return whether a snapshot agrees with the last event, or is older than this event."""
    if snapshot.leader_epoch < last.leader_epoch or snapshot.time_ms < last.time_ms:
        return True
    return snapshot.leader == last.leader and sorted(snapshot.isr) == sorted(last.isr)


def _departures(life: _TopicLife) -> list[IsrAbsence]:
    """Return each absence of a replica from the ISR, with begin, end and cause."""
    found: list[IsrAbsence] = []
    for place, change in enumerate(life.changes):
        later = life.changes[place + 1 :]
        for broker, cause in change.left:
            back = next((each.time_ms for each in later if broker in each.isr), None)
            if back is None and life.snapshot is not None and broker in life.snapshot.isr:
                back = life.snapshot.time_ms
            end = max(life.end_ms if back is None else back, change.time_ms)
            found.append(IsrAbsence(change.time_ms, end, broker, change.leader_before, cause))
    return found


def _with_handovers(
    intervals: Sequence[Interval],
    handovers: Sequence[Handover],
    by_topic_id: Mapping[str, Sequence[ObservedChange]],
) -> list[Interval]:
    """Return the intervals with "failing over" from a leader's death until the takeover."""
    begun: dict[int, list[int]] = {}
    for changes in by_topic_id.values():
        for change in changes:
            if change.leader != NO_LEADER and change.previous_leader is not None:
                begun.setdefault(change.leader_epoch, []).append(change.time_ms)
    # Changes of two incarnations of a topic may have equal epochs, so the times must match, too.
    spans = [
        (min(each.start_ms, time_ms), each.end_ms)
        for each in handovers
        for time_ms in begun.get(each.leader_epoch, ())
        if each.start_ms - _SLACK_MS <= time_ms <= each.end_ms + _SLACK_MS
    ]
    result = list(intervals)
    for start, end in spans:
        result = [part for each in result for part in _covered(each, start, end)]
    return result


#: Tolerance in ms between the times of a failover and of its leader changes; the controller sets
#: both times.
_SLACK_MS: Final = 1_000


def _covered(interval: Interval, start_ms: int, end_ms: int) -> list[Interval]:
    """Split an interval; the state within `[start_ms, end_ms)` becomes "failing over"."""
    low, high = max(interval.start_ms, start_ms), min(interval.end_ms, end_ms)
    if low >= high or interval.state not in (State.ACKNOWLEDGING, State.UNDER_MIN_ISR):
        return [interval]
    parts = [
        replace(interval, end_ms=low),
        replace(interval, start_ms=low, end_ms=high, state=State.FAILING_OVER),
        replace(interval, start_ms=high),
    ]
    return [each for each in parts if each.length_ms > 0]


def joined(intervals: Iterable[Any]) -> list[Any]:
    """Join adjacent intervals that differ only in their start and end.

    All intervals must be values of one dataclass with the fields start_ms and end_ms.
    """
    result: list[Any] = []
    for interval in intervals:
        before = result[-1] if result else None
        if (
            before is not None
            and replace(interval, start_ms=before.start_ms, end_ms=before.end_ms) == before
            and before.end_ms == interval.start_ms
        ):
            result[-1] = replace(before, end_ms=interval.end_ms)
        else:
            result.append(interval)
    return result


def _clipped(intervals: Sequence[Interval], scope: Scope) -> list[Interval]:
    """Return the intervals cut to the analysed time, with the unknown state in the gaps."""
    result: list[Interval] = []
    at = scope.start_ms
    for interval in intervals:
        low, high = max(interval.start_ms, at), min(interval.end_ms, scope.end_ms)
        if low >= high:
            continue
        if at < low:
            result.append(Interval(interval.topic_id, at, low, State.UNKNOWN))
        result.append(replace(interval, start_ms=low, end_ms=high))
        at = high
    if at < scope.end_ms:
        topic_id = result[-1].topic_id if result else ""
        result.append(Interval(topic_id, at, scope.end_ms, State.UNKNOWN))
    return result
