"""Slow log directories of this broker, and the actions of `log.dir.slow.action` (D13).

Each of the actions `report`, `demote`, `cordon` and `offline` includes the actions before it. With
`report` the broker reports the slow directory in the log, in a metric, in cluster events, and in
DescribeLogDirs. With `demote` the broker asks for other leaders in place of its leaders in the
directory until the directory is fast again (`unfit_directories`). With `cordon` the directory
accepts no new replicas and no moves. A slow directory's state is not stored, so a restart forgets
it. With `offline` the broker takes the directory offline, as if it had failed, when no replica in
it leads any more.

If all directories of a broker are slow, the cause may be the machine and not a disk. The broker
then still moves leaderships to other brokers, but gives up no directory until another directory has
proven fast. A slow directory also stays in use while it has the leader of a partition that no other
replica can lead.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tidelog.broker.replicas.metrics import SLOW_LOG_DIRECTORIES
from tidelog.controller.cluster_events import log_dir_fast_again, log_dir_slow
from tidelog.core.log_dir_keys import DEMOTE, OFFLINE, slow_action_includes
from tidelog.log.slow_directories import proves_fast

if TYPE_CHECKING:
    from tidelog.broker.events.cluster_events import ClusterEvents
    from tidelog.broker.replicas.directories.relinquishing import Relinquishing
    from tidelog.broker.replicas.hosting.hosted_partitions import HostedPartitions
    from tidelog.broker.services import Services
    from tidelog.core.operation_times import OperationCounts
    from tidelog.log.log_directory import LogDirectory

#: Maximum number of partitions that one log line names.
_MAX_NAMED: Final = 5


class SlowDirectories:
    """The part of one broker that carries out `log.dir.slow.action` for slow log directories."""

    def __init__(
        self,
        services: Services,
        replicas: HostedPartitions,
        relinquishing: Relinquishing,
        events: ClusterEvents,
    ) -> None:
        self._services = services
        self._replicas = replicas
        self._relinquishing = relinquishing
        self._events = events
        #: The last logged reason why the broker does not give up a slow directory, by path.
        self._kept: dict[str, str] = {}
        #: Counts of operations in all directories at the time when a directory became slow, by the
        #: path of the slow directory.
        self._counts: dict[str, dict[str, OperationCounts]] = {}
        self._is_closed = False

    def watch(self, directory: LogDirectory) -> None:
        """Watch the speed of a directory that was just opened."""
        config, speed = self._services.config, directory.speed
        speed.on_change = lambda: self._changed(directory)
        speed.on_still_slow = lambda: self._still_slow(directory)
        speed.configure(
            config.log_dir_slow_threshold_ms,
            config.log_dir_slow_window_ms,
            config.metadata_session_timeout_ms,
        )

    def close(self) -> None:
        """Stop reacting to slow directories, because the broker has left the cluster."""
        self._is_closed = True

    def _includes(self, action: str) -> bool:
        return slow_action_includes(self._services.config.log_dir_slow_action, action)

    def _changed(self, directory: LogDirectory) -> None:
        if self._is_closed:
            return
        services, path, speed = self._services, directory.path, directory.speed
        if speed.is_slow:
            services.metrics.put(SLOW_LOG_DIRECTORIES, 1, path)
            self._kept.pop(path, None)
            self._counts[path] = {
                each.path: each.speed.counts for each in self._replicas.directories
            }
            self._events.record(
                [
                    log_dir_slow(
                        services.broker_id,
                        services.broker_epoch,
                        path,
                        speed.periods,
                        threshold_ms=speed.threshold_ms,
                        longest_ms=speed.longest_ms,
                        operations=speed.last.operations,
                        slow=speed.last.slow,
                        action=services.config.log_dir_slow_action,
                    )
                ]
            )
            self._warn_if_all_are_slow()
            self._demote()
            return
        services.metrics.drop(SLOW_LOG_DIRECTORIES, path)
        self._events.record(
            [
                log_dir_fast_again(
                    services.broker_id, services.broker_epoch, path, speed.periods, speed.slow_ms
                )
            ]
        )
        if self._includes(DEMOTE):
            self._relinquishing.directory_fit()

    def _still_slow(self, directory: LogDirectory) -> None:
        if self._is_closed:
            return
        self._demote()
        if self._includes(OFFLINE):
            self._give_up(directory)

    def _demote(self) -> None:
        if self._includes(DEMOTE):
            self._relinquishing.directory_unfit(self._replicas.all())

    def _warn_if_all_are_slow(self) -> None:
        directories = self._replicas.directories
        if len(directories) > 1 and all(each.speed.is_slow for each in directories):
            self._services.tracer.log(
                "server",
                logging.WARNING,
                f"all {len(directories)} log directories are slow: the machine may be slow, and not"
                " a disk",
            )

    def _give_up(self, directory: LogDirectory) -> None:
        """Give up a slow directory, unless it has leaders or no fast directory is known."""
        services, replicas = self._services, self._replicas
        if not services.identity.is_registered or services.fence.is_fenced:
            return  # the controller could not elect other leaders now
        if not any(self._is_fast(each, directory.path) for each in replicas.directories):
            services.tracer.mark("slow_directory_kept")
            self._keep(directory.path, "no other log directory of this broker is known to be fast")
            return
        led = [
            str(each.topic_partition)
            for each in replicas.all()
            if each.directory is directory and each.is_leader
        ]
        if led:
            more = f" and {len(led) - _MAX_NAMED} more" if len(led) > _MAX_NAMED else ""
            names = ", ".join(led[:_MAX_NAMED]) + more
            self._keep(directory.path, f"no other replica has taken over {names}")
            return
        services.tracer.mark("slow_directory_given_up")
        directory.mark_bad(
            f"it has been slow for {directory.speed.slow_ms:,} ms (log.dir.slow.action=offline)"
        )

    def _is_fast(self, directory: LogDirectory, slow_path: str) -> bool:
        """Return whether a directory proved fast after the directory at `slow_path` became slow."""
        before = self._counts[slow_path].get(directory.path)
        return (
            before is not None
            and directory.path not in self._replicas.failed
            and not directory.speed.is_slow
            and not directory.speed.is_stuck
            and proves_fast(directory.speed.counts.since(before))
        )

    def _keep(self, path: str, why: str) -> None:
        if self._kept.get(path) != why:
            self._kept[path] = why
            self._services.tracer.log(
                "server",
                logging.WARNING,
                f"log directory {path} is slow and is not given up (log.dir.slow.action=offline):"
                f" {why}; its leaders move away where others can lead",
            )
