"""All replicas that this broker hosts, found at its start or created by commands.

The replica set adds replicas to `hosted_partitions`, and has the configuration of their topics. The
replica set refuses commands of older controllers (V30), and runs the controller's commands one
after another (V31 to V35, V45). `commands` executes the commands, and `upkeep` does the periodic
work. At its start, the broker hosts every log that it finds as a replica without a role, because
only the controller assigns roles (V44).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from tidelog.broker import store_access
from tidelog.broker.replicas.directories import duplicate_replicas
from tidelog.broker.replicas.hosting.context import PartitionContext, TopicCoordinators
from tidelog.broker.replicas.hosting.early_batches import EarlyBatches
from tidelog.broker.replicas.hosting.hosted_partitions import HostedPartitions
from tidelog.broker.replicas.hosting.partition import Partition, PlannedAppends
from tidelog.broker.replicas.hosting.reassignment_meters import ReassignmentMeters
from tidelog.broker.replicas.hosting.role_changes import RoleChanges
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
from tidelog.core.types import NO_BROKER_EPOCH
from tidelog.log.config import LogConfig
from tidelog.metadata import layout
from tidelog.metadata.json_fields import LayoutError
from tidelog.replication import commands

if TYPE_CHECKING:
    from tidelog.broker.events.cluster_events import ClusterEvents
    from tidelog.broker.replicas.fetching.fetchers import Fetchers
    from tidelog.broker.replicas.hosting.isr_change_queue import IsrChangeQueue
    from tidelog.broker.replicas.hosting.takeovers import Takeovers
    from tidelog.broker.replicas.hosting.throttles import ReplicationThrottles
    from tidelog.broker.server.requests import Request
    from tidelog.broker.services import Services
    from tidelog.log.log_directory import LogDirectory
    from tidelog.log.partition_log import PartitionLog
    from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest
    from tidelog.wire.messages.stop_replica import StopReplicaRequest
    from tidelog.wire.messages.update_metadata import UpdateMetadataRequest

#: A type of command that the controller sends.
Command = TypeVar("Command", "LeaderAndIsrRequest", "StopReplicaRequest", "UpdateMetadataRequest")


class ReplicaSet(HostedPartitions):
    """The replicas of one broker, the configuration of their topics, and their commands."""

    def __init__(
        self,
        services: Services,
        appends: PlannedAppends,
        alter_partition_manager: IsrChangeQueue,
        takeovers: Takeovers,
        throttles: ReplicationThrottles,
        fetchers: Fetchers,
        coordinators: Mapping[str, TopicCoordinators],
        events: ClusterEvents,
    ) -> None:
        context = PartitionContext(
            services,
            appends,
            alter_partition_manager,
            takeovers,
            coordinators,
            events,
            self.topic_config,
            throttles,
            ReassignmentMeters(services),
        )
        super().__init__(context)
        self._fetchers = fetchers
        #: Gives the replicas their roles.
        self.roles = RoleChanges(context)
        #: Settings of topics as stored, by topic; topics that override no setting are absent.
        self._overrides: dict[str, dict[str, str]] = {}
        self._configs: dict[str, TopicConfig] = {}
        self._default_config = TopicConfig.of(services.config, {})
        #: Batches of clients that were refused because the partition's replica did not exist yet.
        self.early_batches = EarlyBatches()
        self.controller_epoch = 0
        #: (controller epoch, broker epoch) of the latest command.
        self._commanded_under = (-1, NO_BROKER_EPOCH)
        #: Correlation id of the latest command, by which the broker detects late commands (V30).
        self._latest_correlation_id = 0
        #: Broker epoch of the latest registration, even if that registration has ended.
        self._latest_broker_epoch = NO_BROKER_EPOCH
        #: Number of times that this broker ended its leaderships. A running command stops when the
        #: number changes.
        self.generation = 0
        #: Chooses the log directories of new replicas (D2).
        self.placement = LogDirPlacement(services)
        #: Moves replicas between log directories (D11).
        self.moves = DirectoryMoves(
            services, self, self._directory_move_ended, self.placement.moved
        )
        #: Plans moves out of drained directories (D12); `balance` plans moves to emptier volumes
        #: (D15).
        self.drains = DirectoryDrains(services, self, self.moves, self.placement)
        self.balance = DirectoryBalance(services, self, self.moves, self.placement, self.drains)
        self.upkeep = ReplicaUpkeep(
            services, self, self.placement, self.least_flush_ms, self.give_up_damaged
        )
        self._give_up_damaged: Callable[[Partition], None] = lambda partition: None
        self._on_stopped: Callable[[Partition], None] = lambda partition: None
        #: The live brokers that were last reported to the partitions.
        self._alive: list[int] = []

    def connect(
        self, give_up_damaged: Callable[[Partition], None], on_stopped: Callable[[Partition], None]
    ) -> None:
        """Register functions of parts of the broker that are created after the replica set.

        `give_up_damaged` gives up a damaged replica if the controller does not serve
        RelinquishLeadership (V68). `on_stopped` gets each replica that the controller stopped.
        """
        self._give_up_damaged, self._on_stopped = give_up_damaged, on_stopped

    # hosted replicas

    def add(self, directory: LogDirectory, log: PartitionLog, high_watermark: int) -> Partition:
        """Host an existing log, and return its replica."""
        # The topic's configuration may have changed while the log was created.
        log.config = self.log_config(log.topic_partition.topic)
        log.producers.refused = self.early_batches.taken(log.topic_partition)
        context = self._context
        partition = Partition(
            context.services,
            context.appends,
            context.reassignments,
            directory,
            log,
            high_watermark,
        )
        self.host(partition)
        return partition

    def give_up_damaged(self, partition: Partition) -> None:
        """Give up a damaged replica if the controller does not serve RelinquishLeadership."""
        self._give_up_damaged(partition)

    def stopped(self, partition: Partition) -> None:
        """Report a replica that the controller stopped but did not delete."""
        self._on_stopped(partition)

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
        """Return the smallest `flush.ms` of all topics that have a replica here."""
        return min(
            [self._default_config.flush_ms, *(config.flush_ms for config in self._configs.values())]
        )

    async def load_configs(self, topics: Iterable[str]) -> None:
        """Read the configuration of topics from the store; wait for an unreachable store (S3)."""
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
        """Apply the broker's changed configuration to topics that do not override it."""
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
        """Host the logs in these directories, and start their upkeep."""
        self.log_dirs.good = directories
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
        """End every role and write the high watermarks to disk (V34)."""
        self.upkeep.close()
        self.generation += 1
        for partition in self.all():
            partition.rest()
        for partition in self.all():
            await partition.quiet()
        try:
            await self.upkeep.write_high_watermarks()
        except StorageError as error:
            # The log directory has noted the error, so it gets no mark of a clean shutdown.
            self._services.tracer.log("server", logging.ERROR, f"high watermarks: {error}")

    # commands

    def check_controller(
        self, controller_id: int, controller_epoch: int, broker_epoch: int
    ) -> ErrorCode:
        """Return the error of a whole command (V30); if there is none, note the command's epoch."""
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
        """Whether a command arrived after a later command, so that it must not be executed (V30).

        The broker checks the order of each command once, when the command arrives.
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
    # The older key `message.timestamp.difference.max.ms` applies if the newer keys have their
    # default values (KIP-937).
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
