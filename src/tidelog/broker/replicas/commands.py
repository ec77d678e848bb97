"""The execution of LeaderAndIsr and StopReplica on this broker's replicas.

The steps of a LeaderAndIsr run in a fixed order. First, the broker sets aside replicas that a full
command does not list (strays, V35, V45). Then every replica that changes its role stops serving and
fetching, before any new role begins (V31). Missing replicas are created if the command allows it
(D3). A replica takes its new role when no operation runs on its log. When all replicas have their
roles, followers begin to fetch. Partitions are independent of each other, so each has its own
error. `tidelog.replication.commands` decides whether the broker executes or refuses a command. If
this broker's registration ends during a command, no further replica takes a role.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.replicas.hosting.partition import Partition
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.names import validate_topic_name
from tidelog.core.types import TopicId, TopicPartition
from tidelog.replication import commands
from tidelog.replication.commands import Placement
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

if TYPE_CHECKING:
    from tidelog.broker.replicas.fetching.fetchers import Fetchers
    from tidelog.broker.replicas.replica_set import ReplicaSet
    from tidelog.broker.services import Services
    from tidelog.log.config import LogConfig

_FULL = 2
#: Request type of commands from Kafka's controllers in ZooKeeper mode, which do not show whether a
#: command is full.
_UNTOLD = 0
_TOPIC_ID_VERSION = 5


class _Command(NamedTuple):
    """The command for one partition."""

    topic_partition: TopicPartition
    topic_id: TopicId
    state: LeaderAndIsrPartitionState


class _LeaderAndIsr:
    """A LeaderAndIsr request in progress."""

    def __init__(
        self,
        services: Services,
        replicas: ReplicaSet,
        fetchers: Fetchers,
        release: Callable[[Partition], Awaitable[None]],
        request: LeaderAndIsrRequest,
    ) -> None:
        self.services = services
        self.replicas = replicas
        self.fetchers = fetchers
        self.release = release
        self.request = request
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.obeyed: list[tuple[Partition, _Command]] = []
        #: Partitions that get a new role.
        self.changing: list[Partition] = []
        self.missing: list[_Command] = []
        #: One command for each partition; if a request names a partition twice, the last entry
        #: counts.
        self.commands = {
            TopicPartition(topic.topic_name, state.partition_index): _Command(
                TopicPartition(topic.topic_name, state.partition_index), topic.topic_id, state
            )
            for topic in request.topic_states
            for state in topic.partition_states
        }

    def response(self, version: int) -> LeaderAndIsrResponse:
        """Return the outcome of each partition, grouped by topic from version 5 on (topic ids)."""
        response = LeaderAndIsrResponse()
        topics: dict[TopicId, LeaderAndIsrTopicError] = {}
        for topic_partition, topic_id, _ in self.commands.values():
            outcome = LeaderAndIsrPartitionError(
                topic_partition.topic, topic_partition.partition, self.errors[topic_partition]
            )
            if version < _TOPIC_ID_VERSION:
                response.partition_errors.append(outcome)
                continue
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = LeaderAndIsrTopicError(topic_id)
                response.topics.append(topic)
            topic.partition_errors.append(outcome)
        return response

    async def run(self) -> ErrorCode:
        """Execute the LeaderAndIsr request; return the error of the whole request."""
        generation = self.replicas.generation
        await self._set_strays_aside()
        for command in self.commands.values():
            self._judge(command)
        self._stop_serving()
        await self._create()
        await self._quieten()
        if self.replicas.generation != generation:
            self.services.tracer.mark("command_outlived_registration")
            return ErrorCode.STALE_BROKER_EPOCH
        self._take_roles()
        return ErrorCode.NONE

    def _judge(self, command: _Command) -> None:
        """Decide the outcome of the command for one partition."""
        topic_partition, topic_id, state = command
        broker_id = self.services.broker_id
        partition = self.replicas.get(topic_partition)
        error = ErrorCode.NONE
        if min(topic_partition.partition, state.leader_epoch, state.partition_epoch) < 0:
            error = ErrorCode.INVALID_REQUEST
        elif broker_id not in state.replicas:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            placement = commands.placement(
                broker_id=broker_id,
                own_topic_id=None if partition is None else partition.topic_id,
                offline=self.replicas.log_dirs.offline.get(topic_partition),
                has_failed_directory=bool(self.replicas.failed),
                topic_id=topic_id,
                leader_epoch=state.leader_epoch,
                is_new=state.is_new or self._was_refused(command),
                leader=state.leader,
                # An eligible leader replica counts like an ISR member here: if its broker lost the
                # replica, the broker must not create an empty one (E1).
                isr=(*state.isr, *state.eligible),
            )
            if placement is Placement.OTHER_TOPIC:
                # tidelog's controllers replace a replica of an earlier topic of the same name only
                # with is_new or with a full command, so no other command may replace it.
                error = ErrorCode.INCONSISTENT_TOPIC_ID
            elif placement is Placement.OFFLINE:
                error = ErrorCode.KAFKA_STORAGE_ERROR
                self.services.tracer.mark("replica_offline")
            elif placement is Placement.LOST:
                # A Kafka controller elects another leader only after KAFKA_STORAGE_ERROR, so it
                # gets that error, as if the replica's directory had failed.
                error = ErrorCode.REPLICA_NOT_AVAILABLE
                if self.request.type == _UNTOLD:
                    error = ErrorCode.KAFKA_STORAGE_ERROR
                self.services.tracer.mark("replica_lost")
            elif partition is not None and not commands.is_current(
                partition.leader_epoch,
                partition.partition_epoch,
                state.leader_epoch,
                state.partition_epoch,
            ):
                error = ErrorCode.STALE_CONTROLLER_EPOCH
                self.services.tracer.mark("command_of_older_epoch")
            elif (
                partition is not None
                and partition.is_given_up
                and commands.can_be_replaced(broker_id, state.isr)
            ):
                error = ErrorCode.KAFKA_STORAGE_ERROR
            elif _is_contradictory(broker_id, partition, state):
                error = ErrorCode.INVALID_REQUEST
            elif partition is None:
                error = _name_error(topic_partition.topic)
                if not error:
                    self.missing.append(command)
            else:
                self.obeyed.append((partition, command))
        self.errors[topic_partition] = error
        if error:
            self.services.tracer.event(
                "partition_command_refused", partition=str(topic_partition), error=error.name
            )

    def _was_refused(self, command: _Command) -> bool:
        """Return whether the disk refused to create this replica, which is still missing.

        The broker may later create such a replica empty, although it is in the ISR, because no
        record was committed since the refusal.
        """
        refused = self.replicas.log_dirs.refused_new
        return refused.get(command.topic_partition) == command.topic_id

    def _stop_serving(self) -> None:
        """Stop every replica that changes its role, at once.

        A leader that stays leader under a new epoch continues to serve until the new epoch begins,
        if no operation runs on its log, so clients need not retry.
        """
        broker_id, now_ms = self.services.broker_id, self.services.clock.monotonic_ms()
        for partition, (name, _, state) in self.obeyed:
            if partition.has_role_of(state.leader_epoch):
                continue
            # The broker's view notes the new leader first, because waiting requests now get
            # responses that name the new leader.
            self.services.view.leader_commanded(name, state.leader, state.leader_epoch, now_ms)
            self.changing.append(partition)
            self.fetchers.remove(partition)
            leads_on = partition.is_leader and state.leader == broker_id
            if not leads_on or not partition.is_quiet():
                partition.rest(leads_on=leads_on)

    async def _quieten(self) -> None:
        """Wait until no operation runs on the logs of the replicas that change their roles.

        The log thus writes all appends of the old leader epoch before the new epoch begins (V31). A
        leader that stays leader under the new epoch keeps its role at first, but the role ends if
        another append arrives.
        """
        while busy := [partition for partition in self.changing if not partition.is_quiet()]:
            for partition in busy:
                # A replica that still has a role at this step is a leader that stays leader under
                # the new epoch.
                partition.rest(leads_on=True)
            for partition in busy:
                await partition.quiet()

    async def _create(self) -> None:
        """Create the missing replicas; sync each log directory once for all of its new replicas."""
        if not self.missing:
            return
        await self.replicas.load_configs(command.topic_partition.topic for command in self.missing)
        placement, moves = self.replicas.placement, self.replicas.moves
        directories = placement.open_to_new(self.replicas.directories)
        if not directories:
            self._not_created(self.missing, "all log directories are cordoned (cordoned.log.dirs)")
            return
        commands_of = {command.topic_partition: command for command in self.missing}
        wanted = {replica: moves.preferred(replica, directories) for replica in commands_of}
        free = [replica for replica, directory in wanted.items() if directory is None]
        placed = await placement.place(free, directories)
        for replica, directory in wanted.items():
            if directory is not None:
                placed[directory].append(replica)
        shares = [
            (directory, [commands_of[replica] for replica in share])
            for directory, share in placed.items()
            if share
        ]
        begun = [
            (directory, share, directory.create_many([self._replica(command) for command in share]))
            for directory, share in shares
        ]
        for directory, share, completion in begun:
            try:
                logs = await completion
            except StorageError as error:
                self._not_created(share, str(error))
                continue
            for command, log in zip(share, logs, strict=True):
                self.obeyed.append((self.replicas.add(directory, log, 0), command))

    def _not_created(self, share: list[_Command], why: str) -> None:
        """Report KAFKA_STORAGE_ERROR for replicas that could not be created, and log the reason."""
        for command in share:
            self.errors[command.topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
            if command.state.is_new:
                refused = self.replicas.log_dirs.refused_new
                refused[command.topic_partition] = command.topic_id
        self.services.tracer.log("server", logging.ERROR, f"cannot create replicas: {why}")

    def _replica(self, command: _Command) -> tuple[TopicPartition, TopicId, LogConfig]:
        config = self.replicas.log_config(command.topic_partition.topic)
        return command.topic_partition, command.topic_id, config

    def _take_roles(self) -> None:
        broker_id = self.services.broker_id
        followers = []
        for partition, (topic_partition, topic_id, state) in self.obeyed:
            if self.replicas.get(topic_partition) is not partition:
                # The replica's log directory failed during this command.
                self.errors[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            self.replicas.adopt_topic_id(partition, topic_id)
            if partition.has_role_of(state.leader_epoch):
                self.replicas.roles.recommanded(partition, state)
            elif state.leader == broker_id:
                self.replicas.roles.become_leader(partition, state)
            else:
                self.replicas.roles.become_follower(partition, state)
                if broker_id in state.isr or not self.services.identity.is_leaving:
                    followers.append(partition)
        self.fetchers.add(followers)
        self.replicas.moves.roles_taken(partition for partition, _ in self.obeyed)

    async def _set_strays_aside(self) -> None:
        """Set strays aside.

        A stray is a replica that a full command does not list (V35), or that belongs to a removed
        partition (V71). A replica of an earlier topic of the same name, or of an unidentified
        topic, is also a stray (V23).
        """
        strays = self._leftovers()
        if self.request.type == _FULL:
            listed = {name: command.topic_id for name, command in self.commands.items()}
            kept = {
                topic.topic_name: topic.topic_id
                for topic in self.request.topic_states
                if not topic.partition_states
            }
            hosted = {
                partition.topic_partition: partition.topic_id for partition in self.replicas.all()
            }
            strays = list(dict.fromkeys([*strays, *commands.strays(hosted, listed, kept)]))
            self.replicas.moves.keep_only(listed, kept)
        if not strays:
            return
        count = len(self.replicas)
        self.services.tracer.mark("stray_set_aside")
        self.services.tracer.event("strays", count=len(strays), of=count)
        self.services.tracer.log(
            "server",
            logging.WARNING,
            f"{len(strays)} of {count} replicas are not this broker's any more and are moved"
            f" aside: {', '.join(map(str, strays[:20]))}{' ...' if len(strays) > 20 else ''}"
            " (`tidelog strays list` shows them, `tidelog strays restore` brings them back)",
        )
        for topic_partition in strays:
            partition = self.replicas.get(topic_partition)
            if partition is None:
                # the directory failed while an earlier stray was set aside; the next start checks
                # this stray
                continue
            await self.release(partition)
            try:
                await partition.directory.set_aside(topic_partition, partition.high_watermark)
            except StorageError as error:
                self.services.tracer.log(
                    "server", logging.ERROR, f"cannot set {topic_partition} aside: {error}"
                )
        await self.replicas.upkeep.hold_strays()

    def _leftovers(self) -> list[TopicPartition]:
        found = []
        for topic_partition, (_, topic_id, state) in self.commands.items():
            partition = self.replicas.get(topic_partition)
            if partition is None or state.leader_epoch < 0:
                # a controller that cannot read a partition's state still names the partition in its
                # command, so that brokers keep the replica
                continue
            if state.is_new and not partition.has_topic_id(topic_id):
                # The command creates a replica of a new topic with this name, so the topic of the
                # hosted replica was deleted.
                found.append(topic_partition)
            elif commands.is_of_former_life(
                own_leader_epoch=partition.leader_epoch,
                latest_log_epoch=partition.log.epochs.latest_epoch,
                log_end_offset=partition.log.log_end_offset,
                first_leader_epoch=state.first_leader_epoch,
                is_new=state.is_new,
            ):
                self.services.tracer.mark("replica_of_former_life")
                found.append(topic_partition)
            elif commands.is_nameless_leftover(
                broker_id=self.services.broker_id,
                own_topic_id=partition.topic_id,
                is_empty=partition.log.log_end_offset == 0,
                is_new=state.is_new,
                leader=state.leader,
                isr=(*state.isr, *state.eligible),
            ):
                found.append(topic_partition)
        return found


class ReplicaCommands:
    """The controller's commands on this broker's replicas, executed one after another."""

    def __init__(self, services: Services, replicas: ReplicaSet, fetchers: Fetchers) -> None:
        self._services = services
        self._replicas = replicas
        self._fetchers = fetchers

    def rest(self, partition: Partition) -> None:
        """End a replica's role at once, even if appends are still in progress on its log."""
        self._fetchers.remove(partition)
        partition.rest()

    async def release(self, partition: Partition) -> None:
        """End a replica's role and stop hosting it; return when no operation runs on its log."""
        self.rest(partition)
        if self._replicas.moves.concerns(partition.topic_partition):
            await self._replicas.moves.end(partition.topic_partition, "the replica goes")
        self._replicas.forget(partition)
        await partition.quiet()

    async def leader_and_isr(
        self, request: LeaderAndIsrRequest, version: int
    ) -> LeaderAndIsrResponse:
        """Give replicas the roles that the controller assigned."""
        async with self._replicas.command_order:
            return await self._leader_and_isr(request, version)

    async def _leader_and_isr(
        self, request: LeaderAndIsrRequest, version: int
    ) -> LeaderAndIsrResponse:
        error = self._replicas.check_controller(
            request.controller_id, request.controller_epoch, request.broker_epoch
        )
        if error:
            return LeaderAndIsrResponse(error_code=error)
        command = _LeaderAndIsr(
            self._services, self._replicas, self._fetchers, self.release, request
        )
        error = await command.run()
        if error:
            return LeaderAndIsrResponse(error_code=error)
        self._services.tracer.log(
            "state_change",
            logging.INFO,
            f"controller {request.controller_id} epoch {request.controller_epoch} commanded "
            f"{len(command.commands)} partitions"
            + (" (everything)" if request.type == _FULL else "")
            + f": {len(command.obeyed)} obeyed",
        )
        return command.response(version)

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop replicas; delete those whose deletion the command requests (V34)."""
        async with self._replicas.command_order:
            return await self._stop_replica(request)

    async def _stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        error = self._replicas.check_controller(
            request.controller_id, request.controller_epoch, request.broker_epoch
        )
        response = StopReplicaResponse(error_code=error)
        if error:
            return response
        for topic in request.topic_states:
            for state in topic.partition_states:
                topic_partition = TopicPartition(topic.topic_name, state.partition_index)
                partition = self._replicas.get(topic_partition)
                self._replicas.log_dirs.refused_new.pop(topic_partition, None)
                outcome = ErrorCode.NONE
                if topic_partition in self._replicas.offline:
                    # The replica will be deleted when the broker restarts and its directory works
                    # again (D9, V45).
                    outcome = ErrorCode.KAFKA_STORAGE_ERROR
                elif partition is None:
                    if state.delete_partition and self._replicas.moves.concerns(topic_partition):
                        await self._replicas.moves.end(topic_partition, "it is deleted")
                else:
                    if commands.stop_is_current(partition.leader_epoch, state.leader_epoch):
                        outcome = await self._stop(partition, state.delete_partition)
                    else:
                        outcome = ErrorCode.FENCED_LEADER_EPOCH
                response.partition_errors.append(
                    StopReplicaPartitionError(topic.topic_name, state.partition_index, outcome)
                )
        return response

    async def _stop(self, partition: Partition, delete: bool) -> ErrorCode:
        if not delete:
            self.rest(partition)
            self._replicas.stopped(partition)
            return ErrorCode.NONE
        await self.release(partition)
        tracer = self._services.tracer
        try:
            await partition.directory.delete(partition.topic_partition)
        except StorageError as error:
            tracer.log("server", logging.ERROR, f"cannot delete a replica: {error}")
            return ErrorCode.KAFKA_STORAGE_ERROR
        tracer.event("replica_deleted", partition=str(partition.topic_partition))
        return ErrorCode.NONE


def _is_contradictory(
    broker_id: int, partition: Partition | None, state: LeaderAndIsrPartitionState
) -> bool:
    """Whether the command is invalid: it contradicts itself or this replica's role (V12, V13).

    A leader outside the ISR may lack committed records, and a leader epoch has only one leader.
    """
    if state.leader == broker_id:
        return broker_id not in state.isr
    return (
        partition is not None and partition.is_leader and partition.has_role_of(state.leader_epoch)
    )


def _name_error(topic: str) -> ErrorCode:
    try:
        validate_topic_name(topic)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
