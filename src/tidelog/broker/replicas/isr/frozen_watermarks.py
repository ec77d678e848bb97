"""Partitions that accept acks=all but cannot commit, because of eligible leader replicas (E1).

A leader commits nothing while published state names eligible leader replicas outside the ISR. The
leader rejects acks=all only if its own `min.insync.replicas` is not met (V64). The controller may
use a greater `min.insync.replicas` than the leader, if the controller's `server.properties` has
another default, or if the controller read a new topic configuration first. With a smaller
`min.insync.replicas` than the controller's, the leader accepts records that it cannot commit.
Produce requests with such records time out without a reason. This broker therefore logs the
partitions that it leads but cannot commit, and the replicas for which they wait.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.replication.pending_reads import NEVER_MS

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.services import Services

#: Pause between two log lines of one broker, in milliseconds.
_REPEAT_MS = 60_000
#: Maximum number of partitions that one log line names.
_MAX_NAMED = 5


class FrozenWatermarks:
    """Log lines of one broker about partitions whose high watermark cannot advance."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._logged_ms = NEVER_MS

    def look(self, partitions: Iterable[Partition]) -> None:
        """Once a minute, log the partitions that wait for eligible leader replicas to commit."""
        now_ms = self._services.clock.monotonic_ms()
        if now_ms - self._logged_ms < _REPEAT_MS:
            return
        frozen = [
            text
            for partition in partitions
            if partition.watchers.acks_waiting and (text := reason(self._services, partition))
        ]
        if not frozen:
            return
        self._logged_ms = now_ms
        more = f" and {len(frozen) - _MAX_NAMED} more" if len(frozen) > _MAX_NAMED else ""
        self._services.tracer.log(
            "server",
            logging.WARNING,
            f"acks=all waits on {len(frozen)} partitions: {'; '.join(frozen[:_MAX_NAMED])}{more}."
            " The controller uses a greater min.insync.replicas than this leader: set the same on"
            " all brokers, or bring these replicas back into the ISR",
        )


def reason(services: Services, partition: Partition) -> str:
    """Return a text about the eligible replicas without which a partition cannot commit; "" for
    none.
    """
    leadership = partition.leadership
    if leadership is None or not leadership.awaits_eligible:
        return ""
    view = services.view.partition(partition.topic_partition)
    eligible = [] if view is None else list(view.eligible)
    return (
        f"{partition.topic_partition} commits nothing before the eligible replicas"
        f" {eligible or '(not known yet)'} are back in the ISR {list(leadership.isr.committed)},"
        f" although {leadership.minimum} members are enough for this leader"
    )
