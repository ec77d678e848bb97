"""The chain of causes of an event: the event, its cause, and the cause's cause, with times.

Events name their immediate cause in a word, such as `leader_gone`. This module finds the event
behind the word: the session loss of the former leader, and before it the failure of its disk.
Events of several brokers arrive in any order, so the event of a cause may follow the event of its
effect by seconds. A chain ends with an event whose cause is no event of the cluster, such as a
crash of a process.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tidelog.client.event_sentences import event_sentence
from tidelog.console.readings import Event
from tidelog.console.views.tables import Document
from tidelog.controller import cluster_events as kinds
from tidelog.core.types import NO_LEADER, TopicPartition

#: Maximum time in ms by which the event of a cause may precede the event of its effect. `_AFTER_MS`
#: is the maximum time by which the event of a cause may follow the event of its effect.
_BEFORE_MS: Final = 15 * 60_000
_AFTER_MS: Final = 30_000
#: Maximum length of a chain; a broker that restarts again and again would make an endless chain.
_DEPTH: Final = 5
_OF_PARTITION: Final = (
    kinds.LEADER_CHANGE, kinds.ISR_CHANGE, kinds.LEADER_AWAITED, kinds.UNCLEAN_ELECTION,
    kinds.REASSIGNMENT_BEGUN, kinds.REASSIGNMENT_ENDED,
)  # fmt: skip

_DEATH: Final = (
    "The broker's process ended or stood still, or its network failed: its log says which."
)
#: By word: the explanation of a cause for which no event exists.
_ENDS: Final = {
    "leader_unfit": "The leader's log directory is full, slow or failed: see Disks.",
    "member_unfit": "The replica's log directory is full, slow or failed: see Disks.",
    "created": "The topic or the partition was created.",
    "preferred": "The preferred replica is in the ISR again, and leads as the replica list says.",
    "slow": "The follower fetched, but was not caught up for replica.lag.time.max.ms.",
    "no_fetch": "No fetch reached the leader: the follower's process or its network stood still.",
    "leader_read": "The leader's disk did not finish the read for the follower's fetch.",
    "epoch": "The follower fetched with another leader epoch or broker epoch.",
    "caught_up": "The follower has the leader's whole log again.",
    "death": _DEATH,
    "session": _DEATH,
    "leader_gone": _DEATH,
    kinds.SESSION_LOSS: _DEATH,
    kinds.SHUTDOWN: "An operator or the system stopped the broker.",
    kinds.LOG_DIR_FAILED: "The disk returned an error.",
    kinds.LOG_DIR_SLOW: "The disk took too long for too many operations.",
    kinds.REASSIGNMENT_BEGUN: "An operator or a tool asked for the move.",
    kinds.REGISTRATION: "The broker started.",
}

#: A kind of event, and the broker or the partition of the event; None means all events of the kind.
_Key = tuple[str, TopicPartition | int | None]


class EventLog:
    """The events in memory, with an index by kind, broker and partition.

    Without the index, the search for the causes on one page could scan all events a hundred times.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._index: dict[_Key, list[int]] = {}
        for position, event in enumerate(events):
            kind, broker, tp = event["kind"], event.get("broker"), _place(event)
            self._index.setdefault((kind, None), []).append(position)
            if isinstance(broker, int):
                self._index.setdefault((kind, broker), []).append(position)
            if tp is not None:
                self._index.setdefault((kind, tp), []).append(position)

    def __getitem__(self, position: int) -> Event:
        return self._events[position]

    def __len__(self) -> int:
        return len(self._events)

    def of_partition(self, tp: TopicPartition) -> list[int]:
        """Return the positions of a partition's events, the latest first."""
        found = [position for kind in _OF_PARTITION for position in self._index.get((kind, tp), ())]
        return sorted(found, reverse=True)

    def near(
        self,
        position: int,
        kind: str,
        subject: TopicPartition | int | None = None,
        matches: Callable[[Event], bool] = lambda event: True,
    ) -> int | None:
        """Return the position of the nearest matching event before `position`, else soon after it.

        `subject` is the broker or the partition of the wanted event; None means any event of the
        kind.
        """
        at_ms = _time(self._events[position])
        candidates = self._index.get((kind, subject), [])
        first_after = bisect_left(candidates, position)
        for before in reversed(candidates[:first_after]):
            event = self._events[before]
            if _time(event) < at_ms - _BEFORE_MS:
                break
            if matches(event):
                return before
        for after in candidates[first_after:]:
            event = self._events[after]
            if _time(event) > at_ms + _AFTER_MS:
                break
            if after != position and matches(event):
                return after
        return None

    def of_broker(self, position: int, kind: str, broker: object) -> int | None:
        """Return the position of the nearest event of `kind` about a broker, found as by `near`."""
        return self.near(position, kind, broker) if isinstance(broker, int) else None

    def of_same(
        self, position: int, kind: str, matches: Callable[[Event], bool] = lambda event: True
    ) -> int | None:
        """Return the position of the nearest matching event of `kind` about the same partition.

        The partition is the partition of the event at `position`.
        """
        tp = _place(self._events[position])
        return None if tp is None else self.near(position, kind, tp, matches)


