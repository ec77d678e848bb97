"""kafka-python 3."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import kafka
from kafka import (
    ConsumerRebalanceListener,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    TopicPartition,
)
from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    OffsetSpec,
)
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError, NoError
from kafka.structs import OffsetAndMetadata
from tests.clients import kafka_python
from tests.clients.matrix.background import Seen, ThreadMember, ThreadWriter
from tests.clients.matrix.driver import (
    EARLIEST,
    LATEST,
    PATIENCE_S,
    GroupInfo,
    GroupMember,
    Member,
    PartitionInfo,
    Refused,
    Writer,
)
from tests.support.clients.samples import Record

#: The kind of election, as the protocol numbers them.
PREFERRED = 0


#: A member without partitions for longer has lost what it was given.
LOST_S = 5.0


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    def __init__(self, seen: Seen, cooperative: bool) -> None:
        self._seen = seen
        self._cooperative = cooperative

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._seen.add((tp.partition for tp in assigned), whole=not self._cooperative)

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._seen.remove(tp.partition for tp in revoked)

    def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        self._seen.remove(tp.partition for tp in lost)


class KafkaPythonMember(ThreadMember):
    def __init__(self, settings: Mapping[str, Any], topic: str, cooperative: bool) -> None:
        assignor = CooperativeStickyAssignor if cooperative else RangePartitionAssignor
        self._settings = {**settings, "partition_assignment_strategy": [assignor]}
        self._topic = topic
        self._cooperative = cooperative
        super().__init__()

    def open(self) -> None:
        self._consumer = KafkaConsumer(**self._settings)
        self._subscribe()

    def _subscribe(self) -> None:
        self._has_none_since = time.monotonic()
        self._consumer.subscribe([self._topic], listener=Listener(self.seen, self._cooperative))

    def poll(self) -> None:
        # A poll that ends between a SyncGroup and its answer loses the assignment for good in
        # kafka-python 3.0.12: turns are long, so that few end there, and who has nothing for long
        # subscribes anew.
        if self._consumer.assignment():
            self._has_none_since = time.monotonic()
        elif time.monotonic() - self._has_none_since > LOST_S:
            self._consumer.unsubscribe()
            self._subscribe()
        try:
            polled = self._consumer.poll(timeout_ms=1000)
        except KafkaError as error:
            # What a dead broker refused comes out of poll: it asks another next.
            if not error.retriable:
                raise
            polled = {}
        for tp, messages in polled.items():
            for message in messages:
                self.seen.note(tp.partition, message.offset)

    def commit_now(self) -> None:
        self._consumer.commit()

    def end(self) -> None:
        self._consumer.close()


class KafkaPythonWriter(ThreadWriter):
    def __init__(self, bootstrap: str, topic: str, partition: int) -> None:
        self._bootstrap = bootstrap
        self._to = (topic, partition)
        super().__init__()

    def open(self) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            enable_idempotence=True,
            linger_ms=2,
            batch_size=1000,
            retry_backoff_ms=20,
        )

    def send(self, number: int) -> None:
        topic, partition = self._to
        sent = self._producer.send(topic, value=b"%d" % number, partition=partition)
        sent.add_callback(self._acknowledged)
        sent.add_errback(self.failures.append)

    def turn(self) -> None:
        time.sleep(0.002)  # the producer has a thread of its own

    def finish(self) -> None:
        try:
            self._producer.flush(PATIENCE_S)
        finally:
            self._producer.close()

    def _acknowledged(self, _: object) -> None:
        self.acknowledged += 1


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise Refused(f"{type(error).__name__}: {error}") from error


class _Admin:
    """Each call by a client of its own: an older one reaches only the brokers that were alive when
    it last asked for them (UnknownBrokerIdError for five minutes after a broker came back)."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            client = KafkaAdminClient(bootstrap_servers=self._bootstrap)
            try:
                return getattr(client, name)(*args, **kwargs)
            finally:
                client.close()

        return call


