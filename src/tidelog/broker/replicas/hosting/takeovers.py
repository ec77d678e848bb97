"""New leaderships of this broker, measured until their clients have recovered (V80).

The controller measures a failover only until the leader has its role. After the leader has its
role, followers connect, truncate and fetch, and the leader acknowledges the first record.
`replication.takeover` records the times of each watched leadership. This module decides which
leaderships are watched, and for how long. If many leaderships begin at once, the module watches an
even sample of them. The measured times go to metrics, and to the topic `__cluster_events` if events
are enabled. While no leadership is watched, the watch costs each fetch only a look-up in an empty
dictionary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.replicas.metrics import TAKEOVER_MS
from tidelog.controller import cluster_events
from tidelog.core.limits import MAX_TAKEOVERS_WATCHED
from tidelog.replication.takeover import NEVER, Takeover

if TYPE_CHECKING:
    from tidelog.broker.events.cluster_events import ClusterEvents
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.services import Services

#: Milliseconds for which a leadership is watched; clients wait that long for a response by default.
#: Later events do not count as part of the failover.
WATCHED_MS: Final = 30_000

# The three reasons why the broker stops watching a leadership; the cluster event names the reason.
ALL_SEEN: Final = "all_seen"
TIME_OVER: Final = "time_over"
LEADERSHIP_OVER: Final = "leadership_over"


class Takeovers:
    """New leaderships of one broker, a sample of which is watched until replication works again.

    The broker reports when the followers and the high watermark have caught up.
    """

    def __init__(self, services: Services, events: ClusterEvents) -> None:
        self._services = services
        self._events = events
        #: The watched leaderships, in the order in which they began.
        self.watched: dict[Partition, Takeover] = {}
        #: Number of leaderships that began since the set of watched leaderships was last empty;
        #: every `_stride`-th leadership is watched.
        self._begun = 0
        self._stride = 1

    def begun(self, partition: Partition) -> None:
        """Watch a leadership that begins, if it belongs to the sample."""
        leadership = partition.leadership
        assert leadership is not None, "a takeover begins with a leadership"
        self.ended(partition)
        watched = self.watched
        if not watched:
            self._begun, self._stride = 0, 1
        self._begun += 1
        if (self._begun - 1) % self._stride:
            return
        if len(watched) >= MAX_TAKEOVERS_WATCHED:
            # Above the limit, drop every second watched leadership, so that the sample stays even.
            for skipped in list(watched)[1::2]:
                del watched[skipped]
            self._stride *= 2
            if (self._begun - 1) % self._stride:
                return
        now_ms = self._services.clock.monotonic_ms()
        watched[partition] = Takeover(
            leadership.leader_epoch, leadership.epoch_start_offset, now_ms
        )

    def connected(self, partition: Partition, replica_id: int, now_ms: int) -> None:
        """Note that a follower sent a request under the current leader epoch."""
        takeover = self.watched.get(partition)
        if takeover is not None:
            takeover.connected(replica_id, now_ms)

    def diverged(self, partition: Partition, replica_id: int, now_ms: int) -> None:
        """Note that a follower learned where its log diverges from the leader's."""
        takeover = self.watched.get(partition)
        if takeover is not None:
            takeover.diverged(replica_id, now_ms)

    def fetched(self, partition: Partition, replica_id: int, now_ms: int) -> None:
        """Note that a follower fetches, and that its log agrees with the leader's so far."""
        takeover = self.watched.get(partition)
        if takeover is None:
            return
        if takeover.fetched(replica_id, now_ms):
            self._report_first_fetch(partition, takeover, replica_id)
        self._look(partition, takeover, now_ms)

    def committed(self, partition: Partition) -> None:
        """Note that the high watermark has moved."""
        takeover = self.watched.get(partition)
        if takeover is not None:
            self._look(partition, takeover, self._services.clock.monotonic_ms())

    def ended(self, partition: Partition) -> None:
        """End the watch of a leadership, if the leadership was watched."""
        takeover = self.watched.get(partition)
        if takeover is not None:
            self._end(partition, takeover, LEADERSHIP_OVER)

    def expire(self) -> None:
        """End every watch that has lasted `WATCHED_MS`."""
        now_ms = self._services.clock.monotonic_ms()
        while self.watched:
            partition, takeover = next(iter(self.watched.items()))
            if takeover.age_ms(now_ms) < WATCHED_MS:
                return
            self._end(partition, takeover, TIME_OVER)

    def _look(self, partition: Partition, takeover: Takeover, now_ms: int) -> None:
        leadership = partition.leadership
        if leadership is None:
            return
        takeover.committed(leadership.high_watermark, now_ms)
        awaited = [
            follower.replica_id
            for follower in leadership.followers.values()
            if follower.is_eligible
        ]
        if takeover.is_over(awaited):
            self._end(partition, takeover, ALL_SEEN)

    def _end(self, partition: Partition, takeover: Takeover, ended_by: str) -> None:
        del self.watched[partition]
        services = self._services
        phases_ms = takeover.phases_ms()
        for phase, ms in phases_ms.items():
            if ms != NEVER:
                services.metrics.observe(TAKEOVER_MS, ms, phase)
        if not self._events.is_on:
            return
        followers = [
            {
                "follower": replica_id,
                "connected_ms": times.connected_ms,
                "diverged_ms": times.diverged_ms,
                "fetched_ms": times.fetched_ms,
            }
            for replica_id, times in sorted(takeover.followers.items())
        ]
        fields = {
            "leader": services.broker_id,
            "phases_ms": phases_ms,
            "followers": followers,
            "ended_by": ended_by,
        }
        event = cluster_events.takeover(
            partition.topic_partition, partition.topic_id, takeover.leader_epoch, fields
        )
        self._events.record([event])

    def _report_first_fetch(
        self, partition: Partition, takeover: Takeover, replica_id: int
    ) -> None:
        if not self._events.is_on:
            return
        fields = {
            "leader": self._services.broker_id,
            "follower": replica_id,
            "first_fetch_ms": takeover.followers[replica_id].fetched_ms,
            "log_end_offset": partition.log.log_end_offset,
        }
        event = cluster_events.first_fetch(
            partition.topic_partition, partition.topic_id, takeover.leader_epoch, fields
        )
        self._events.record([event])
