"""Replicas that come and go: a broker's real decisions about roles and deletions, over `Replica`.

A replica is None where its broker has none. Commands arrive in the order in which the controller
sent them to this broker; those that wait are merged as production merges them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tests.support.controller.values import TP
from tests.support.models.replicas import MAX_LAG_MS, NOW_MS, Command, Replica

from tidelog.controller.commands import Commands
from tidelog.controller.events import Event
from tidelog.controller.replica_answers import LeaderAndIsrAnswered, StopReplicaAnswered
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerInfo, TopicPartition
from tidelog.replication import commands
from tidelog.replication import isr as isr_rules
from tidelog.replication.commands import Placement
from tidelog.replication.isr import IsrChange, IsrState
from tidelog.replication.leader import LeaderReplica
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrPartitionState


class Assigned(NamedTuple):
    """A role, with the replicas that it names."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    has_eligible: bool
    #: Replicas that do not copy: no target of a move wants them (R10).
    idle: tuple[int, ...] = ()


class MovingReplica(Replica):
    """A replica whose partition's replicas change."""

    __slots__ = ("alive", "has_eligible", "idle", "minimum", "replicas")

    def __init__(
        self, number: int, broker_epoch: int, minimum: int, alive: tuple[int, ...]
    ) -> None:
        super().__init__(number, broker_epoch)
        self.minimum = minimum
        #: Brokers that are alive, as a leader learns from its metadata.
        self.alive = alive
        #: Replicas that the last command named.
        self.replicas: tuple[int, ...] = ()
        #: Whether it named eligible replicas outside the ISR (E1).
        self.has_eligible = False
        #: Replicas that it named as idle.
        self.idle: tuple[int, ...] = ()

    def _may_join(self, replica: int) -> bool:
        return replica in self.alive and replica not in self.idle

    def copy(self) -> MovingReplica:
        """An independent copy."""
        other = super().copy()
        assert isinstance(other, MovingReplica)
        other.minimum, other.replicas = self.minimum, self.replicas
        other.has_eligible, other.alive, other.idle = self.has_eligible, self.alive, self.idle
        return other

    def key(self) -> tuple[object, ...]:
        """The whole state as a value."""
        role = self.leading
        leading = None if role is None else (role.replicas, role.has_eligible)
        return (*super().key(), self.replicas, self.alive, self.idle, leading)

    def assign(self, command: Assigned) -> bool:
        """Carry out a role; return False for one that is too old (V30)."""
        if not commands.is_current(*self.known, command.leader_epoch, command.partition_epoch):
            return False
        self.replicas, self.has_eligible = command.replicas, command.has_eligible
        self.idle = command.idle
        role = self.role
        if role is not None and role.leader_epoch == command.leader_epoch:
            self.known = (command.leader_epoch, command.partition_epoch)
            if isinstance(role, LeaderReplica):
                role.commanded(
                    command.isr,
                    command.replicas,
                    command.partition_epoch,
                    self._may_join,
                    NOW_MS,
                    has_eligible=command.has_eligible,
                )
            return True
        return self.obey(Command(*command[:4]), self._may_join, self.minimum)

    def _lead(self, command: Command, is_alive: Callable[[int], bool], minimum: int) -> None:
        end = len(self.log)
        if self.epochs.latest_epoch != command.leader_epoch:
            self.epochs.assign(command.leader_epoch, end)
        role = LeaderReplica(
            broker_id=self.number,
            broker_epoch=self.broker_epoch,
            leader_epoch=command.leader_epoch,
            isr=IsrState(command.isr, command.partition_epoch),
            replicas=self.replicas,
            epoch_start_offset=end,
            log_end_offset=end,
            high_watermark=self.resting,
            min_insync_replicas=minimum,
            max_lag_ms=MAX_LAG_MS,
            is_eligible=is_alive,
            now_ms=NOW_MS,
            has_eligible=self.has_eligible,
        )
        self.role, self.resting = role, 0
        role.examine(NOW_MS)

    def learn(self, alive: tuple[int, ...]) -> None:
        """Take over which brokers are alive."""
        self.alive = alive
        if self.leading is not None:
            self.leading.eligibility_changed(self._may_join, NOW_MS)

    def restart(self, broker_epoch: int) -> None:
        """The process ends, and begins again with its log."""
        self.rest()
        self.broker_epoch = broker_epoch
        self.known, self.replicas = (-1, -1), ()

    def due(self) -> IsrChange | None:
        """The change of the ISR that a leader has for the controller."""
        role = self.leading
        return None if role is None else role.isr.queued or isr_rules.repetition(role.isr)


def obey(
    number: int,
    replica: MovingReplica | None,
    pending: Commands,
    infos: Mapping[int, BrokerInfo],
    minimum: int,
) -> tuple[MovingReplica | None, list[Event]]:
    """A broker's replica after commands, which carries them out, and the broker's answers."""
    answers: list[Event] = []
    broker = infos[number]
    stop = pending.stops.get(TP)
    if stop is not None:
        known = -1 if replica is None else replica.known[0]
        assert stop.delete, "no broker shuts down here"
        if commands.stop_is_current(known, stop.leader_epoch):
            replica = None
        answers.append(StopReplicaAnswered(number, broker.broker_epoch, [TP]))
    role = pending.roles.get(TP)
    if pending.full and role is None:
        replica = None  # a stray (V35)
    if role is not None:
        replica, error = _take_role(number, replica, role.state, infos, minimum)
        outcomes: list[tuple[TopicPartition, ErrorCode]] = [(TP, error)]
        answers.append(LeaderAndIsrAnswered(number, broker.broker_epoch, outcomes))
    return replica, answers


def _take_role(
    number: int,
    replica: MovingReplica | None,
    state: LeaderAndIsrPartitionState,
    infos: Mapping[int, BrokerInfo],
    minimum: int,
) -> tuple[MovingReplica | None, ErrorCode]:
    if number not in state.replicas:
        return replica, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    placement = commands.placement(
        broker_id=number,
        own_topic_id=None if replica is None else b"t",
        offline=None,
        has_failed_directory=False,
        topic_id=b"t",
        leader_epoch=state.leader_epoch,
        is_new=state.is_new,
        leader=state.leader,
        isr=(*state.isr, *state.eligible),
    )
    if placement is Placement.LOST:
        return None, ErrorCode.REPLICA_NOT_AVAILABLE
    if replica is None:
        replica = MovingReplica(number, infos[number].broker_epoch, minimum, tuple(infos))
    is_current = replica.assign(
        Assigned(
            state.leader,
            state.leader_epoch,
            tuple(state.isr),
            state.partition_epoch,
            tuple(state.replicas),
            bool(state.eligible),
            tuple(state.idle),
        )
    )
    return replica, ErrorCode.NONE if is_current else ErrorCode.STALE_CONTROLLER_EPOCH


def commands_key(pending: Commands) -> tuple[object, ...]:
    """What matters of commands that wait for one broker."""
    role = pending.roles.get(TP)
    of_role: tuple[object, ...] | None = None
    if role is not None:
        state = role.state
        of_role = (
            state.leader,
            state.leader_epoch,
            tuple(state.isr),
            state.partition_epoch,
            tuple(state.replicas),
            state.is_new,
            tuple(state.eligible),
            tuple(state.idle),
        )
    return (pending.full, pending.stops.get(TP), of_role)
