"""The periodic upkeep of the hosted replicas, and their last checkpoint at a stop.

Upkeep covers high watermark checkpoints (V34), recovery points, retention, compaction, time-based
flushes, and old strays (V35). At intervals of half of `replica.lag.time.max.ms`, the upkeep looks
for followers that have fallen behind or do not fetch (V62). It also looks for throttled followers
that do not catch up (R15). Each kind of work has its own loop, so work that waits for a slow disk
does not delay other kinds of work.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from tidelog.broker.replicas.directories.full_directories import FullDirectories
from tidelog.broker.replicas.directories.log_dir_survey import LogDirSurvey
from tidelog.broker.replicas.directories.relinquishing import Relinquishing
from tidelog.broker.replicas.fetching.throttle_watch import ThrottleWatch
from tidelog.broker.replicas.isr.frozen_watermarks import FrozenWatermarks
from tidelog.core.config import BrokerConfig
from tidelog.core.config_keys import INT64_MAX
from tidelog.core.errors import StorageError
from tidelog.log.log_cleaner import Cleaner, CleanerSettings
from tidelog.replication import commands

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.hosted_partitions import HostedPartitions
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.replicas.placement.log_dir_placement import LogDirPlacement
    from tidelog.broker.services import Services
    from tidelog.log.log_directory import LogDirectory

T = TypeVar("T")
_FLUSH_CHECK_MS = 1_000
_STRAY_CHECK_MS = 60_000
#: A broker with several log directories writes to each directory at least once in this many
#: milliseconds, because it would not notice otherwise that an idle disk has failed (D1).
_IDLE_MS = 5_000
#: Strays that were set aside within this many milliseconds of each other count as set aside
#: together.
_ONE_EVENT_MS = 60_000


class ReplicaUpkeep:
    """The loops of one broker for the periodic upkeep of its replicas."""

    def __init__(
        self,
        services: Services,
        hosted: HostedPartitions,
        placement: LogDirPlacement,
        least_flush_ms: Callable[[], int],
        give_up_damaged: Callable[[Partition], None],
    ) -> None:
        """`least_flush_ms` returns the smallest `flush.ms` of all topics here.

        `give_up_damaged` gives up a damaged replica if the controller does not serve
        RelinquishLeadership (V68).
        """
        self._services = services
        self._hosted = hosted
        self._placement = placement
        self._least_flush_ms = least_flush_ms
        #: The leaderships and ISR memberships that this broker gives up.
        self.relinquishing = Relinquishing(services, give_up_damaged)
        #: Log directories that are read-only because their disk is full.
        self.full = FullDirectories(services, hosted.all, self.relinquishing)
        self._frozen_watermarks = FrozenWatermarks(services)
        self._throttle_watch = ThrottleWatch(services, hosted.throttles)
        #: Keeps a record of all log directories in each log directory (D6).
        self.survey = LogDirSurvey(services)
        self._closing = False
        settings = _cleaner_settings(services.config)
        self._cleaner = Cleaner(settings, services.clock, services.tasks.sleep)

    def start(self) -> None:
        """Start the loops; each begins with a pause."""
        self.configured()
        loops: tuple[tuple[str, Callable[[BrokerConfig], int], Callable[[], Awaitable[None]]], ...]
        loops = (
            (
                "high watermarks",
                lambda config: config.replica_high_watermark_checkpoint_interval_ms,
                self.write_high_watermarks,
            ),
            (
                "recovery points",
                lambda config: config.log_flush_offset_checkpoint_interval_ms,
                self._checkpoint,
            ),
            (
                "followers",
                lambda config: config.replica_lag_time_max_ms // 2,
                self._examine_followers,
            ),
            (
                "retention",
                lambda config: config.log_retention_check_interval_ms,
                self._enforce_retention,
            ),
            ("compaction", lambda config: config.log_cleaner_backoff_ms, self._compact),
            ("flushes", lambda _: _FLUSH_CHECK_MS, self._flush),
            ("strays", lambda _: _STRAY_CHECK_MS, self._purge_strays),
        )
        for name, interval_ms, work in loops:
            self._services.tasks.spawn(f"replicas: {name}", self._repeat(name, interval_ms, work))

    def configured(self) -> None:
        """Apply the broker's changed configuration (`log.cleaner.*`, KIP-226)."""
        self._cleaner.settings = _cleaner_settings(self._services.config)

    def damage_found(self) -> None:
        """Give up replicas whose log is damaged, so that the controller elects others (V68)."""
        if not self._closing and not self._services.fence.is_fenced:
            self.relinquishing.damage_found(self._hosted.all)

    def close(self) -> None:
        """Start no further work."""
        self._closing = True
        self.relinquishing.close()

    async def _repeat(
        self,
        name: str,
        interval_ms: Callable[[BrokerConfig], int],
        work: Callable[[], Awaitable[None]],
    ) -> None:
        while not self._closing:
            await self._services.tasks.sleep(max(1, interval_ms(self._services.config)))
            if self._closing:
                return
            try:
                await work()
            except StorageError as error:
                # The directory has already reacted to the error: after a device error it has failed
                # (D1), on a full disk it is read-only (D14).
                self._services.tracer.event("storage_error", what=name, error=str(error))
                self._services.tracer.log("server", logging.ERROR, f"{name}: {error}")

    async def write_high_watermarks(self) -> None:
        """Write the high watermarks of each directory to disk (V34)."""
        replicas = self._hosted
        idle_ms = _IDLE_MS if len(self._services.config.log_dirs) > 1 else 0
        await self._each(
            lambda directory: directory.write_high_watermarks(
                {
                    partition.topic_partition: partition.high_watermark
                    for partition in replicas.all()
                    if partition.directory is directory
                    or partition.topic_partition in directory.future_logs.found
                },
                idle_ms,
            )
        )

    async def _checkpoint(self) -> None:
        self._placement.sample(self._hosted.directories)
        try:
            await self._each(lambda directory: directory.checkpoint())
        finally:
            for directory, error in await self.survey.write(self._hosted.directories):
                directory.failed(error)

    async def _each(self, work: Callable[[LogDirectory], Awaitable[None]]) -> None:
        """Run `work` for every directory; raise the first StorageError at the end.

        A full disk thus does not prevent the checkpoints of other directories.
        """
        first: StorageError | None = None
        for directory in self._hosted.directories:
            try:
                await work(directory)
            except StorageError as error:
                first = first or error
        if first is not None:
            raise first

    async def _examine_followers(self) -> None:
        if self._services.fence.is_fenced:
            return  # followers' fetches wait while this broker is fenced (V47)
        for partition in self._hosted.all():
            partition.role.examine()
        self.relinquishing.look(self._hosted.all())
        self._frozen_watermarks.look(self._hosted.all())
        self._throttle_watch.look(self._hosted.get)
        self._hosted.takeovers.expire()

    async def _enforce_retention(self) -> None:
        """Remove old segments of every log; raise the first StorageError at the end.

        Retention thus continues for logs on other disks (D14).
        """
        first: StorageError | None = None
        for partition in self._hosted.all():
            if not partition.has_role:
                continue
            log = partition.log
            log_start_offset = log.log_start_offset
            try:
                await log.enforce_retention(
                    self._services.clock.wall_ms(), partition.high_watermark
                )
            except StorageError as error:
                first = first or error
            finally:
                if log.log_start_offset != log_start_offset:
                    partition.log_start_moved()
                partition.role.log_rolled()
        if first is not None:
            raise first

    async def _compact(self) -> None:
        """Compact the dirtiest log, then the next dirtiest log, until no log is due."""
        if not self._services.config.log_cleaner_enable:
            return
        more = True
        while more and not self._closing:
            partitions = self._hosted.all()
            stats = await self._cleaner.clean_one(
                [
                    (partition.log, partition.high_watermark)
                    for partition in partitions
                    # compaction needs space before it frees space
                    if not partition.log.directory.space.is_full
                ]
            )
            more = stats is not None

    async def _flush(self) -> None:
        if self._least_flush_ms() == INT64_MAX:
            return
        await self._each(lambda directory: directory.flush_due(self._services.clock.wall_ms()))

    async def hold_strays(self) -> None:
        """If too many strays were set aside at once, keep them until an operator decides (V35)."""
        replicas = self._hosted
        strays = sorted(
            (
                (stray.since_ms, stray.name, directory)
                for directory in replicas.directories
                for stray in directory.strays.values()
            ),
            key=lambda stray: stray[:2],
        )
        for event in _events(strays, lambda stray: stray[0]):
            is_older = self._services.identity.older_stamp is not None
            many = commands.deletion_waits(len(event), len(replicas) + len(event))
            if not many and not is_older:
                continue
            new = [stray for stray in event if not stray[2].strays[stray[1]].is_held]
            if not new:
                continue
            self._services.tracer.event("strays_wait", count=len(event))
            self._services.tracer.log(
                "server",
                logging.WARNING,
                f"{len(event)} replicas became strays at once: they are kept until `tidelog strays"
                " delete` removes or `tidelog strays restore` restores them; `tidelog strays list`"
                f" shows them{' (the metadata store is older than they are)' if is_older else ''}",
            )
            for directory in replicas.directories:
                names = [name for _, name, where in new if where is directory]
                try:
                    await directory.hold_strays(names)
                except StorageError as error:
                    # The directory could not store that these strays must be kept. The broker keeps
                    # them as long as it runs, and checks the strays again after a restart.
                    self._services.tracer.log(
                        "server", logging.ERROR, f"cannot hold strays: {error}"
                    )

    async def _purge_strays(self) -> None:
        """Delete strays that are old enough, except strays that wait for an operator (V35)."""
        await self.hold_strays()
        for directory in self._hosted.directories:
            await directory.purge_strays(
                self._services.clock.wall_ms(), self._services.config.log_stray_delete_delay_ms
            )


def _cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    return CleanerSettings(
        dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
        load_factor=config.log_cleaner_io_buffer_load_factor,
        slice_bytes=config.log_cleaner_io_buffer_size // 2,
        max_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
    )


def _events(strays: Sequence[T], since_ms: Callable[[T], int]) -> list[list[T]]:
    """Group strays, sorted by time; strays that were set aside within a minute share a group."""
    groups: list[list[T]] = []
    for stray in strays:
        if groups and since_ms(stray) - since_ms(groups[-1][-1]) <= _ONE_EVENT_MS:
            groups[-1].append(stray)
        else:
            groups.append([stray])
    return groups
