"""The metrics of hosted replicas, read from their state at a scrape.

Only the leader shows the metrics of a partition, so that a sum over brokers counts it once. Every
replica shows the metrics of its log. The number of series is bounded by `MAX_METERED_PARTITIONS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidelog.broker.replicas import metrics as declared
from tidelog.broker.replicas.hosting.topic_meters import OTHERS
from tidelog.core.limits import MAX_METERED_PARTITIONS
from tidelog.core.metrics import MetricReading, reading

if TYPE_CHECKING:
    from tidelog.broker.replicas.fetching.fetch_sessions import FetchSessions
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.replicas.replica_set import ReplicaSet
    from tidelog.broker.services import Services
    from tidelog.replication.leader import LeaderReplica

_NS_PER_MS = 1_000_000


class _Counts:
    """Counts over all replicas of this broker, at one scrape."""

    __slots__ = ("at_minimum", "led", "max_lag", "size_bytes", "summed_bytes", "under_minimum",
                 "under_replicated", "waiting_produces")  # fmt: skip

    def __init__(self) -> None:
        self.led = self.under_replicated = self.under_minimum = self.at_minimum = 0
        self.max_lag = self.size_bytes = self.summed_bytes = self.waiting_produces = 0


class ReplicaReadings:
    """The metrics of one broker's replicas and log directories."""

    def __init__(
        self, services: Services, replicas: ReplicaSet, fetch_sessions: FetchSessions
    ) -> None:
        self._services = services
        self._replicas = replicas
        self._fetch_sessions = fetch_sessions
        services.metrics.collect(self.replicas)
        services.metrics.collect(self.directories)

    def replicas(self) -> Iterator[MetricReading]:
        """Return the metrics of each replica, then the metrics over all replicas."""
        counts = _Counts()
        partitions = self._replicas.all()
        for number, partition in enumerate(partitions):
            counts.size_bytes += partition.log.size_bytes
            readings = self._of(partition, counts)
            if number < MAX_METERED_PARTITIONS:
                yield from readings
            else:
                counts.summed_bytes += partition.log.size_bytes
                for _ in readings:  # only update `counts`
                    pass
        left_out = max(0, len(partitions) - MAX_METERED_PARTITIONS)
        if left_out:
            yield reading(declared.LOG[0], counts.summed_bytes, OTHERS, "")
        yield reading(declared.PARTITIONS_LEFT_OUT, left_out)
        yield MetricReading(
            (
                declared.LEADERS,
                declared.PARTITIONS,
                declared.UNDER_REPLICATED,
                declared.UNDER_MIN_ISR,
                declared.AT_MIN_ISR,
                declared.FETCHER_MAX_LAG,
            ),
            (
                counts.led,
                len(partitions),
                counts.under_replicated,
                counts.under_minimum,
                counts.at_minimum,
                counts.max_lag,
            ),
        )
        yield reading(declared.PURGATORY, counts.waiting_produces, "Produce")
        waiting = sum(each.waiting is not None for each in self._fetch_sessions.all())
        yield reading(declared.PURGATORY, waiting, "Fetch")
        yield self._log_dirs(counts.size_bytes)

    def _of(self, partition: Partition, counts: _Counts) -> Iterator[MetricReading]:
        topic, index = partition.topic_partition
        labels = (topic, str(index))
        log = partition.log
        yield MetricReading(
            declared.LOG,
            (log.size_bytes, log.log_start_offset, log.log_end_offset, len(log.base_offsets)),
            labels,
        )
        if partition.produced_bytes or partition.fetched_bytes:
            traffic = (partition.produced_bytes, partition.fetched_bytes)
            yield MetricReading(declared.PARTITION_BYTES, traffic, labels)
        leader = partition.leadership
        if leader is not None:
            counts.waiting_produces += partition.watchers.acks_waiting
            yield from self._of_leader(leader, log.log_start_offset, labels, counts)
            return
        follower = partition.followership
        if follower is not None:
            lag = follower.lag
            counts.max_lag = max(counts.max_lag, lag)
            fetcher = f"ReplicaFetcherThread-0-{follower.leader}"
            yield MetricReading((declared.FETCHER_LAG,), (lag,), (fetcher, *labels))

    def _of_leader(
        self, leader: LeaderReplica, start: int, labels: tuple[str, ...], counts: _Counts
    ) -> Iterator[MetricReading]:
        replicas, in_sync = len(leader.replicas), len(leader.isr.committed)
        is_under = int(in_sync < replicas)
        below, at = int(in_sync < leader.minimum), int(in_sync == leader.minimum)
        counts.led += 1
        counts.under_replicated += is_under
        counts.under_minimum += below
        counts.at_minimum += at
        high_watermark, broker_id = leader.high_watermark, leader.broker_id
        is_preferred = int(leader.replicas[0] == broker_id)
        yield MetricReading(
            declared.CLUSTER_PARTITION, (is_under, below, at, replicas, in_sync), labels
        )
        yield MetricReading(
            declared.TOPIC_PARTITION,
            (high_watermark, start, in_sync, replicas, broker_id, is_preferred, is_under),
            labels,
        )
        yield MetricReading(declared.MINION_PARTITION, (high_watermark, start), labels)

    def _log_dirs(self, size_bytes: int) -> MetricReading:
        services = self._services
        endpoint = services.config.advertised_listeners[0]
        return reading(
            declared.MINION_LOG_DIRS,
            size_bytes,
            services.broker_id,
            endpoint.host,
            endpoint.port,
            services.config.broker_rack,
        )

    def directories(self) -> Iterator[MetricReading]:
        """Return counts of each log directory's operations, and ages of its oldest operations."""
        for directory in list(self._replicas.directories):
            times, path = directory.lane.times, directory.path
            ages = times.open_ages()
            for kind, count, slow in (
                ("append", times.writes, times.slow_writes),
                ("read", times.reads, times.slow_reads),
            ):
                yield MetricReading(
                    (declared.DIRECTORY_OPERATIONS, declared.DIRECTORY_SLOW_OPERATIONS),
                    (count, slow),
                    (path, kind),
                )
            for kind, age_ns in (
                ("append", ages.write_ns),
                ("read", ages.read_ns),
                ("other", ages.other_ns),
            ):
                yield reading(declared.LANE_WAIT, age_ns // _NS_PER_MS, path, kind)