def _place(event: Event) -> TopicPartition | None:
    topic, partition = event.get("topic"), event.get("partition")
    if isinstance(topic, str) and isinstance(partition, int):
        return TopicPartition(topic, partition)
    return None


def chain(log: EventLog, position: int, depth: int = _DEPTH) -> Document:
    """Return an event with its causes in `because`; without causes, `end` explains the event."""
    event = log[position]
    causes = list(dict.fromkeys(each for each in _causes(log, position) if each != position))
    because = [chain(log, each, depth - 1) for each in causes] if depth > 1 else []
    return {
        "time_ms": _time(event),
        "kind": event["kind"],
        "cause": event.get("cause"),
        "text": event_sentence(event),
        "because": because,
        "end": None if because else _end(event),
    }


def _time(event: Event) -> int:
    time_ms = event.get("time_ms")
    return time_ms if isinstance(time_ms, int) else 0


def _left(event: Event) -> list[tuple[object, str]]:
    found = event.get("left")
    if not isinstance(found, list):
        return []
    return [
        (each.get("broker"), str(each.get("cause"))) for each in found if isinstance(each, dict)
    ]


def _end(event: Event) -> str | None:
    words = [cause for _, cause in _left(event)] + [str(event.get("cause")), event["kind"]]
    return next((_ENDS[word] for word in words if word in _ENDS), None)


def _causes(log: EventLog, position: int) -> Iterator[int]:
    """Yield the positions of the events that caused an event, the nearest cause first."""
    event = log[position]
    finder = _FINDERS.get(event["kind"])
    if finder is not None:
        yield from (each for each in finder(log, position) if each is not None)


def _of_leader_change(log: EventLog, position: int) -> Iterator[int | None]:
    event = log[position]
    former, leader = event.get("previous_leader"), event.get("leader")
    match event.get("cause"):
        case "leader_gone":
            yield _end_of_session(log, position, former)
        case "leader_leaving":
            yield log.of_broker(position, kinds.SHUTDOWN, former)
        case "leader_restarted":
            yield log.of_broker(position, kinds.REGISTRATION, former)
        case "leader_unfit":
            yield log.of_broker(position, kinds.LOG_DIR_FAILED, former)
            yield log.of_broker(position, kinds.LOG_DIR_SLOW, former)
            yield log.of_same(position, kinds.REASSIGNMENT_BEGUN)
        case "replica_returned":
            yield log.of_broker(position, kinds.REGISTRATION, leader)
        case "nobody_in_sync_alive":
            yield log.of_broker(position, kinds.SESSION_LOSS, former)
        case "preferred":
            yield log.of_same(position, kinds.ISR_CHANGE)
        case "unclean":
            yield log.of_same(position, kinds.LEADER_AWAITED)
    yield from _of_members(log, position)


def _of_isr_change(log: EventLog, position: int) -> Iterator[int | None]:
    event = log[position]
    yield from _of_members(log, position)
    if event.get("cause") == "caught_up":
        former = event.get("previous_isr") or []
        for broker in event.get("isr") or []:
            if broker not in former:
                yield log.of_broker(position, kinds.REGISTRATION, broker)
                yield log.of_broker(position, kinds.LOG_DIR_FAST_AGAIN, broker)
                yield _move_adding(log, position, broker)


