"""A change whose request stays without a response: superseded, repeated, settled (A2, A8, A9)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.broker.fakes import FakeBroker, a_cluster, settle, state
from tests.support.replication import LAG_MS, a_leader, accept, fetch, proposed, send

from tidelog.core.errors import ConnectionLost, ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.replication import isr as isr_rules
from tidelog.replication.effects import (
    NOTHING,
    IsrCommitted,
    RetryAlterPartition,
    WithdrawAlterPartition,
)
from tidelog.replication.isr import Awaits, IsrChange, IsrState
from tidelog.replication.leader import LeaderReplica
from tidelog.wire.messages.alter_partition import (
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from tidelog.wire.registry import ALTER_PARTITION, API_VERSIONS

FOUR = (1, 2, 3, 4)


def with_open_expansion() -> tuple[LeaderReplica, IsrChange]:
    """Leader 1 with ISR (1, 2); the request for (1, 2, 3) got no response."""
    leader = a_leader(isr=(1, 2), log_end_offset=10)
    fetch(leader, 2, 10)
    change = send(leader, fetch(leader, 3, 10))
    assert leader.change_unanswered(change, 0) == (RetryAlterPartition(change),)
    return leader, change


def superseded() -> tuple[LeaderReplica, IsrChange, IsrChange]:
    """Then (1, 3) is requested instead, as 2 fell behind."""
    leader, first = with_open_expansion()
    late = LAG_MS + 1
    leader.appended(20, late)
    fetch(leader, 3, 20, now_ms=late)
    second = send(leader, leader.examine(2 * late))
    assert second.isr == (1, 3)
    return leader, first, second


@pytest.mark.rule("A8")
def test_a_shrink_supersedes_an_expansion_without_a_response_and_both_count() -> None:
    leader, first, second = superseded()
    assert leader.isr.in_flight == (first, second)
    assert isr_rules.maximal_isr(leader.isr) == (1, 2, 3)
    assert leader.isr.awaits is Awaits.RESPONSE
    assert leader.high_watermark == 10, "records wait for 2, which the first change may hold"


@pytest.mark.rule("A8")
def test_an_expansion_supersedes_a_shrink_without_a_response_and_both_count() -> None:
    leader = a_leader(isr=(1, 2, 3), replicas=FOUR, log_end_offset=10)
    fetch(leader, 2, 10, now_ms=LAG_MS)
    shrink = send(leader, leader.examine(LAG_MS + 1))
    assert shrink.isr == (1, 2)
    leader.change_unanswered(shrink, LAG_MS + 1)
    expansion = send(leader, fetch(leader, 4, 10, now_ms=LAG_MS + 1))
    assert expansion.isr == (1, 2, 4)
    assert leader.isr.in_flight == (shrink, expansion)
    assert isr_rules.maximal_isr(leader.isr) == FOUR


@pytest.mark.rule("A8")
def test_no_change_supersedes_one_whose_response_may_still_come() -> None:
    leader = a_leader(isr=(1,), log_end_offset=10)
    change = send(leader, fetch(leader, 2, 10))
    assert fetch(leader, 3, 10) is NOTHING
    assert leader.examine(0) is NOTHING
    assert leader.isr.in_flight == (change,)


@pytest.mark.rule("A8", "A9")
@pytest.mark.parametrize("accepted", [0, 1])
def test_a_newer_partition_epoch_settles_all_of_them(accepted: int) -> None:
    leader, *changes = superseded()
    made = changes[accepted]
    effects = accept(leader, made, 3 * LAG_MS)
    assert effects[0] == IsrCommitted()
    assert leader.isr.committed == made.isr
    assert leader.isr.in_flight == ()
    assert leader.isr.partition_epoch == 11


@pytest.mark.rule("A8")
def test_a_final_refusal_takes_only_its_own_change_out_of_the_union() -> None:
    leader, first, second = superseded()
    effects = leader.change_refused(second, ErrorCode.INELIGIBLE_REPLICA, 3 * LAG_MS)
    assert first in leader.isr.in_flight
    assert isr_rules.maximal_isr(leader.isr) == (1, 2, 3)
    # It goes on about the other one, whose outcome is still open.
    assert leader.isr.awaits is Awaits.REPETITION
    assert effects


@pytest.mark.rule("A8")
def test_a_refusal_of_the_superseded_change_leaves_the_newer_one_alone() -> None:
    leader, first, second = superseded()
    leader.change_refused(first, ErrorCode.OPERATION_NOT_ATTEMPTED, 3 * LAG_MS)
    assert leader.isr.in_flight == (second,)
    assert leader.isr.awaits is Awaits.RESPONSE
    assert leader.change_refused(first, ErrorCode.INELIGIBLE_REPLICA, 3 * LAG_MS) is NOTHING


@pytest.mark.rule("A8")
@pytest.mark.parametrize("error", isr_rules.WAIT_FOR_COMMAND)
def test_every_other_error_leaves_both_counted(error: ErrorCode) -> None:
    leader, first, second = superseded()
    assert leader.change_refused(second, error, 3 * LAG_MS) is NOTHING
    assert leader.isr.in_flight == (first, second)
    assert leader.isr.awaits is Awaits.COMMAND
    assert leader.examine(9 * LAG_MS) is NOTHING, "the next command settles it"


@pytest.mark.rule("A3")
@pytest.mark.parametrize("error", isr_rules.WAIT_FOR_COMMAND)
def test_a_response_after_the_command_that_it_announces_leaves_nothing_waiting(
    error: ErrorCode,
) -> None:
    leader = a_leader(isr=(1,), replicas=(1, 2), log_end_offset=10)
    change = send(leader, fetch(leader, 2, 10))
    epoch = change.partition_epoch
    assert leader.commanded((1,), (1, 2), epoch, lambda broker_id: True, 0) is NOTHING
    assert not leader.is_to_be_sent(change), "the command shows no outcome of the request"
    assert leader.change_refused(change, error, 0) == (RetryAlterPartition(change),)
    assert leader.isr == IsrState((1,), epoch, (change,), None, Awaits.REPETITION)
    leader.change_sent(change)
    assert leader.change_refused(change, error, 0) is NOTHING, "one command, one repetition"
    assert leader.isr.awaits is Awaits.COMMAND


@pytest.mark.rule("A8")
def test_an_error_for_the_superseded_change_says_nothing_of_the_newer_one() -> None:
    leader, first, _ = superseded()
    leader.change_refused(first, ErrorCode.INVALID_UPDATE_VERSION, 3 * LAG_MS)
    assert leader.isr.awaits is Awaits.RESPONSE


@pytest.mark.rule("A4", "A8")
def test_a_response_that_the_state_holds_settles_its_own_change_alone() -> None:
    leader, first, second = superseded()
    leader.change_accepted(second, (1, 2), 5, 10, 3 * LAG_MS)
    assert leader.isr.committed == (1, 2)
    assert first in leader.isr.in_flight
    assert second not in leader.isr.in_flight
    assert isr_rules.maximal_isr(leader.isr) == (1, 2, 3)


@pytest.mark.rule("A7", "A8")
def test_the_minimum_counts_confirmed_members_only_with_any_number_of_changes() -> None:
    leader = a_leader(isr=(1,), log_end_offset=10, min_insync_replicas=2)
    first = send(leader, fetch(leader, 2, 10))
    leader.change_unanswered(first, 0)
    leader.appended(20, LAG_MS + 1)
    fetch(leader, 3, 20, now_ms=LAG_MS + 1)
    send(leader, leader.examine(2 * LAG_MS + 2))
    fetch(leader, 2, 20, now_ms=2 * LAG_MS + 2)
    assert isr_rules.maximal_isr(leader.isr) == (1, 2, 3)
    assert leader.is_below_minimum
    assert leader.high_watermark == 0


@pytest.mark.rule("A2", "A8")
def test_the_same_change_is_requested_again_and_is_no_second_one() -> None:
    leader, change = with_open_expansion()
    assert leader.is_to_be_sent(change)
    leader.change_sent(change)
    assert leader.isr.in_flight == (change,)
    assert not leader.is_to_be_sent(change)
    assert leader.change_unanswered(change, 0) == (RetryAlterPartition(change),)


@pytest.mark.rule("A8")
def test_a_way_back_to_the_confirmed_isr_waits_until_the_open_change_is_settled() -> None:
    """The controller would say that the confirmed ISR holds, and settle nothing (A4)."""
    leader, change = with_open_expansion()
    leader.appended(20, LAG_MS + 1)
    fetch(leader, 2, 20, now_ms=LAG_MS + 1)
    fetch(leader, 3, 15, now_ms=LAG_MS + 1)
    assert isr_rules.maximal_isr(leader.isr) == (1, 2, 3)
    assert leader.examine(2 * LAG_MS + 2) is NOTHING
    assert leader.isr.in_flight == (change,)
    assert leader.is_to_be_sent(change)


@pytest.mark.rule("A8")
def test_a_change_that_is_withdrawn_unsent_leaves_the_one_before_it_in_flight() -> None:
    leader, first = with_open_expansion()
    leader.appended(20, LAG_MS + 1)
    fetch(leader, 3, 20, now_ms=LAG_MS + 1)
    second = proposed(leader.examine(2 * LAG_MS + 2))
    assert not leader.is_to_be_sent(first)
    # 2 has caught up again: what is wanted is what was requested first.
    effects = fetch(leader, 2, 20, now_ms=2 * LAG_MS + 2)
    assert effects[:2] == (WithdrawAlterPartition(second), RetryAlterPartition(first))
    assert leader.isr == IsrState((1, 2), 10, (first,), None, Awaits.REPETITION)


# On their way to the controller


class Controller:
    """Keeps requests, which the test answers or loses."""

    def __init__(self, broker: FakeBroker) -> None:
        self.asked: list[tuple[Any, Any]] = []
        broker.peers.intercepted[ALTER_PARTITION] = lambda message, on_answer: self.asked.append(
            (message, on_answer)
        )
        broker.see(1, 2, 3, controller_id=9)

    def lose(self) -> None:
        """The newest request stays without an answer."""
        self.asked[-1][1](None, ConnectionLost("cut"))

    def make(self, held_ms: int = 0, is_named: bool = True) -> None:
        """Answer the newest request: as asked."""
        message, on_answer = self.asked[-1]
        on_answer(made(message, is_named, held_ms), None)

    @property
    def isrs(self) -> list[list[int]]:
        """The ISR of each request."""
        found = []
        for message, _ in self.asked:
            (data,) = message.topics[0].partitions
            with_epochs = [member.broker_id for member in data.new_isr_with_epochs]
            found.append(with_epochs or list(data.new_isr))
        return found


def made(message: Any, is_named: bool = True, held_ms: int = 0) -> AlterPartitionResponse:
    (topic,) = message.topics
    outcomes = [
        ResponsePartitionData(
            partition_index=asked.partition_index,
            leader_id=1,
            leader_epoch=asked.leader_epoch,
            isr=[member.broker_id for member in asked.new_isr_with_epochs] or list(asked.new_isr),
            partition_epoch=asked.partition_epoch + 1,
        )
        for asked in topic.partitions
        if is_named
    ]
    answered = ResponseTopicData(topic.topic_id, topic.topic_name, outcomes)
    return AlterPartitionResponse(topics=[answered], held_ms=held_ms)


async def a_leader_alone() -> tuple[FakeBroker, Controller]:
    """Broker 1 leads alone, and asks that 2 may join."""
    broker = a_cluster()[1]
    controller = Controller(broker)
    await broker.command(state(isr=(1,), is_new=True))
    caught_up(broker, 2)
    await settle()
    assert controller.isrs == [[1, 2]]
    return broker, controller


def caught_up(broker: FakeBroker, follower: int) -> None:
    role = broker.partition(TopicPartition("t", 0)).role
    role.follower_fetched(follower, 100 + follower, 0, 0, broker.clock.monotonic_ms())


def isr_of(broker: FakeBroker) -> IsrState:
    leadership = broker.partition(TopicPartition("t", 0)).leadership
    assert leadership is not None
    return leadership.isr


@pytest.mark.rule("A8", "A2")
def test_the_next_request_carries_the_newer_change_after_the_pause() -> None:
    async def story() -> None:
        broker, controller = await a_leader_alone()
        controller.lose()
        caught_up(broker, 3)
        assert len(controller.asked) == 1
        await broker.clock.advance(70)
        assert controller.isrs == [[1, 2], [1, 2, 3]]
        assert len(isr_of(broker).in_flight) == 2
        assert any("instead of [1, 2]" in line for line in broker.tracer.lines)
        controller.make()
        assert isr_of(broker).committed == (1, 2, 3)
        assert isr_of(broker).in_flight == ()

    asyncio.run(story())


@pytest.mark.rule("A8")
def test_followers_join_while_a_controller_answers_nothing_for_long() -> None:
    async def story() -> None:
        broker, controller = await a_leader_alone()
        for _ in range(5):
            controller.lose()
            await broker.clock.advance(900)
        caught_up(broker, 3)
        controller.lose()
        await broker.clock.advance(900)
        assert controller.isrs[-1] == [1, 2, 3]
        controller.make()
        assert isr_of(broker).committed == (1, 2, 3)

    asyncio.run(story())


@pytest.mark.rule("A8")
def test_a_new_controller_may_get_a_newer_change() -> None:
    async def story() -> None:
        broker, controller = await a_leader_alone()
        caught_up(broker, 3)
        assert controller.isrs == [[1, 2]]
        broker.view.controller_epoch = 2
        broker.see(1, 2, 3, controller_id=8)
        await broker.clock.advance(70)
        assert controller.isrs == [[1, 2], [1, 2, 3]]

    asyncio.run(story())


@pytest.mark.rule("A11", "A8")
def test_a_change_that_the_controller_holds_counts_and_is_asked_for_again_later() -> None:
    async def story() -> None:
        broker, controller = await a_leader_alone()
        assert controller.asked[0][0].may_hold
        controller.make(held_ms=400, is_named=False)
        assert isr_rules.maximal_isr(isr_of(broker)) == (1, 2)
        await broker.clock.advance(440)
        assert len(controller.asked) == 1
        await broker.clock.advance(40)
        assert controller.isrs == [[1, 2], [1, 2]]

    asyncio.run(story())


@pytest.mark.rule("A11", "A8")
def test_a_newer_change_does_not_wait_for_one_that_the_controller_holds() -> None:
    async def story() -> None:
        broker, controller = await a_leader_alone()
        controller.make(held_ms=400, is_named=False)
        caught_up(broker, 3)
        await settle()
        assert controller.isrs == [[1, 2], [1, 2, 3]]
        await broker.clock.advance(500)
        assert len(controller.asked) == 2, "what the first one waited for is superseded"

    asyncio.run(story())


# Older controllers


@pytest.mark.rule("A1")
@pytest.mark.parametrize(("highest", "sent"), [(0, 0), (1, 1), (2, 2), (3, 3), (9, 3)])
def test_a_controller_without_a_response_is_asked_which_versions_it_serves(
    highest: int, sent: int
) -> None:
    async def story() -> None:
        broker, controller = await a_leader_alone()
        broker.peers.served = [(ALTER_PARTITION, 0, highest)]
        controller.lose()
        await broker.clock.advance(70)
        asked = [one for one in broker.peers.versions if one[0] in (ALTER_PARTITION, API_VERSIONS)]
        assert asked == [(ALTER_PARTITION, 3), (API_VERSIONS, 3), (ALTER_PARTITION, sent)]
        (topic,) = controller.asked[-1][0].topics
        assert topic.topic_name == "t"
        assert controller.isrs == [[1, 2], [1, 2]]
        controller.make()
        assert isr_of(broker).committed == (1, 2)
        caught_up(broker, 3)
        await settle()
        assert broker.peers.versions[-1] == (ALTER_PARTITION, sent), "it is not asked twice"

    asyncio.run(story())


@pytest.mark.rule("A1")
def test_a_controller_that_serves_no_version_is_named_and_changes_wait() -> None:
    async def story() -> None:
        broker, controller = await a_leader_alone()
        broker.peers.served = [(ALTER_PARTITION, 7, 8)]
        controller.lose()
        await broker.clock.advance(2_000)
        assert len(controller.asked) == 1
        [line, *_] = [one for one in broker.tracer.lines if "ISR changes wait" in one]
        assert "controller 9 serves versions 7 to 8 of AlterPartition" in line
        assert "this leader sends 0 to 3" in line

    asyncio.run(story())
