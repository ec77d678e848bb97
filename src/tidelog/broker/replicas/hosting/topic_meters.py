"""Traffic by topic: what clients produce to this broker and fetch from it.

Each topic has its own counters. As in Kafka, further counters with an empty topic name count all
topics together. The number of series is bounded: topics beyond `MAX_METERED_TOPICS` share the
counters of `OTHERS`, and a metric shows the number of these topics. A topic without a replica here
has no series. Replicas count the bytes of their partitions themselves.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from tidelog.broker.replicas import metrics as declared
from tidelog.core.limits import MAX_METERED_TOPICS
from tidelog.core.metrics import LATENCY_BOUNDS_US, MetricReading, Metrics, reading
from tidelog.core.types import TopicPartition

#: The label of the topics that share their series; no topic can have this name.
OTHERS: Final = "(other topics)"
_ALL: Final = ""
_NS_PER_US: Final = 1_000
#: The values of `acks` for which a request gets a response; other values in requests must not
#: become labels of metrics.
_ACKS: Final = (-1, 1)


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


class TopicMeters:
    """The traffic of all topics of one broker.

    The broker calls a method for each partition of each request, so for speed the methods call no
    other functions.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._all = TopicMeter(metrics, _ALL)
        self._others: TopicMeter | None = None
        self._meters: dict[str, TopicMeter] = {}
        #: Topics beyond the limit, which share the counters of `OTHERS`.
        self._summed: dict[str, None] = {}
        #: The counters of replication traffic, which, as in Kafka, exist only for all topics
        #: together.
        self.replication_bytes_out = metrics.sample(declared.REPLICATION_BYTES_OUT, _ALL)
        self._invalid_crcs = metrics.sample(declared.INVALID_CRCS, _ALL)
        self._acknowledged = {
            acks: metrics.sample(declared.ACKNOWLEDGED_MS, acks) for acks in _ACKS
        }
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
        """Count a client's append to one partition; a duplicate batch has 0 bytes and records."""
        meter = self._all
        meter.produces.value += 1
        meter.bytes_in.value += size_bytes
        meter.messages_in.value += records
        of_topic = self._meters.get(topic)
        if of_topic is not None:
            of_topic.produces.value += 1
            of_topic.bytes_in.value += size_bytes
            of_topic.messages_in.value += records

    def produce_failed(
        self, topic: str, *, is_corrupt: bool = False, is_counted: bool = False
    ) -> None:
        """Count an append that failed.

        `is_counted` means that the leader appended the batch and `produced` counted it, but
        followers did not replicate the batch in time.
        """
        for meter in (self._all, self._meters.get(topic)):
            if meter is not None:
                meter.produces.value += not is_counted
                meter.failed_produces.value += 1
        if is_corrupt:
            self._invalid_crcs.value += 1

    def acknowledged(self, acks: int, time_ns: int) -> None:
        """Count the time from a Produce request's handler to its response."""
        sample = self._acknowledged.get(acks)
        if sample is not None:
            time_us = time_ns // _NS_PER_US
            sample.value += time_us
            sample.buckets[bisect_left(LATENCY_BOUNDS_US, time_us)] += 1

    def fetched(self, partition: TopicPartition | None, size_bytes: int, error_code: int) -> None:
        """Count one partition of a response to a consumer's fetch; None is an unknown partition."""
        of_topic = None if partition is None else self._meters.get(partition.topic)
        for meter in (self._all, of_topic):
            if meter is not None:
                meter.fetches.value += 1
                meter.bytes_out.value += size_bytes
                if error_code:
                    meter.failed_fetches.value += 1

    def _readings(self) -> Iterator[MetricReading]:
        yield reading(declared.TOPICS_SUMMED, len(self._summed))
