"""A broker as a script: its registration, its replicas, and the commands that it obeys.

The script obeys commands by the same pure rules as a broker (`replication.commands`). Its logs are
lists of records, so the world knows which records are committed and which replicas have them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, Final, NamedTuple

from tidelog.controller.commands import EPOCH_DURING_DELETE, FULL
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode
from tidelog.core.types import (
    NO_BROKER_EPOCH,
    ZERO_TOPIC_ID,
    CleanEpochs,
    TopicId,
    TopicPartition,
)
from tidelog.replication import commands
from tidelog.replication.commands import OfflineReplica, Placement
from tidelog.wire.messages.get_replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)
from tidelog.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from tidelog.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)


class SmallRecordId(NamedTuple):
    """A record of a log: the leader epoch of its append, and a number of its own."""

    leader_epoch: int
    serial: int


@dataclass(slots=True)
class SmallProposal:
    """An ISR that a leader has proposed and that may still be accepted (A8)."""

    isr: dict[int, int]
    partition_epoch: int
    leader_epoch: int


@dataclass(slots=True)
class SmallReplica:
    """A replica on a scripted broker."""

    topic_id: TopicId
    state: LeaderAndIsrPartitionState | None = None
    log: list[SmallRecordId] = field(default_factory=list)
    #: Number of records that a crash cannot take.
    synced: int = 0
    #: The ISR that the controller has confirmed to this leader, with its partition epoch.
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    has_eligible: bool = False
    is_stopped: bool = False
    #: Recovery state of a leader (KIP-704).
    recovery: int = 0
    proposals: list[SmallProposal] = field(default_factory=list)
    is_asking: bool = False
    #: By follower: its broker epoch and its log end, as its last fetch from this leader shows them.
    fetched: dict[int, tuple[int, int]] = field(default_factory=dict)
    high_watermark: int = 0
    epoch_start: int = 0

    @property
    def leader_epoch(self) -> int:
        """Leader epoch of the newest command; -1 before the first."""
        return -1 if self.state is None else self.state.leader_epoch

    def leads(self, broker_id: int) -> bool:
        """Return whether the replica leads, as its broker believes."""
        return self.state is not None and self.state.leader == broker_id and not self.is_stopped

    def maximal_isr(self) -> tuple[int, ...]:
        """Return the confirmed ISR and every ISR that may still be accepted (A8)."""
        members = dict.fromkeys(self.isr)
        for proposal in self.proposals:
            members.update(dict.fromkeys(proposal.isr))
        return tuple(members)


@dataclass(slots=True)
class ShownPartition:
    """The metadata that a broker shows of a partition."""

    topic_id: TopicId
    state: UpdateMetadataPartitionState


_NO_EPOCH: Final = -1


def _without_partitions(message: LeaderAndIsrRequest | UpdateMetadataRequest) -> list[str]:
    """Return the topics that a full command names without partitions, so that brokers keep them."""
    return [topic.topic_name for topic in message.topic_states if not topic.partition_states]


class ScriptedBroker:
    """A broker that obeys the controller's commands; the world makes all its other decisions."""

    def __init__(self, broker_id: int, created_empty: Callable[..., None]) -> None:
        self.broker_id = broker_id
        self.is_up = True
        self.session_id = 0
        #: Epoch of the registration that the broker believes to have, or -1.
        self.broker_epoch = NO_BROKER_EPOCH
        #: Epoch of the newest registration of this process.
        self.latest_epoch = NO_BROKER_EPOCH
        self.clean_epochs = CleanEpochs()
        #: Largest of the epochs that the broker had had when it last lost records; NO_BROKER_EPOCH
        #: if it never lost any.
        self.lost_since = NO_BROKER_EPOCH
        self.is_leaving = False
        self.controller_epoch = _NO_EPOCH
        self._latest_numbers: dict[tuple[int, int], int] = {}
        self.replicas: dict[TopicPartition, SmallReplica] = {}
        #: Replicas in a failed log directory.
        self.offline: dict[TopicPartition, SmallReplica] = {}
        self.shown: dict[TopicPartition, ShownPartition] = {}
        #: The live brokers, as the newest command lists them.
        self.live: tuple[int, ...] = ()
        #: Whether a command gave the address of a leader that is not among the live brokers.
        self.unknown_leader = False
        self._created_empty = created_empty

    # the process

    def end_process(self) -> None:
        """Forget what only the process knows."""
        self.is_up = False
        self.broker_epoch = self.latest_epoch = NO_BROKER_EPOCH
        self.controller_epoch = _NO_EPOCH
        self.is_leaving = False
        self._latest_numbers.clear()
        self.shown.clear()
        self.live = ()
        for topic_partition, replica in self.offline.items():
            self.replicas.setdefault(topic_partition, replica)
        self.offline.clear()
        for replica in self.replicas.values():
            replica.state, replica.isr, replica.partition_epoch = None, (), -1
            replica.proposals.clear()
            replica.fetched.clear()
            replica.is_asking, replica.high_watermark, replica.is_stopped = False, 0, False

    def registered(self, broker_epoch: int) -> None:
        """Note a registration."""
        self.broker_epoch = self.latest_epoch = broker_epoch
        self._latest_numbers.clear()

    # commands

    def obey(self, message: Any, controller_epoch: int, number: int) -> Any:
        """Obey a command; return the response, None if the command was overtaken by later ones."""
        if isinstance(message, GetReplicaLogInfoRequest):
            return self._log_ends(message)
        error = commands.request_error(
            known_controller_epoch=self.controller_epoch,
            controller_epoch=message.controller_epoch,
            own_broker_epoch=self.latest_epoch,
            is_registered=self.broker_epoch != NO_BROKER_EPOCH,
            broker_epoch=message.broker_epoch,
        )
        if error is ErrorCode.NONE:
            self.controller_epoch = message.controller_epoch
            key = (controller_epoch, message.broker_epoch)
            if commands.is_overtaken(self._latest_numbers.get(key, number), number):
                return None
            self._latest_numbers[key] = number
        if isinstance(message, LeaderAndIsrRequest):
            return self._take_roles(message, error)
        if isinstance(message, StopReplicaRequest):
            return self._stop(message, error)
        assert isinstance(message, UpdateMetadataRequest), f"not a command: {message}"
        if error is ErrorCode.NONE:
            self._show(message)
        return UpdateMetadataResponse(error_code=error)

    def _take_roles(self, message: LeaderAndIsrRequest, error: ErrorCode) -> LeaderAndIsrResponse:
        if error is not ErrorCode.NONE:
            return LeaderAndIsrResponse(error_code=error)
        if message.type == FULL:
            self._drop_strays(message)
        if any(leader.broker_id not in self.live for leader in message.live_leaders):
            self.unknown_leader = True
        topics = []
        for topic in message.topic_states:
            if topic.topic_id == ZERO_TOPIC_ID:
                continue
            errors = [
                LeaderAndIsrPartitionError(
                    "",
                    state.partition_index,
                    self._take_role(
                        TopicPartition(topic.topic_name, state.partition_index),
                        topic.topic_id,
                        state,
                    ),
                )
                for state in topic.partition_states
            ]
            topics.append(LeaderAndIsrTopicError(topic.topic_id, errors))
        return LeaderAndIsrResponse(error_code=error, topics=topics)

    def _drop_strays(self, message: LeaderAndIsrRequest) -> None:
        """Remove replicas that a full command does not name (V35)."""
        named = {
            TopicPartition(topic.topic_name, state.partition_index): topic.topic_id
            for topic in message.topic_states
            for state in topic.partition_states
        }
        kept = _without_partitions(message)
        for topic_partition, replica in list(self.replicas.items()):
            if topic_partition.topic not in kept and (
                named.get(topic_partition) != replica.topic_id
            ):
                del self.replicas[topic_partition]

    def _take_role(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        state: LeaderAndIsrPartitionState,
    ) -> ErrorCode:
        replica = self.replicas.get(topic_partition)
        if min(state.leader_epoch, state.partition_epoch) < 0:
            return ErrorCode.INVALID_REQUEST
        if self.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if replica is not None and state.is_new and replica.topic_id != topic_id:
            del self.replicas[topic_partition]
            replica = None
        offline = self.offline.get(topic_partition)
        placement = commands.placement(
            broker_id=self.broker_id,
            own_topic_id=None if replica is None else replica.topic_id,
            offline=None if offline is None else OfflineReplica(offline.topic_id, 0),
            has_failed_directory=bool(self.offline),
            topic_id=topic_id,
            leader_epoch=state.leader_epoch,
            is_new=state.is_new,
            leader=state.leader,
            isr=(*state.isr, *state.eligible),
        )
        match placement:
            case Placement.OTHER_TOPIC:
                return ErrorCode.INCONSISTENT_TOPIC_ID
            case Placement.OFFLINE:
                return ErrorCode.KAFKA_STORAGE_ERROR
            case Placement.LOST:
                return ErrorCode.REPLICA_NOT_AVAILABLE
            case Placement.CREATE:
                replica = self.replicas[topic_partition] = SmallReplica(topic_id)
                self.offline.pop(topic_partition, None)
                self._created_empty(self, topic_partition, topic_id, state)
            case Placement.KEEP:
                assert replica is not None, "a kept replica exists"
                if not commands.is_current(
                    replica.leader_epoch,
                    replica.partition_epoch,
                    state.leader_epoch,
                    state.partition_epoch,
                ):
                    return ErrorCode.STALE_CONTROLLER_EPOCH
        self._take(replica, state)
        return ErrorCode.NONE

    def _take(self, replica: SmallReplica, state: LeaderAndIsrPartitionState) -> None:
        """Give a replica the role that a command has for it."""
        before = replica.leader_epoch
        leads = state.leader == self.broker_id
        if state.leader_epoch != before:
            replica.fetched.clear()
            replica.proposals.clear()
            replica.is_asking = False
            replica.epoch_start = len(replica.log)
        elif state.partition_epoch > replica.partition_epoch:
            replica.proposals = [
                each for each in replica.proposals if each.partition_epoch >= state.partition_epoch
            ]
            replica.is_asking = replica.is_asking and bool(replica.proposals)
        replica.state, replica.is_stopped = state, False
        if leads:
            replica.isr, replica.partition_epoch = tuple(state.isr), state.partition_epoch
            replica.has_eligible = bool(state.eligible)
            replica.recovery = state.leader_recovery_state
        else:
            replica.isr, replica.partition_epoch = (), state.partition_epoch

    def _stop(self, message: StopReplicaRequest, error: ErrorCode) -> StopReplicaResponse:
        response = StopReplicaResponse(error_code=error)
        if error is not ErrorCode.NONE:
            return response
        for topic in message.topic_states:
            for stop in topic.partition_states:
                topic_partition = TopicPartition(topic.topic_name, stop.partition_index)
                outcome = ErrorCode.NONE
                replica = self.replicas.get(topic_partition)
                if topic_partition in self.offline:
                    outcome = ErrorCode.KAFKA_STORAGE_ERROR
                elif replica is not None:
                    if not commands.stop_is_current(replica.leader_epoch, stop.leader_epoch):
                        outcome = ErrorCode.FENCED_LEADER_EPOCH
                    elif stop.delete_partition:
                        del self.replicas[topic_partition]
                    else:
                        replica.is_stopped = True
                response.partition_errors.append(
                    StopReplicaPartitionError(topic.topic_name, stop.partition_index, outcome)
                )
        return response

    def _show(self, message: UpdateMetadataRequest) -> None:
        self.live = tuple(each.id for each in message.live_brokers)
        if message.type == FULL:
            kept = _without_partitions(message)
            self.shown = {
                topic_partition: shown
                for topic_partition, shown in self.shown.items()
                if topic_partition.topic in kept
            }
        for topic in message.topic_states:
            for state in topic.partition_states:
                topic_partition = TopicPartition(topic.topic_name, state.partition_index)
                if state.leader_epoch == EPOCH_DURING_DELETE:
                    self.shown.pop(topic_partition, None)
                else:
                    self.shown[topic_partition] = ShownPartition(topic.topic_id, state)

    def _log_ends(self, message: GetReplicaLogInfoRequest) -> GetReplicaLogInfoResponse:
        by_id = {
            (replica.topic_id, topic_partition.partition): (replica, topic_partition)
            for topic_partition, replica in (*self.replicas.items(), *self.offline.items())
        }
        response = GetReplicaLogInfoResponse(broker_epoch=self.broker_epoch)
        for topic in message.topic_partitions or ():
            infos = []
            for number in topic.partitions:
                found = by_id.get((topic.topic_id, number))
                if found is None:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    infos.append(PartitionLogInfo(number, -1, -1, -1, error))
                    continue
                replica, topic_partition = found
                error = ErrorCode.NONE
                if topic_partition in self.offline:
                    error = ErrorCode.KAFKA_STORAGE_ERROR
                last = replica.log[-1].leader_epoch if replica.log else -1
                infos.append(PartitionLogInfo(number, last, 0, len(replica.log), error, 0))
            response.topic_partition_log_info_list.append(
                TopicPartitionLogInfo(topic.topic_id, infos)
            )
        return response
