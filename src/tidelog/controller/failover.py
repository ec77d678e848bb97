"""Failovers of leaders, and the duration of each phase of a failover (V80).

A turn of the controller is a failover if brokers are gone, or if it moves leaderships away from
leaving brokers. The controller notices a loss of leaders (by the store's watch), reads the store,
decides, writes, and sends commands; these are the phases of a failover. A failover ends when each
new leader has acknowledged its command, or was replaced by another leader. The new leaders measure
the further phases of a failover (`replication.takeover`). A failover of more than `SAMPLED`
partitions is sampled evenly. The number of published leaders that have not acknowledged their
leadership is exact, not sampled. Times are arguments, in ms of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, Final

from tidelog.controller.cluster_events import FAILOVER, ClusterEvent, StateChange
from tidelog.core.dataclass import dataclass
from tidelog.core.types import NO_LEADER, TopicPartition

#: Maximum number of partitions of one failover whose times are kept.
SAMPLED: Final = 1_000
#: Causes of failovers: SHUTDOWN if all lost leaders were leaving brokers (V43), DEATH otherwise.
SHUTDOWN: Final = "shutdown"
DEATH: Final = "death"


@dataclass(slots=True)
class TurnTimes:
    """Times of one turn of the controller: when it noticed changes, read, decided and wrote."""

    noticed_ms: int
    read_ms: int = 0
    decided_ms: int = 0
    written_ms: int = 0


@dataclass(slots=True)
class LostLeaders:
    """Brokers that lost their leaderships in one turn of the controller."""

    brokers: Sequence[int]
    #: Whether all lost leaders were leaving brokers.
    is_shutdown: bool = False
    #: Time of the first sign that one of the lost leaders had failed; None without a sign.
    silent_since_ms: int | None = None


@dataclass(slots=True)
class _Failover:
    number: int
    loss: LostLeaders
    turn: TurnTimes
    commanded_ms: int
    partition_count: int
    #: Sampled partitions whose leader has not acknowledged its role, with the leader epoch.
    waiting: dict[TopicPartition, int] = field(default_factory=dict)
    sample: list[dict[str, Any]] = field(default_factory=list)
    superseded: int = 0


class Failovers:
    """The failovers of one controller term."""

    def __init__(self, controller_epoch: int) -> None:
        self._controller_epoch = controller_epoch
        self._begun = 0
        self._open: dict[int, _Failover] = {}
        #: By partition: the failover that the partition's new leader belongs to. Has only sampled
        #: partitions, at most `SAMPLED` of a failover, until the new leader acknowledges its role.
        self._of: dict[TopicPartition, _Failover] = {}
        #: By partition, the published leader, while it has not acknowledged its leadership.
        self._unled: dict[TopicPartition, int] = {}

    @property
    def unled(self) -> int:
        """Number of partitions whose published leader has not acknowledged that it leads."""
        return len(self._unled)

    def commanded(
        self, turn: TurnTimes, now_ms: int, loss: LostLeaders | None, changes: Iterable[StateChange]
    ) -> list[ClusterEvent]:
        """Record that the controller's commands are queued; a `loss` of leaders begins a failover.

        Returns the events of failovers that end because the commands name another leader or no
        leader.
        """
        moved = [
            change
            for change in changes
            if change.before is None or change.before.leader_epoch != change.after.leader_epoch
        ]
        over: list[ClusterEvent] = []
        for change in moved:
            over += self._superseded(change.topic_partition, now_ms)
            if change.after.leader == NO_LEADER:
                self._unled.pop(change.topic_partition, None)
            else:
                self._unled[change.topic_partition] = change.after.leader
        if loss is not None:
            over += self._begin(turn, now_ms, loss, moved)
        return over

    def _begin(
        self, turn: TurnTimes, now_ms: int, loss: LostLeaders, moved: Sequence[StateChange]
    ) -> list[ClusterEvent]:
        self._begun += 1
        failover = _Failover(self._begun, loss, turn, now_ms, len(moved))
        self._open[failover.number] = failover
        step = -(-len(moved) // SAMPLED) or 1
        for change in moved[::step]:
            if change.after.leader != NO_LEADER:
                failover.waiting[change.topic_partition] = change.after.leader_epoch
                self._of[change.topic_partition] = failover
        return self._ended(failover, now_ms)

    def answered(
        self, broker_id: int, partitions: Iterable[TopicPartition], now_ms: int
    ) -> list[ClusterEvent]:
        """Record that a broker has acknowledged its roles in partitions.

        Returns the events of failovers that end with this acknowledgement.
        """
        over: list[ClusterEvent] = []
        for topic_partition in partitions:
            if self._unled.get(topic_partition) != broker_id:
                continue
            del self._unled[topic_partition]
            failover = self._of.pop(topic_partition, None)
            if failover is None:
                continue
            led = {
                "topic": topic_partition.topic,
                "partition": topic_partition.partition,
                "leader": broker_id,
                "leader_epoch": failover.waiting.pop(topic_partition),
                "led_ms": now_ms - failover.turn.noticed_ms,
            }
            failover.sample.append(led)
            over += self._ended(failover, now_ms)
        return over

    def removed(self, topic: str, now_ms: int) -> list[ClusterEvent]:
        """Record that a topic is gone; return the events of failovers that end with the topic."""
        over: list[ClusterEvent] = []
        for topic_partition in [partition for partition in self._unled if partition.topic == topic]:
            del self._unled[topic_partition]
            over += self._superseded(topic_partition, now_ms)
        return over

    def _superseded(self, topic_partition: TopicPartition, now_ms: int) -> list[ClusterEvent]:
        failover = self._of.pop(topic_partition, None)
        if failover is None:
            return []
        del failover.waiting[topic_partition]
        failover.superseded += 1
        return self._ended(failover, now_ms)

    def _ended(self, failover: _Failover, now_ms: int) -> list[ClusterEvent]:
        if failover.waiting:
            return []
        del self._open[failover.number]
        return [self._event(failover, now_ms)]

    def resigned(self, now_ms: int) -> list[ClusterEvent]:
        """End the term; return events of the unfinished failovers with the times known so far."""
        unfinished = [self._event(failover, now_ms) for failover in self._open.values()]
        self._open.clear()
        self._of.clear()
        self._unled.clear()
        return unfinished

    def _event(self, failover: _Failover, now_ms: int) -> ClusterEvent:
        turn, loss = failover.turn, failover.loss
        silent_ms = loss.silent_since_ms
        phases = {
            "read": turn.read_ms - turn.noticed_ms,
            "decide": turn.decided_ms - turn.read_ms,
            "write": turn.written_ms - turn.decided_ms,
            "command": failover.commanded_ms - turn.written_ms,
            "lead": now_ms - failover.commanded_ms,
        }
        fields = {
            "controller_epoch": self._controller_epoch,
            "brokers": list(loss.brokers),
            "cause": SHUTDOWN if loss.is_shutdown else DEATH,
            "detection_ms": -1 if silent_ms is None else max(0, turn.noticed_ms - silent_ms),
            "partitions": failover.partition_count,
            "phases_ms": phases,
            "sample": failover.sample,
            "superseded": failover.superseded,
            "unanswered": len(failover.waiting),
        }
        identity = f"{self._controller_epoch}/{failover.number}"
        return ClusterEvent(FAILOVER, identity, fields)
