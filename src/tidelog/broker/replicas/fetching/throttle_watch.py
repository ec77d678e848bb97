"""Warnings about throttled replicas that cannot catch up, because their rate is too low (R15).

At each periodic check, the broker looks at the replicas that the throttle skipped since the last
check. For a partition that it leads, the broker measures in its own log how much producers write.
For a partition that it follows, the broker knows only how far the leader's high watermark moved,
and estimates the record sizes from its own log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.broker.replicas.hosting.log_bytes import bytes_from
from tidelog.core.types import TopicPartition
from tidelog.replication.throttle_progress import Shortfall, ThrottleProgress

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.replicas.hosting.throttles import ReplicationThrottles
    from tidelog.broker.services import Services

_LEADER_RATE: Final = "leader.replication.throttled.rate"
_FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
#: How a warning names the option that sets the throttle rate of a reassignment (R4).
_MOVES_RATE: Final = "the --throttle of reassignments"
_Find = Callable[[TopicPartition], "Partition | None"]


class _Ends(NamedTuple):
    """The log end offsets of a leader and of one of its followers at one check."""

    at_ms: int
    leader_end: int
    follower_end: int


class ThrottleWatch:
    """The watch over the throttled replicas of one broker, as leader and as follower."""

    def __init__(self, services: Services, throttles: ReplicationThrottles) -> None:
        self._services = services
        self._throttles = throttles
        self._left_out: dict[tuple[TopicPartition, int], _Ends] = {}
        self._not_fetched: dict[TopicPartition, _Ends] = {}
        self._sent: ThrottleProgress[tuple[TopicPartition, int]] = ThrottleProgress()
        self._fetched: ThrottleProgress[TopicPartition] = ThrottleProgress()

    def look(self, find: _Find) -> None:
        """Report replicas that fell behind since the last call; `find` returns hosted replicas."""
        throttles = self._throttles
        left_out, throttles.left_out = throttles.left_out, {}
        not_fetched, throttles.not_fetched = throttles.not_fetched, {}
        throttles.show_rates()
        self._look_at_followers(list(left_out), find)
        self._look_at_own(list(not_fetched), find)

    def _look_at_followers(self, replicas: list[tuple[TopicPartition, int]], find: _Find) -> None:
        before, self._left_out = self._left_out, {}
        for replica in replicas:
            partition = find(replica[0])
            if partition is None or not self._throttles.is_held_back(partition, replica[1]):
                continue
            assert partition.leadership is not None, "only a leader holds followers back"
            follower_end = partition.leadership.followers[replica[1]].log_end_offset
            log = partition.log
            now = _Ends(self._services.clock.monotonic_ms(), log.log_end_offset, follower_end)
            self._left_out[replica] = now
            if (last := before.get(replica)) is None:
                continue
            received = bytes_from(log, last.follower_end) - bytes_from(log, follower_end)
            shortfall = self._sent.look(
                replica,
                bytes_from(log, last.leader_end),
                max(0, received),
                max(1, now.at_ms - last.at_ms),
                self._throttles.leader.rate,
            )
            if shortfall is not None:
                name = f"{replica[0]}: follower {replica[1]}"
                configured = self._services.config.leader_replication_throttled_rate
                self._report(name, _LEADER_RATE, configured, shortfall)
        self._sent.forget_all_but(self._left_out)

    def _look_at_own(self, replicas: list[TopicPartition], find: _Find) -> None:
        before, self._not_fetched = self._not_fetched, {}
        for replica in replicas:
            partition = find(replica)
            if partition is None or partition.followership is None:
                continue
            log = partition.log
            end = log.log_end_offset
            leader_end = partition.told_high_watermark
            now = _Ends(self._services.clock.monotonic_ms(), leader_end, end)
            self._not_fetched[replica] = now
            last = before.get(replica)
            if last is None or min(last.leader_end, end - log.log_start_offset) <= 0:
                continue
            record_bytes = log.size_bytes / (end - log.log_start_offset)
            shortfall = self._fetched.look(
                replica,
                int((leader_end - last.leader_end) * record_bytes),
                int((end - last.follower_end) * record_bytes),
                max(1, now.at_ms - last.at_ms),
                self._throttles.follower.rate,
            )
            if shortfall is not None:
                name = f"{replica}: this follower of leader {partition.followership.leader}"
                configured = self._services.config.follower_replication_throttled_rate
                self._report(name, _FOLLOWER_RATE, configured, shortfall)
        self._fetched.forget_all_but(self._not_fetched)

    def _report(self, replica: str, rate: str, configured: int, shortfall: Shortfall) -> None:
        services = self._services
        key = rate if configured <= shortfall.rate else _MOVES_RATE
        services.tracer.mark("throttle_below_produce_rate")
        services.tracer.event(
            "throttle_below_produce_rate",
            replica=replica,
            key=key,
            rate=shortfall.rate,
            produce_rate=shortfall.produce_rate,
        )
        if shortfall.is_for_good:
            outcome = "it never catches up, and its reassignment never finishes"
        else:
            outcome = "it does not catch up while it shares the rate with other partitions"
        services.tracer.log(
            "server",
            logging.WARNING,
            f"partition {replica} falls behind: producers write {shortfall.produce_rate:,} bytes/s,"
            f" {key} allows {shortfall.rate:,} bytes/s: {outcome}; raise the rate",
        )
