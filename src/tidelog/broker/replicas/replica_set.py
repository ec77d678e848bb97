"""All replicas that this broker hosts: found at start, commanded by the controller.

The set knows the place of each partition and the configuration of its topic. It fences controllers
(V30) and runs commands one after another (V31 to V35, V45). `commands` carries commands out;
`upkeep` does the periodic work. At start every log found is a replica without a role: roles come
from the controller (V44).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tidelog.broker import store_access
from tidelog.broker.replicas.directories import duplicate_replicas
from tidelog.broker.replicas.hosting.context import IsrChanges, PartitionContext, TopicCoordinators
from tidelog.broker.replicas.hosting.early_batches import EarlyBatches
from tidelog.broker.replicas.hosting.partition import Partition
from tidelog.broker.replicas.hosting.reassignment_meters import ReassignmentMeters
from tidelog.broker.replicas.metrics import OFFLINE_REPLICAS
from tidelog.broker.replicas.placement.directory_balance import DirectoryBalance
from tidelog.broker.replicas.placement.directory_drains import DirectoryDrains
from tidelog.broker.replicas.placement.directory_moves import DirectoryMoves
from tidelog.broker.replicas.placement.log_dir_placement import LogDirPlacement
from tidelog.broker.replicas.upkeep import ReplicaUpkeep
from tidelog.core.config import BrokerConfig
from tidelog.core.config_keys import INT64_MAX
from tidelog.core.errors import ErrorCode, StorageError
from tidelog.core.shared_keys import CODECS
from tidelog.core.topic_config import TopicConfig, settings_without_effect
from tidelog.core.types import (
    NO_BROKER_EPOCH,
    ZERO_TOPIC_ID,
    TopicId,
    TopicPartition,
    topic_id_to_text,
)
from tidelog.log.config import LogConfig
from tidelog.metadata import layout
from tidelog.metadata.json_fields import LayoutError
from tidelog.replication import commands
from tidelog.replication.commands import OfflineReplica

if TYPE_CHECKING:
    from tidelog.broker.events.cluster_events import ClusterEvents
    from tidelog.broker.replicas.fetching.fetchers import Fetchers
    from tidelog.broker.replicas.fetching.throttles import ReplicationThrottles
    from tidelog.broker.replicas.hosting.planned_appends import PlannedAppends
    from tidelog.broker.replicas.hosting.takeovers import Takeovers
    from tidelog.broker.server.requests import Request
    from tidelog.broker.services import Services
    from tidelog.log.log_directory import LogDirectory
    from tidelog.log.partition_log import PartitionLog
    from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest
    from tidelog.wire.messages.stop_replica import StopReplicaRequest
    from tidelog.wire.messages.update_metadata import UpdateMetadataRequest

#: A command of a controller.
Command = TypeVar("Command", "LeaderAndIsrRequest", "StopReplicaRequest", "UpdateMetadataRequest")


class HostedLog(NamedTuple):
    """What a replica of this broker says of its partition's history (E8)."""

    topic_id: TopicId
    latest_epoch: int


