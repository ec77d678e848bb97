"""Cluster events: what happened in the cluster, reported for later readers (V80).

This module decides which events to report, and makes the key of each; docs/reference/events.md
describes each kind of event. An event is reported only after it happened and is durable. The
controller that wrote a state change reports the change, once its write is done. An event's key
identifies the event, so that a reader recognises an event that arrives twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from tidelog.controller.incarnations import Brokers
from tidelog.core import eligible_replicas
from tidelog.core.leader_wait import LeaderWait
from tidelog.core.shrink_causes import ShrinkCause
from tidelog.core.types import (
    NO_LEADER,
    RECOVERING,
    BrokerInfo,
    PartitionState,
    StoreWentBack,
    TopicId,
    TopicPartition,
    topic_id_to_text,
)

#: Version of the JSON documents in which cluster events are published. The version rises when a
#: field is removed or changes its meaning; readers ignore fields that they do not know.
VERSION: Final = 1
LEADER_CHANGE: Final = "leader_change"
ISR_CHANGE: Final = "isr_change"
CONTROLLER_ELECTION: Final = "controller_election"
CONTROLLER_RESIGNATION: Final = "controller_resignation"
SESSION_LOSS: Final = "session_loss"
SHUTDOWN: Final = "shutdown"
REGISTRATION: Final = "registration"
FAILOVER: Final = "failover"
FIRST_FETCH: Final = "first_fetch"
TAKEOVER: Final = "takeover"
UNCLEAN_ELECTION: Final = "unclean_election"
LEADER_AWAITED: Final = "leader_awaited"
REASSIGNMENT_BEGUN: Final = "reassignment_begun"
REASSIGNMENT_ENDED: Final = "reassignment_ended"
COMMANDS_BEHIND: Final = "commands_behind"
STORE_WENT_BACK: Final = "store_went_back"
LOG_DIR_FAILED: Final = "log_dir_failed"
LOG_DIR_SLOW: Final = "log_dir_slow"
LOG_DIR_FAST_AGAIN: Final = "log_dir_fast_again"
EVENTS_DROPPED: Final = "events_dropped"
KINDS: Final = (
    LEADER_CHANGE, ISR_CHANGE, CONTROLLER_ELECTION, CONTROLLER_RESIGNATION, SESSION_LOSS, SHUTDOWN,
    REGISTRATION, FAILOVER, FIRST_FETCH, TAKEOVER, UNCLEAN_ELECTION, LEADER_AWAITED,
    REASSIGNMENT_BEGUN, REASSIGNMENT_ENDED, COMMANDS_BEHIND, LOG_DIR_FAILED, LOG_DIR_SLOW,
    LOG_DIR_FAST_AGAIN, STORE_WENT_BACK, EVENTS_DROPPED,
)  # fmt: skip


class ClusterEvent(NamedTuple):
    """One cluster event: its kind, a text that identifies it within its kind, and its fields."""

    kind: str
    identity: str
    fields: Mapping[str, Any]

    @property
    def key(self) -> bytes:
        """Key of the record that publishes the event."""
        return f"{self.kind}/{self.identity}".encode()

    def value(self, broker_id: int, time_ms: int) -> bytes:
        """Return the value of the record that publishes the event.

        Broker `broker_id` reports the event; `time_ms` is the wall-clock time of the event.
        """
        document = {"version": VERSION, "kind": self.kind, "time_ms": time_ms, "told_by": broker_id}
        return json.dumps({**document, **self.fields}, separators=(",", ":")).encode()


class StateChange(NamedTuple):
    """A partition state that this controller published; `before` is None for the first state."""

    topic_partition: TopicPartition
    topic_id: TopicId
    before: PartitionState | None
    after: PartitionState
    #: Whether the leader asked for the change (AlterPartition).
    asked_by_leader: bool = False
    #: The replicas that left the ISR with this change, with the causes.
    shrinks: Sequence[tuple[int, ShrinkCause]] = ()


def of_state(
    change: StateChange, brokers: Brokers, preferred: int, controller_epoch: int
) -> ClusterEvent | None:
    """Return the event of a new leader or of a new ISR; None if leader and ISR are unchanged.

    A new leader epoch of the same leader with the same ISR is reported as a leader change, too.
    `preferred` is the first replica of the assignment.
    """
    topic_partition, topic_id, before, after, asked_by_leader, shrinks = change
    fields: dict[str, Any] = {
        "topic": topic_partition.topic,
        "topic_id": topic_id_to_text(topic_id),
        "partition": topic_partition.partition,
        "leader": after.leader,
        "leader_epoch": after.leader_epoch,
        "partition_epoch": after.partition_epoch,
        "isr": list(after.isr),
        "controller_epoch": controller_epoch,
    }
    same_leader = before is not None and before.leader == after.leader
    same_isr = before is not None and sorted(before.isr) == sorted(after.isr)
    name = f"{fields['topic_id']}/{topic_partition.partition}"
    if shrinks:
        fields["left"] = [{"broker": member, "cause": cause.word} for member, cause in shrinks]
    if before is not None and same_leader and not same_isr:
        fields["previous_isr"] = list(before.isr)
        fields["cause"] = _cause_of_isr(before, after, brokers, asked_by_leader)
        return ClusterEvent(ISR_CHANGE, f"{name}/{after.partition_epoch}", fields)
    if before is not None and before.leader_epoch == after.leader_epoch:
        return None
    fields["previous_leader"] = NO_LEADER if before is None else before.leader
    fields["previous_isr"] = [] if before is None else list(before.isr)
    fields["cause"] = _cause_of_leader(before, after, brokers, preferred)
    return ClusterEvent(LEADER_CHANGE, f"{name}/{after.leader_epoch}", fields)


def store_went_back(
    found: StoreWentBack, partitions: int, *, controller_epoch: int
) -> ClusterEvent:
    """Return the event of a store that lacks writes which a broker had seen (E8).

    `partitions` is the number of partitions whose state is unproven because of that.
    """
    fields = {
        "broker": found.broker_id,
        "seen": found.seen,
        "found": found.found,
        "partitions": partitions,
        "controller_epoch": controller_epoch,
    }
    return ClusterEvent(STORE_WENT_BACK, f"{found.zxid}/{controller_epoch}", fields)


def is_unclean(before: PartitionState, after: PartitionState) -> bool:
    """Return whether a leader was elected that may lack committed records (V13).

    An unclean leader is from outside the ISR, or is a member of the ISR that has lost its log.
    """
    if after.leader == NO_LEADER or after.leader_recovery_state != RECOVERING:
        return False
    return before.leader_recovery_state != RECOVERING or after.leader not in before.isr


def _cause_of_leader(
    before: PartitionState | None, after: PartitionState, brokers: Brokers, preferred: int
) -> str:
    if before is None:
        return "created"
    if after.leader == NO_LEADER:
        return "nobody_in_sync_alive"
    if is_unclean(before, after):
        return "unclean"
    if before.leader == NO_LEADER:
        return "replica_returned"
    if before.leader not in brokers:
        return "leader_gone"
    if _has_restarted(before.leader, before, brokers):
        return "leader_restarted"
    if brokers[before.leader].is_leaving:
        return "leader_leaving"
    return "preferred" if after.leader == preferred else "leader_unfit"


def _cause_of_isr(
    before: PartitionState, after: PartitionState, brokers: Brokers, asked_by_leader: bool
) -> str:
    left = [member for member in before.isr if member not in after.isr]
    if asked_by_leader:
        return "fell_behind" if left else "caught_up"
    if any(member not in brokers for member in left):
        return "member_gone"
    if any(_has_restarted(member, before, brokers) for member in left):
        return "member_restarted"
    if any(brokers[member].is_leaving for member in left):
        return "member_leaving"
    return "member_unfit"


def _has_restarted(broker_id: int, state: PartitionState, brokers: Brokers) -> bool:
    recorded = eligible_replicas.members(state)
    broker = brokers.get(broker_id)
    return broker is not None and recorded.get(broker_id) != broker.broker_epoch


def controller_elected(controller_id: int, controller_epoch: int) -> ClusterEvent:
    """Return the event that a broker became the controller."""
    fields = {"controller": controller_id, "controller_epoch": controller_epoch}
    return ClusterEvent(CONTROLLER_ELECTION, str(controller_epoch), fields)


def controller_resigned(controller_id: int, controller_epoch: int, cause: str) -> ClusterEvent:
    """Return the event of a controller's term that has ended; that controller reports it."""
    fields = {"controller": controller_id, "controller_epoch": controller_epoch, "cause": cause}
    return ClusterEvent(CONTROLLER_RESIGNATION, str(controller_epoch), fields)


