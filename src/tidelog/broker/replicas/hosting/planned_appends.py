"""The appends of one broker between their plan and the end of the read event that brought them.

A leader plans an append at once: it assigns offsets and knows a refusal. The write follows when the
read event ends, so that requests of one event share a write for each log. Only this module knows
which appends are planned and not yet submitted; the log holds the plans themselves. An append whose
batch must first be checked on a thread waits in `late_appends`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.hosted_replica import HostedReplica
    from tidelog.core.completion import Completion
    from tidelog.log.partition_log import AppendInfo


class PlannedAppends:
    """The planned appends of one broker, by partition, in the order of the first of each."""

    __slots__ = ("_planned",)

    def __init__(self) -> None:
        self._planned: dict[HostedReplica, list[Completion[AppendInfo]]] = {}

    def add(self, partition: HostedReplica, completion: Completion[AppendInfo]) -> None:
        """Note an append that was planned."""
        planned = self._planned.get(partition)
        if planned is None:
            self._planned[partition] = [completion]
        else:
            planned.append(completion)

    def add_late(self, partition: HostedReplica) -> None:
        """Note that a partition has an append that waits for a check: its bytes are in use."""
        self._planned.setdefault(partition, [])

    def take(self, partition: HostedReplica) -> list[Completion[AppendInfo]]:
        """Return the planned appends of one partition; the caller submits them."""
        return self._planned.pop(partition, [])

    def submit(self) -> bool:
        """Submit everything; return whether all of it is written, so that its bytes are free."""
        if not self._planned:
            return True
        planned, self._planned = self._planned, {}
        is_all_written = True
        for partition, completions in planned.items():
            is_all_written = partition.submit(completions) and is_all_written
        return is_all_written
