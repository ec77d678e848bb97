"""Comparison of the topic `__cluster_events` with the published state (V80).

The checker follows the transactions of the metadata store during the run. At the end of a run, the
checker reads the topic from the disks of its leader with its own reader. Each event must be in the
topic at most once. An event must not name a partition state, a registration or a controller's term
that never existed. If the last controller dropped no event, the topic must have an event for every
change of a leader or an ISR during its term.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple

from tidelog.core.types import NO_LEADER, TopicId, topic_id_to_text
from tidelog.sim.batches import read_records
from tidelog.sim.checkers.checker import CheckedRun, Checker
from tidelog.sim.disk import Directory, File, SimDisk
from tidelog.sim.loop import NS_PER_S
from tidelog.sim.observed.moves import PublishedMove
from tidelog.sim.observed.published_state import PublishedPartition, PublishedTopic

TOPIC: Final = "__cluster_events"
#: Time after which the event of a published partition state must be in the topic.
_SETTLED_NS: Final = 5 * NS_PER_S
#: Key of what the store published about a partition: topic id, partition, and a leader epoch, a
#: partition epoch or a transaction.
_Name = tuple[str, int, int]


class _State(NamedTuple):
    """A published partition state with its time and controller epoch, and the ISR and leader epoch
    of the state before it.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    previous_leader_epoch: int
    previous_isr: tuple[int, ...]
    controller_epoch: int
    time_ns: int

    @property
    def kind(self) -> str:
        """Kind of the state's event; empty if the state needs no event."""
        if self.leader_epoch != self.previous_leader_epoch:
            return "changed"
        return "changed" if sorted(self.isr) != sorted(self.previous_isr) else ""


