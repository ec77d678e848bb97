"""Replicas of this broker that should not lead: their directory is full or slow (D13, D14).

For each leader in a full or slow directory, the broker asks the controller to elect another leader,
and repeats the request after a pause. In elections the controller avoids the replicas that such a
request names. A follower in a slow directory stays in sync and could be elected, so the broker
reports it, too. Without these reports, leaderships would move in circles among brokers whose disks
are all slow. A follower in a full directory leaves the ISR only when its leader gets records. While
the leader gets none, the follower stays in sync, so the broker reports it as well. The controller
forgets a report after two checks of the leader balance, so the broker repeats its
reports, and sends them to each new controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.core.log_dir_keys import DEMOTE, slow_action_includes

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.services import Services
    from tidelog.core.types import TopicPartition
    from tidelog.log.directory_state import DirectoryState

#: Pause in milliseconds before the broker asks again to replace a leader in an unfit directory.
UNFIT_PAUSE_MS: Final = 5_000
_MS_PER_S: Final = 1_000
#: The controller epoch in keys of `_until_ms` for requests, which hold for any controller.
_ANY: Final = -1


class UnfitDirectories:
    """The requests and reports of one broker about its full and slow directories."""

    def __init__(self, services: Services) -> None:
        self._services = services
        #: Monotonic time until which a request or report is not repeated, by partition, leader
        #: epoch, and (for reports) controller epoch.
        self._until_ms: dict[tuple[TopicPartition, int, int], int] = {}

    def is_unfit(self, directory: DirectoryState) -> bool:
        """Return whether the replicas of a directory should not lead."""
        return directory.space.is_full or self.is_slow(directory)

    def is_slow(self, directory: DirectoryState) -> bool:
        """Return whether a directory is too slow for leaders (D13)."""
        return directory.speed.is_slow and slow_action_includes(
            self._services.config.log_dir_slow_action, DEMOTE
        )

    def due(self, partitions: Iterable[Partition], others: Sequence[Partition]) -> list[Partition]:
        """Return leaders and followers to name as unfit in the next request.

        `others` are replicas that the request names for another reason.
        """
        now_ms = self._services.clock.monotonic_ms()
        self._until_ms = {
            key: until_ms for key, until_ms in self._until_ms.items() if now_ms < until_ms
        }
        return [
            partition
            for partition in partitions
            if self.is_unfit(partition.log.directory)
            and self._is_of_use(partition)
            and self._key(partition) not in self._until_ms
            and partition not in others
        ]

    def asked(self, partitions: Iterable[Partition]) -> None:
        """Note that a request was sent which names these leaders and followers as unfit."""
        now_ms = self._services.clock.monotonic_ms()
        interval_s = self._services.config.leader_imbalance_check_interval_seconds
        report_ms = interval_s * _MS_PER_S // 2
        for partition in partitions:
            pause_ms = UNFIT_PAUSE_MS if partition.is_leader else report_ms
            self._until_ms[self._key(partition)] = now_ms + pause_ms

    def forget(self) -> None:
        """Forget all requests and reports, because the controller forgets them, too."""
        self._until_ms.clear()

    def forget_reports(self) -> None:
        """Forget which followers were reported to the controller."""
        self._until_ms = {
            key: until_ms for key, until_ms in self._until_ms.items() if key[2] == _ANY
        }

    def _is_of_use(self, partition: Partition) -> bool:
        leadership = partition.leadership
        if leadership is not None:
            return leadership.can_be_replaced
        return partition.has_role

    def _key(self, partition: Partition) -> tuple[TopicPartition, int, int]:
        view = self._services.view
        controller = _ANY if partition.is_leader else view.controller_epoch
        return partition.topic_partition, partition.leader_epoch, controller
