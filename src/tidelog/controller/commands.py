"""Commands that wait for one broker: control requests, and requests for log ends (V17, V30, V35).

`CommandBuilder` derives the content of commands from the image. `Commands` merge while they wait
(V81): the last state of a partition wins, and a StopReplica(delete) followed by a LeaderAndIsr
keeps this order. The backlog of unsent commands is bounded: when it becomes much larger than a full
command, the broker gets a full command instead. `Commands.requests` returns the requests in sending
order. An UpdateMetadata with changed live brokers is first, so that a follower knows its leader.
StopReplica and LeaderAndIsr follow. The UpdateMetadata with the partitions is last, so that clients
learn of a new leader only after it leads. The request versions are those that Kafka 3.9 sends with
the same `inter.broker.protocol.version`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import Any, NamedTuple

from tidelog.core import limits, protocol_level
from tidelog.core.dataclass import dataclass
from tidelog.core.protocol_level import RequestVersions
from tidelog.core.types import ZERO_TOPIC_ID, BrokerInfo, Endpoint, TopicId, TopicPartition
from tidelog.wire.messages.get_replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoTopic,
)
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
from tidelog.wire.schema import SharedList

LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, GET_REPLICA_LOG_INFO = 4, 5, 6, 93
GET_REPLICA_LOG_INFO_VERSION = 0
#: Kafka's AbstractControlRequest.Type.
INCREMENTAL, FULL = 1, 2
#: The leader and the epoch that brokers get for a partition whose topic is being deleted. A
#: StopReplica with `EPOCH_DURING_DELETE` deletes the replica, whatever the replica's own epoch is
#: (Kafka's LeaderDuringDelete, EpochDuringDelete).
LEADER_DURING_DELETE = -2
EPOCH_DURING_DELETE = -2
#: The leader and the epochs that brokers get for a partition whose state cannot be read. A broker
#: with a replica of the partition keeps the replica and its metadata, and neither leads nor follows
#: (V35).
UNREADABLE = -1
_SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class Sender(NamedTuple):
    """The controller that sends commands, and the listener on which brokers reach each other."""

    controller_id: int
    controller_epoch: int
    listener: str
    #: Versions of the requests, chosen by the controller's `inter.broker.protocol.version` (A12).
    versions: RequestVersions = protocol_level.request_versions(protocol_level.NEWEST)


class BrokerRole(NamedTuple):
    """The role of a broker in one partition."""

    topic_id: TopicId
    state: LeaderAndIsrPartitionState


class Stop(NamedTuple):
    """A replica that a StopReplica request makes a broker stop."""

    leader_epoch: int
    delete: bool


class Part(Enum):
    """The kinds of requests that carry commands to a broker, in their sending order."""

    BROKERS = "live brokers"
    STOPS = "replicas to stop"
    ROLES = "roles"
    SHOWN = "metadata"
    LOG_ENDS = "questions for log ends"


class Outgoing(NamedTuple):
    """One request that the controller sends to a broker."""

    part: Part
    api_key: int
    version: int
    message: Any


#: Key of a partition of one topic incarnation: the topic id separates the topic from an earlier
#: topic of the same name.
ShownKey = tuple[TopicId, TopicPartition]
Shown = Mapping[ShownKey, UpdateMetadataPartitionState]


class SharedShown(dict[ShownKey, UpdateMetadataPartitionState]):
    """Metadata that is sent to several brokers, whose requests share its encoding.

    The metadata is a copy that does not change any more after the first request.
    """

    __slots__ = ("_topics",)

    def __init__(self, shown: Shown) -> None:
        super().__init__(shown)
        self._topics: SharedList | None = None

    def topics(self) -> SharedList:
        """Return the list of topics for UpdateMetadata requests.

        All requests share the returned list and its encoding.
        """
        if self._topics is None:
            self._topics = SharedList(_topic_states(self))
        return self._topics


@dataclass(slots=True)
class Commands:
    """Commands that one broker has yet to receive."""

    brokers: tuple[BrokerInfo, ...]
    #: Whether the controller must send the broker the list of live brokers.
    brokers_changed: bool = False
    #: Whether this is a full command: `roles` has every replica that the broker should hold.
    full: bool = False
    #: Whether `shown` has the metadata of every partition.
    shows_all: bool = False
    #: Topics that a full command does not describe; the broker keeps their replicas and metadata.
    keep: tuple[str, ...] = ()
    #: Number of partitions in the cluster when the commands were decided.
    partition_count: int = 0
    #: Identifier of the content of `/brokers/store_went_back` (`StoreWentBack.name`), a node which
    #: shows that the store lost its latest writes; empty if there is no such node (E8).
    store_mark: str = ""
    stops: dict[TopicPartition, Stop] = field(default_factory=dict)
    roles: dict[TopicPartition, BrokerRole] = field(default_factory=dict)
    shown: Shown = field(default_factory=dict)
    #: Partitions for which the controller asks the broker for its log end (E6).
    log_ends: dict[tuple[TopicId, int], TopicPartition] = field(default_factory=dict)
    #: The map of metadata to send (`shown`), if it is for this broker only; None if several brokers
    #: share the map.
    _own_shown: dict[ShownKey, UpdateMetadataPartitionState] | None = None

    def merge(self, later: Commands) -> None:
        """Add commands of a later decision to these commands, which have not been sent yet."""
        self.brokers = later.brokers
        self.brokers_changed = self.brokers_changed or later.brokers_changed
        self.partition_count = later.partition_count
        self.store_mark = later.store_mark
        self.log_ends.update(later.log_ends)
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
        self,
        roles: Mapping[TopicPartition, BrokerRole],
        before: Mapping[TopicPartition, BrokerRole],
    ) -> None:
        """Add the `roles` of a later decision to the roles `before`, which are not sent yet.

        If a role in `before` permits the broker to create the replica, the later role also permits
        the creation (D3).
        """
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
        """Whether the backlog is much larger than a full command."""
        waiting = len(self.roles) + len(self.stops) + len(self.shown)
        return waiting > 3 * self.partition_count + limits.MAX_SUPERSEDED_STATES

    def drop_shown(self) -> None:
        """Drop the partition metadata that waits to be sent to the broker; the caller must then
        queue the metadata of all partitions.
        """
        self.shown, self.shows_all, self._own_shown = {}, False, None

    def requests(self, sender: Sender, broker_epoch: int) -> list[Outgoing]:
        """Return the requests in sending order; the metadata of partitions follows the roles."""
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
        asked = list(self.log_ends)
        step = limits.MAX_LOG_ENDS_PER_REQUEST
        outgoing += [_log_ends(asked[first : first + step]) for first in range(0, len(asked), step)]
        return outgoing

    def answered(self, outgoing: Outgoing) -> None:
        """Remove the commands of request `outgoing`, because the broker has acknowledged it."""
        match outgoing.part:
            case Part.LOG_ENDS:
                for topic in outgoing.message.topic_partitions:
                    for partition in topic.partitions:
                        self.log_ends.pop((topic.topic_id, partition), None)
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
        states = shown.topics() if isinstance(shown, SharedShown) else _topic_states(shown)
        if kind == FULL and self.keep:
            kept = [UpdateMetadataTopicState(name, ZERO_TOPIC_ID) for name in self.keep]
            states = [*states, *kept]
        message = UpdateMetadataRequest(
            controller_id=sender.controller_id,
            type=kind,
            controller_epoch=sender.controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=states,
            live_brokers=[_live_broker(broker) for broker in self.brokers],
            store_mark=self.store_mark,
        )
        return Outgoing(part, UPDATE_METADATA, sender.versions.update_metadata, message)

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
        return Outgoing(Part.STOPS, STOP_REPLICA, sender.versions.stop_replica, message)

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
        return Outgoing(Part.ROLES, LEADER_AND_ISR, sender.versions.leader_and_isr, message)


def _topic_states(shown: Shown) -> list[UpdateMetadataTopicState]:
    topics: dict[tuple[TopicId, str], UpdateMetadataTopicState] = {}
    for (topic_id, topic_partition), state in shown.items():
        topic = topics.get((topic_id, topic_partition.topic))
        if topic is None:
            topic = topics[topic_id, topic_partition.topic] = UpdateMetadataTopicState(
                topic_name=topic_partition.topic, topic_id=topic_id
            )
        topic.partition_states.append(state)
    return list(topics.values())


def _log_ends(asked: Sequence[tuple[TopicId, int]]) -> Outgoing:
    partitions: dict[TopicId, list[int]] = {}
    for topic_id, partition in asked:
        partitions.setdefault(topic_id, []).append(partition)
    message = GetReplicaLogInfoRequest(
        [GetReplicaLogInfoTopic(topic_id, numbers) for topic_id, numbers in partitions.items()]
    )
    return Outgoing(Part.LOG_ENDS, GET_REPLICA_LOG_INFO, GET_REPLICA_LOG_INFO_VERSION, message)


def endpoint_of(broker: BrokerInfo, listener: str) -> Endpoint:
    """Return the endpoint on which other brokers connect to a broker.

    The result is the broker's endpoint on `listener`, else the broker's first endpoint.
    """
    for endpoint in broker.endpoints:
        if endpoint.listener == listener:
            return endpoint
    return broker.endpoints[0]


def as_new(role: BrokerRole) -> BrokerRole:
    """Return a copy of a role, with permission for the broker to create its replica (D3)."""
    return BrokerRole(role.topic_id, replace(role.state, is_new=True))


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
