"""librdkafka through confluent-kafka."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tests.clients import confluent
from tests.clients.matrix.background import ThreadMember, ThreadWriter
from tests.clients.matrix.driver import (
    EARLIEST,
    PATIENCE_S,
    GroupInfo,
    GroupMember,
    Member,
    PartitionInfo,
    Refused,
    Writer,
)
from tests.support.clients.librdkafka import position_of, value_of
from tests.support.clients.samples import Record


class LibrdkafkaMember(ThreadMember):
    def __init__(self, settings: Mapping[str, Any], topic: str, cooperative: bool) -> None:
        self._settings = {
            **settings,
            "partition.assignment.strategy": "cooperative-sticky" if cooperative else "range",
        }
        self._topic = topic
        self._cooperative = cooperative
        super().__init__()

    def open(self) -> None:
        self._consumer = Consumer(self._settings)
        self._consumer.subscribe(
            [self._topic], on_assign=self._given, on_revoke=self._taken, on_lost=self._taken
        )

    def poll(self) -> None:
        message = self._consumer.poll(0.1)
        if message is None:
            return
        error = message.error()
        if error is None:
            self.seen.note(*position_of(message))
        elif not error.retriable() and error.fatal():
            raise KafkaException(error)

    def commit_now(self) -> None:
        # The leader of the offsets may be about to change: what may be tried again is.
        for _ in range(10):
            try:
                self._consumer.commit(asynchronous=False)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
        raise AssertionError("no commit succeeded")

    def end(self) -> None:
        self._consumer.close()

    def _given(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self.seen.add((each.partition for each in partitions), whole=not self._cooperative)

    def _taken(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self.seen.remove(each.partition for each in partitions)


class LibrdkafkaWriter(ThreadWriter):
    def __init__(self, bootstrap: str, topic: str, partition: int) -> None:
        self._bootstrap = bootstrap
        self._to = (topic, partition)
        super().__init__()

    def open(self) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 20,
                "retry.backoff.ms": 20,
            }
        )

    def send(self, number: int) -> None:
        topic, partition = self._to
        self._producer.produce(
            topic, b"%d" % number, partition=partition, on_delivery=self._delivered
        )

    def turn(self) -> None:
        self._producer.poll(0.002)

    def finish(self) -> None:
        self._producer.flush(PATIENCE_S)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(error.str())


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        told = error.args[0]
        raise Refused(f"{told.name()}: {told.str()}") from error


class Librdkafka:
    """The driver."""

    def __init__(self, bootstrap: str) -> None:
        self.version = (
            f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"
        )
        self._bootstrap = bootstrap

    @property
    def _admin(self) -> AdminClient:
        """One of its own for each call: an older one asks the controller that it knows, which may
        be none any more, and takes NOT_CONTROLLER for the answer."""
        return AdminClient({"bootstrap.servers": self._bootstrap})

    def write(
        self, topic: str, partition: int, codec: str, records: Sequence[Record]
    ) -> list[Record]:
        return confluent.write(self._bootstrap, topic, partition, codec, records)

    def read(self, topic: str, partition: int) -> list[Record]:
        return confluent.read(self._bootstrap, topic, partition)

    def read_values(self, topic: str, partition: int, offset: int) -> list[bytes]:
        with self._assigned(topic, partition, 0) as consumer:
            self._drain(consumer, 1)
            consumer.seek(TopicPartition(topic, partition, offset))
            return self._drain(consumer, None)

    def read_values_since(self, topic: str, partition: int, timestamp_ms: int) -> list[bytes]:
        first = self.offset(topic, partition, timestamp_ms)
        with self._assigned(topic, partition, first) as consumer:
            return self._drain(consumer, None)

    def offset(self, topic: str, partition: int, at: str | int) -> int:
        if isinstance(at, int):
            spec = OffsetSpec.for_timestamp(at)
        else:
            spec = OffsetSpec.earliest() if at == EARLIEST else OffsetSpec.latest()
        wanted = TopicPartition(topic, partition)
        return int(self._done(lambda admin: admin.list_offsets({wanted: spec})[wanted]).offset)

    def start_writer(self, topic: str, partition: int) -> Writer:
        return LibrdkafkaWriter(self._bootstrap, topic, partition)

    def init_transactions(self, transactional_id: str) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "transactional.id": transactional_id}
        with _refusals():
            Producer(settings).init_transactions(PATIENCE_S)

    def join(
        self, group: str, topic: str, *, cooperative: bool = False, instance_id: str | None = None
    ) -> Member:
        settings: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
            "fetch.wait.max.ms": 100,
        }
        if instance_id is not None:
            settings["group.instance.id"] = instance_id
        return LibrdkafkaMember(settings, topic, cooperative)

    def create_topic(
        self, topic: str, partitions: int, replicas: int, configs: Mapping[str, str]
    ) -> None:
        wanted = NewTopic(topic, partitions, replicas, config=dict(configs))
        self._done(lambda admin: admin.create_topics([wanted])[topic])

    def delete_topic(self, topic: str) -> None:
        self._done(lambda admin: admin.delete_topics([topic])[topic])

    def list_topics(self) -> list[str]:
        return list(self._admin.list_topics(timeout=PATIENCE_S).topics)

    def describe_topic(self, topic: str) -> dict[int, PartitionInfo]:
        described = self._done(lambda admin: admin.describe_topics(TopicCollection([topic]))[topic])
        return {
            each.id: PartitionInfo(
                each.leader.id,
                tuple(node.id for node in each.replicas),
                tuple(node.id for node in each.isr),
            )
            for each in described.partitions
        }

    def create_partitions(self, topic: str, total: int) -> None:
        self._done(lambda admin: admin.create_partitions([NewPartitions(topic, total)])[topic])

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = self._done(lambda admin: admin.describe_configs([resource])[resource])
        return {name: entry.value for name, entry in found.items()}

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._done(lambda admin: admin.incremental_alter_configs([resource])[resource])

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        wanted = TopicPartition(topic, partition, before)
        return int(self._done(lambda admin: admin.delete_records([wanted])[wanted]).low_watermark)

    def describe_cluster(self) -> tuple[frozenset[int], int]:
        found = self._done(lambda admin: admin.describe_cluster())
        return frozenset(node.id for node in found.nodes), found.controller.id

    def elect_preferred_leader(self, topic: str, partition: int) -> None:
        wanted = TopicPartition(topic, partition)
        found = self._done(lambda admin: admin.elect_leaders(ElectionType.PREFERRED, [wanted]))
        for error in found.values():
            if error is not None:
                raise Refused(error.str())

    def log_dir_sizes(self, broker: int, topic: str) -> dict[int, int]:
        raise NotImplementedError

    def list_groups(self) -> list[str]:
        found = self._done(lambda admin: admin.list_consumer_groups())
        assert not found.errors, found.errors
        return [each.group_id for each in found.valid]

    def describe_group(self, group: str) -> GroupInfo:
        found = self._done(lambda admin: admin.describe_consumer_groups([group])[group])
        members = tuple(
            GroupMember(
                each.client_id,
                frozenset(tp.partition for tp in each.assignment.topic_partitions),
            )
            for each in found.members
        )
        return GroupInfo(found.state.name, found.partition_assignor, members)

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        asked = ConsumerGroupTopicPartitions(group)
        found = self._done(lambda admin: admin.list_consumer_group_offsets([asked])[group])
        return {each.partition: each.offset for each in found.topic_partitions}

    def set_group_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, offset)])
        found = self._done(lambda admin: admin.alter_consumer_group_offsets([wanted])[group])
        assert [each.error for each in found.topic_partitions] == [None]

    def delete_group(self, group: str) -> None:
        self._done(lambda admin: admin.delete_consumer_groups([group])[group])

    def close(self) -> None:
        """Nothing to be ended: the library ends its threads with the object."""

    def _done(self, call: Callable[[AdminClient], Any]) -> Any:
        admin = self._admin  # must live until the answer is there
        with _refusals():
            return call(admin).result(PATIENCE_S)

    @contextlib.contextmanager
    def _assigned(self, topic: str, partition: int, offset: int) -> Iterator[Consumer]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "none",  # asked for by the library; nothing joins it
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, partition, offset)])
            yield consumer
        finally:
            consumer.close()

    @staticmethod
    def _drain(consumer: Consumer, most: int | None) -> list[bytes]:
        """Values to the end of the partition, or so many."""
        found: list[bytes] = []
        while most is None or len(found) < most:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"neither a record nor the end after {len(found)} records"
            error = message.error()
            if error is None:
                found.append(value_of(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                break
            else:
                raise KafkaException(error)
        return found
