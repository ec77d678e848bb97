"""This broker's view of the cluster: live brokers, topics, leaders (V82).

Only the controller's UpdateMetadata requests fill the view, so clients see nothing but published
state. A full request (type 2) replaces the whole view: each new controller sends a full request,
and each new registration gets a full request. A full request thus removes a deleted topic from the
view, even if this broker missed the deletion. The last view stays in force until a full request
arrives, even after this broker lost its session.

A LeaderAndIsr request may name a new leader before the UpdateMetadata request of the same decision
arrives. Until that UpdateMetadata request arrives, the view keeps the new leader apart from the
published state, for hints to clients (KIP-951, V83).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import NamedTuple

from tidelog.core.dataclass import dataclass
from tidelog.core.leader_wait import LeaderWait, status_of
from tidelog.core.shrink_causes import ShrinkCause, cause_of
from tidelog.core.types import (
    NO_BROKER_EPOCH,
    NO_LEADER,
    ZERO_TOPIC_ID,
    BrokerInfo,
    Endpoint,
    TopicId,
    TopicPartition,
)
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

#: The leader id that marks a topic as being deleted (Kafka's LeaderDuringDelete).
LEADER_DURING_DELETE = -2
_INCREMENTAL, _FULL = 1, 2
_PROTOCOL_NAMES = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


class OutOfIsr(NamedTuple):
    """The reason why a replica is outside the ISR, and since when."""

    cause: ShrinkCause
    #: Wall-clock time at which this broker learned that the replica left the ISR. The value is -1
    #: if the replica was outside the ISR when this broker first learned of the partition.
    since_ms: int


@dataclass(frozen=True, slots=True)
class PartitionView:
    """Published state of one partition."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    partition_epoch: int
    #: First leader epoch of this partition. It is above 0 if an administrator removed an earlier
    #: partition with this number from the topic, and later added this one (V71).
    first_leader_epoch: int = 0
    #: Eligible leader replicas of the partition (E1).
    eligible: tuple[int, ...] = ()
    #: The last leader of a partition without a leader; -1 if none is recorded (E4).
    last_leader: int = NO_LEADER
    #: Why the partition has no leader; None if it has a leader, or if the controller gives no
    #: reason.
    wait: LeaderWait | None = None
    #: Replicas outside the ISR, by broker id.
    out_of_isr: Mapping[int, OutOfIsr] = field(default_factory=dict)


@dataclass(slots=True)
class TopicView:
    """A topic and its partitions by number."""

    name: str
    topic_id: TopicId
    partitions: dict[int, PartitionView] = field(default_factory=dict)


class Gone(NamedTuple):
    """The topics and partitions that an UpdateMetadata request removed or replaced."""

    #: By name: ids of topics that were deleted; a new topic may have the name now.
    topics: dict[str, TopicId]
    #: Removed partitions of existing topics, by name, with the first leader epoch that the removed
    #: partition had. A partition of the same name may exist again (V71).
    partitions: dict[TopicPartition, int]


class CommandedLeader(NamedTuple):
    """A leader that a LeaderAndIsr request has named before an UpdateMetadata request did."""

    leader: int
    leader_epoch: int


class CommandedTopic:
    """The partitions of a topic with a leader that only a LeaderAndIsr request has named so far."""

    __slots__ = ("leaders", "since_ms")

    def __init__(self) -> None:
        #: By partition number: the leader that a LeaderAndIsr request has named.
        self.leaders: dict[int, CommandedLeader] = {}
        #: Monotonic time of the last LeaderAndIsr request that named a leader in `leaders`.
        self.since_ms = 0


