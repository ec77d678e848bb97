"""What a broker must be told, as LeaderAndIsr, StopReplica and UpdateMetadata (V17, V30, V35).

`CommandBuilder` derives the content from the image; `Commands` is what one broker has still to be
told: it merges while it waits (V81), the last state of a partition wins, and StopReplica(delete)
followed by LeaderAndIsr keeps both in order. What waits is bounded: topics that come and go leave
traces in it, and when these are more than all that is there, the broker is told everything anew.
`Commands.requests` lays it out in sending order: UpdateMetadata with the live brokers where they
changed, so that a follower knows the leader that it is told of; StopReplica; LeaderAndIsr;
UpdateMetadata with the partitions, last, so that clients hear of a leader that already leads.
Versions are those that Kafka 3.9 sends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

from tidelog.controller import elections
from tidelog.controller.image import Image
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
_UNREADABLE = -1
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
                and role.state.leader_epoch != _UNREADABLE
            ):
                role = _as_new(role)
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


class CommandBuilder:
    """Derives commands from the image as it is after a decision was applied."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._brokers = tuple(image.brokers[broker_id] for broker_id in sorted(image.brokers))
        self._commands: dict[int, Commands] = {}
        #: Shared by all brokers.
        self._shown: dict[ShownKey, UpdateMetadataPartitionState] = {}
        self._full: list[int] = []
        self._brokers_changed = False
        #: Roles that are nobody's first: the same for all replicas of a partition.
        self._roles: dict[TopicPartition, Role] = {}
        #: The replicas of each partition that has roles, where somebody is told everything.
        self._placed: dict[TopicPartition, Sequence[int]] = {}

    def tell_brokers(self) -> None:
        """Tell everybody who is alive."""
        self._brokers_changed = True

    def tell_role(
        self, topic_partition: TopicPartition, is_new: bool, new_replicas: tuple[int, ...] = ()
    ) -> None:
        """Tell all live replicas of a partition what they are in it; nothing without a state, or
        once it is to be deleted: a role told later would make the replica again (V22, V71).
        `new_replicas`: these are made, though the others are there (D3)."""
        if not self._has_roles(topic_partition):
            return
        role = self._role(topic_partition, is_new)
        for replica in self._image.replicas(topic_partition):
            if replica in self._image.brokers:
                made = replica in new_replicas and not is_new
                self._of(replica).roles[topic_partition] = _as_new(role) if made else role

    def retell_role(self, broker_id: int, topic_partition: TopicPartition, is_new: bool) -> None:
        """Tell one broker what it is in a partition, unless it is told anyway or is gone."""
        if broker_id in self._image.brokers and self._has_roles(topic_partition):
            roles = self._of(broker_id).roles
            if topic_partition not in roles:
                roles[topic_partition] = self._role(topic_partition, is_new)

    def stop_replica(self, broker_id: int, topic_partition: TopicPartition) -> None:
        """Tell a broker that is leaving to follow no longer and keep the log, in place of any role
        in the partition (V43); nothing where it leads."""
        image = self._image
        if broker_id not in image.brokers or not self._has_roles(topic_partition):
            return
        state = image.states[topic_partition]
        if state.leader != broker_id and broker_id in image.replicas(topic_partition):
            commands = self._of(broker_id)
            commands.roles.pop(topic_partition, None)
            commands.stops[topic_partition] = Stop(state.leader_epoch, False)

    def _has_roles(self, topic_partition: TopicPartition) -> bool:
        image = self._image
        state = image.states.get(topic_partition)
        return (
            state is not None
            and not elections.is_tombstone(state)
            and not image.is_deleting(topic_partition.topic)
        )

    def show(self, topic_partition: TopicPartition) -> None:
        """Tell everybody the published state of a partition; nothing where it has none."""
        self._show(topic_partition, self._shown)

    def _show(
        self,
        topic_partition: TopicPartition,
        shown: dict[ShownKey, UpdateMetadataPartitionState],
    ) -> None:
        state = self._image.states.get(topic_partition)
        if state is None:
            self._show_unreadable(topic_partition, shown)
            return
        replicas = self._image.replicas(topic_partition)
        deleting = self._image.is_deleting(topic_partition.topic) or elections.is_tombstone(state)
        key = (self._image.topics[topic_partition.topic].topic_id, topic_partition)
        shown[key] = UpdateMetadataPartitionState(
            partition_index=topic_partition.partition,
            controller_epoch=state.controller_epoch,
            leader=LEADER_DURING_DELETE if deleting else state.leader,
            leader_epoch=EPOCH_DURING_DELETE if deleting else state.leader_epoch,
            isr=state.isr,
            zk_version=state.partition_epoch,
            replicas=replicas,
            offline_replicas=[one for one in replicas if one not in self._image.brokers],
            first_leader_epoch=state.first_epochs[0],
        )

    def _show_unreadable(
        self,
        topic_partition: TopicPartition,
        shown: dict[ShownKey, UpdateMetadataPartitionState],
    ) -> None:
        """The end of a partition whose state cannot be read, once its topic is deleted, and in what
        is told in full that it is there. Else brokers know what they knew."""
        deleting = self._image.is_deleting(topic_partition.topic)
        if topic_partition not in self._image.unreadable_states or (
            shown is self._shown and not deleting
        ):
            return
        replicas = self._image.replicas(topic_partition)
        key = (self._image.topics[topic_partition.topic].topic_id, topic_partition)
        shown[key] = UpdateMetadataPartitionState(
            partition_index=topic_partition.partition,
            leader=LEADER_DURING_DELETE if deleting else _UNREADABLE,
            leader_epoch=EPOCH_DURING_DELETE if deleting else _UNREADABLE,
            zk_version=_UNREADABLE,
            replicas=replicas,
            offline_replicas=[one for one in replicas if one not in self._image.brokers],
        )

    def _unreadable(self) -> dict[TopicPartition, Role]:
        """Roles that say nothing but that the replica, if there is one, is no stray (V35)."""
        image = self._image
        return {
            one: Role(
                image.topics[one.topic].topic_id,
                LeaderAndIsrPartitionState(
                    partition_index=one.partition,
                    leader=_UNREADABLE,
                    leader_epoch=_UNREADABLE,
                    isr=image.assigned(one),
                    partition_epoch=_UNREADABLE,
                    replicas=image.assigned(one),
                ),
            )
            for one in image.unreadable_states
            if not image.is_deleting(one.topic)
        }

    def delete(self, topic: str) -> dict[int, tuple[TopicPartition, ...]]:
        """Tell live replicas of a topic to delete; returns whom it told, and of what."""
        told: dict[int, list[TopicPartition]] = {}
        for topic_partition in self._image.topics[topic].partitions:
            self.show(topic_partition)
            for replica in self._image.assigned(topic_partition):
                if replica in self._image.brokers:
                    self._of(replica).stops[topic_partition] = Stop(EPOCH_DURING_DELETE, True)
                    told.setdefault(replica, []).append(topic_partition)
        return {broker_id: tuple(partitions) for broker_id, partitions in told.items()}

    def leave(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """Tell live replicas that a reassignment has taken away to stop and to delete what they
        have (V52); returns whom it told."""
        image = self._image
        stay = image.replicas(topic_partition)
        stop = Stop(image.states[topic_partition].leader_epoch, True)
        told = [
            replica
            for replica in image.assigned(topic_partition)
            if replica not in stay and replica in image.brokers
        ]
        for replica in told:
            self._of(replica).stops[topic_partition] = stop
        return tuple(told)

    def remove(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[int, tuple[TopicPartition, ...]]:
        """Tell live replicas of removed partitions to delete, under the leader epoch that ends
        them: it spares the replicas of a later life. Returns whom it told, and of what (V71)."""
        told: dict[int, list[TopicPartition]] = {}
        for topic_partition in topic_partitions:
            self.show(topic_partition)
            state = self._image.states.get(topic_partition)
            if state is None:
                continue
            for replica in self._image.replicas(topic_partition):
                if replica in self._image.brokers:
                    self._of(replica).stops[topic_partition] = Stop(state.leader_epoch, True)
                    told.setdefault(replica, []).append(topic_partition)
        return {broker_id: tuple(partitions) for broker_id, partitions in told.items()}

    def tell_everything(self, broker_id: int) -> None:
        """Tell a broker all that it should hold and know (V35, V41)."""
        if broker_id in self._image.brokers:
            self._full.append(broker_id)

    def build(self) -> dict[int, Commands]:
        """Commands by broker id, for brokers that have anything to be told."""
        everything = self._everything() if self._full else {}
        for broker_id in self._full:
            self._make_full(self._of(broker_id), broker_id, everything)
        if self._shown or self._brokers_changed:
            for broker in self._brokers:
                commands = self._of(broker.broker_id)
                if not commands.full:
                    commands.shown = self._shown
        for commands in self._commands.values():
            commands.brokers_changed = self._brokers_changed or commands.full
        return dict(sorted(self._commands.items()))

    def _make_full(self, commands: Commands, broker_id: int, everything: Shown) -> None:
        image = self._image
        told = commands.roles
        roles: dict[TopicPartition, Role] = {}
        placed, known = self._placed, self._roles
        for topic_partition in image.hosted_by(broker_id):
            if topic_partition in told:
                roles[topic_partition] = told[topic_partition]
            elif broker_id in placed.get(topic_partition, ()):
                role = known.get(topic_partition)
                roles[topic_partition] = role or self._role(topic_partition, False)
            # Else it is to go, or has no roles: what comes back to life is stray there (V45).
        roles.update(self._unreadable())
        commands.roles = roles
        commands.shown = everything
        commands.full = commands.shows_all = True
        commands.keep = tuple(
            name for name in sorted(image.unreadable) if not image.is_deleting(name)
        )

    def _everything(self) -> Shown:
        everything: dict[ShownKey, UpdateMetadataPartitionState] = {}
        self._placed = {}
        for topic in self._image.topics.values():
            if self._image.is_deleting(topic.name):
                continue
            for topic_partition in topic.partitions:
                if not self._has_roles(topic_partition):
                    self._show_unreadable(topic_partition, everything)
                    continue
                key = (topic.topic_id, topic_partition)
                if key in self._shown:
                    everything[key] = self._shown[key]
                else:
                    self._show(topic_partition, everything)
                self._placed[topic_partition] = everything[key].replicas
        return everything

    def _role(self, topic_partition: TopicPartition, is_new: bool) -> Role:
        role = None if is_new else self._roles.get(topic_partition)
        if role is None:
            role = self._new_role(topic_partition, is_new)
            if not is_new:
                self._roles[topic_partition] = role
        return role

    def _new_role(self, topic_partition: TopicPartition, is_new: bool) -> Role:
        state = self._image.states[topic_partition]
        replicas = self._placed.get(topic_partition)
        if replicas is None:
            replicas = self._image.replicas(topic_partition)
        move = self._image.move(topic_partition)
        if move is not None and self._image.is_completing(topic_partition):
            move = None
        removing = () if move is None else move.removing
        adding = () if move is None else tuple(one for one in move.adding if one not in removing)
        return Role(
            self._image.topics[topic_partition.topic].topic_id,
            LeaderAndIsrPartitionState(
                partition_index=topic_partition.partition,
                controller_epoch=state.controller_epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=state.isr,
                partition_epoch=state.partition_epoch,
                replicas=replicas,
                adding_replicas=adding,
                removing_replicas=removing,
                is_new=is_new,
                leader_recovery_state=state.leader_recovery_state,
                first_leader_epoch=state.first_epochs[0],
                is_closing=topic_partition.partition in self._image.closing(topic_partition.topic),
            ),
        )

    def _of(self, broker_id: int) -> Commands:
        commands = self._commands.get(broker_id)
        if commands is None:
            commands = self._commands[broker_id] = Commands(
                self._brokers, partition_count=len(self._image.states)
            )
        return commands


def _as_new(role: Role) -> Role:
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
