"""Producers, consumers and the administrator against a scripted broker."""

from __future__ import annotations

import random

import pytest
from tests.support.sim import MS, S
from tests.unit.sim.sim_fake_broker import TOPIC_ID, FakeBroker

from tidelog.client.steps import Address
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.log.config import LogConfig
from tidelog.sim.client_history import ClientHistory, Outcome, Produce
from tidelog.sim.disk import Loss
from tidelog.sim.simulator import Simulator
from tidelog.sim.workload.administrator import Administrator, Churn
from tidelog.sim.workload.client import ClientNode
from tidelog.sim.workload.partition_consumers import SimPartitionConsumer
from tidelog.sim.workload.partition_producers import Numbers, PartitionProducer

PARTITION = TopicPartition("t", 0)


class Bench:
    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.broker = FakeBroker(simulator)
        self.history = ClientHistory()
        self.numbers = Numbers()
        self.anomalies: list[str] = []
        self.history.anomaly.append(self.anomalies.append)
        self.history.broken_promise.append(self.anomalies.append)
        node = simulator.add_node(101, "client101")
        self.client = ClientNode(node, self.history, [Address("broker1", 9092)], 3_000)

    def producer(
        self, *, acks: int = -1, idempotent: bool = True, pace_ms: int = 30
    ) -> PartitionProducer:
        producer = PartitionProducer(
            self.client,
            PARTITION,
            self.numbers,
            random.Random(5),
            acks=acks,
            idempotent=idempotent,
            pace_ms=pace_ms,
        )
        self.client.tasks.spawn("produce", producer.run())
        return producer

    def consumer(self) -> SimPartitionConsumer:
        consumer = SimPartitionConsumer(self.client, PARTITION, random.Random(6))
        self.client.tasks.spawn("consume", consumer.run())
        return consumer

    def run(self, duration_ns: int) -> None:
        self.simulator.run_until(self.simulator.now_ns + duration_ns)
        assert self.simulator.violations == []
        assert self.client.failures == []

    def finish(self, producer: PartitionProducer) -> None:
        producer.stopping = True
        self.run(20 * S)
        assert producer.is_done

    def outcomes(self) -> dict[Outcome, int]:
        counts = dict.fromkeys(Outcome, 0)
        for operation in self.history.produces:
            counts[operation.outcome] += 1
        return counts


@pytest.fixture
def bench(simulator: Simulator) -> Bench:
    return Bench(simulator)


def test_an_idempotent_producer_stores_everything_once_and_in_order(bench: Bench) -> None:
    producer = bench.producer()
    bench.run(3 * S)
    bench.finish(producer)
    sent = [number for operation in bench.history.produces for number in operation.numbers]
    assert bench.broker.numbers == sent
    assert len(sent) > 50
    assert bench.outcomes()[Outcome.DONE] == len(bench.history.produces)
    assert bench.history.acknowledged_records == len(sent)


def test_a_producer_id_that_two_were_given_is_told(bench: Bench) -> None:
    for _ in range(2):
        producer = bench.producer()
        bench.run(100 * MS)
        bench.finish(producer)
    assert bench.anomalies == []
    bench.broker.producer_ids = 1
    bench.producer()
    bench.run(100 * MS)
    assert bench.anomalies[0] == "producer id 2 was given to client 101, after client 101"


def test_an_idempotent_producer_repeats_until_acknowledged_and_stores_nothing_twice(
    bench: Bench,
) -> None:
    bench.broker.keeps_order = True
    bench.broker.script.extend(
        [
            ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE, "silent",
            ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS,
            "silent", ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR,
        ]
    )  # fmt: skip
    producer = bench.producer()
    bench.run(8 * S)
    bench.finish(producer)
    sent = [number for operation in bench.history.produces for number in operation.numbers]
    assert bench.broker.numbers == sent
    assert bench.broker.produces > len(bench.history.produces)
    assert bench.outcomes()[Outcome.DONE] == len(bench.history.produces)
    assert bench.anomalies == []


@pytest.mark.rule("V38")
@pytest.mark.parametrize("keeps_order", [True, False])
def test_an_acknowledgement_behind_a_refused_batch_is_an_anomaly(
    bench: Bench, keeps_order: bool
) -> None:
    bench.broker.keeps_order = keeps_order
    bench.broker.script.extend([ErrorCode.REQUEST_TIMED_OUT])
    producer = bench.producer(pace_ms=0)
    bench.run(20 * MS)
    bench.finish(producer)
    assert (bench.anomalies == []) is keeps_order
    assert all("behind idempotent batch" in each for each in bench.anomalies)


def test_an_idempotent_producer_goes_on_after_its_broker_was_away(bench: Bench) -> None:
    producer = bench.producer()
    bench.run(S)
    bench.simulator.network.cut("client101", "broker1")
    bench.run(4 * S)
    bench.simulator.network.heal_everything()
    bench.run(2 * S)
    bench.finish(producer)
    sent = [number for operation in bench.history.produces for number in operation.numbers]
    assert bench.broker.numbers == sent


def test_a_sequence_refused_for_the_oldest_batch_is_told_and_the_batch_sent_again(
    bench: Bench,
) -> None:
    refused: list[tuple[Produce, int]] = []
    bench.history.sequence_refused.append(lambda *told: refused.append(told))
    bench.broker.script.extend([ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER])
    producer = bench.producer()
    bench.run(200 * MS)
    ((operation, broker_id),) = refused
    assert (operation, broker_id) == (bench.history.produces[0], 1)
    bench.finish(producer)
    assert bench.outcomes()[Outcome.DONE] == len(bench.history.produces)
    assert bench.anomalies == []