def ended(broker: BrokerInfo, controller_epoch: int) -> ClusterEvent:
    """Return the event of a registration that has ended.

    The cause is a controlled shutdown if the broker requested one (V43), else a lost session.
    """
    fields = {
        "broker": broker.broker_id,
        "broker_epoch": broker.broker_epoch,
        "controller_epoch": controller_epoch,
    }
    kind = SHUTDOWN if broker.is_leaving else SESSION_LOSS
    return ClusterEvent(kind, f"{broker.broker_id}/{broker.broker_epoch}", fields)


def registered(broker: BrokerInfo, controller_epoch: int) -> ClusterEvent:
    """Return the event of a new registration.

    The registration may prove that the previous incarnation ended cleanly (E3).
    """
    fields = {
        "broker": broker.broker_id,
        "broker_epoch": broker.broker_epoch,
        "previous_broker_epoch": broker.previous_broker_epoch,
        "earlier_broker_epochs": list(broker.earlier_broker_epochs),
        "controller_epoch": controller_epoch,
    }
    return ClusterEvent(REGISTRATION, f"{broker.broker_id}/{broker.broker_epoch}", fields)


def first_fetch(
    topic_partition: TopicPartition, topic_id: TopicId, leader_epoch: int, fields: Mapping[str, Any]
) -> ClusterEvent:
    """Return the event of the first follower that fetched from a new leader."""
    return _of_leadership(FIRST_FETCH, topic_partition, topic_id, leader_epoch, fields)


