"""The upkeep of the hosted replicas, from time to time and at the end.

Upkeep covers high watermark checkpoints (V34), recovery points, retention, compaction, flushes that
a topic asks for by age, and old strays (V35). It also looks for followers that fall behind: every
half of `replica.lag.time.max.ms`, even when no follower fetches (V62), and for throttled ones that
do not catch up (R15). Each kind has its own loop,
so that a slow disk delays its own kind only.
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
#: Each of several log directories is written to at least so often: nothing else notices the failure
#: of an idle disk (D1).
_IDLE_MS = 5_000
#: Strays closer together in time than this belong to one event.
_ONE_EVENT_MS = 60_000


class ReplicaUpkeep:
    """The loops of one broker."""

    def __init__(
        self,
        services: Services,
        hosted: HostedPartitions,
        placement: LogDirPlacement,
        least_flush_ms: Callable[[], int],
        give_up_damaged: Callable[[Partition], None],
    ) -> None:
        """`least_flush_ms` returns the least `flush.ms` of all topics here.

        `give_up_damaged` has a damaged replica replaced by a controller that cannot be asked (V68).
        """
        self._services = services
        self._hosted = hosted
        self._placement = placement
        self._least_flush_ms = least_flush_ms
        #: The roles that this broker gives up.
        self.relinquishing = Relinquishing(services, give_up_damaged)
        #: Log directories whose disk is full.
        self.full = FullDirectories(services, hosted.all, self.relinquishing)
        self._frozen_watermarks = FrozenWatermarks(services)
        self._throttle_watch = ThrottleWatch(services, hosted.throttles)
        #: Survey of the log directories: each one keeps a record of the others (D6).
        self.survey = LogDirSurvey(services)
        self._closing = False
        settings = _cleaner_settings(services.config)
        self._cleaner = Cleaner(settings, services.clock, services.tasks.sleep)

    def start(self) -> None:
        """Begin; each loop waits first."""
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
        """Have the controller replace replicas with a damaged log (V68)."""
        if not self._closing and not self._services.fence.is_fenced:
            self.relinquishing.damage_found(self._hosted.all)

    def close(self) -> None:
        """Begin nothing more."""
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
                # The directory has judged the error: a device error fails it (D1), a full disk
                # makes it read-only (D14).
                self._services.tracer.event("storage_error", what=name, error=str(error))
                self._services.tracer.log("server", logging.ERROR, f"{name}: {error}")

    async def write_high_watermarks(self) -> None:
        """Write the high watermarks of each directory down (V34)."""
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
        """Do something in every directory; raise the first StorageError at the end.

        A full disk must not keep the other directories from their checkpoints.
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
            return  # the followers' fetches wait here (V47)
        for partition in self._hosted.all():
            partition.role.examine()
        self.relinquishing.look(self._hosted.all())
        self._frozen_watermarks.look(self._hosted.all())
        self._throttle_watch.look(self._hosted.get)
        self._hosted.takeovers.expire()

    async def _enforce_retention(self) -> None:
        """Remove old segments of every log; raise the first StorageError at the end.

        A log whose disk refuses must not keep others from making room there (D14).
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
        """Compact the dirtiest log, then the next, until none is due."""
        if not self._services.config.log_cleaner_enable:
            return
        more = True
        while more and not self._closing:
            partitions = self._hosted.all()
            stats = await self._cleaner.clean_one(
                [
                    (partition.log, partition.high_watermark)
                    for partition in partitions
                    if not partition.log.directory.space.is_full  # it writes before it frees
                ]
            )
            more = stats is not None

    async def _flush(self) -> None:
        if self._least_flush_ms() == INT64_MAX:
            return
        await self._each(lambda directory: directory.flush_due(self._services.clock.wall_ms()))

    async def hold_strays(self) -> None:
        """Have the strays of an event that took too many replicas wait for an operator (V35)."""
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
                    # This process keeps them as long as it runs; the next one judges them again.
                    self._services.tracer.log(
                        "server", logging.ERROR, f"cannot hold strays: {error}"
                    )

    async def _purge_strays(self) -> None:
        """Delete strays that are old enough, unless too many went at once (V35)."""
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
    """Return strays that rise in time, in groups of strays close together."""
    groups: list[list[T]] = []
    for stray in strays:
        if groups and since_ms(stray) - since_ms(groups[-1][-1]) <= _ONE_EVENT_MS:
            groups[-1].append(stray)
        else:
            groups.append([stray])
    return groups
