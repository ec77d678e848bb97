"""The metrics of the cluster, read from the published state at a scrape.

Only the controller shows these metrics, so that a sum over all brokers counts the cluster once. The
broker reads them from its own view of the cluster, which UpdateMetadata requests fill on the
controller as on every broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from tidelog.broker.controller import metrics as declared
from tidelog.core.limits import MAX_METERED_TOPICS
from tidelog.core.metrics import LATENCY_BOUNDS_US, PAUSE, MetricReading, reading
from tidelog.core.recent_buckets import RecentBuckets, quantiles

if TYPE_CHECKING:
    from tidelog.broker.services import Services

#: The version of Kafka whose APIs and API versions brokers serve.
_KAFKA_VERSION: Final = "v3.9"
_SHARES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class ControllerReadings:
    """The metrics of the cluster, as one broker shows them while it is the controller."""

    def __init__(self, services: Services, is_active: Callable[[], bool]) -> None:
        self._services = services
        self._is_active = is_active
        self._recent = RecentBuckets()
        services.metrics.collect(self.readings)
        services.metrics.collect(self.store_times)

    def readings(self) -> Iterator[MetricReading]:
        """Read the metrics from the published state, topic by topic."""
        is_active = self._is_active()
        yield reading(declared.ACTIVE_CONTROLLERS, int(is_active))
        if not is_active:
            yield MetricReading(declared.CONTROLLED, (0, 0, 0, 0))
            return
        yield from self._brokers()
        offline = unpreferred = partitions = 0
        topics = list(self._services.view.topics.values())
        for number, topic in enumerate(topics):
            yield PAUSE
            partitions += len(topic.partitions)
            factor = 0
            for each in topic.partitions.values():
                offline += each.leader < 0
                unpreferred += each.leader != each.replicas[0]
                factor = max(factor, len(each.replicas))
            if number < MAX_METERED_TOPICS:
                count = len(topic.partitions)
                yield reading(declared.TOPIC_PARTITIONS, count, topic.name)
                yield reading(declared.MINION_TOPIC, 1, topic.name, count, factor)
        values = (offline, unpreferred, len(topics), partitions)
        yield MetricReading(declared.CONTROLLED, values)

    def store_times(self) -> Iterator[MetricReading]:
        """Return the latency quantiles of recent calls to the store, over all operations."""
        samples = self._services.metrics.samples(declared.STORE_MS)
        if not samples:
            return
        counts = list(map(sum, zip(*(each.buckets for each in samples), strict=True)))
        recent = self._recent.of(counts, self._services.clock.monotonic_ms())
        values = quantiles(LATENCY_BOUNDS_US, recent, _SHARES)
        for share, value in zip(_SHARES, values, strict=True):
            yield reading(declared.STORE_QUANTILES, value, share)

    def _brokers(self) -> Iterator[MetricReading]:
        services = self._services
        brokers, own = list(services.view.brokers.values()), services.broker_id
        yield reading(declared.BROKERS, len(brokers))
        yield reading(
            declared.MINION_CLUSTER,
            1,
            _KAFKA_VERSION,
            len(brokers),
            own,
            services.identity.cluster_id,
        )
        for broker in brokers:
            endpoint = broker.endpoints[0]
            yield reading(
                declared.BROKER_INFO, 1, broker.broker_id, f"{endpoint.host}:{endpoint.port}"
            )
            yield reading(
                declared.MINION_BROKER,
                1,
                broker.broker_id,
                endpoint.host,
                endpoint.port,
                broker.rack or "",
                str(broker.broker_id == own).lower(),
            )
