"""aiokafka: everything on one loop, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import aiokafka
from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    TopicPartition,
)
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import KafkaError, for_code
from tests.clients import aio
from tests.clients.matrix.background import WINDOW, Seen
from tests.clients.matrix.driver import (
    EARLIEST,
    LATEST,
    PATIENCE_S,
    GroupInfo,
    GroupMember,
    Member,
    MemberState,
    PartitionInfo,
    Refused,
    Writer,
)
from tests.support.clients.samples import Record

T = TypeVar("T")


class LoopThread:
    """A loop that runs until the driver is closed."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(2 * PATIENCE_S)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE_S)
        self.loop.close()


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._seen.add((tp.partition for tp in assigned), whole=True)

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._seen.remove(tp.partition for tp in revoked)


class AiokafkaMember:
    def __init__(self, thread: LoopThread, topic: str, settings: Mapping[str, Any]) -> None:
        self._thread = thread
        self._seen = Seen()
        self._consumer: AIOKafkaConsumer
        self._polling = thread.run(self._open(topic, settings))

    async def _open(self, topic: str, settings: Mapping[str, Any]) -> asyncio.Task[None]:
        self._consumer = AIOKafkaConsumer(**settings)
        self._consumer.subscribe([topic], listener=Listener(self._seen))
        await self._consumer.start()
        return asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            for tp, messages in (await self._consumer.getmany(timeout_ms=100)).items():
                for message in messages:
                    self._seen.note(tp.partition, message.offset)

    def state(self) -> MemberState:
        assert not self._polling.done(), f"the member ended: {self._polling}"
        return self._seen.state()

    def commit(self) -> None:
        self._thread.run(self._consumer.commit())

    def close(self) -> None:
        self._thread.run(self._end())

    async def _end(self) -> None:
        self._polling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._polling
        await self._consumer.stop()


