"""Commands that wait for one broker: LeaderAndIsr, StopReplica and UpdateMetadata (V17, V30, V35).

`CommandBuilder` derives the content from the image. `Commands` merge while they wait (V81): the
last state of a partition wins, and StopReplica(delete) followed by LeaderAndIsr keeps both in
order. What waits is bounded: topics that come and go leave traces in it, and when these are more
than all that is there, the broker is sent everything instead. `Commands.requests` lays it out in
sending order: UpdateMetadata with the live brokers where they changed, so that a follower knows its
leader; StopReplica; LeaderAndIsr; UpdateMetadata with the partitions, last, so that clients hear of
a leader that already leads. Versions are those that Kafka 3.9 sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

from tidelog.core import limits
from tidelog.core.types import ZERO_TOPIC_ID, BrokerInfo, Endpoint, TopicId, TopicPartition
from tidelog.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from tidelog.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, 5, 6
LEADER_AND_ISR_VERSION, STOP_REPLICA_VERSION, UPDATE_METADATA_VERSION = 7, 4, 8
#: Kafka's AbstractControlRequest.Type.
INCREMENTAL, FULL = 1, 2
#: Leader of a partition whose topic is being deleted, and the epoch that deletes whatever the
#: replica's own is (Kafka's LeaderDuringDelete, EpochDuringDelete).
LEADER_DURING_DELETE = -2
EPOCH_DURING_DELETE = -2
#: Leader, and epochs, of a partition whose state cannot be read: its broker keeps what it has and
#: knows, and obeys nothing (V35).
UNREADABLE = -1
_SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class Sender(NamedTuple):
    """The controller that commands, and the listener by which brokers reach each other."""

    controller_id: int
    controller_epoch: int
    listener: str


class Role(NamedTuple):
    """What a broker is in one partition."""

    topic_id: TopicId
    state: LeaderAndIsrPartitionState


class Stop(NamedTuple):
    """A replica to stop."""

    leader_epoch: int
    delete: bool


class Part(Enum):
    """Which part of what a broker must be told a request carries, in sending order."""

    BROKERS = "live brokers"
    STOPS = "replicas to stop"
    ROLES = "roles"
    SHOWN = "metadata"


class Outgoing(NamedTuple):
    """One request to send."""

    part: Part
    api_key: int
    version: int
    message: Any


#: A partition of one topic of a name: its id tells it from an earlier one's.
ShownKey = tuple[TopicId, TopicPartition]
Shown = Mapping[ShownKey, UpdateMetadataPartitionState]


@dataclass(slots=True)
class Commands:
    """What one broker has still to be told."""

    brokers: tuple[BrokerInfo, ...]
    #: The broker may not know these brokers yet.
    brokers_changed: bool = False
    #: `roles` is everything that the broker should hold.
    full: bool = False
    #: `shown` is everything that the broker should know.
    shows_all: bool = False
    #: Topics of which the broker keeps replicas and metadata although what is told in full does
    #: not describe them.
    keep: tuple[str, ...] = ()
    #: Partitions of the cluster when it was decided.
    partition_count: int = 0
    stops: dict[TopicPartition, Stop] = field(default_factory=dict)
    roles: dict[TopicPartition, Role] = field(default_factory=dict)
    shown: Shown = field(default_factory=dict)
    #: `shown`, where it is this broker's own and not shared with the others'.
    _own_shown: dict[ShownKey, UpdateMetadataPartitionState] | None = None

    def merge(self, later: Commands) -> None:
        """Add what was decided later; nothing of this has been sent."""
        self.brokers = later.brokers
        self.brokers_changed = self.brokers_changed or later.brokers_changed
        self.partition_count = later.partition_count
        for topic_partition, stop in later.stops.items():
            self.roles.pop(topic_partition, None)
            self.stops[topic_partition] = stop
        if later.full:
            self.full = self.shows_all = True
            self.keep = later.keep
            earlier, self.roles = self.roles, {}
            self._add_roles(later.roles, earlier)
            self.shown = later.shown
            self._own_shown = None
            return
        self._add_roles(later.roles, self.roles)
        if later.shown:
            if self._own_shown is None:
                self.shown = self._own_shown = dict(self.shown)
            self._own_shown.update(later.shown)

    def _add_roles(
        self, roles: Mapping[TopicPartition, Role], before: Mapping[TopicPartition, Role]
    ) -> None:
        """A replica that the broker has not been told to make yet is still to be made (D3)."""
        for topic_partition, role in roles.items():
            earlier = before.get(topic_partition)
            if (
                earlier is not None
                and earlier.state.is_new
                and earlier.topic_id == role.topic_id
                and role.state.leader_epoch != UNREADABLE
            ):
                role = as_new(role)
            self.roles[topic_partition] = role

    @property
    def has_outgrown(self) -> bool:
        """Whether more waits than a full command would hold, and a good deal more."""
        waiting = len(self.roles) + len(self.stops) + len(self.shown)
        return waiting > 3 * self.partition_count + limits.MAX_SUPERSEDED_STATES

    def drop_shown(self) -> None:
        """Forget the metadata that waits; everything must be told anew."""
        self.shown, self.shows_all, self._own_shown = {}, False, None

    def requests(self, sender: Sender, broker_epoch: int) -> list[Outgoing]:
        """The requests to send, in this order. Metadata goes when the roles are answered."""
        outgoing = []
        if self.brokers_changed and self._has_roles():
            outgoing.append(
                self._update_metadata(sender, broker_epoch, Part.BROKERS, {}, INCREMENTAL)
            )
        if self.stops:
            outgoing.append(self._stop_replica(sender, broker_epoch))
        if self._has_roles():
            outgoing.append(self._leader_and_isr(sender, broker_epoch))
        if self.shown or self.shows_all or (self.brokers_changed and not self._has_roles()):
            kind = FULL if self.shows_all else INCREMENTAL
            outgoing.append(
                self._update_metadata(sender, broker_epoch, Part.SHOWN, self.shown, kind)
            )
        return outgoing

    def answered(self, part: Part) -> None:
        """The broker has this part: it is not to be sent again."""
        match part:
            case Part.STOPS:
                self.stops = {}
            case Part.ROLES:
                self.roles, self.full = {}, False
            case Part.SHOWN:
                self.shown, self.shows_all, self._own_shown = {}, False, None
                self.brokers_changed = False
            case _:
                self.brokers_changed = False

    def _has_roles(self) -> bool:
        return bool(self.roles) or self.full

    def _update_metadata(
        self, sender: Sender, broker_epoch: int, part: Part, shown: Shown, kind: int
    ) -> Outgoing:
        topics: dict[tuple[TopicId, str], UpdateMetadataTopicState] = {}
        for (topic_id, topic_partition), state in shown.items():
            topic = topics.get((topic_id, topic_partition.topic))
            if topic is None:
                topic = topics[topic_id, topic_partition.topic] = UpdateMetadataTopicState(
                    topic_name=topic_partition.topic, topic_id=topic_id
                )
            topic.partition_states.append(state)
        kept = [UpdateMetadataTopicState(name, ZERO_TOPIC_ID) for name in self.keep]
        message = UpdateMetadataRequest(
            controller_id=sender.controller_id,
            type=kind,
            controller_epoch=sender.controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=[*topics.values(), *(kept if kind == FULL else ())],
            live_brokers=[_live_broker(broker) for broker in self.brokers],
        )
        return Outgoing(part, UPDATE_METADATA, UPDATE_METADATA_VERSION, message)

    def _stop_replica(self, sender: Sender, broker_epoch: int) -> Outgoing:
        topics: dict[str, StopReplicaTopicState] = {}
        for (name, partition), stop in self.stops.items():
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = StopReplicaTopicState(topic_name=name)
            topic.partition_states.append(
                StopReplicaPartitionState(partition, stop.leader_epoch, stop.delete)
            )
        message = StopReplicaRequest(
            controller_id=sender.controller_id,
            controller_epoch=sender.controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=list(topics.values()),
        )
        return Outgoing(Part.STOPS, STOP_REPLICA, STOP_REPLICA_VERSION, message)

    def _leader_and_isr(self, sender: Sender, broker_epoch: int) -> Outgoing:
        topics: dict[TopicId, LeaderAndIsrTopicState] = {}
        leaders: dict[int, None] = {}
        for (name, _), role in self.roles.items():
            topic = topics.get(role.topic_id)
            if topic is None:
                topic = topics[role.topic_id] = LeaderAndIsrTopicState(name, role.topic_id)
            topic.partition_states.append(role.state)
            leaders[role.state.leader] = None
        kept = [LeaderAndIsrTopicState(name, ZERO_TOPIC_ID) for name in self.keep if self.full]
        message = LeaderAndIsrRequest(
            controller_id=sender.controller_id,
            controller_epoch=sender.controller_epoch,
            broker_epoch=broker_epoch,
            type=FULL if self.full else INCREMENTAL,
            topic_states=[*topics.values(), *kept],
            live_leaders=[
                _live_leader(broker, sender.listener)
                for broker in self.brokers
                if broker.broker_id in leaders
            ],
        )
        return Outgoing(Part.ROLES, LEADER_AND_ISR, LEADER_AND_ISR_VERSION, message)


def endpoint_of(broker: BrokerInfo, listener: str) -> Endpoint:
    """Where other brokers reach this one: its endpoint on that listener, else its first."""
    for endpoint in broker.endpoints:
        if endpoint.listener == listener:
            return endpoint
    return broker.endpoints[0]


def as_new(role: Role) -> Role:
    """Return the role of a replica that the broker may create (D3)."""
    return Role(role.topic_id, replace(role.state, is_new=True))


def _live_broker(broker: BrokerInfo) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.broker_id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener,
                security_protocol=_SECURITY_PROTOCOLS[endpoint.security_protocol],
            )
            for endpoint in broker.endpoints
        ],
        rack=broker.rack,
    )


def _live_leader(broker: BrokerInfo, listener: str) -> LeaderAndIsrLiveLeader:
    endpoint = endpoint_of(broker, listener)
    return LeaderAndIsrLiveLeader(broker.broker_id, endpoint.host, endpoint.port)
