"""Failed log directories of this broker, and how the controller learns of them (D1, D4).

At the first device error of a directory, the broker stops using the directory until the process
ends. The replicas in a failed directory stop leading and following at once and are offline. For
offline replicas, the broker responds KAFKA_STORAGE_ERROR to clients and to the controller's
commands (D3). Directories that have not failed continue to work. `OfflineReports` makes the
controller send commands for all replicas of this broker. A broker without a good directory halts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from errno import errorcode
from typing import TYPE_CHECKING, Final

from tidelog.broker.replicas.metrics import (
    FULL_LOG_DIRECTORIES,
    OFFLINE_LOG_DIRECTORIES,
    SLOW_LOG_DIRECTORIES,
    USABLE_BYTES,
)
from tidelog.controller.cluster_events import log_dir_failed

if TYPE_CHECKING:
    from tidelog.broker.events.cluster_events import ClusterEvents
    from tidelog.broker.replicas.directories.offline_reports import OfflineReports
    from tidelog.broker.replicas.hosting.hosted_partitions import HostedPartitions
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.replicas.placement.directory_moves import DirectoryMoves
    from tidelog.broker.services import Services
    from tidelog.core.errors import StorageError

#: Maximum number of replicas that one log line names.
_MAX_NAMED: Final = 20


class FailedDirectories:
    """The part of one broker that stops the use of failed log directories and reports them."""

    def __init__(
        self,
        services: Services,
        replicas: HostedPartitions,
        moves: DirectoryMoves,
        rest: Callable[[Partition], None],
        reports: OfflineReports,
        events: ClusterEvents,
    ) -> None:
        """`rest` is the function that ends the role of a replica as leader or follower."""
        self._services = services
        self._reports = reports
        self._events = events
        self._replicas = replicas
        self._moves = moves
        self._rest = rest

    def found_at_start(self, path: str, error: StorageError) -> None:
        """Skip a directory that cannot be opened (D5); raise `error` if no other directory is left.

        The controller learns of offline replicas from the broker's response to its first command.
        """
        self._count(path, error)
        self._services.tracer.mark("directory_bad_at_start")
        self._services.tracer.event("log_directory_unusable", directory=path, error=str(error))
        if self._is_last():
            raise error

    def failed(self, path: str, error: StorageError) -> None:
        """Give up a directory that failed at run time; halt the broker if it was the last (D1)."""
        self._count(path, error)
        if self._is_last():
            self._services.ports.halt(f"log directory failed: {error}")
            return
        # Give up the directory later, because the caller is in the middle of an operation on one of
        # the directory's logs.
        self._services.clock.call_later(0, lambda: self._give_up(path, error))

    def _is_last(self) -> bool:
        failed, paths = self._replicas.log_dirs.failed, self._services.config.log_dirs
        return len(failed) >= len(dict.fromkeys(paths))

    def _count(self, path: str, error: StorageError) -> None:
        services, failed = self._services, self._replicas.log_dirs.failed
        failed[path] = error
        services.metrics.put(OFFLINE_LOG_DIRECTORIES, len(failed))
        for name in (SLOW_LOG_DIRECTORIES, FULL_LOG_DIRECTORIES, USABLE_BYTES):
            services.metrics.drop(name, path)
        services.tracer.log("server", logging.CRITICAL, f"log directory failed: {error}")

    def _give_up(self, path: str, error: StorageError) -> None:
        services, replicas = self._services, self._replicas
        lost = [each for each in replicas.all() if each.directory.path == path]
        led = sum(each.is_leader for each in lost)
        failing = replicas.log_dirs.give_up(path, lost)
        self._moves.directory_failed(path)
        for partition in lost:
            replicas.forget(partition)
            replicas.log_dirs.lost(partition)
            # The end of the role makes waiting fetches examine the lost replica, so they get
            # KAFKA_STORAGE_ERROR (D4).
            self._rest(partition)
        for directory in failing:
            # End the operations that hang in the failed directory, because a fetch, a load or a
            # command may wait for them (D4).
            directory.lane.abandon(error)
        replicas.log_dirs.count_offline()
        services.tracer.mark("directory_given_up")
        services.tracer.event("replicas_offline", directory=path, replicas=len(lost), led=led)
        names = ", ".join(str(each.topic_partition) for each in lost[:_MAX_NAMED])
        named = f": {names}{' ...' if len(lost) > _MAX_NAMED else ''}" if names else ""
        services.tracer.log(
            "server",
            logging.ERROR,
            f"{len(lost)} replicas in {path} are offline until this broker restarts with a good"
            f" disk there; it led {led} of them, and goes on with"
            f" {', '.join(each.path for each in replicas.directories)}{named}",
        )
        if self._reports.is_closed:
            return  # the broker has left the cluster, so it leads no partitions
        self._events.record(
            [
                log_dir_failed(
                    services.broker_id,
                    services.broker_epoch,
                    path,
                    errorcode.get(error.errno, str(error.errno)),
                    error.operation,
                    replicas=len(lost),
                    led=led,
                )
            ]
        )
        self._reports.report("a log directory has failed")
