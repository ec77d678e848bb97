"""A replacement of PySpark's KafkaUtils, which starts Kafka in a container for Spark tests.

Source of names, arguments and meanings: pyspark.sql.tests.streaming.kafka_utils of Spark 4.1 and
newer, which is not part of PySpark's distribution. Unlike KafkaUtils, this module may start several
brokers, and topics have a replica on up to three brokers by default. The module uses Spark only
through the session that it is given.
"""

from __future__ import annotations

import tempfile
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidelog.broker.server.interception import KIT_CLIENT_ID
from tidelog.core.types import TopicPartition
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient
from tidelog.testing.cluster import Cluster

if TYPE_CHECKING:
    from kafka import KafkaAdminClient, KafkaProducer
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class SparkKafka:
    """A cluster for tests of Spark queries, with the methods of PySpark's KafkaUtils."""

    def __init__(
        self,
        kafka_version: str | None = None,
        *,
        brokers: int = 1,
        config: Mapping[str, object] | None = None,
        source: str = "tidelog",
    ) -> None:
        """Nothing is started before `setup`.

        `kafka_version` has no effect, because there is only one version.

        `source` is the name of the Spark data source with which `get_all_records` reads: tidelog's
        connector, or `kafka` if the session has the jar of Spark's own connector.
        """
        self.kafka_version = kafka_version
        self._source = source
        self._wanted = (brokers, dict(config or {}))
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._cluster: Cluster | None = None
        self._producer: KafkaProducer | None = None
        self._admin: KafkaAdminClient | None = None

    def setup(self) -> None:
        """Start the cluster, unless it runs; raise LocalClusterError if it cannot start."""
        if self._cluster is None:
            brokers, config = self._wanted
            self._directory = tempfile.TemporaryDirectory(prefix="tidelog-")
            try:
                self._cluster = Cluster(self._directory.name, brokers, config=config)
            except BaseException:
                self._directory.cleanup()
                raise

    def teardown(self) -> None:
        """Close the clients, stop the cluster, remove its data; repeated calls do nothing."""
        for client in (self._producer, self._admin):
            if client is not None:
                client.close()
        self._producer = self._admin = None
        if self._cluster is not None and self._directory is not None:
            self._cluster.close()
            self._directory.cleanup()
            self._cluster = None

    @property
    def cluster(self) -> Cluster:
        """The cluster, for faults; raises RuntimeError before `setup` and after `teardown`."""
        if self._cluster is None:
            raise RuntimeError("there is no cluster: call setup() first")
        return self._cluster

    @property
    def broker(self) -> str:
        """`host:port,...`: the option `kafka.bootstrap.servers`."""
        return self.cluster.bootstrap

    @property
    def producer(self) -> KafkaProducer:
        """A KafkaProducer for texts, like PySpark's; raises ImportError without kafka-python."""
        if self._producer is None:
            from kafka import KafkaProducer

            self._producer = KafkaProducer(
                bootstrap_servers=self.broker,
                key_serializer=_serialized,
                value_serializer=_serialized,
            )
        return self._producer

    @property
    def admin_client(self) -> KafkaAdminClient:
        """A KafkaAdminClient of kafka-python; raises ImportError without that package."""
        if self._admin is None:
            from kafka import KafkaAdminClient

            self._admin = KafkaAdminClient(bootstrap_servers=self.broker)
        return self._admin

    # topics and records

    def create_topics(
        self,
        topic_names: Sequence[str],
        num_partitions: int = 1,
        replication_factor: int | None = None,
    ) -> None:
        """Create topics; return when they can be written to. Raises KafkaError."""
        for name in topic_names:
            self.cluster.create_topic(name, num_partitions, replication_factor)

    def delete_topics(self, topic_names: Sequence[str]) -> None:
        """Delete topics. Raises KafkaError."""
        for name in topic_names:
            self.cluster.delete_topic(name)

    def send_messages(self, topic: str, messages: Sequence[tuple[Any, Any]]) -> None:
        """Write (key, value) pairs, and return when all in-sync replicas have them.

        Texts are encoded; bytes and None stay unchanged. All records with the same key go to the
        same partition; records without a key go to partition 0.
        """
        with BlockingClient(self.broker, KIT_CLIENT_ID) as client:
            partitions = len(client.await_topic(topic).partitions)
            records: dict[int, list[NewRecord]] = {}
            now_ms = time.time_ns() // 1_000_000
            for key, value in messages:
                stored_key = _serialized(key)
                place = 0 if stored_key is None else zlib.crc32(stored_key) % partitions
                record = NewRecord(stored_key, _serialized(value), now_ms)
                records.setdefault(place, []).append(record)
            for place, batch in records.items():
                client.produce(TopicPartition(topic, place), build_batch(batch))

    def get_all_records(
        self,
        spark: SparkSession,
        topic: str,
        key_deserializer: str = "STRING",
        value_deserializer: str = "STRING",
    ) -> dict[Any, Any]:
        """Return a dict of all records' keys and values, read by Spark and cast to the given types.

        If a key has several records, the method uses the last record that Spark returns.
        """
        rows = (
            spark.read.format(self._source)
            .option("kafka.bootstrap.servers", self.broker)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("endingOffsets", "latest")
            .load()
            .selectExpr(
                f"CAST(key AS {key_deserializer}) AS key",
                f"CAST(value AS {value_deserializer}) AS value",
            )
            .collect()
        )
        return {row["key"]: row["value"] for row in rows}

    # waiting

    def assert_eventually(
        self,
        result_func: Callable[[], Any],
        expected: Any,
        timeout: float = 60,
        interval: float = 1.0,
    ) -> None:
        """Wait until `result_func` returns `expected`.

        Raises AssertionError after `timeout` seconds, with the last result.
        """
        deadline = time.monotonic() + timeout
        while (result := result_func()) != expected:
            if time.monotonic() > deadline:
                raise AssertionError(f"after {timeout:g} s {result!r}, not {expected!r}")
            time.sleep(interval)

    def wait_for_query_alive(
        self, query: StreamingQuery, timeout: float = 60, interval: float = 1.0
    ) -> None:
        """Wait until a streaming query is active and has begun to work.

        Raises AssertionError with the query's own error when it ended, or after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            error = query.exception()
            if error is not None or not query.isActive:
                raise AssertionError(f"the query has ended: {error or query.status}")
            if query.lastProgress is not None or query.status["isTriggerActive"]:
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"after {timeout:g} s no progress: {query.status}")
            time.sleep(interval)


#: The name of PySpark's class, under which tests import SparkKafka.
KafkaUtils = SparkKafka


def _serialized(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode()