class KafkaPython:
    """The driver."""

    def __init__(self, bootstrap: str) -> None:
        self.version = str(kafka.__version__)
        self._bootstrap = bootstrap
        self._admin = _Admin(bootstrap)

    def write(
        self, topic: str, partition: int, codec: str, records: Sequence[Record]
    ) -> list[Record]:
        return kafka_python.write(self._bootstrap, topic, partition, codec, records)

    def read(self, topic: str, partition: int) -> list[Record]:
        return kafka_python.read(self._bootstrap, topic, partition)

    def read_values(self, topic: str, partition: int, offset: int) -> list[bytes]:
        with self._assigned(topic, partition) as (consumer, tp):
            consumer.seek(tp, offset)
            return self._drain(consumer, tp)

    def read_values_since(self, topic: str, partition: int, timestamp_ms: int) -> list[bytes]:
        with self._assigned(topic, partition) as (consumer, tp):
            consumer.seek(tp, consumer.offsets_for_times({tp: timestamp_ms})[tp].offset)
            return self._drain(consumer, tp)

    def offset(self, topic: str, partition: int, at: str | int) -> int:
        tp = TopicPartition(topic, partition)
        named = {EARLIEST: OffsetSpec.EARLIEST, LATEST: OffsetSpec.LATEST}
        spec = named[at] if isinstance(at, str) else at
        with _refusals():
            return int(self._admin.list_partition_offsets({tp: spec})[tp].offset)

    def start_writer(self, topic: str, partition: int) -> Writer:
        return KafkaPythonWriter(self._bootstrap, topic, partition)

    def init_transactions(self, transactional_id: str) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            transactional_id=transactional_id,
            max_block_ms=int(PATIENCE_S * 1000),
        )
        try:
            with _refusals():
                producer.init_transactions()
        finally:
            producer.close(timeout=0)

    def join(
        self, group: str, topic: str, *, cooperative: bool = False, instance_id: str | None = None
    ) -> Member:
        settings = {
            "bootstrap_servers": self._bootstrap,
            "group_id": group,
            "group_instance_id": instance_id,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 200,
            "fetch_max_wait_ms": 100,
        }
        return KafkaPythonMember(settings, topic, cooperative)

    def create_topic(
        self, topic: str, partitions: int, replicas: int, configs: Mapping[str, str]
    ) -> None:
        with _refusals():
            self._admin.create_topics(
                {
                    topic: {
                        "num_partitions": partitions,
                        "replication_factor": replicas,
                        "configs": dict(configs),
                    }
                }
            )

    def delete_topic(self, topic: str) -> None:
        with _refusals():
            self._admin.delete_topics([topic])

    def list_topics(self) -> list[str]:
        return [str(name) for name in self._admin.list_topics()]

    def describe_topic(self, topic: str) -> dict[int, PartitionInfo]:
        [found] = self._admin.describe_topics([topic])
        return {
            each["partition_index"]: PartitionInfo(
                each["leader_id"], tuple(each["replica_nodes"]), tuple(each["isr_nodes"])
            )
            for each in found["partitions"]
        }

    def create_partitions(self, topic: str, total: int) -> None:
        with _refusals():
            self._admin.create_partitions({topic: total})

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        found = self._admin.describe_configs([resource], config_filter="all")
        return {name: entry["value"] for name, entry in found["topic"][topic].items()}

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        told = self._admin.alter_configs([resource])["topic"][topic]
        if told != "OK":
            raise Refused(told)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        tp = TopicPartition(topic, partition)
        with _refusals():
            return int(self._admin.delete_records({tp: before})[tp]["low_watermark"])

    def describe_cluster(self) -> tuple[frozenset[int], int]:
        found = self._admin.describe_cluster()
        return frozenset(each["broker_id"] for each in found["brokers"]), found["controller_id"]

    def elect_preferred_leader(self, topic: str, partition: int) -> None:
        with _refusals():
            self._admin.elect_leaders(PREFERRED, {topic: [partition]})

    def log_dir_sizes(self, broker: int, topic: str) -> dict[int, int]:
        found = self._admin.describe_log_dirs(brokers=[broker])
        return {
            partition["partition_index"]: partition["partition_size"]
            for answer in found
            for directory in answer["log_dirs"]
            for each in directory["topics"]
            if each["name"] == topic
            for partition in each["partitions"]
        }

    def list_groups(self) -> list[str]:
        return [each["group_id"] for each in self._admin.list_groups()]

    def describe_group(self, group: str) -> GroupInfo:
        with _refusals():
            found = self._admin.describe_groups([group])[group]
        members = tuple(
            GroupMember(
                each["client_id"],
                frozenset(
                    number
                    for assigned in each["member_assignment"]["assigned_partitions"]
                    for number in assigned["partitions"]
                ),
            )
            for each in found["members"]
        )
        return GroupInfo(found["group_state"], found["protocol_data"], members)

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        with _refusals():
            found = self._admin.list_group_offsets({group: None})[group]
        return {tp.partition: each.offset for tp, each in found.items()}

    def set_group_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        wanted = {TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)}
        for error in self._admin.alter_group_offsets(group, wanted).values():
            if error is not NoError:
                raise Refused(error.__name__)

    def delete_group(self, group: str) -> None:
        found = self._admin.delete_groups([group])
        if found[group] != "OK":
            raise Refused(str(found[group]))

    def close(self) -> None:
        """Nothing is kept open."""

    @contextlib.contextmanager
    def _assigned(
        self, topic: str, partition: int
    ) -> Iterator[tuple[KafkaConsumer, TopicPartition]]:
        tp = TopicPartition(topic, partition)
        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap, group_id=None, enable_auto_commit=False
        )
        try:
            consumer.assign([tp])
            yield consumer, tp
        finally:
            consumer.close()

    @staticmethod
    def _drain(consumer: KafkaConsumer, tp: TopicPartition) -> list[bytes]:
        found: list[bytes] = []
        end = consumer.end_offsets([tp])[tp]
        deadline = time.monotonic() + PATIENCE_S
        while consumer.position(tp) < end:
            assert time.monotonic() < deadline, f"no end of {tp} after {len(found)} records"
            found += [each.value for each in consumer.poll(timeout_ms=1000).get(tp, [])]
        return found
