"""Traffic by topic: bytes, records and requests of the partitions that this broker hosts.

Each topic has counters, and so have all topics together, under the empty name, as in Kafka. The
number of series is bounded: topics beyond `MAX_METERED_TOPICS` share the counters of `OTHERS`, and
a metric says how many they are. A topic without a replica here has no series.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tidelog.broker.replicas import metrics as declared
from tidelog.core.limits import MAX_METERED_TOPICS
from tidelog.core.metrics import Metric, MetricReading, Metrics, reading
from tidelog.core.types import TopicPartition

#: The label of the topics that share their series; no topic can have this name.
OTHERS: Final = "(other topics)"
_ALL: Final = ""

#: A partition of a response to a fetch, None if unknown, with its bytes and its error code.
Answered = tuple[TopicPartition | None, int, int]


class TopicMeter:
    """The counters of one topic, or of all topics."""

    __slots__ = (
        "bytes_in", "bytes_out", "failed_fetches", "failed_produces", "fetches", "messages_in",
        "produces",
    )  # fmt: skip

    def __init__(self, metrics: Metrics, topic: str) -> None:
        self.bytes_in = metrics.sample(declared.BYTES_IN, topic)
        self.bytes_out = metrics.sample(declared.BYTES_OUT, topic)
        self.messages_in = metrics.sample(declared.MESSAGES_IN, topic)
        self.produces = metrics.sample(declared.PRODUCES, topic)
        self.fetches = metrics.sample(declared.FETCHES, topic)
        self.failed_produces = metrics.sample(declared.FAILED_PRODUCES, topic)
        self.failed_fetches = metrics.sample(declared.FAILED_FETCHES, topic)


_OF_TOPICS: Final = (
    declared.BYTES_IN,
    declared.BYTES_OUT,
    declared.MESSAGES_IN,
    declared.PRODUCES,
    declared.FETCHES,
    declared.FAILED_PRODUCES,
    declared.FAILED_FETCHES,
)
#: Kafka counts these for all topics together only.
_OF_ALL: Final = (
    declared.REPLICATION_BYTES_IN,
    declared.REPLICATION_BYTES_OUT,
    declared.INVALID_CRCS,
)


class TopicMeters:
    """The traffic of all topics of one broker."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._all = TopicMeter(metrics, _ALL)
        self._others: TopicMeter | None = None
        self._meters: dict[str, TopicMeter] = {}
        #: Topics beyond the limit.
        self._summed: dict[str, None] = {}
        for metric in _OF_ALL:
            metrics.sample(metric, _ALL)
        metrics.collect(self._readings)

    def hosted(self, topic: str) -> None:
        """Count the traffic of a topic that has a replica here."""
        if topic in self._meters:
            return
        if len(self._meters) - len(self._summed) < MAX_METERED_TOPICS:
            self._meters[topic] = TopicMeter(self._metrics, topic)
            return
        if self._others is None:
            self._others = TopicMeter(self._metrics, OTHERS)
        self._meters[topic] = self._others
        self._summed[topic] = None

    def gone(self, topic: str) -> None:
        """Drop the series of a topic that has no replica here any more."""
        self._meters.pop(topic, None)
        if topic in self._summed:
            del self._summed[topic]
            return
        for metric in _OF_TOPICS:
            self._metrics.drop(metric, topic)

    def produced(self, topic: str, size_bytes: int, records: int) -> None:
        """Count an append of a client to one partition."""
        for meter in self._of(topic):
            meter.produces.value += 1
            meter.bytes_in.value += size_bytes
            meter.messages_in.value += records

    def produce_failed(self, topic: str, *, is_corrupt: bool = False) -> None:
        """Count an append that a client's request lost."""
        for meter in self._of(topic):
            meter.produces.value += 1
            meter.failed_produces.value += 1
        if is_corrupt:
            self._count(declared.INVALID_CRCS, 1)

    def fetched(self, follower: int, answers: Iterable[Answered]) -> None:
        """Count a response to a fetch: partition, bytes and error code of each of its partitions.

        `follower` is negative for a consumer.
        """
        if follower >= 0:
            self._count(declared.REPLICATION_BYTES_OUT, sum(size for _, size, _ in answers))
            return
        for partition, size_bytes, error_code in answers:
            for meter in self._of(_ALL if partition is None else partition.topic):
                meter.fetches.value += 1
                meter.bytes_out.value += size_bytes
                if error_code:
                    meter.failed_fetches.value += 1

    def _of(self, topic: str) -> tuple[TopicMeter, ...]:
        found = self._meters.get(topic)
        return (self._all,) if found is None else (self._all, found)

    def _count(self, metric: Metric, count: int) -> None:
        self._metrics.sample(metric, _ALL).value += count

    def _readings(self) -> Iterator[MetricReading]:
        yield reading(declared.TOPICS_SUMMED, len(self._summed))
