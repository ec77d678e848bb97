"""Mutants of the replication throttle.

Each removes one promise: whom it holds back, for how many bytes, and that it ends.
"""

from __future__ import annotations

from typing import Any, Final

from tests.support.mutants.mutant import mutant

from tidelog.replication.throttle import ThrottleSettings

_PROFILE: Final = "throttled_moves"
_SIDE: Final = "tidelog.replication.throttle:SideThrottle"
_READS: Final = "tidelog.broker.replicas.fetching.throttled_reads:ThrottledReads"


@mutant("R15", f"{_SIDE}.record", profile=_PROFILE)
def throttled_bytes_not_recorded(_: Any) -> Any:
    """Bytes of throttled partitions are not counted."""
    return lambda self, count, out_of_sync_count, now_ms: None


@mutant("R15", f"{_SIDE}.is_throttled", profile=_PROFILE)
def every_partition_throttled(_: Any) -> Any:
    """Once a list names a replica, the rate holds for all partitions."""
    return lambda self, topic_partition: self.is_active


@mutant("R15", "tidelog.replication.byte_rate:ByteRate._left", profile=_PROFILE)
def unpaid_bytes_forgotten(_: Any) -> Any:
    """Bytes above the rate are forgotten when their window expires, as in Kafka."""
    return lambda self, window, end_ms, carried: 0


@mutant("R15", f"{_READS}.leaves_out", profile=_PROFILE)
def throttled_partition_blocks_its_fetch(original: Any) -> Any:
    """Where one partition of a fetch waits for the throttle, those behind it wait, too."""

    def leaves_out(self: Any, item: Any, partition: Any) -> bool:
        if original(self, item, partition):
            return True
        if self._follower >= 0 and self._session.throttled:
            self._session.throttle(item)
            return True
        return False

    return leaves_out


@mutant("R15", "tidelog.broker.replicas.fetching.fetchers:Fetcher._unthrottle", profile=_PROFILE)
def throttled_partition_never_fetched_again(_: Any) -> Any:
    """A follower leaves a throttled partition out for ever."""
    return lambda self, waited: None


@mutant(
    "R4", "tidelog.broker.replicas.hosting.throttles:ReplicationThrottles.moved", profile=_PROFILE
)
def move_throttle_outlives_its_move(original: Any) -> Any:
    """The throttle that a move brought along stays when the move has ended."""

    def moved(self: Any, topic_partition: Any, rate: int) -> None:
        if rate:
            original(self, topic_partition, rate)

    return moved


@mutant(
    "R4", "tidelog.broker.replicas.hosting.throttles:ReplicationThrottles.moved", profile=_PROFILE
)
def operators_throttle_removed_with_a_move(original: Any) -> Any:
    """With the throttle of a move, a broker drops what an operator has configured."""

    def moved(self: Any, topic_partition: Any, rate: int) -> None:
        had = topic_partition in self.moves
        original(self, topic_partition, rate)
        if had and not rate:
            self.leader.configure(ThrottleSettings(), 0)

    return moved
