"""A14: what the design hoped for is measured and reported; here stands what makes the figures so.

Times are measured by `python -m bench shutdown isr`, and docs/measurements.md has them. That no
state is read again for a controlled shutdown, and that a broker reports how long its
own took, is with the other rules of it (test_shutdown_rules).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.controller.harness import ControllerHarness, controller_harness
from tests.support.controller.values import (
    brokers,
    epoch,
    loaded,
    state,
    state_writes,
    step,
    topic,
)

from tidelog.broker.controller import store_ops
from tidelog.controller.commands import Sender
from tidelog.controller.partitions.alter_partition import AlterPartitionAsked
from tidelog.controller.topics.changes import TopicFound
from tidelog.core.types import TopicPartition
from tidelog.metadata import layout
from tidelog.sim.loop import NS_PER_MS
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest

COUNT = 1_000


def wanted(
    topic_id: bytes, members: dict[int, int], count: int = 1, partition_epoch: int = 0
) -> RequestTopicData:
    """ISR changes of the first partitions of a topic."""
    return RequestTopicData(
        topic_id,
        partitions=[
            RequestPartitionData(
                partition_index=number,
                leader_epoch=0,
                partition_epoch=partition_epoch,
                new_isr_with_epochs=[BrokerState(*one) for one in members.items()],
            )
            for number in range(count)
        ],
    )


@pytest.fixture
def three() -> Iterator[ControllerHarness]:
    with controller_harness(3) as made:
        yield made


@pytest.mark.rule("A14", "V17")
def test_every_broker_is_sent_an_isr_change_as_soon_as_it_is_durable(
    three: ControllerHarness,
) -> None:
    """Before, the controller heard of it by a node that it looked at: up to a minute."""
    controller = three.controller()
    leader = next(one for one in three.brokers.values() if one is not controller)
    others = [one for one in three.brokers.values() if one is not leader]
    three.create(controller, "t", (leader.broker_id, *(one.broker_id for one in others)))
    three.pass_time(200)
    for one in three.brokers.values():
        one.script.received.clear()
    node = three.read(layout.topic_path("t"))
    assert node is not None
    of_topic = layout.decode_topic(layout.topic_path("t"), node.data).topic_id
    members = {one.broker_id: one.broker_epoch for one in (leader, others[0])}
    durable_ns: list[int] = []
    three.server.on_commit(lambda *_: durable_ns.append(three.world.now_ns))
    request = AlterPartitionRequest(
        leader.broker_id, leader.broker_epoch, [wanted(of_topic, members)]
    )
    three.alter(controller, request)

    def told() -> bool:
        return all(one.script.of(UpdateMetadataRequest) for one in three.brokers.values())

    three.until(told, limit_ms=100)
    # An answer of the store and a message to a broker take 0.6 ms at most here.
    assert three.world.now_ns - durable_ns[0] <= 2 * NS_PER_MS
    for one in three.brokers.values():
        [update] = one.script.of(UpdateMetadataRequest)
        [of_partition] = update.topic_states[0].partition_states
        assert sorted(of_partition.isr) == sorted(members)


@pytest.mark.rule("A14", "A10", "V16")
def test_a_thousand_isr_changes_are_few_transactions_and_one_request_to_each_broker() -> None:
    assignments = dict.fromkeys(range(COUNT), (1, 2, 3))
    states = dict.fromkeys(range(COUNT), state(leader_epoch=0, partition_epoch=0))
    controller = loaded(TopicFound(topic(assignments=assignments), states))
    of_topic = controller.image.topics["t"].topic_id
    data = wanted(of_topic, {1: epoch(1), 2: epoch(2)}, COUNT)
    asked = AlterPartitionAsked(1, 3, AlterPartitionRequest(1, epoch(1), [data]))
    writes, effects = step(controller, asked)
    assert len(state_writes(writes)) == COUNT
    units = [
        unit for index, write in enumerate(writes) for unit in store_ops.units_of(index, write)
    ]
    assert len(list(store_ops.batches(units))) <= 3
    for broker_id in brokers(1, 2, 3):
        commands = effects.commands[broker_id]
        assert len(commands.requests(Sender(1, 1, "PLAINTEXT"), 5)) == 1
        assert len(commands.shown) == COUNT
    assert controller.image.states[TopicPartition("t", COUNT - 1)].isr == (1, 2)