def takeover(
    topic_partition: TopicPartition, topic_id: TopicId, leader_epoch: int, fields: Mapping[str, Any]
) -> ClusterEvent:
    """Return the event with the times of a new leader's takeover.

    The event is reported when every live follower fetches from the new leader and the first record
    of its epoch is committed, or after a time limit.
    """
    return _of_leadership(TAKEOVER, topic_partition, topic_id, leader_epoch, fields)


def unclean_election(
    topic_partition: TopicPartition, topic_id: TopicId, leader_epoch: int, fields: Mapping[str, Any]
) -> ClusterEvent:
    """Return the event of an uncleanly elected leader that leads now.

    The event names the offsets at risk (V13).
    """
    return _of_leadership(UNCLEAN_ELECTION, topic_partition, topic_id, leader_epoch, fields)


def leader_awaited(
    topic_partition: TopicPartition,
    topic_id: TopicId,
    leader_epoch: int,
    last_leader: int,
    wait: LeaderWait,
    *,
    controller_epoch: int,
    number: int,
) -> ClusterEvent:
    """Return the event of a partition without a leader, with the members to wait for (E4, E6).

    `number` distinguishes the waits for a leader within a controller's term.
    """
    text = topic_id_to_text(topic_id)
    fields = {
        "topic": topic_partition.topic,
        "topic_id": text,
        "partition": topic_partition.partition,
        "leader_epoch": leader_epoch,
        "last_leader": last_leader,
        "members": [{"broker": member, "status": status.word} for member, status in wait.members],
        "awaited": list(wait.awaited),
        "quorum": wait.quorum,
        "is_waiting": wait.is_waiting,
        "controller_epoch": controller_epoch,
    }
    name = f"{text}/{topic_partition.partition}/{leader_epoch}"
    return ClusterEvent(LEADER_AWAITED, f"{name}/{controller_epoch}/{number}", fields)


def reassignment_begun(
    topic_partition: TopicPartition,
    topic_id: TopicId,
    target: Sequence[int],
    adding: Sequence[int],
    removing: Sequence[int],
    original: Sequence[int],
    *,
    zxid: int,
    controller_epoch: int,
) -> ClusterEvent:
    """Return the event of a partition whose reassignment to `target` has begun (R16).

    `zxid` is the transaction that recorded the reassignment in the topic's node. `original` is
    empty if it is not recorded. If `target` equals `original`, the reassignment was cancelled and
    returns to its original replicas.
    """
    fields = {
        "replicas": list(target),
        "adding": list(adding),
        "removing": list(removing),
        "original": list(original),
    }
    return _of_assignment(
        REASSIGNMENT_BEGUN, topic_partition, topic_id, fields, zxid, controller_epoch
    )


def reassignment_ended(
    topic_partition: TopicPartition,
    topic_id: TopicId,
    replicas: Sequence[int],
    *,
    zxid: int,
    controller_epoch: int,
) -> ClusterEvent:
    """Return the event of a reassignment's end; transaction `zxid` wrote the topic node (R16)."""
    fields = {"replicas": list(replicas)}
    return _of_assignment(
        REASSIGNMENT_ENDED, topic_partition, topic_id, fields, zxid, controller_epoch
    )


