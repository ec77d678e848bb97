"""The simulator's producer of several partitions: it retries, drains and bumps as librdkafka."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.unit.sim.sim_fake_broker import FakeBroker

from tidelog.client.steps import Address
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.sim.client_history import ClientHistory, Outcome
from tidelog.sim.simulator import Simulator
from tidelog.sim.workload.client import ClientNode
from tidelog.sim.workload.partition_producers import Numbers
from tidelog.sim.workload.shared_producers import SharedPartition, SharedProducer
from tidelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

S = 1_000_000_000


class Bench:
    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.broker = FakeBroker(simulator)
        self.history = ClientHistory()
        self.anomalies: list[str] = []
        self.history.anomaly.append(self.anomalies.append)
        node = simulator.add_node(101, "client101")
        client = ClientNode(node, self.history, [Address("broker1", 9092)], 3_000)
        self.shared = SharedProducer(client)

    def add(self, number: int = 0, pace_ms: int = 10) -> SharedPartition:
        draw = random.Random(number)
        return self.shared.add(TopicPartition("t", number), Numbers(), draw, pace_ms)

    def produce(self, duration_ns: int = S, pace_ms: int = 10) -> list[int]:
        """Produce for a while and to the end; returns what was sent, in order."""
        partition = self.add(pace_ms=pace_ms)
        self.shared.client.tasks.spawn("produce", partition.run())
        self.simulator.run_until(self.simulator.now_ns + duration_ns)
        partition.stopping = True
        self.simulator.run_until(self.simulator.now_ns + 20 * S)
        assert partition.is_done
        assert self.simulator.violations == []
        assert self.shared.client.failures == []
        return [number for operation in self.history.produces for number in operation.numbers]


@pytest.fixture
def bench() -> Iterator[Bench]:
    simulator = Simulator(3)
    yield Bench(simulator)
    simulator.close()


def test_everything_is_stored_once_and_in_order_through_errors(bench: Bench) -> None:
    bench.broker.script.extend(
        [
            ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER, "silent",
        ]
    )  # fmt: skip
    sent = bench.produce(4 * S)
    assert bench.broker.numbers == sent
    assert len(sent) > 50
    assert all(operation.outcome is Outcome.DONE for operation in bench.history.produces)
    assert bench.anomalies == []


def test_a_batch_out_of_sequence_behind_a_refused_one_bumps_the_epoch(bench: Bench) -> None:
    bench.broker.script.extend([ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR])
    sent = bench.produce(S // 10, pace_ms=0)
    assert bench.shared.bumps == bench.shared.identity[1] == 1
    assert bench.broker.producer_ids == 1
    assert bench.broker.numbers == sent
    epochs = [batch.producer_epoch for batch, _ in bench.broker.batches]
    assert epochs == sorted(epochs) and epochs[0] == 0 and epochs[-1] == 1


def test_an_epoch_is_bumped_when_no_partition_has_a_batch_in_flight(bench: Bench) -> None:
    one, other = bench.add(0), bench.add(1)
    bench.shared.identity = (7, 0)
    one.in_flight = other.in_flight = 1
    bench.shared.bump_epoch()
    bench.shared.bump_epoch()
    one.in_flight = 0
    bench.shared.answered()
    assert not bench.shared.may_send
    other.in_flight = 0
    bench.shared.answered()
    assert bench.shared.may_send
    assert bench.shared.identity == (7, 1)


def test_an_acknowledgement_stands_for_all_batches_before_it(bench: Bench) -> None:
    partition = bench.add()
    partition.in_flight = 1
    batches = [partition._new_batch() for _ in range(3)]
    part = PartitionProduceResponse(index=0, error_code=ErrorCode.NONE, base_offset=5)
    answer = ProduceResponse(responses=[TopicProduceResponse("t", [part])])
    assert partition._settle(batches[1], answer, failed=False)
    outcomes = [operation.outcome for operation in bench.history.produces]
    assert outcomes == [Outcome.DONE, Outcome.DONE, Outcome.OPEN]


def test_a_producer_whose_id_is_not_known_takes_another_one(bench: Bench) -> None:
    bench.broker.script.extend([ErrorCode.NONE, ErrorCode.UNKNOWN_PRODUCER_ID])
    bench.produce()
    assert bench.broker.producer_ids == 2
    outcomes = [operation.outcome for operation in bench.history.produces]
    assert Outcome.UNKNOWN in outcomes
    assert outcomes[-1] is Outcome.DONE


def test_a_new_batch_may_overtake_those_that_the_former_leader_refused(bench: Bench) -> None:
    bench.shared.overtaking = 1.0, random.Random(1)
    bench.broker.script.extend([ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
    partition = bench.add(pace_ms=10)
    bench.shared.client.tasks.spawn("produce", partition.run())
    bench.simulator.run_until(S // 4)
    assert bench.shared.bumps == 0, "the leader is the same, so no batch overtook"
    partition._former_leader = 2
    bench.broker.script.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    bench.simulator.run_until(S // 2)
    partition.stopping = True
    bench.simulator.run_until(20 * S)
    assert bench.shared.bumps == 1, "a batch out of sequence came behind the refused one"
    assert partition.is_done