class EventChecker(Checker):
    """Checker of the events in the topic `__cluster_events` of one run."""

    def __init__(self, run: CheckedRun) -> None:
        super().__init__(run)
        self._states: dict[_Name, _State] = {}
        self._leaders: dict[_Name, int] = {}
        self._registrations: dict[tuple[int, int], None] = {}
        #: By partition: the reassignment under way, as a transaction wrote it into the node of the
        #: topic. `_arrivals` has the replicas of a partition whose reassignment a transaction
        #: ended.
        self._moves: dict[_Name, PublishedMove] = {}
        self._arrivals: dict[_Name, tuple[int, ...]] = {}
        #: Number of events read, by kind.
        self.counts: dict[str, int] = {}
        run.published.on_state.append(self._state)
        run.published.on_broker.append(self._registered)
        run.published.on_moves.append(self._moved)

    def _state(self, before: PublishedPartition | None, state: PublishedPartition) -> None:
        topic_id = topic_id_to_text(state.key.topic_id)
        self._states[topic_id, state.key.partition, state.partition_epoch] = _State(
            state.leader,
            state.leader_epoch,
            state.isr,
            -1 if before is None else before.leader_epoch,
            () if before is None else before.isr,
            self._published.controller_epoch,
            self._now_ns(),
        )
        self._leaders[topic_id, state.key.partition, state.leader_epoch] = state.leader

    def _registered(self, broker_id: int, broker_epoch: int) -> None:
        self._registrations[broker_id, broker_epoch] = None

    def _moved(self, topic: PublishedTopic, zxid: int, before: Mapping[int, PublishedMove]) -> None:
        topic_id = topic_id_to_text(topic.topic_id)
        for number, move in topic.moving.items():
            if before.get(number) != move:
                self._moves[topic_id, number, zxid] = move
        for number in before:
            if number not in topic.moving and number in topic.assignment:
                self._arrivals[topic_id, number, zxid] = topic.assignment[number]

    def check(self, disks: Iterable[SimDisk], *, is_complete: bool) -> None:
        """Read the topic from the disks of its leader and check every event.

        `is_complete` means that no broker dropped an event or still has one to write; the topic
        must then have all events of the current controller.
        """
        events: dict[_Name, None] = {}
        keys: dict[bytes, None] = {}
        for key, value in chain.from_iterable(map(_records, disks)):
            if key in keys:
                self._violate(f"the event {key.decode()} is in the topic twice (V80)")
            keys[key] = None
            event: dict[str, Any] = json.loads(value)
            kind = event["kind"]
            self.counts[kind] = self.counts.get(kind, 0) + 1
            if kind in ("leader_change", "isr_change"):
                events[event["topic_id"], event["partition"], event["partition_epoch"]] = None
            wrong = self._fault(event)
            if wrong:
                self._violate(f"the event {key.decode()} is invented: {wrong} (V80)")
        if is_complete:
            self._check_complete(events)

    def _fault(self, event: Mapping[str, Any]) -> str:
        """Return how an event differs from what happened; empty if it does not differ."""
        match event["kind"]:
            case "leader_change" | "isr_change":
                return self._state_fault(event)
            case (
                "session_loss"
                | "registration"
                | "shutdown"
                | "log_dir_failed"
                | "log_dir_slow"
                | "log_dir_fast_again"
            ):
                if (event["broker"], event["broker_epoch"]) not in self._registrations:
                    return f"broker {event['broker']} never had epoch {event['broker_epoch']}"
            case "controller_election" | "controller_resignation":
                if event["controller_epoch"] > self._published.controller_epoch:
                    return f"there was no epoch {event['controller_epoch']}"
            case "first_fetch" | "unclean_election":
                return self._leader_fault(event, event["leader"])
            case "leader_awaited":
                return self._leader_fault(event, NO_LEADER)
            case "reassignment_begun":
                return self._begin_fault(event)
            case "reassignment_ended":
                name = (event["topic_id"], event["partition"], event["zxid"])
                if self._arrivals.get(name) != tuple(event["replicas"]):
                    return f"the partition arrived at {self._arrivals.get(name)}"
            case "takeover":
                return self._takeover_fault(event)
            case "failover":
                if min(event["phases_ms"].values()) < 0 or len(event["sample"]) > 1_000:
                    return f"phases {event['phases_ms']}"
        return ""

    def _leader_fault(self, event: Mapping[str, Any], leader: int) -> str:
        name = (event["topic_id"], event["partition"], event["leader_epoch"])
        led = self._leaders.get(name)
        return "" if led == leader else f"{led} led in that epoch"

    def _begin_fault(self, event: Mapping[str, Any]) -> str:
        move = self._moves.get((event["topic_id"], event["partition"], event["zxid"]))
        said = tuple(tuple(event[name]) for name in ("adding", "removing", "original"))
        if move is None or said != (move.adding, move.removing, move.original):
            return f"the node had {move}"
        return ""

    def _takeover_fault(self, event: Mapping[str, Any]) -> str:
        if fault := self._leader_fault(event, event["leader"]):
            return fault
        for phase, ms in event["phases_ms"].items():
            if ms >= 0:
                reached = f"takeover/{phase}"
                self.counts[reached] = self.counts.get(reached, 0) + 1
        for state in event["followers"]:
            times = [state["connected_ms"], state["diverged_ms"], state["fetched_ms"]]
            happened = [ms for ms in times if ms >= 0]
            if state["follower"] == event["leader"] or happened != sorted(happened) or times[0] < 0:
                return f"follower {state}"
        return ""

    def _state_fault(self, event: Mapping[str, Any]) -> str:
        name = (event["topic_id"], event["partition"], event["partition_epoch"])
        state = self._states.get(name)
        if state is None:
            return "no such state was published"
        said = (event["leader"], event["leader_epoch"], tuple(event["isr"]))
        if said != (state.leader, state.leader_epoch, state.isr):
            return f"published was {state}"
        if sorted(event["previous_isr"]) != sorted(state.previous_isr):
            return f"the ISR before was {state.previous_isr}"
        left = [replica["broker"] for replica in event.get("left", ())]
        if any(each not in state.previous_isr or each in state.isr for each in left):
            return f"{left} left the ISR {state.previous_isr}, which is now {state.isr}"
        return ""

    def _check_complete(self, events: Mapping[_Name, None]) -> None:
        epoch = self._published.controller_epoch
        until_ns = self._now_ns() - _SETTLED_NS
        for name, state in self._states.items():
            is_due = state.controller_epoch == epoch and state.time_ns < until_ns
            if is_due and state.kind and name not in events:
                self._violate(f"{name} has no event: {state} (V80)")

    def topic_id(self) -> TopicId | None:
        """Return the id of the topic `__cluster_events`; None if the topic does not exist."""
        topic = self._published.topics.get(TOPIC)
        return None if topic is None else topic.topic_id


def _records(disk: SimDisk) -> Iterable[tuple[bytes, bytes]]:
    """Yield key and value of the records of `__cluster_events` on a disk, in order."""
    replica = disk.directory(disk.root).entries.get(f"{TOPIC}-0")
    if not isinstance(replica, Directory):
        return
    for name in sorted(replica.entries):
        entry = replica.entries[name]
        if name.endswith(".log") and isinstance(entry, File):
            yield from read_records(entry.undamaged())
