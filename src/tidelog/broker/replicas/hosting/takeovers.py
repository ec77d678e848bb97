"""New leaderships of this broker, watched until their failover is over for clients, too (V80).

The controller's account of a failover ends when the leader has its role. From there followers
connect, truncate and fetch, and the first record is acknowledged. `replication.takeover` keeps the
times. This module decides which leaderships are watched (an even sample where there are many), and
for how long. It always reports to metrics, and to the topic `__cluster_events` where events are on.
While nothing is watched, a fetch costs one look at an empty dict more.
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

#: Later times say nothing of a failover: clients wait this long for a response by default.
WATCHED_MS: Final = 30_000

# Reasons why the watch of a leadership ended.
ALL_SEEN: Final = "all_seen"
TIME_OVER: Final = "time_over"
LEADERSHIP_OVER: Final = "leadership_over"


class Takeovers:
    """The watched leaderships of one broker."""

    def __init__(self, services: Services, events: ClusterEvents) -> None:
        self._services = services
        self._events = events
        #: In the order in which they began.
        self.watched: dict[Partition, Takeover] = {}
        #: Leaderships begun since nothing was watched; one of every `_stride` of them is watched.
        self._begun = 0
        self._stride = 1

    def begun(self, partition: Partition) -> None:
        """Watch a replica that leads from now on, if the sample takes it."""
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
            # Above the limit every second leadership leaves the sample, which stays even.
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
        """Note that a follower sent a request under the present leader epoch."""
        takeover = self.watched.get(partition)
        if takeover is not None:
            takeover.connected(replica_id, now_ms)

    def diverged(self, partition: Partition, replica_id: int, now_ms: int) -> None:
        """Note that a follower learned where its log diverges from the leader's."""
        takeover = self.watched.get(partition)
        if takeover is not None:
            takeover.diverged(replica_id, now_ms)

    def fetched(self, partition: Partition, replica_id: int, now_ms: int) -> None:
        """Note that a follower fetches, with a log that agrees with the leader's so far."""
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
        """End the watch of a leadership, if there was one."""
        takeover = self.watched.get(partition)
        if takeover is not None:
            self._end(partition, takeover, LEADERSHIP_OVER)

    def expire(self) -> None:
        """End every watch that has lasted long enough."""
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
