"""Detection of throttled replicas that do not catch up (R15).

A throttled replica falls behind if producers write more to its partition than the replica receives.
If producers write more than the throttle's rate, the replica can never catch up. If producers write
less than the throttle's rate, the replica may lag only because other partitions share the rate. In
this case, the broker reports the replica only after two checks in a row found it behind. The broker
reports once that a replica falls behind, and again only after the throttle's rate has changed. This
module knows no log; the caller measures bytes and time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, NamedTuple, TypeVar

from tidelog.core.dataclass import dataclass

K = TypeVar("K")
_MS_PER_S = 1_000
#: How many checks in a row must find a replica behind before a report. One check suffices if
#: producers write more to the replica's partition than the whole rate.
_LOOKS = 2


class Shortfall(NamedTuple):
    """Why a throttled replica does not catch up: the rate at which the log grows, and the
    throttle's rate.
    """

    #: Bytes a second that producers write to the partition.
    produce_rate: int
    #: Bytes a second that the throttle allows for all throttled replicas together.
    rate: int

    @property
    def is_for_good(self) -> bool:
        """Whether the replica can never catch up: producers write more to this partition than the
        whole rate.
        """
        return self.produce_rate > self.rate


@dataclass(slots=True)
class _Behind:
    looks: int = 0
    reported_rate: int = -1


class ThrottleProgress(Generic[K]):
    """The replicas that fell behind on one side of the throttle (leader or follower)."""

    def __init__(self) -> None:
        self._behind: dict[K, _Behind] = {}

    def look(
        self, replica: K, produced_bytes: int, received_bytes: int, elapsed_ms: int, rate: int
    ) -> Shortfall | None:
        """Check a replica that was throttled since the last check; return None if no report is due.

        `produced_bytes` were written to the partition since the last check, and `received_bytes`
        reached the replica.
        """
        if produced_bytes <= received_bytes:
            self._behind.pop(replica, None)
            return None
        behind = self._behind.setdefault(replica, _Behind())
        behind.looks += 1
        shortfall = Shortfall(produced_bytes * _MS_PER_S // elapsed_ms, rate)
        if behind.reported_rate == rate:
            return None
        if not shortfall.is_for_good and behind.looks < _LOOKS:
            return None
        behind.reported_rate = rate
        return shortfall

    def forget_all_but(self, replicas: Collection[K]) -> None:
        """Forget all replicas but `replicas`, those that were throttled since the last check."""
        self._behind = {each: kept for each, kept in self._behind.items() if each in replicas}