def test_answers_to_batches_that_were_given_up_with_their_producer_id_change_nothing(
    bench: Bench,
) -> None:
    for later in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_RECORD):
        bench.broker.script.extend([ErrorCode.UNKNOWN_PRODUCER_ID, later, later, later, later])
    producer = bench.producer(pace_ms=0)
    bench.run(150 * MS)
    bench.finish(producer)
    assert bench.broker.producer_ids == 3
    assert bench.outcomes()[Outcome.DONE] > 10
    assert bench.anomalies == []


def test_a_producer_whose_id_is_not_known_takes_a_new_one(bench: Bench) -> None:
    bench.broker.script.extend([ErrorCode.NONE, ErrorCode.UNKNOWN_PRODUCER_ID])
    producer = bench.producer()
    bench.run(2 * S)
    bench.finish(producer)
    assert bench.broker.producer_ids == 2
    assert bench.outcomes()[Outcome.UNKNOWN] >= 1
    assert bench.outcomes()[Outcome.DONE] > 10
    assert bench.anomalies == []


def test_a_plain_producer_may_store_twice_what_was_not_answered(bench: Bench) -> None:
    bench.broker.script.extend([ErrorCode.NONE, "silent"])
    producer = bench.producer(idempotent=False)
    bench.run(6 * S)
    bench.finish(producer)
    numbers = bench.broker.numbers
    assert len(numbers) > len(dict.fromkeys(numbers))
    assert bench.outcomes()[Outcome.DONE] == len(bench.history.produces)


def test_with_acks_1_nothing_is_repeated(bench: Bench) -> None:
    bench.broker.script.extend([ErrorCode.NOT_ENOUGH_REPLICAS, "silent"])
    producer = bench.producer(acks=1, idempotent=False)
    bench.run(6 * S)
    bench.finish(producer)
    outcomes = bench.outcomes()
    assert outcomes[Outcome.REFUSED] == 1
    assert outcomes[Outcome.UNKNOWN] == 1
    assert bench.broker.produces == len(bench.history.produces)


def test_with_acks_0_nothing_is_known(bench: Bench) -> None:
    producer = bench.producer(acks=0, idempotent=False)
    bench.run(2 * S)
    bench.finish(producer)
    assert bench.outcomes()[Outcome.UNKNOWN] == len(bench.history.produces) > 5
    assert bench.broker.numbers


def test_a_consumer_reads_everything_in_order_through_errors(bench: Bench) -> None:
    read: list[int] = []
    bench.history.on_read.append(lambda client, topic, partition, offset, n: read.extend(n))
    bench.broker.fetch_errors.extend([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2)
    producer = bench.producer()
    consumer = bench.consumer()
    bench.run(3 * S)
    bench.finish(producer)
    assert read == bench.broker.numbers
    assert consumer.topic_id == TOPIC_ID
    assert bench.anomalies == []


def test_a_consumer_that_is_given_more_than_the_high_watermark_tells(bench: Bench) -> None:
    bench.broker.high_watermark_lag = 1
    bench.producer()
    bench.consumer()
    bench.run(S)
    assert "with the high watermark at" in bench.anomalies[0]


def test_a_consumer_of_a_log_that_became_shorter_tells(bench: Bench) -> None:
    producer = bench.producer()
    bench.consumer()
    bench.run(2 * S)
    producer.stopping = True
    bench.run(S)
    bench.broker.batches.clear()
    bench.run(S)
    assert "out of range" in bench.anomalies[0]


def test_a_consumer_follows_a_topic_that_was_made_anew(bench: Bench) -> None:
    producer = bench.producer()
    consumer = bench.consumer()
    bench.run(2 * S)
    producer.stopping = True
    bench.run(S)
    bench.history.deletion_begins("t", bench.client.now_ns)
    bench.broker.batches.clear()
    bench.broker.topic_id = bytes(reversed(TOPIC_ID))
    bench.broker.fetch_errors.append(ErrorCode.UNKNOWN_TOPIC_ID)
    bench.run(S)
    assert consumer.topic_id == bench.broker.topic_id
    assert consumer.position == 0
    assert bench.anomalies == []


def test_the_administrator_creates_and_notes_the_topic(bench: Bench) -> None:
    admin = Administrator(bench.client, random.Random(1))
    task = bench.client.tasks.spawn("create", admin.create("t", 1, 1, {}))
    bench.run(5 * S)
    assert task.done()
    assert bench.history.topics[TOPIC_ID].name == "t"


def test_a_client_outlives_the_death_of_its_broker(bench: Bench) -> None:
    producer = bench.producer()
    bench.run(S)
    bench.broker.running.incarnation.die(Loss.NONE, "test")
    bench.run(3 * S)
    assert not producer.is_done
    assert bench.history.acknowledged_records > 0


def test_a_replica_that_goes_by_other_values_than_those_set_is_named(bench: Bench) -> None:
    churn = Churn(bench.client, random.Random(1), "t", lambda partition: None)
    churn.values = {"segment.bytes": 2_048, "file.delete.delay.ms": 100}
    right = LogConfig(segment_bytes=2_048, file_delete_delay_ms=100)
    wrong = LogConfig(segment_bytes=8_192, file_delete_delay_ms=100)
    assert churn.differences("t-0 on broker 1", right) == []
    assert churn.differences("t-0 on broker 2", wrong) == [
        "t-0 on broker 2 has segment.bytes=8192, not 2048"
    ]