def _of_members(log: EventLog, position: int) -> Iterator[int | None]:
    """Yield the positions of the events that caused an ISR change (the event at `position`).

    For each replica that left the ISR, the cause in the event determines the kind of event to find.
    """
    leader = log[position].get("leader")
    for broker, cause in _left(log[position]):
        match cause:
            case "session":
                yield _end_of_session(log, position, broker)
            case "shutdown":
                yield log.of_broker(position, kinds.SHUTDOWN, broker)
            case "bounce":
                yield log.of_broker(position, kinds.REGISTRATION, broker)
            case "offline" | "disk":
                yield log.of_broker(position, kinds.LOG_DIR_FAILED, broker)
            case "moved":
                yield log.of_same(position, kinds.REASSIGNMENT_BEGUN)
            case "slow":
                yield log.of_broker(position, kinds.LOG_DIR_SLOW, broker)
                yield _move_adding(log, position, broker)
            case "leader_read":
                yield log.of_broker(position, kinds.LOG_DIR_SLOW, leader)
            case "no_fetch":
                lost = log.of_broker(position, kinds.SESSION_LOSS, broker)
                back = log.of_broker(position, kinds.REGISTRATION, broker)
                # If the broker registered again after the lost session, it stopped fetching for
                # another reason.
                is_back = lost is not None and back is not None and lost < back < position
                yield None if is_back else lost


def _end_of_session(log: EventLog, position: int, broker: object) -> int | None:
    """Return the position of the session-loss event of a broker, or else of a failover event.

    Only the controller reports lost sessions, so no event reports the session of a controller that
    dies; the next controller reports the failover.
    """
    lost = log.of_broker(position, kinds.SESSION_LOSS, broker)
    if lost is not None:
        return lost
    return log.near(
        position, kinds.FAILOVER, None, lambda each: broker in (each.get("brokers") or ())
    )


def _move_adding(log: EventLog, position: int, broker: object) -> int | None:
    found = log.of_same(position, kinds.REASSIGNMENT_BEGUN)
    return found if found is not None and broker in (log[found].get("adding") or ()) else None


def _of_session(log: EventLog, position: int) -> Iterator[int | None]:
    yield log.of_broker(position, kinds.LOG_DIR_FAILED, log[position].get("broker"))


def _of_registration(log: EventLog, position: int) -> Iterator[int | None]:
    broker = log[position].get("broker")
    ended = [log.of_broker(position, kind, broker) for kind in (kinds.SESSION_LOSS, kinds.SHUTDOWN)]
    before = [each for each in ended if each is not None and each < position]
    yield max(before, default=None)


def _of_wait(log: EventLog, position: int) -> Iterator[int | None]:
    epoch = log[position].get("leader_epoch")
    yield log.of_same(
        position,
        kinds.LEADER_CHANGE,
        lambda each: each.get("leader") == NO_LEADER and each.get("leader_epoch") == epoch,
    )


def _of_unclean(log: EventLog, position: int) -> Iterator[int | None]:
    epoch = log[position].get("leader_epoch")
    yield log.of_same(position, kinds.LEADER_CHANGE, lambda each: each.get("leader_epoch") == epoch)


def _of_controller(log: EventLog, position: int) -> Iterator[int | None]:
    former = log.near(position, kinds.CONTROLLER_ELECTION)
    if former is not None and former < position:
        yield log.of_broker(position, kinds.SESSION_LOSS, log[former].get("controller"))
        yield log.of_broker(position, kinds.SHUTDOWN, log[former].get("controller"))


def _of_failover(log: EventLog, position: int) -> Iterator[int | None]:
    is_shutdown = log[position].get("cause") == "shutdown"
    kind = kinds.SHUTDOWN if is_shutdown else kinds.SESSION_LOSS
    for broker in log[position].get("brokers") or []:
        yield log.of_broker(position, kind, broker)


def _of_reassignment_end(log: EventLog, position: int) -> Iterator[int | None]:
    yield log.of_same(position, kinds.REASSIGNMENT_BEGUN)


def _of_fast_directory(log: EventLog, position: int) -> Iterator[int | None]:
    yield log.of_broker(position, kinds.LOG_DIR_SLOW, log[position].get("broker"))


_FINDERS: Final[dict[str, Callable[[EventLog, int], Iterator[int | None]]]] = {
    kinds.LEADER_CHANGE: _of_leader_change,
    kinds.ISR_CHANGE: _of_isr_change,
    kinds.SESSION_LOSS: _of_session,
    kinds.REGISTRATION: _of_registration,
    kinds.LEADER_AWAITED: _of_wait,
    kinds.UNCLEAN_ELECTION: _of_unclean,
    kinds.CONTROLLER_ELECTION: _of_controller,
    kinds.FAILOVER: _of_failover,
    kinds.REASSIGNMENT_ENDED: _of_reassignment_end,
    kinds.LOG_DIR_FAST_AGAIN: _of_fast_directory,
}