class ReplicaSet:
    """The replicas of one broker."""

    def __init__(
        self,
        services: Services,
        appends: PlannedAppends,
        alter_partition_manager: IsrChanges,
        takeovers: Takeovers,
        throttles: ReplicationThrottles,
        fetchers: Fetchers,
        coordinators: Mapping[str, TopicCoordinators],
        events: ClusterEvents,
    ) -> None:
        self._services = services
        self.takeovers = takeovers
        #: Both sides of the replication throttle (R15).
        self.throttles = throttles
        self._fetchers = fetchers
        #: What reassignments copy from and to this broker (R16).
        self.reassignments = ReassignmentMeters(services)
        self._context = PartitionContext(
            services,
            appends,
            alter_partition_manager,
            takeovers,
            coordinators,
            events,
            self.get,
            self.topic_config,
            self.throttles,
            self.reassignments,
        )
        self._partitions: dict[TopicPartition, Partition] = {}
        #: topic id -> (topic, how many of its partitions are here).
        self._topics: dict[TopicId, tuple[str, int]] = {}
        #: The topics' own settings, as stored; only for topics that have any.
        self._overrides: dict[str, dict[str, str]] = {}
        self._configs: dict[str, TopicConfig] = {}
        self._default_config = TopicConfig.of(services.config, {})
        #: The good log directories.
        self.directories: list[LogDirectory] = []
        #: Log directories that have failed, by path (D1).
        self.failed: dict[str, StorageError] = {}
        #: Bytes of the replicas that a directory held when it failed at run time, by path.
        self.held_by_failed: dict[str, dict[TopicPartition, int]] = {}
        #: Replicas in directories that failed at run time (D4).
        self.offline: dict[TopicPartition, OfflineReplica] = {}
        #: Topic ids of replicas that the disk refused to create as new; none was here since (D3).
        self.refused_new: dict[TopicPartition, TopicId] = {}
        #: Clients' batches that came before their partitions' replicas.
        self.early_batches = EarlyBatches()
        self.controller_epoch = 0
        #: Of the latest command: (controller epoch, broker epoch), and its correlation id.
        self._commanded_under = (-1, NO_BROKER_EPOCH)
        self._latest_correlation_id = 0
        #: Broker epoch of the latest registration, also when it has ended.
        self._latest_broker_epoch = NO_BROKER_EPOCH
        #: Rises when this broker itself ends its leaderships: a command under way stops there.
        self.generation = 0
        #: One command is run at a time, in the order of arrival.
        self.command_order = asyncio.Lock()
        #: The choice of the directories of new replicas (D2).
        self.placement = LogDirPlacement(services)
        #: Replicas on their way between the log directories (D11).
        self.moves = DirectoryMoves(services, self)
        self.upkeep = ReplicaUpkeep(services, self, takeovers, self.throttles)
        self._plan_directory_moves()
        self._give_up_damaged: Callable[[Partition], None] = lambda partition: None
        self._on_stopped: Callable[[Partition], None] = lambda partition: None
        #: Live brokers when the partitions last learned of them.
        self._alive: list[int] = []

    def _plan_directory_moves(self) -> None:
        #: Moves that this broker plans itself (D12, D15).
        self.drains = DirectoryDrains(self._services, self)
        self.balance = DirectoryBalance(self._services, self, self.drains)
        self.moves.on_ended = self._directory_move_ended
        self.moves.on_replaced = self.placement.moved

    def connect(
        self, give_up_damaged: Callable[[Partition], None], on_stopped: Callable[[Partition], None]
    ) -> None:
        """Connect the set with what stands on it and on the commands.

        `give_up_damaged` has a damaged replica replaced by a controller that cannot be asked for it
        (V68). `on_stopped` gets each replica that the controller stopped.
        """
        self._give_up_damaged, self._on_stopped = give_up_damaged, on_stopped

    # hosted replicas

    def get(self, topic_partition: TopicPartition) -> Partition | None:
        """Return the replica of a partition, None when there is none."""
        return self._partitions.get(topic_partition)

    def log_epochs(self) -> dict[TopicPartition, HostedLog]:
        """Return topic id and last leader epoch of each log here."""
        return {
            partition.topic_partition: HostedLog(
                partition.log.topic_id, partition.log.epochs.latest_epoch
            )
            for partition in self.all()
        }

    def all(self) -> list[Partition]:
        """Return every replica, in the order in which they came."""
        return list(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def topics(self) -> dict[str, None]:
        """Return the topics that have a replica here."""
        return {name: None for name, _ in self._topics.values()}

    def topic_name(self, topic_id: TopicId) -> str | None:
        """Return the name of a topic that has a replica here."""
        entry = None if topic_id == ZERO_TOPIC_ID else self._topics.get(topic_id)
        return None if entry is None else entry[0]

    def published_topic_name(self, topic_id: TopicId) -> str | None:
        """Return the name of a topic id, by published state or by a replica that is here."""
        return self._services.view.topic_name(topic_id) or self.topic_name(topic_id)

    def missing_replica_error(self, topic_partition: TopicPartition) -> ErrorCode:
        """Return the error for a partition without a replica here.

        It is in a failed log directory (D4), elsewhere, or unknown.
        """
        if topic_partition in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        view = self._services.view
        if not view.is_known or view.partition(topic_partition) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def by_topic_id(self, topic_id: TopicId, partition: int) -> Partition | None:
        """Return the replica of a partition, named by topic id."""
        entry = self._topics.get(topic_id)
        if entry is None:
            return None
        found = self._partitions.get(TopicPartition(entry[0], partition))
        return found if found is not None and found.topic_id == topic_id else None

    def add(self, directory: LogDirectory, log: PartitionLog, high_watermark: int) -> Partition:
        """Host an existing log."""
        # The topic's configuration may have changed while the log was made.
        log.config = self.log_config(log.topic_partition.topic)
        log.producers.refused = self.early_batches.taken(log.topic_partition)
        partition = Partition(self._context, directory, log, high_watermark)
        self._partitions[log.topic_partition] = partition
        self.refused_new.pop(log.topic_partition, None)
        if self.offline.pop(log.topic_partition, None) is not None:
            self.count_offline()
        self._count_topic(partition, 1)
        return partition

    def give_up_damaged(self, partition: Partition) -> None:
        """Have a damaged replica replaced by a controller that cannot be asked for it (V68)."""
        self._give_up_damaged(partition)

    def stopped(self, partition: Partition) -> None:
        """Report a replica that the controller stopped, and that stays here."""
        self._on_stopped(partition)

    def count_offline(self) -> None:
        """Count the replicas in directories that failed at run time (D10)."""
        self._services.metrics.put(OFFLINE_REPLICAS, len(self.offline))

    def forget(self, partition: Partition) -> None:
        """Host a replica no longer; its log is the caller's business."""
        if self._partitions.get(partition.topic_partition) is not partition:
            return
        del self._partitions[partition.topic_partition]
        self.throttles.left(partition.topic_partition)
        self.reassignments.role_ended(partition.topic_partition)
        self._count_topic(partition, -1)
        if partition.topic_id not in self._topics:
            # Changes of its configuration are not read while no replica of it is here.
            self.throttles.topic_gone(partition.topic_partition.topic)
        coordinators = self._context.coordinators.get(partition.topic_partition.topic)
        if coordinators is not None:
            coordinators.replica_gone(partition)

    def adopt_topic_id(self, partition: Partition, topic_id: TopicId) -> None:
        """Give a replica that lost its topic id the id of its command.

        The log writes the id down with a flush that begins now.
        """
        if partition.topic_id == ZERO_TOPIC_ID != topic_id:
            self._count_topic(partition, -1)
            partition.log.topic_id = topic_id
            partition.log.metadata_unsynced = True
            self._count_topic(partition, 1)
            self._services.tracer.mark("topic_id_adopted")
            self._services.tracer.event(
                "topic_id_adopted",
                partition=str(partition.topic_partition),
                topic_id=topic_id_to_text(topic_id),
            )
            # Where the flush fails, the directory has failed, or the next flush repeats it.
            partition.log.flush()

    def _count_topic(self, partition: Partition, change: int) -> None:
        _, count = self._topics.pop(partition.topic_id, ("", 0))
        if count + change:
            name = partition.topic_partition.topic
            self._topics[partition.topic_id] = (name, count + change)

    # configuration of topics

    def topic_config(self, topic: str) -> TopicConfig:
        """Return the configuration of a topic, as last read from the store."""
        return self._configs.get(topic, self._default_config)

    def default_log_config(self) -> LogConfig:
        """Return the log configuration of a topic without settings of its own."""
        return _log_config(self._services.config, self._default_config)

    def log_config(self, topic: str) -> LogConfig:
        """Return the configuration of a topic's logs."""
        return _log_config(self._services.config, self.topic_config(topic))

    def least_flush_ms(self) -> int:
        """Return the smallest flush.ms of any topic known here."""
        return min(
            [self._default_config.flush_ms, *(config.flush_ms for config in self._configs.values())]
        )

    async def load_configs(self, topics: Iterable[str]) -> None:
        """Read the configuration of topics from the store; wait until it can be read (S3)."""
        wanted = list(dict.fromkeys(topics))
        paths = [layout.config_path("topics", topic) for topic in wanted]
        nodes = await store_access.read_all(self._services, paths)
        for topic, path, node in zip(wanted, paths, nodes, strict=True):
            self._take_config(topic, path, b"" if node is None else node.data)
            self.throttles.topic_changed(topic, self.topic_config(topic))
        self.throttles.rates_changed()

    def _take_config(self, topic: str, path: str, data: bytes) -> None:
        self._overrides.pop(topic, None)
        self._configs.pop(topic, None)
        try:
            overrides = layout.decode_config(path, data)
        except LayoutError as error:
            self._services.tracer.log("server", logging.ERROR, f"topic configuration: {error}")
            return
        if overrides:
            self._overrides[topic] = overrides
            self._configs[topic], problems = TopicConfig.lenient(self._services.config, overrides)
            for problem in problems:
                self._services.tracer.log("server", logging.ERROR, f"{path}: {problem}")
            for note in settings_without_effect(overrides):
                self._services.tracer.log("server", logging.WARNING, f"topic {topic}: {note}")

    def configs_changed(self, topics: Iterable[str]) -> None:
        """Give replicas of these topics their loaded configuration (V60, V69)."""
        changed = dict.fromkeys(topics)
        for partition in self.all():
            topic = partition.topic_partition.topic
            if topic in changed:
                own = self.topic_config(topic)
                was_synced = partition.log.config.flush_before_ack
                partition.configured(
                    self.log_config(topic),
                    own.min_insync_replicas,
                    own.follower_fetch_pending_reads_insync_enable,
                )
                if partition.log.config.flush_before_ack and not was_synced:
                    self._fetchers.renew(partition)

    def defaults_changed(self) -> None:
        """Apply the broker's changed configuration: it holds where a topic sets nothing."""
        config = self._services.config
        self._default_config = TopicConfig.of(config, {})
        self._configs = {
            topic: TopicConfig.lenient(config, overrides)[0]
            for topic, overrides in self._overrides.items()
        }
        for directory in self.directories:
            directory.default_config = self.default_log_config()
            directory.space.free.reserve_bytes = config.log_dir_reserve_bytes
            directory.speed.configure(
                config.log_dir_slow_threshold_ms,
                config.log_dir_slow_window_ms,
                config.metadata_session_timeout_ms,
            )
        self.upkeep.configured()
        self.drains.configured()
        self.balance.configured()
        self.throttles.rates_changed()
        self.configs_changed(self.topics())

    def _directory_move_ended(self) -> None:
        self.drains.move_ended()
        self.balance.move_ended()

    # start and end

    async def open(self, directories: list[LogDirectory]) -> None:
        """Host the logs in these directories, and look after them from now on."""
        self.directories = directories
        await duplicate_replicas.set_aside(self._services, directories)
        for directory in directories:
            for topic_partition, log in directory.logs.items():
                self.add(directory, log, directory.high_watermarks.get(topic_partition, 0))
        topics = [partition.topic_partition.topic for partition in self.all()]
        if topics:
            await self.load_configs(topics)
        for partition in self.all():
            partition.log.config = self.log_config(partition.topic_partition.topic)
        self.upkeep.start()
        self.drains.configured()
        self.balance.configured()

    def stop_leading(self, reason: str) -> None:
        """End every leadership; all waiting requests get NOT_LEADER_OR_FOLLOWER (V38, V65)."""
        self.generation += 1
        self._services.tracer.event("stopped_leading", reason=reason)
        for partition in self.all():
            if partition.is_leader:
                partition.rest()

    async def close(self) -> None:
        """End every role and write the high watermarks down (V34)."""
        self.upkeep.close()
        self.generation += 1
        for partition in self.all():
            partition.rest()
        for partition in self.all():
            await partition.quiet()
        try:
            await self.upkeep.write_high_watermarks()
        except StorageError as error:
            # The directory knows of the error: it will not be marked as closed cleanly.
            self._services.tracer.log("server", logging.ERROR, f"high watermarks: {error}")

    # commands

    def check_controller(
        self, controller_id: int, controller_epoch: int, broker_epoch: int
    ) -> ErrorCode:
        """Return the error that refuses a whole command (V30); else set the controller epoch."""
        services = self._services
        self._latest_broker_epoch = max(self._latest_broker_epoch, services.broker_epoch)
        error = commands.request_error(
            known_controller_epoch=self.controller_epoch,
            controller_epoch=controller_epoch,
            own_broker_epoch=self._latest_broker_epoch,
            is_registered=services.broker_epoch != NO_BROKER_EPOCH,
            broker_epoch=broker_epoch,
        )
        if error:
            if error is ErrorCode.STALE_CONTROLLER_EPOCH:
                services.tracer.mark("command_of_deposed_controller")
            elif error is ErrorCode.STALE_BROKER_EPOCH:
                services.tracer.mark("command_for_earlier_life")
            services.tracer.event(
                "command_refused",
                controller=controller_id,
                controller_epoch=controller_epoch,
                broker_epoch=broker_epoch,
                error=error.name,
            )
        else:
            self.controller_epoch = controller_epoch
        return error

    def is_overtaken(self, request: Request[Command]) -> bool:
        """Whether a command came behind a later one and must not be carried out (V30).

        To be asked once for each command, as it arrives.
        """
        message, correlation_id = request.message, request.header.correlation_id
        under = (message.controller_epoch, message.broker_epoch)
        if under == self._commanded_under and commands.is_overtaken(
            self._latest_correlation_id, correlation_id
        ):
            self._services.tracer.mark("command_overtaken")
            self._services.tracer.event(
                "command_overtaken", api=request.header.api_key, peer=request.connection.peer
            )
            return True
        if under >= self._commanded_under:
            self._commanded_under = under
            self._latest_correlation_id = correlation_id
        return False

    def view_changed(self) -> None:
        """Report changes of the published live brokers to all partitions."""
        view = self._services.view
        alive = sorted(view.brokers)
        if alive != self._alive:
            self._alive = alive
            self._services.peers.view_changed()
            for partition in self.all():
                partition.role.brokers_changed()


def _log_config(broker: BrokerConfig, topic: TopicConfig) -> LogConfig:
    levels = {
        "gzip": topic.compression_gzip_level,
        "lz4": topic.compression_lz4_level,
        "zstd": topic.compression_zstd_level,
    }
    # The older key holds where the newer ones are at their default (KIP-937).
    difference_ms = topic.message_timestamp_difference_max_ms
    before_ms, after_ms = (
        topic.message_timestamp_before_max_ms,
        topic.message_timestamp_after_max_ms,
    )
    return LogConfig(
        segment_bytes=topic.segment_bytes,
        segment_ms=topic.segment_ms,
        index_interval_bytes=topic.index_interval_bytes,
        segment_index_bytes=topic.segment_index_bytes,
        retention_bytes=topic.retention_bytes,
        retention_ms=topic.retention_ms,
        max_message_bytes=topic.max_message_bytes,
        message_timestamp_type=topic.message_timestamp_type,
        flush_messages=topic.flush_messages,
        file_delete_delay_ms=topic.file_delete_delay_ms,
        delete_enabled=topic.deletes_old_segments,
        compact_enabled="compact" in topic.cleanup_policy,
        delete_retention_ms=topic.delete_retention_ms,
        min_compaction_lag_ms=topic.min_compaction_lag_ms,
        max_compaction_lag_ms=topic.max_compaction_lag_ms,
        min_cleanable_dirty_ratio=topic.min_cleanable_dirty_ratio,
        flush_ms=topic.flush_ms,
        flush_before_ack=topic.flush_before_ack,
        codec=CODECS[topic.compression_type],
        compression_level=levels.get(topic.compression_type),
        segment_jitter_ms=topic.segment_jitter_ms,
        timestamp_before_max_ms=difference_ms if before_ms == INT64_MAX else before_ms,
        timestamp_after_max_ms=difference_ms if after_ms == INT64_MAX else after_ms,
        max_decompressed_bytes=broker.max_decompressed_message_bytes,
        producer_id_expiration_ms=broker.producer_id_expiration_ms,
    )