def _of_assignment(
    kind: str,
    topic_partition: TopicPartition,
    topic_id: TopicId,
    fields: Mapping[str, Any],
    zxid: int,
    controller_epoch: int,
) -> ClusterEvent:
    name = topic_id_to_text(topic_id)
    document = {
        "topic": topic_partition.topic,
        "topic_id": name,
        "partition": topic_partition.partition,
        **fields,
        "zxid": zxid,
        "controller_epoch": controller_epoch,
    }
    return ClusterEvent(kind, f"{name}/{topic_partition.partition}/{zxid}", document)


def _of_leadership(
    kind: str,
    topic_partition: TopicPartition,
    topic_id: TopicId,
    leader_epoch: int,
    fields: Mapping[str, Any],
) -> ClusterEvent:
    text = topic_id_to_text(topic_id)
    named = {
        "topic": topic_partition.topic,
        "topic_id": text,
        "partition": topic_partition.partition,
        "leader_epoch": leader_epoch,
    }
    identity = f"{text}/{topic_partition.partition}/{leader_epoch}"
    return ClusterEvent(kind, identity, {**named, **fields})


def log_dir_failed(
    broker_id: int,
    broker_epoch: int,
    log_dir: str,
    error: str,
    operation: str,
    *,
    replicas: int,
    led: int,
) -> ClusterEvent:
    """Return the event of a log directory that failed while its broker ran (D4).

    `error` is the name of an errno. `replicas` is the number of replicas that went offline; `led`
    of them were leaders.
    """
    fields = {
        "broker": broker_id,
        "broker_epoch": broker_epoch,
        "log_dir": log_dir,
        "error": error,
        "operation": operation,
        "replicas": replicas,
        "led": led,
    }
    return ClusterEvent(LOG_DIR_FAILED, f"{broker_id}/{broker_epoch}/{log_dir}", fields)


def log_dir_slow(
    broker_id: int,
    broker_epoch: int,
    log_dir: str,
    number: int,
    *,
    threshold_ms: int,
    longest_ms: int,
    operations: int,
    slow: int,
    action: str,
) -> ClusterEvent:
    """Return the event of a log directory that turned slow (D13).

    `number` distinguishes the slow periods of a directory. In the last window, `slow` of
    `operations` file operations took `threshold_ms` or longer. `longest_ms` is the duration of the
    longest operation, and `action` the value of log.dir.slow.action.
    """
    fields = {
        "broker": broker_id,
        "broker_epoch": broker_epoch,
        "log_dir": log_dir,
        "threshold_ms": threshold_ms,
        "longest_ms": longest_ms,
        "operations": operations,
        "slow": slow,
        "action": action,
    }
    return ClusterEvent(LOG_DIR_SLOW, f"{broker_id}/{broker_epoch}/{log_dir}/{number}", fields)


def log_dir_fast_again(
    broker_id: int, broker_epoch: int, log_dir: str, number: int, slow_ms: int
) -> ClusterEvent:
    """Return the event that a slow log directory is fast again; see `log_dir_slow`."""
    fields = {
        "broker": broker_id,
        "broker_epoch": broker_epoch,
        "log_dir": log_dir,
        "slow_ms": slow_ms,
    }
    identity = f"{broker_id}/{broker_epoch}/{log_dir}/{number}"
    return ClusterEvent(LOG_DIR_FAST_AGAIN, identity, fields)


def commands_behind(
    broker_id: int,
    broker_epoch: int,
    behind_ms: int,
    *,
    is_over: bool,
    controller_epoch: int,
    number: int,
) -> ClusterEvent:
    """Return the event of a broker that stopped acknowledging its commands, or resumed (V81).

    `number` distinguishes the periods without acknowledgements within a controller's term.
    """
    fields = {
        "broker": broker_id,
        "broker_epoch": broker_epoch,
        "behind_ms": behind_ms,
        "is_over": is_over,
        "controller_epoch": controller_epoch,
    }
    word = "over" if is_over else "begun"
    identity = f"{broker_id}/{broker_epoch}/{controller_epoch}/{number}/{word}"
    return ClusterEvent(COMMANDS_BEHIND, identity, fields)


def dropped(broker_id: int, broker_epoch: int, number: int, count: int) -> ClusterEvent:
    """Return the event that reports how many events a broker dropped before this event.

    `number` distinguishes the reports of one registration of the broker.
    """
    fields = {"broker": broker_id, "broker_epoch": broker_epoch, "count": count}
    return ClusterEvent(EVENTS_DROPPED, f"{broker_id}/{broker_epoch}/{number}", fields)
