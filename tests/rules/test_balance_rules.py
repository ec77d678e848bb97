"""Rule V46, automatic part: leaderships go back in steps, and to who has caught up.

Real shells on the simulated store; brokers are scripted, and join ISRs as the tests say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from tests.support.controller.harness import Candidate, ControllerHarness, controller_harness
from tests.support.controller.values import (
    elect,
    loaded,
    state,
    state_writes,
    step,
    topic,
)

from tidelog.controller.elections.preferred import PreferredElectionRead, RebalanceDue
from tidelog.controller.topics.changes import TopicFound
from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MAX_AUTOMATIC_ELECTIONS_PER_STEP
from tidelog.core.types import PartitionState, TopicPartition
from tidelog.metadata import layout
from tidelog.sim.loop import NS_PER_MS
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)

#: More than two steps take.
COUNT = 2 * MAX_AUTOMATIC_ELECTIONS_PER_STEP + 50
#: So long a controller waits before it looks, and a step is.
FIRST_LOOK_MS, STEP_MS = 5_000, 1_000


class Returning:
    """A broker that is preferred by all partitions of a topic is back, outside their ISRs."""

    def __init__(self, around: ControllerHarness) -> None:
        self.around = around
        self.controller = around.controller()
        others = [one for one in around.brokers.values() if one is not self.controller]
        self.preferred, self.other = others
        self.replicas = (
            self.preferred.broker_id,
            self.other.broker_id,
            self.controller.broker_id,
        )
        around.create(self.controller, "t", *([self.replicas] * COUNT))
        around.pass_time(FIRST_LOOK_MS + 500)  # the first look finds everything in order
        self.preferred.crash()
        around.until(lambda: self.state(COUNT - 1).leader == self.other.broker_id)
        around.pass_time(200)
        assert self.led_by(self.other) == COUNT
        self.preferred.start()
        around.until(lambda: self.preferred.broker_epoch != -1)
        #: When leaderships went back, by commit: (ns, how many).
        self.steps: list[tuple[int, int]] = []
        self.went_back = 0
        around.server.on_commit(self._committed)

    def _committed(self, _zxid: int, _session: int, ops: Sequence[object], _: object) -> None:
        count = 0
        for op in ops:
            path = getattr(op, "path", "")
            if path.endswith("/state"):
                data = getattr(op, "data", b"")
                count += b'"leader":%d,' % self.preferred.broker_id in data.replace(b" ", b"")
        if count:
            self.steps.append((self.around.world.now_ns, count))
            self.went_back += count

    def state(self, number: int) -> PartitionState:
        """Published state, as a look into the store finds it."""
        path = layout.partition_state_path(TopicPartition("t", number))
        node = self.around.server.tree.get(path)
        assert node is not None
        return layout.decode_partition_state(path, node.data, node.stat)

    def states(self) -> list[PartitionState]:
        """Published states of all partitions."""
        return [self.state(number) for number in range(COUNT)]

    def led_by(self, candidate: Candidate) -> int:
        """How many partitions a broker leads."""
        return sum(one.leader == candidate.broker_id for one in self.states())

    def joins(self, partitions: range) -> None:
        """The broker that is back comes into these ISRs, as their leader asks."""
        node = self.around.read(layout.topic_path("t"))
        assert node is not None
        of_topic = layout.decode_topic(layout.topic_path("t"), node.data).topic_id
        members = [BrokerState(one, self.around.brokers[one].broker_epoch) for one in self.replicas]
        states = self.states()
        wanted = [
            RequestPartitionData(
                partition_index=number,
                leader_epoch=states[number].leader_epoch,
                partition_epoch=states[number].partition_epoch,
                new_isr_with_epochs=members,
            )
            for number in partitions
        ]
        request = AlterPartitionRequest(
            broker_id=self.other.broker_id,
            broker_epoch=self.other.broker_epoch,
            topics=[RequestTopicData(of_topic, partitions=wanted)],
        )
        answers = self.around.alter(self.controller, request)
        self.around.until(lambda: bool(answers))
        [told] = answers[0].topics
        assert all(one.error_code == ErrorCode.NONE for one in told.partitions)


@pytest.fixture
def returning() -> Iterator[Returning]:
    with controller_harness(3, leader_imbalance_check_interval_seconds="60") as made:
        yield Returning(made)


@pytest.mark.rule("V46")
def test_a_broker_that_is_back_leads_again_in_steps_once_it_has_caught_up(
    returning: Returning,
) -> None:
    """It is in sync in all partitions but one when the balance is looked at."""
    returning.joins(range(COUNT - 1))
    returning.around.pass_time(70_000)
    assert returning.steps == [], "the last one is not in sync"
    returning.joins(range(COUNT - 1, COUNT))
    returning.around.until(lambda: returning.went_back == COUNT)
    assert returning.led_by(returning.preferred) == COUNT
    share = MAX_AUTOMATIC_ELECTIONS_PER_STEP
    went_back: dict[int, int] = {}
    for now_ns, count in returning.steps:
        # What one decision writes may be several transactions.
        step_number = round((now_ns - returning.steps[0][0]) / (STEP_MS * NS_PER_MS))
        went_back[step_number] = went_back.get(step_number, 0) + count
    assert went_back == {0: share, 1: share, 2: 50}


@pytest.mark.rule("V46")
def test_a_replica_that_never_comes_in_sync_holds_the_others_back_for_one_interval_only(
    returning: Returning,
) -> None:
    returning.joins(range(COUNT - 1))
    returning.around.until(lambda: returning.went_back == COUNT - 1, limit_ms=140_000)
    assert returning.led_by(returning.preferred) == COUNT - 1
    assert returning.state(COUNT - 1).leader == returning.other.broker_id


@pytest.mark.rule("V46", "V8")
def test_who_asks_for_an_election_is_held_to_the_isr_alone(returning: Returning) -> None:
    returning.joins(range(1))
    asked = [TopicPartition("t", number) for number in (0, 1)]
    assert returning.around.elect(returning.controller, *asked) == [
        ErrorCode.NONE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ]
    assert returning.led_by(returning.preferred) == 1


@pytest.mark.rule("V46")
def test_what_goes_back_by_itself_waits_and_what_is_asked_for_does_not() -> None:
    found = topic(assignments={0: (1, 2, 3), 1: (1, 2, 3)})
    states = {0: state((1, 2, 3), leader=2), 1: state((2, 3))}
    first = TopicPartition("t", 0)
    for event, goes in (
        (RebalanceDue(0), False),
        (PreferredElectionRead([first]), True),
        (elect(first), True),
    ):
        writes, _ = step(loaded(TopicFound(found, states)), event)
        assert (first in state_writes(writes)) is goes, event