class ClusterView:
    """The brokers, topics and partitions of the cluster, as the controller's latest requests
    published them.
    """

    def __init__(self, wall_ms: Callable[[], int] = lambda: -1) -> None:
        self._wall_ms = wall_ms
        self.controller_id = -1
        self.controller_epoch = 0
        #: Whether the controller has sent a full UpdateMetadata request since the broker started.
        #: Set to false again when the broker's process was paused for longer than its session
        #: lasts. An incremental UpdateMetadata does not count, because a new controller's first one
        #: may list only the live brokers.
        self.is_known = False
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: dict[str, TopicView] = {}
        self._names: dict[TopicId, str] = {}
        #: By topic, the leaders that LeaderAndIsr requests have named and that no UpdateMetadata
        #: request has published yet.
        self.commanded: dict[str, CommandedTopic] = {}

    def is_alive(self, broker_id: int) -> bool:
        """Whether the broker is registered, according to the controller's latest request."""
        return broker_id in self.brokers

    def is_registered(self, broker_id: int) -> bool:
        """Whether a broker is registered; true for every broker while this view is empty."""
        return broker_id in self.brokers or not self.is_known

    def topic_name(self, topic_id: TopicId) -> str | None:
        """Return the name of a topic id, None if the id is unknown or its topic was deleted."""
        return self._names.get(topic_id)

    def partition(self, topic_partition: TopicPartition) -> PartitionView | None:
        """Return the published state of a partition, None if the partition is unknown."""
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def leader_commanded(
        self, topic_partition: TopicPartition, leader: int, leader_epoch: int, now_ms: int
    ) -> None:
        """Note the leader that a LeaderAndIsr request names, until UpdateMetadata publishes it."""
        name, number = topic_partition
        shown = self.partition(topic_partition)
        if leader == NO_LEADER or shown is None or leader == shown.leader:
            return
        if leader_epoch > shown.leader_epoch:
            topic = self.commanded.setdefault(name, CommandedTopic())
            topic.leaders[number] = CommandedLeader(leader, leader_epoch)
            topic.since_ms = now_ms

    def latest_leader(self, topic_partition: TopicPartition) -> CommandedLeader | None:
        """Return the last leader that the controller named to this broker, if there is one."""
        topic = self.commanded.get(topic_partition.topic)
        if topic is not None and topic_partition.partition in topic.leaders:
            return topic.leaders[topic_partition.partition]
        shown = self.partition(topic_partition)
        if shown is None or shown.leader < 0:
            return None
        return CommandedLeader(shown.leader, shown.leader_epoch)

    def _forget_shown_commands(self) -> None:
        for name, topic in list(self.commanded.items()):
            for number, commanded in list(topic.leaders.items()):
                shown = self.partition(TopicPartition(name, number))
                if shown is None or shown.leader_epoch >= commanded.leader_epoch:
                    del topic.leaders[number]
            if not topic.leaders:
                del self.commanded[name]

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Return the broker's address on a listener; None if the broker or listener is unknown."""
        broker = self.brokers.get(broker_id)
        if broker is None:
            return None
        for endpoint in broker.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None

    def apply(self, request: UpdateMetadataRequest) -> Gone:
        """Apply an UpdateMetadata request; return the topics and partitions that it removes.

        A full request may list a topic without partitions: the controller could not read that
        topic, and the view keeps its known state (V35). The view also keeps the known state of a
        partition that has no leader epoch in the request; a partition without known state then
        counts as leaderless.
        """
        named = (
            self.topics if request.type == _FULL else [t.topic_name for t in request.topic_states]
        )
        known = {name: self.topics[name].topic_id for name in named if name in self.topics}
        before = self._known_partitions(request, known)
        earlier = self.topics
        unread = {
            (t.topic_name, state.partition_index): self.topics[t.topic_name]
            for t in request.topic_states
            if known.get(t.topic_name) == t.topic_id
            for state in t.partition_states
            if state.leader == NO_LEADER and state.leader_epoch < 0
        }
        self.controller_id = request.controller_id
        self.controller_epoch = request.controller_epoch
        # Kafka's controllers send no type, and their first request is a full request.
        self.is_known = self.is_known or request.type != _INCREMENTAL
        if request.type == _FULL:
            kept = [t.topic_name for t in request.topic_states if not t.partition_states]
            self.topics = {name: self.topics[name] for name in kept if name in known}
            self._names = {topic.topic_id: name for name, topic in self.topics.items()}
        self.brokers = {
            broker.id: BrokerInfo(
                broker_id=broker.id,
                broker_epoch=NO_BROKER_EPOCH,
                endpoints=tuple(
                    Endpoint(
                        endpoint.listener,
                        endpoint.host,
                        endpoint.port,
                        _PROTOCOL_NAMES.get(endpoint.security_protocol, "PLAINTEXT"),
                    )
                    for endpoint in broker.endpoints
                ),
                rack=broker.rack,
            )
            for broker in request.live_brokers
        }
        for topic_state in request.topic_states:
            if topic_state.partition_states:
                self._apply_topic(topic_state, earlier.get(topic_state.topic_name))
        self._forget_shown_commands()
        after = self.topics
        for (name, number), topic in unread.items():
            if number in topic.partitions:
                after[name].partitions[number] = topic.partitions[number]
        gone = {
            name: topic_id
            for name, topic_id in known.items()
            if name not in after or after[name].topic_id != topic_id
        }
        for name in gone:
            before.pop(name, None)
        removed = {
            TopicPartition(name, number): partition.first_leader_epoch
            for name, partitions in before.items()
            for number, partition in partitions.items()
            if _has_ended(partition, after[name].partitions.get(number))
        }
        return Gone(gone, removed)

    def _known_partitions(
        self, request: UpdateMetadataRequest, known: Iterable[str]
    ) -> dict[str, dict[int, PartitionView]]:
        """Return what this view knows of the partitions that a request may change.

        An incremental request may change the partitions that it lists; a full request may change
        every partition of the topics `known`, because it removes partitions that it omits.
        """
        if request.type == _FULL:
            return {name: dict(self.topics[name].partitions) for name in known}
        before: dict[str, dict[int, PartitionView]] = {}
        for topic in request.topic_states:
            view = self.topics.get(topic.topic_name)
            if view is not None:
                found = before.setdefault(topic.topic_name, {})
                for state in topic.partition_states:
                    if state.partition_index in view.partitions:
                        found[state.partition_index] = view.partitions[state.partition_index]
        return before

    def _apply_topic(
        self, topic_state: UpdateMetadataTopicState, earlier: TopicView | None
    ) -> None:
        """Apply a topic's partition states from an UpdateMetadata request.

        `earlier` is what this view knew of the topic name before the request; a topic that was
        deleted and created again has another topic id in `earlier`.
        """
        name = topic_state.topic_name
        known: Mapping[int, PartitionView] = {}
        if earlier is not None and earlier.topic_id == topic_state.topic_id:
            known = earlier.partitions
        topic = self.topics.get(name)
        if topic is not None and topic.topic_id != topic_state.topic_id:
            if any(state.leader == LEADER_DURING_DELETE for state in topic_state.partition_states):
                return  # the request deletes an earlier topic of this name
            self._drop(topic)
            topic = None
        for state in topic_state.partition_states:
            if state.leader == LEADER_DURING_DELETE:
                if topic is not None:
                    topic.partitions.pop(state.partition_index, None)
                continue
            if topic is None:
                topic = self.topics[name] = TopicView(name, topic_state.topic_id)
                if topic_state.topic_id != ZERO_TOPIC_ID:
                    self._names[topic_state.topic_id] = name
            topic.partitions[state.partition_index] = _partition_view(
                state, known.get(state.partition_index), self._wall_ms
            )
        if topic is not None and not topic.partitions:
            self._drop(topic)

    def _drop(self, topic: TopicView) -> None:
        self.topics.pop(topic.name, None)
        self._names.pop(topic.topic_id, None)


