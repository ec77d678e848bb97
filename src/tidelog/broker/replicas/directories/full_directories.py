"""Full log directories of this broker, and the requests for other leaders (D14).

A full directory refuses records and new replicas (`log.directory_space`). When a disk becomes full,
the broker asks the controller to elect other leaders in place of the leaders in the directory. The
broker probes the disk repeatedly. While the disk stays full, the broker sends this request also for
leaders whose roles began after the first request. Followers in a full directory append no records,
so they leave their ISRs after `replica.lag.time.max.ms`. When the disk has space again, the broker
reports that to the controller, and the followers catch up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidelog.broker.replicas.metrics import FULL_LOG_DIRECTORIES, USABLE_BYTES

if TYPE_CHECKING:
    from tidelog.broker.replicas.directories.relinquishing import Relinquishing
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.services import Services
    from tidelog.log.directory_space import DirectorySpace
    from tidelog.log.log_directory import LogDirectory


class FullDirectories:
    """The part of one broker that probes full log directories and asks for other leaders."""

    def __init__(
        self,
        services: Services,
        partitions: Callable[[], Sequence[Partition]],
        relinquishing: Relinquishing,
    ) -> None:
        """`partitions` returns the hosted replicas."""
        self._services = services
        self._partitions = partitions
        self._relinquishing = relinquishing

    def watch(self, directory: LogDirectory) -> None:
        """Watch the space of a directory that was just opened."""
        space, path = directory.space, directory.path
        space.on_change = lambda: self._changed(path, space)
        space.on_still_full = lambda: self._still_full(path, space)
        if space.is_full:
            self._changed(path, space)

    def _changed(self, path: str, space: DirectorySpace) -> None:
        metrics = self._services.metrics
        if space.is_full:
            metrics.put(FULL_LOG_DIRECTORIES, 1, path)
            self._still_full(path, space)
            return
        metrics.drop(FULL_LOG_DIRECTORIES, path)
        metrics.drop(USABLE_BYTES, path)
        self._relinquishing.directory_fit()

    def _still_full(self, path: str, space: DirectorySpace) -> None:
        if space.free.volume is not None:
            self._services.metrics.put(USABLE_BYTES, space.free.volume.usable_bytes, path)
        self._relinquishing.directory_unfit(self._partitions())
