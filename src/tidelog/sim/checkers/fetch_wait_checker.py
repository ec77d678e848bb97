"""Invariant of waiting fetches: a fetch must not wait if its response cannot grow (V61).

A fetch waits until its response has `min_bytes`. The checker examines every partition of each
waiting fetch: the segments, leader epoch and log start of the broker's log. The broker must respond
at once if the fetch requests records of an older segment, has another leader epoch than the log, or
requests removed records. The checker allows `_SLACK_NS`, because the response may follow some steps
later. The checker skips fetches for which the broker reads from disk, which wait for the budget of
unread responses, or which are throttled. The checker also skips compacted segments, because their
records may be gone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

from tidelog.sim.checkers.checker import CheckedRun, Checker
from tidelog.sim.loop import NS_PER_MS

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.replicas.fetching.delayed_fetch import DelayedFetch
    from tidelog.broker.replicas.fetching.fetch_sessions import SessionPartition
    from tidelog.broker.replicas.hosting.partition import Partition

#: Maximum time in ns for which a fetch may still wait after its response can no longer grow.
_SLACK_NS: Final = 50 * NS_PER_MS
#: Interval in ns between two checks of the waiting fetches.
_LOOK_NS: Final = 10 * NS_PER_MS


class FetchWaitChecker(Checker):
    """Checker of the fetches that wait on all brokers of one run."""

    def __init__(self, run: CheckedRun) -> None:
        super().__init__(run)
        self._looked_ns = 0
        #: For each fetch that waits without a reason: the time when this was first seen.
        self._since_ns: dict[DelayedFetch, int] = {}
        #: How often the checker examined a partition of a waiting fetch that had records for the
        #: fetch.
        self.looks = 0

    def after_event(self) -> None:
        """Check all waiting fetches at intervals."""
        now_ns = self._now_ns()
        if now_ns - self._looked_ns < _LOOK_NS:
            return
        self._looked_ns = now_ns
        present: dict[DelayedFetch, int] = {}
        for node in self._brokers.values():
            if node.broker is None or not node.is_up or node.broker.services.fence.is_fenced:
                continue
            for fetch, why in self._pointless(node.broker):
                since_ns = present[fetch] = self._since_ns.get(fetch, now_ns)
                if now_ns - since_ns > _SLACK_NS:
                    self._violate(
                        f"broker {node.node_id}: a fetch waits for min_bytes for"
                        f" {(now_ns - since_ns) // NS_PER_MS} ms, {why} (V61)"
                    )
        self._since_ns = present

    def _pointless(self, broker: Broker) -> Iterator[tuple[DelayedFetch, str]]:
        """Yield the fetches that wait although their response cannot grow, and why."""
        for partition in broker.replicas.all():
            if not partition.is_leader:
                continue
            watchers = (*partition.watchers._followers, *partition.watchers._consumers)
            for item in cast("tuple[SessionPartition, ...]", watchers):
                fetch = cast("DelayedFetch | None", item.session.waiting)
                if fetch is None or fetch._reads.under_way or fetch._turn is not None:
                    continue
                if partition.directory.path in fetch._held:
                    # Skip: the fetch waits for a directory whose disk finishes no reads (L2).
                    continue
                if item in item.session.throttled:
                    continue
                why = self._why(item, partition)
                if why:
                    yield fetch, f"{partition.topic_partition} {why}"

    def _why(self, item: SessionPartition, partition: Partition) -> str:
        log, offset = partition.log, item.fetch_offset
        asked, own = item.current_leader_epoch, partition.leader_epoch
        if 0 <= asked != own:
            return f"is led in epoch {own}, it asked for {asked}"
        if offset < log.log_start_offset:
            return f"starts at {log.log_start_offset}, it asked from {offset}"
        end = log.log_end_offset if item.session.replica_id >= 0 else partition.high_watermark
        if offset >= end:
            return ""
        self.looks += 1
        bases = [segment.base_offset for segment in log.segments]
        following = bases[bisect_right(bases, offset) :]
        if following and following[0] <= end and not log.config.compact_enabled:
            return f"has a segment at {following[0]}, it asked from {offset} up to {end}"
        return ""
