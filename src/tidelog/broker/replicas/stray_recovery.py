"""The listing, deletion and restoration of strays, replicas that this broker set aside (V35).

The broker restores a stray while it executes no controller command, so no command finds a half
restored stray. The broker recovers the stray's log in the stray's own directory.
`replication.stray_checks` decides whether the stray may return. The broker then deletes an empty
replica of the partition, if it has one, and renames the stray to be the partition's replica. Only
the controller assigns the restored replica's role, so this broker requests all commands until the
controller accepts the request, or until the next registration, which brings all commands anyway.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.types import TopicPartition
from tidelog.log.stray_replicas import Recovered, StrayFound
from tidelog.replication import stray_checks as strays
from tidelog.wire.messages.alter_strays import (
    DELETE,
    RESTORE,
    AlteredStray,
    AlterStraysRequest,
    AlterStraysResponse,
    NamedStray,
)
from tidelog.wire.messages.list_strays import (
    ListedStray,
    ListedStrayDirectory,
    ListStraysResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.replicas.command_requests import CommandRequests
    from tidelog.broker.replicas.commands import ReplicaCommands
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.replicas.replica_set import ReplicaSet
    from tidelog.broker.services import Services
    from tidelog.log.log_directory import LogDirectory


class StrayRecovery:
    """The strays of one broker: replicas that were set aside, and that an operator may restore or
    delete.
    """

    def __init__(
        self,
        services: Services,
        replicas: ReplicaSet,
        commands: ReplicaCommands,
        requests: CommandRequests,
    ) -> None:
        self._services = services
        self._replicas = replicas
        self._commands = commands
        self._requests = requests

    # listing strays

    async def list(self) -> ListStraysResponse:
        """Return all strays by log directory."""
        response = ListStraysResponse()
        await self._replicas.upkeep.hold_strays()
        for directory in self._replicas.directories:
            listed = ListedStrayDirectory(directory.path)
            response.directories.append(listed)
            try:
                found = await directory.stray_replicas.look()
            except StorageError:
                listed.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            listed.strays = [self._listed(stray) for stray in found]
        return response

    def _listed(self, found: StrayFound) -> ListedStray:
        stray, key = found.stray, found.topic_partition
        delay_ms = self._services.config.log_stray_delete_delay_ms
        return ListedStray(
            name=stray.name,
            topic="" if key is None else key.topic,
            partition=-1 if key is None else key.partition,
            topic_id=found.topic_id,
            since_ms=stray.since_ms,
            size_bytes=found.size_bytes,
            delete_at_ms=-1 if stray.is_held else stray.since_ms + delay_ms,
            is_restorable=found.state is not None,
        )

    # deleting and restoring strays

    async def alter(self, request: AlterStraysRequest) -> AlterStraysResponse:
        """Delete or restore strays; each stray has its own outcome."""
        response = AlterStraysResponse()
        if request.action not in (DELETE, RESTORE):
            response.error_code = ErrorCode.INVALID_REQUEST
            return response
        # Before any deletion, check whether too many strays were set aside at once (V35). After a
        # deletion, too few strays might be left for this check to notice.
        await self._replicas.upkeep.hold_strays()
        for named in request.strays:
            result = AlteredStray(named.log_dir, named.name)
            response.results.append(result)
            try:
                directory = self._directory(named)
                if request.action == DELETE:
                    await self._delete(directory, named.name)
                else:
                    await self._restore(directory, named.name, result)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
            except StorageError as error:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                result.error_message = str(error)
        if any(not result.error_code for result in response.results) and request.action == RESTORE:
            self._requests.ask("a stray is restored")
        return response

    def _directory(self, named: NamedStray) -> LogDirectory:
        for directory in self._replicas.directories:
            if directory.path == named.log_dir:
                if named.name in directory.strays:
                    return directory
                break
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"broker {self._services.broker_id} has no stray {named.name!r:.300} in"
            f" {named.log_dir!r:.300}: `tidelog strays list` shows what it has",
        )

    async def _delete(self, directory: LogDirectory, name: str) -> None:
        tracer = self._services.tracer
        await directory.stray_replicas.remove([name])
        tracer.event("stray_deleted", directory=directory.path, name=name)
        tracer.log(
            "server", logging.WARNING, f"stray {directory.path}/{name} is deleted on request"
        )

    async def _restore(self, directory: LogDirectory, name: str, result: AlteredStray) -> None:
        async with self._replicas.command_order:
            if name not in directory.strays:
                self._directory(NamedStray(directory.path, name))
            (found,) = [
                each for each in await directory.stray_replicas.look() if each.stray.name == name
            ]
            await self._check_latest(found)
            key = found.topic_partition
            if key is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"the partition of stray {directory.path}/{name} is unknown",
                )
            await self._replicas.load_configs([key.topic])
            config = self._replicas.log_config(key.topic)
            recovered = await directory.stray_replicas.recover(found, config)
            leader_epoch = await self._make_room(recovered)
            if self._replicas.moves.concerns(key):
                await self._replicas.moves.end(key, "a stray returns")
            log = await directory.stray_replicas.put_back(recovered, config)
            partition = self._replicas.add(directory, log, recovered.state.high_watermark)
            # The decision to restore the replica used published state of this leader epoch, so the
            # replica must refuse commands with an older leader epoch (V30).
            partition.leader_epoch = leader_epoch
            result.log_start_offset = log.log_start_offset
            result.log_end_offset = log.log_end_offset
            self._report_restored(partition, name)

    async def _check_latest(self, found: StrayFound) -> None:
        """Raise KafkaError if a later stray of the same partition has records.

        The earlier stray may lack acknowledged records that the later stray has. If the earlier
        stray were restored, the later stray could not return.
        """
        for directory in self._replicas.directories:
            for other in await directory.stray_replicas.look():
                if (
                    other.has_records
                    and other.topic_partition == found.topic_partition
                    and other.topic_id == found.topic_id
                    and (other.stray.since_ms, other.stray.name)
                    > (found.stray.since_ms, found.stray.name)
                ):
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST,
                        f"{directory.path}/{other.stray.name} is a later stray of"
                        f" {found.topic_partition}, with records: restore that one, or delete it"
                        f" before {found.stray.name} is restored",
                    )

    def _report_restored(self, partition: Partition, name: str) -> None:
        tracer, log = self._services.tracer, partition.log
        tracer.event(
            "stray_restored",
            partition=str(partition.topic_partition),
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
        )
        tracer.log(
            "server",
            logging.WARNING,
            f"{partition.topic_partition} is restored from {name}, offsets {log.log_start_offset}"
            f" to {log.log_end_offset}; the controller is asked for its role",
        )

    async def _make_room(self, recovered: Recovered) -> int:
        """Decide whether a stray may return; delete an empty replica of its partition.

        Returns the leader epoch with which the stray returns. Raises KafkaError if the stray may
        not return. The check is repeated after the role of the present replica has ended; if only
        the repeated check fails, that replica has no role until the controller assigns one again.
        """
        state, loaded = recovered.state, recovered.loaded
        stray = strays.Returning(
            state.topic_partition,
            state.topic_id,
            loaded.log_start_offset,
            loaded.log_end_offset,
            loaded.epochs.latest_epoch,
        )
        leader_epoch = self._check(stray)
        partition = self._replicas.get(state.topic_partition)
        if partition is None:
            return leader_epoch
        follower_ends = _present(partition).follower_ends
        self._commands.rest(partition)
        await partition.quiet()
        try:
            # Check again, because the present replica may have received records after the first
            # check.
            leader_epoch = self._check(stray, follower_ends)
        except KafkaError:
            self._requests.ask("a stray is restored")
            raise
        await self._commands.release(partition)
        await partition.directory.delete(state.topic_partition)
        # A LeaderAndIsr command may arrive before the metadata with its leader epoch, so the
        # replica's epoch may be above the published epoch.
        return max(leader_epoch, partition.leader_epoch)

    def _check(
        self, stray: strays.Returning, follower_ends: Mapping[int, int] | None = None
    ) -> int:
        services = self._services
        partition = self._replicas.get(stray.topic_partition)
        present = None
        if partition is not None:
            present = _present(partition)
            if follower_ends is not None:
                present = strays.Present(
                    present.log_start_offset, present.log_end_offset, True, follower_ends
                )
        assigned = self._assigned(stray.topic_partition)
        strays.check(services.broker_id, stray, assigned, present)
        return -1 if assigned is None else assigned.leader_epoch

    def _assigned(self, topic_partition: TopicPartition) -> strays.Assigned | None:
        view = self._services.view
        topic, known = view.topics.get(topic_partition.topic), view.partition(topic_partition)
        if topic is None or known is None:
            return None
        return strays.Assigned(
            topic.topic_id,
            known.leader,
            known.leader_epoch,
            known.first_leader_epoch,
            known.replicas,
            known.isr,
        )


def _present(partition: Partition) -> strays.Present:
    leadership, log = partition.leadership, partition.log
    ends: dict[int, int] = {}
    if leadership is not None:
        ends = {
            broker_id: follower.log_end_offset
            for broker_id, follower in leadership.followers.items()
        }
    return strays.Present(log.log_start_offset, log.log_end_offset, partition.is_leader, ends)