def _has_ended(before: PartitionView, after: PartitionView | None) -> bool:
    """Whether a partition was removed, or replaced by a new partition of the same number (V71)."""
    return after is None or 0 <= before.leader_epoch < after.first_leader_epoch


def _partition_view(
    state: UpdateMetadataPartitionState,
    before: PartitionView | None,
    wall_ms: Callable[[], int],
) -> PartitionView:
    wait = None
    if state.awaited:
        members = tuple(zip(state.awaited, map(status_of, state.statuses), strict=False))
        wait = LeaderWait(members, state.quorum, state.is_waiting)
    return PartitionView(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        replicas=tuple(state.replicas),
        isr=tuple(state.isr),
        offline_replicas=tuple(state.offline_replicas),
        partition_epoch=state.zk_version,
        first_leader_epoch=state.first_leader_epoch,
        eligible=tuple(state.eligible),
        last_leader=state.last_leader,
        wait=wait,
        out_of_isr=_out_of_isr(state, before, wall_ms),
    )


_NOBODY_OUT: Mapping[int, OutOfIsr] = {}


def _out_of_isr(
    state: UpdateMetadataPartitionState,
    before: PartitionView | None,
    wall_ms: Callable[[], int],
) -> Mapping[int, OutOfIsr]:
    """Return the reasons why replicas are outside the ISR.

    A new controller does not know these reasons, so the reasons known so far stay.
    """
    out = [replica for replica in state.replicas if replica not in state.isr]
    if not out:
        return _NOBODY_OUT
    named = dict(zip(state.shrunk, map(cause_of, state.causes), strict=False))
    found: dict[int, OutOfIsr] = {}
    for replica in out:
        known = None if before is None else before.out_of_isr.get(replica)
        cause = named.get(replica, ShrinkCause.UNKNOWN)
        if known is None:
            has_left = before is not None and replica in before.isr
            found[replica] = OutOfIsr(cause, wall_ms() if has_left else -1)
        else:
            found[replica] = OutOfIsr(cause or known.cause, known.since_ms)
    return found