class AiokafkaWriter:
    def __init__(self, thread: LoopThread, bootstrap: str, topic: str, partition: int) -> None:
        self._thread = thread
        self._ended = False
        self._running = asyncio.run_coroutine_threadsafe(
            self._send(bootstrap, topic, partition), thread.loop
        )

    async def _send(self, bootstrap: str, topic: str, partition: int) -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            linger_ms=2,
            max_batch_size=1000,
            retry_backoff_ms=20,
        )
        await producer.start()
        sent = 0
        waiting: list[asyncio.Future[Any]] = []
        try:
            while not self._ended:
                value = b"%d" % sent
                waiting.append(await producer.send(topic, value, partition=partition))
                sent += 1
                if len(waiting) >= WINDOW:
                    done, waiting = waiting[: WINDOW // 2], waiting[WINDOW // 2 :]
                    await asyncio.gather(*done)
            await asyncio.gather(*waiting)
        finally:
            await producer.stop()
        return sent

    def stop(self) -> int:
        self._ended = True
        try:
            return self._running.result(2 * PATIENCE_S)
        except KafkaError as error:
            raise Refused(repr(error)) from error


def _checked(code: int, message: str | None = None) -> None:
    if code:
        raise Refused(f"{for_code(code).__name__}: {message or ''}")


class Aiokafka:
    """The driver."""

    def __init__(self, bootstrap: str) -> None:
        self.version = str(aiokafka.__version__)
        self._bootstrap = bootstrap
        self._thread = LoopThread()

    def _admin(self, call: Callable[[AIOKafkaAdminClient], Coroutine[Any, Any, T]]) -> T:
        """With an admin client of its own: an older one stays with a controller that is none."""

        async def work() -> T:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
            await admin.start()
            try:
                return await call(admin)
            finally:
                await admin.close()

        return self._run(work())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._thread.run(work)
        except KafkaError as error:
            raise Refused(f"{type(error).__name__}: {error}") from error

    def write(
        self, topic: str, partition: int, codec: str, records: Sequence[Record]
    ) -> list[Record]:
        return aio.write(self._bootstrap, topic, partition, codec, records)

    def read(self, topic: str, partition: int) -> list[Record]:
        return aio.read(self._bootstrap, topic, partition)

    def read_values(self, topic: str, partition: int, offset: int) -> list[bytes]:
        return self._run(self._read(TopicPartition(topic, partition), offset, None))

    def read_values_since(self, topic: str, partition: int, timestamp_ms: int) -> list[bytes]:
        return self._run(self._read(TopicPartition(topic, partition), None, timestamp_ms))

    async def _read(
        self, tp: TopicPartition, offset: int | None, timestamp_ms: int | None
    ) -> list[bytes]:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False)
        await consumer.start()
        try:
            consumer.assign([tp])
            if offset is None:
                offset = (await consumer.offsets_for_times({tp: timestamp_ms}))[tp].offset
            consumer.seek(tp, offset)
            end = (await consumer.end_offsets([tp]))[tp]
            found: list[bytes] = []
            while await consumer.position(tp) < end:
                messages = await consumer.getmany(tp, timeout_ms=1000)
                found += [message.value for message in messages.get(tp, [])]
            return found
        finally:
            await consumer.stop()

    def offset(self, topic: str, partition: int, at: str | int) -> int:
        return self._run(self._offset(TopicPartition(topic, partition), at))

    async def _offset(self, tp: TopicPartition, at: str | int) -> int:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False)
        await consumer.start()
        try:
            if at == EARLIEST:
                return int((await consumer.beginning_offsets([tp]))[tp])
            if at == LATEST:
                return int((await consumer.end_offsets([tp]))[tp])
            found = (await consumer.offsets_for_times({tp: at}))[tp]
            return -1 if found is None else int(found.offset)
        finally:
            await consumer.stop()

    def start_writer(self, topic: str, partition: int) -> Writer:
        return AiokafkaWriter(self._thread, self._bootstrap, topic, partition)

    def init_transactions(self, transactional_id: str) -> None:
        async def work() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap, transactional_id=transactional_id
            )
            try:
                await asyncio.wait_for(producer.start(), PATIENCE_S)
            finally:
                await producer.stop()

        self._run(work())

    def join(
        self, group: str, topic: str, *, cooperative: bool = False, instance_id: str | None = None
    ) -> Member:
        assert not cooperative
        settings: dict[str, Any] = {
            "bootstrap_servers": self._bootstrap,
            "group_id": group,
            "group_instance_id": instance_id,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 200,
            "fetch_max_wait_ms": 100,
            "partition_assignment_strategy": (RoundRobinPartitionAssignor,),
        }
        return AiokafkaMember(self._thread, topic, settings)

    def create_topic(
        self, topic: str, partitions: int, replicas: int, configs: Mapping[str, str]
    ) -> None:
        wanted = NewTopic(topic, partitions, replicas, topic_configs=dict(configs))
        for _, code, *message in self._admin(
            lambda admin: admin.create_topics([wanted])
        ).topic_errors:
            _checked(code, *message)

    def delete_topic(self, topic: str) -> None:
        for _, code in self._admin(lambda admin: admin.delete_topics([topic])).topic_error_codes:
            _checked(code)

    def list_topics(self) -> list[str]:
        return self._admin(lambda admin: admin.list_topics())

    def describe_topic(self, topic: str) -> dict[int, PartitionInfo]:
        [found] = self._admin(lambda admin: admin.describe_topics([topic]))
        return {
            each["partition"]: PartitionInfo(
                each["leader"], tuple(each["replicas"]), tuple(each["isr"])
            )
            for each in found["partitions"]
        }

    def create_partitions(self, topic: str, total: int) -> None:
        wanted = {topic: NewPartitions(total)}
        for _, code, message in self._admin(
            lambda admin: admin.create_partitions(wanted)
        ).topic_errors:
            _checked(code, message)

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        [answer] = self._admin(lambda admin: admin.describe_configs([resource]))
        [(code, message, _, _, entries)] = answer.resources
        _checked(code, message)
        return {name: value for name, value, *_ in entries}

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        for answer in self._admin(lambda admin: admin.alter_configs([resource])):
            for code, message, *_ in answer.resources:
                _checked(code, message)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        tp = TopicPartition(topic, partition)
        wanted = {tp: RecordsToDelete(before_offset=before)}
        return int(self._admin(lambda admin: admin.delete_records(wanted))[tp])

    def describe_cluster(self) -> tuple[frozenset[int], int]:
        found = self._admin(lambda admin: admin.describe_cluster())
        return frozenset(each["node_id"] for each in found["brokers"]), found["controller_id"]

    def elect_preferred_leader(self, topic: str, partition: int) -> None:
        raise NotImplementedError

    def log_dir_sizes(self, broker: int, topic: str) -> dict[int, int]:
        raise NotImplementedError

    def list_groups(self) -> list[str]:
        return [each[0] for each in self._admin(lambda admin: admin.list_consumer_groups())]

    def describe_group(self, group: str) -> GroupInfo:
        [answer] = self._admin(lambda admin: admin.describe_consumer_groups([group]))
        [(code, _, state, _, protocol, members, *_)] = answer.groups
        _checked(code)
        return GroupInfo(
            state, protocol, tuple(GroupMember(each[-4], _partitions(each[-1])) for each in members)
        )

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        found = self._admin(lambda admin: admin.list_consumer_group_offsets(group))
        return {tp.partition: each.offset for tp, each in found.items()}

    def set_group_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        self._run(self._set_offset(group, TopicPartition(topic, partition), offset))

    async def _set_offset(self, group: str, tp: TopicPartition, offset: int) -> None:
        """Through a consumer outside of the group's generations, which has an assignment."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, group_id=group, enable_auto_commit=False
        )
        await consumer.start()
        try:
            consumer.assign([tp])
            await consumer.commit({tp: offset})
        finally:
            await consumer.stop()

    def delete_group(self, group: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._thread.close()


def _partitions(assignment: bytes) -> frozenset[int]:
    if not assignment:
        return frozenset()
    decoded = ConsumerProtocolMemberAssignment.decode(assignment)
    return frozenset(number for _, numbers in decoded.assignment for number in numbers)
