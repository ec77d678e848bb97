"""What clients with old metadata see of partitions that were removed, and added again (V71).

A record for a removed partition is refused with UNKNOWN_TOPIC_OR_PARTITION, upon which clients read
metadata anew; what they do for the others goes on. What each makes of it is in
docs/guide/errors.md.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka import KafkaError as ConfluentError
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.errors import KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError
from tests.clients.conftest import MakeTopic
from tests.clients.matrix import on_kafkajs
from tests.clients.matrix.driver import Refused
from tests.support.clients.absent import Absent

from tidelog.runtime.blocking import BlockingClient

PATIENCE_S = 30.0
#: So many of four go.
GONE = (2, 3)


def remove(bootstrap: str, topic: str) -> None:
    """Remove the two highest of four partitions; returns when no broker knows them any more."""
    with BlockingClient(bootstrap) as client:
        client.remove_partitions(topic, 2)
        await_that(lambda: set(client.partition_counts(topic).values()) == {2})


def add_again(bootstrap: str, topic: str) -> None:
    with BlockingClient(bootstrap) as client:
        client.add_partitions(topic, 4)
        await_that(lambda: set(client.partition_counts(topic).values()) == {4})
        client.await_topic(topic, min_isr=3)


def await_that(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


def test_confluent_kafka_goes_on_with_what_is_left(bootstrap: str, make_topic: MakeTopic) -> None:
    """A record for a removed partition is repeated until its time is over. librdkafka shows the new
    metadata meanwhile, but takes a smaller number of partitions for a topic of another id only (2.x
    does): its partitioner goes on choosing those that it knew, for as long as the producer lives. A
    producer made afterwards chooses among those that are left."""
    topic = make_topic(partitions=4)
    outcomes: list[tuple[ConfluentError | None, Message]] = []

    def note(error: ConfluentError | None, message: Message) -> None:
        outcomes.append((error, message))

    def errors(producer: Producer, *partitions: int) -> list[int]:
        """0 for each record that arrived, else the error."""
        outcomes.clear()
        for partition in partitions:
            producer.produce(topic, b"x", partition=partition, on_delivery=note)
        assert producer.flush(PATIENCE_S) == 0
        by_partition = {message.partition(): error for error, message in outcomes}
        found = [by_partition[partition] for partition in partitions]
        return [0 if error is None else error.code() for error in found]

    settings = {"bootstrap.servers": bootstrap, "message.timeout.ms": 3_000}
    producer = Producer(settings)
    assert errors(producer, 0, 1, 2, 3) == [0, 0, 0, 0]
    remove(bootstrap, topic)
    first, second, gone = errors(producer, 0, 1, 3)
    assert (first, second) == (0, 0)
    assert gone in (ConfluentError._MSG_TIMED_OUT, ConfluentError._UNKNOWN_PARTITION)
    assert sorted(producer.list_topics(topic, PATIENCE_S).topics[topic].partitions) == [0, 1]
    outcomes.clear()
    for number in range(50):
        producer.produce(topic, b"y", key=str(number), on_delivery=note)
    assert producer.flush(PATIENCE_S) == 0
    chosen = {message.partition() for _, message in outcomes}
    lost = {message.partition() for error, message in outcomes if error}
    assert chosen in ({0, 1}, {0, 1, 2, 3}) and lost == chosen - {0, 1}
    fresh = Producer(settings)
    outcomes.clear()
    for number in range(50):
        fresh.produce(topic, b"y", key=str(number), on_delivery=note)
    assert fresh.flush(PATIENCE_S) == 0
    assert [error for error, _ in outcomes if error] == []
    assert {message.partition() for _, message in outcomes} == {0, 1}
    add_again(bootstrap, topic)
    assert errors(Producer(settings), 3) == [0]
    [(_, arrived)] = outcomes
    assert arrived.offset() == 0


def test_confluent_kafka_reads_nothing_of_the_former_life(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=4)
    writer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(4):
        writer.produce(topic, b"old", partition=partition)
    assert writer.flush(PATIENCE_S) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    consumer.subscribe([topic])
    found: list[tuple[int, bytes | None]] = []

    def read() -> None:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append((message.partition() or 0, message.value()))

    def has(count: int) -> bool:
        read()
        return len(found) >= count

    await_that(lambda: has(4))
    consumer.commit(asynchronous=False)
    remove(bootstrap, topic)
    with BlockingClient(bootstrap) as client:
        await_that(lambda: sorted(tp.partition for tp in client.committed(topic)) == [0, 1])
    writer.produce(topic, b"more", partition=0)
    assert writer.flush(PATIENCE_S) == 0
    await_that(lambda: has(5))
    add_again(bootstrap, topic)
    fresh = Producer({"bootstrap.servers": bootstrap})
    for partition in GONE:
        fresh.produce(topic, b"new", partition=partition)
    assert fresh.flush(PATIENCE_S) == 0
    new = {(partition, b"new") for partition in GONE}

    def has_all_new() -> bool:
        read()
        return new <= set(found)

    await_that(has_all_new)
    consumer.close()
    assert sorted(found[:4]) == [(number, b"old") for number in range(4)]
    assert found[4] == (0, b"more")
    # A rebalance for the new partitions may repeat what was not committed.
    assert set(found[5:]) - {(0, b"more")} == new
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    ends = [reader.get_watermark_offsets(TopicPartition(topic, one), PATIENCE_S) for one in GONE]
    reader.close()
    assert ends == [(0, 1), (0, 1)]


def test_kafkajs_drops_what_is_for_a_removed_partition_and_goes_on_with_what_is_left(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    """Told UNKNOWN_TOPIC_OR_PARTITION, a producer of kafkajs reads metadata anew, finds no such
    partition and resolves `send` with nothing written and no error (2.2.4): its answer names what
    was. Where it chooses the partition, it chooses among those that are left. A consumer goes on
    with those, or ends with a TypeError of its own that it does not recover from, where it was just
    looking for the ends of the partitions: then a new one goes on."""
    try:
        kafkajs = on_kafkajs.make(bootstrap)
    except Absent as absent:
        pytest.skip(f"kafkajs: {absent}")
    topic = make_topic(partitions=4)
    with closing(kafkajs):
        producer, member = kafkajs.start_producer(), kafkajs.join(topic, topic)
        found: set[tuple[int, int]] = set()

        def has_read(written: set[tuple[int, int]]) -> bool:
            nonlocal member
            try:
                found.update(member.state().received)
            except Refused as error:
                assert "TypeError" in str(error), error
                member.close()
                member = kafkajs.join(topic, topic)
            return found >= written

        written = {one for number in range(4) for one in producer.send(topic, number)}
        assert written == {(0, 0), (1, 0), (2, 0), (3, 0)}
        await_that(lambda: has_read(written))
        member.commit()
        remove(bootstrap, topic)
        assert producer.send(topic, 3) == [], "kafkajs raises nothing"
        assert producer.send(topic, 0) == [(0, 1)]
        chosen = [one for key in range(20) for one in producer.send(topic, None, str(key))]
        assert len(chosen) == 20 and {partition for partition, _ in chosen} == {0, 1}
        written |= {(0, 1), *chosen}
        await_that(lambda: has_read(written))
        assert found == written
        with BlockingClient(bootstrap) as client:
            await_that(lambda: sorted(tp.partition for tp in client.committed(topic)) == [0, 1])
        member.close()
        producer.close()
        add_again(bootstrap, topic)
        fresh = kafkajs.start_producer()
        assert fresh.send(topic, 3) == [(3, 0)]
        fresh.close()
        found.clear()
        member = kafkajs.join(topic, topic)
        await_that(lambda: has_read({(3, 0)}))
        assert {one for one in found if one[0] in GONE} == {(3, 0)}, "nothing of the former life"
        member.close()


def test_kafka_python_reads_metadata_anew(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=4)
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, retries=0, enable_idempotence=False, acks="all"
    )
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest"
    )
    consumer.assign([PythonPartition(topic, number) for number in range(4)])
    found: list[tuple[int, int]] = []

    def has(count: int) -> bool:
        for tp, records in consumer.poll(200).items():
            found.extend((tp.partition, record.offset) for record in records)
        return len(found) >= count

    for partition in range(4):
        producer.send(topic, b"x", partition=partition).get(PATIENCE_S)
    await_that(lambda: has(4))
    remove(bootstrap, topic)
    with pytest.raises(UnknownTopicOrPartitionError):
        producer.send(topic, b"x", partition=3).get(PATIENCE_S)
    await_that(lambda: producer.partitions_for(topic) == {0, 1})
    for number in range(20):
        sent = producer.send(topic, b"y", key=b"%d" % number).get(PATIENCE_S)
        assert sent.partition in (0, 1)
    await_that(lambda: has(24))
    assert {partition for partition, _ in found[4:]} == {0, 1}
    producer.close()
    consumer.close()


def test_aiokafka_reads_metadata_anew(bootstrap: str, make_topic: MakeTopic) -> None:
    aiokafka = pytest.importorskip("aiokafka", reason="aiokafka is not installed")
    topic = make_topic(partitions=4)

    async def story() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, request_timeout_ms=3_000, acks="all"
        )
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest"
        )
        await producer.start()
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(topic, number) for number in range(4)])
        found: list[tuple[int, int]] = []

        async def read(count: int) -> None:
            while len(found) < count:
                for tp, records in (await consumer.getmany(timeout_ms=200)).items():
                    found.extend((tp.partition, record.offset) for record in records)

        try:
            for partition in range(4):
                await producer.send_and_wait(topic, b"x", partition=partition)
            await read(4)
            await asyncio.to_thread(remove, bootstrap, topic)
            with pytest.raises((KafkaTimeoutError, KafkaError, aiokafka.errors.KafkaError)):
                await producer.send_and_wait(topic, b"x", partition=3)
            assert await producer.partitions_for(topic) == {0, 1}
            for number in range(20):
                sent = await producer.send_and_wait(topic, b"y", key=b"%d" % number)
                assert sent.partition in (0, 1)
            await read(24)
        finally:
            await producer.stop()
            await consumer.stop()
        assert {partition for partition, _ in found[4:]} == {0, 1}

    asyncio.run(asyncio.wait_for(story(), 2 * PATIENCE_S))
