"""Rules of unclean elections: V13 (the possible loss is reported) and A3 (recovery is reported).

Real replicas over fake logs; real controllers on the simulated store with scripted brokers.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.support.broker.fakes import FakeBroker, a_cluster, errors, replicate
from tests.support.broker.fakes import state as role
from tests.support.controller.harness import Candidate, ControllerHarness, controller_harness
from tests.support.controller.values import (
    TP,
    alter,
    brokers,
    epoch,
    isr_answer,
    loaded,
    settings,
    state,
    state_writes,
    step,
    topic,
    unloaded,
)
from tests.support.replication import (
    a_leader,
    accept,
    fetch,
    proposed,
    send,
)

from tidelog.controller.cluster_events import ClusterEvent
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.topics.changes import TopicFound
from tidelog.core.errors import ErrorCode, StorageError
from tidelog.core.types import RECOVERED, RECOVERING, PartitionState
from tidelog.metadata import layout
from tidelog.replication.effects import NOTHING, SendAlterPartition
from tidelog.replication.leader import LeaderReplica
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)


def leading(broker: FakeBroker) -> LeaderReplica:
    found = broker.partition().leadership
    assert found is not None
    return found


async def led_uncleanly(broker: FakeBroker, leader_epoch: int = 1) -> list[ClusterEvent]:
    """Elect a broker from outside the ISR; return the events that it records."""
    told: list[ClusterEvent] = []
    anybody: Any = broker
    anybody.cluster_events.record = told.extend
    state_now = role(
        broker.broker_id,
        leader_epoch=leader_epoch,
        partition_epoch=leader_epoch,
        isr=(broker.broker_id,),
        replicas=(1, 2),
    )
    state_now.leader_recovery_state = RECOVERING
    assert errors(await broker.command(state_now)) == [0]
    return told


# V13


@pytest.mark.rule("V13")
def test_the_offsets_at_risk_are_in_the_log_and_in_the_event_stream() -> None:
    """The follower has 3 of 5 committed records, and knows from its leader that all 5 are."""

    async def story() -> None:
        cluster = a_cluster(2, cluster_events_enable="true")
        await replicate(cluster, isr=(1, 2))
        cluster[1].produce(3)
        await cluster[1].clock.advance(1_000)
        follower = cluster[2]
        follower.log().append_error = StorageError("/d", "pwrite", "/d/f", errno.ENOSPC, 0)
        await cluster[1].command(role(1, leader_epoch=0, partition_epoch=1, isr=(1,)))
        cluster[1].produce(2)
        # It is not about to join any longer, so the high watermark does not wait for it (V60).
        await cluster[1].clock.advance(40_000)
        cluster[1].partition().role.examine()
        await cluster[1].clock.advance(2_000)
        assert cluster[1].partition().high_watermark == 5
        assert follower.partition().log.log_end_offset == 3
        told = await led_uncleanly(follower)
        [event] = [one for one in told if one.kind == "unclean_election"]
        assert event.fields["topic"] == TP.topic and event.fields["partition"] == 0
        assert {name: event.fields[name] for name in list(event.fields)[3:]} == {
            "leader_epoch": 1,
            "leader": 2,
            "log_start_offset": 0,
            "log_end_offset": 3,
            "high_watermark": 3,
            "told_high_watermark": 5,
            "latest_epoch": 0,
            "latest_timestamp_ms": 3_000,
        }
        [line] = [one for one in follower.tracer.lines if one.startswith("unclean election")]
        assert "records from offset 3 up to 5 were committed and are lost" in line
        assert "from offset 3 on it is not known whether others had the same" in line
        [traced] = follower.tracer.named("unclean_leader")
        assert (traced["log_end_offset"], traced["told_high_watermark"]) == (3, 5)

    asyncio.run(story())


@pytest.mark.rule("V13")
def test_an_unknown_high_watermark_is_not_claimed_and_an_empty_replica_is_reported() -> None:
    async def story() -> None:
        broker = a_cluster(2, cluster_events_enable="true")[2]
        await broker.command(role(-1, isr=(1,), replicas=(1, 2), is_new=True))
        told = await led_uncleanly(broker)
        [event] = [one for one in told if one.kind == "unclean_election"]
        assert event.fields["told_high_watermark"] == -1
        assert event.fields["latest_epoch"] == event.fields["latest_timestamp_ms"] == -1
        assert event.fields["log_end_offset"] == 0

    asyncio.run(story())


@pytest.mark.rule("V13")
@pytest.mark.parametrize("is_clean", [True, False])
def test_the_controller_warns_and_names_who_has_what_is_lost(is_clean: bool) -> None:
    with controller_harness(
        3, unclean_leader_election_enable="true", cluster_events_enable="true"
    ) as made:
        controller, sole, other = of_two(made)
        if not is_clean:
            shrink(made, sole)
        tracer = controller.watch_log()
        sole.crash()
        made.until(lambda: made.state(TP).leader == other.broker_id)
        made.pass_time(50)
        warned = [one for one in tracer.lines if one.startswith("unclean election")]
        assert bool(warned) is not is_clean
        if warned:
            assert f"its ISR was [{sole.broker_id}]" in warned[0]


# A3: recovery


@pytest.mark.rule("A3", "V13")
def test_who_was_elected_uncleanly_reports_at_once_that_it_has_recovered() -> None:
    leader = a_leader(isr=(1,), log_end_offset=4, recovery_state=RECOVERING)
    change = send(leader, leader.examine(0))
    assert (change.isr, change.leader_recovery_state) == ((1,), RECOVERED)
    assert leader.examine(0) is NOTHING, "one is in flight"
    accept(leader, change)
    assert not leader.is_recovering
    assert leader.examine(0) is NOTHING, "it is said once"


@pytest.mark.rule("A3")
def test_a_leader_that_was_elected_from_the_isr_has_nothing_to_report() -> None:
    assert a_leader(isr=(1,), log_end_offset=4, high_watermark=4).examine(0) is NOTHING


@pytest.mark.rule("A3")
def test_a_follower_that_joins_first_brings_the_report_along() -> None:
    leader = a_leader(isr=(1,), log_end_offset=4, recovery_state=RECOVERING)
    alone = proposed(leader.examine(0))
    both = send(leader, fetch(leader, 2, 4))
    assert both != alone and (both.isr, both.leader_recovery_state) == ((1, 2), RECOVERED)
    assert not leader.is_wanted(alone)
    accept(leader, both)
    assert not leader.is_recovering


@pytest.mark.rule("A3", "A8")
def test_a_refused_member_leaves_the_report_to_be_made() -> None:
    leader = a_leader(isr=(1,), log_end_offset=4, recovery_state=RECOVERING)
    leader.examine(0)
    both = send(leader, fetch(leader, 2, 4))
    effects = leader.change_refused(both, ErrorCode.INELIGIBLE_REPLICA, 0)
    alone = proposed(effects)
    assert (alone.isr, alone.leader_recovery_state) == ((1,), RECOVERED)


@pytest.mark.rule("A3", "A9")
@pytest.mark.parametrize("recovery_state", [RECOVERED, RECOVERING])
def test_a_newer_partition_epoch_says_whether_the_report_was_made(recovery_state: int) -> None:
    """The controller's word voids what is in flight; the report is repeated where it is missing."""
    leader = a_leader(isr=(1,), log_end_offset=4, recovery_state=RECOVERING)
    send(leader, leader.examine(0))
    effects = leader.commanded(
        (1,), (1, 2, 3), 11, lambda broker_id: True, 0, recovery_state=recovery_state
    )
    asked = [one.change for one in effects if isinstance(one, SendAlterPartition)]
    assert [one.partition_epoch for one in asked] == ([11] if recovery_state == RECOVERING else [])


@pytest.mark.rule("A3")
def test_a_report_that_came_to_nothing_is_made_again_when_replicas_are_looked_at() -> None:
    leader = a_leader(isr=(1,), log_end_offset=4, recovery_state=RECOVERING)
    change = send(leader, leader.examine(0))
    leader.change_refused(change, ErrorCode.OPERATION_NOT_ATTEMPTED, 0)
    assert leader.is_recovering
    assert proposed(leader.examine(15_000)).isr == (1,)


@pytest.mark.rule("A3", "V13")
def test_a_real_replica_reports_its_recovery() -> None:
    async def story() -> None:
        broker = a_cluster(2)[2]
        submitted: list[Any] = []
        anybody: Any = broker
        anybody.alter_partition_manager.submit = lambda partition, change: submitted.append(change)
        await broker.command(role(-1, isr=(1,), replicas=(1, 2), is_new=True))
        await led_uncleanly(broker)
        [change] = submitted
        assert (change.isr, change.leader_recovery_state) == ((2,), RECOVERED)
        broker.partition().role.change_sent(change)
        broker.partition().role.change_accepted(change, (2,), 1, 2)
        assert len(submitted) == 1
        anybody.cluster_events.record = submitted.append
        told = role(2, leader_epoch=1, partition_epoch=3, isr=(2,), replicas=(1, 2))
        told.leader_recovery_state = RECOVERING
        await broker.command(told)
        assert submitted[-1].partition_epoch == 3, "the controller knows nothing of it"

    asyncio.run(story())


# A3: what the controller keeps of it


def recovering(**changes: Any) -> PartitionState:
    return state((1,), leader_recovery_state=RECOVERING, **changes)


@pytest.mark.rule("A3", "V13")
def test_what_is_not_reported_holds_through_elections_and_a_new_controller() -> None:
    """The leader restarts, is away, comes back; another controller reads all of it again."""
    controller = loaded(TopicFound(topic(), {0: recovering()}), of=settings(unclean=True))
    lives = brokers(1, 2, 3)
    again = replace(lives[1], broker_epoch=epoch(1, 2), previous_broker_epoch=epoch(1))
    writes, _ = step(controller, BrokersRead({**lives, 1: again}))
    after = state_writes(writes)[TP]
    assert (after.leader, after.leader_recovery_state) == (1, RECOVERING)
    successor = unloaded(TopicFound(topic(), {0: after}), live={**lives, 1: again})
    step(successor)
    asked = alter(
        (1, epoch(1, 2)),
        sender_epoch=epoch(1, 2),
        leader_epoch=after.leader_epoch,
        partition_epoch=after.partition_epoch,
    )
    writes, effects = step(successor, asked)
    assert isr_answer(effects).leader_recovery_state == RECOVERED
    assert state_writes(writes)[TP].leader_recovery_state == RECOVERED


@pytest.mark.rule("A3", "V13")
def test_a_partition_that_loses_its_leader_again_stays_recovering() -> None:
    controller = loaded(TopicFound(topic(), {0: recovering()}))
    writes, _ = step(controller, BrokersRead(brokers(2, 3)))
    after = state_writes(writes)[TP]
    assert (after.leader, after.isr, after.leader_recovery_state) == (-1, (1,), RECOVERING)


@pytest.mark.rule("A3", "A4")
def test_a_report_that_was_made_already_is_a_success_and_written_once() -> None:
    controller = loaded(TopicFound(topic(), {0: recovering()}))
    writes, _ = step(controller, alter(1, partition_epoch=10))
    assert state_writes(writes)[TP].partition_epoch == 11
    writes, effects = step(controller, alter(1, partition_epoch=10))
    assert writes == [] and isr_answer(effects).error_code == ErrorCode.NONE
    assert isr_answer(effects).partition_epoch == 11


@pytest.fixture
def lenient() -> Iterator[ControllerHarness]:
    with controller_harness(3, unclean_leader_election_enable="true") as made:
        yield made


@pytest.mark.rule("A3", "V13")
def test_a_report_to_a_controller_that_is_gone_is_made_to_the_next(
    lenient: ControllerHarness,
) -> None:
    controller, sole, other = of_two(lenient)
    shrink(lenient, sole)
    sole.crash()
    lenient.until(lambda: lenient.state(TP).leader == other.broker_id)
    assert lenient.state(TP).leader_recovery_state == RECOVERING
    sole.start()
    controller.crash()
    lenient.until(lambda: lenient.controllers not in ([], [controller.broker_id]))
    successor = lenient.controller()
    published = lenient.state(TP)
    assert (published.leader, published.leader_recovery_state) == (other.broker_id, RECOVERING)
    ask(lenient, successor, other, (other.broker_id,))
    lenient.until(lambda: lenient.state(TP).leader_recovery_state == RECOVERED)


def of_two(around: ControllerHarness) -> tuple[Candidate, Candidate, Candidate]:
    """The controller, and the leader and the follower of a partition that is not on it."""
    controller = around.controller()
    leader, follower = (one for one in around.brokers.values() if one is not controller)
    around.create(controller, "t", (leader.broker_id, follower.broker_id))
    return controller, leader, follower


def shrink(around: ControllerHarness, leader: Candidate) -> None:
    """The leader of t-0 takes the others out of the ISR."""
    ask(around, around.controller(), leader, (leader.broker_id,))
    around.until(lambda: around.state(TP).isr == (leader.broker_id,))


def ask(
    around: ControllerHarness, controller: Candidate, leader: Candidate, isr: tuple[int, ...]
) -> None:
    node = around.read(layout.topic_path("t"))
    assert node is not None
    of_topic = layout.decode_topic(layout.topic_path("t"), node.data).topic_id
    published = around.state(TP)
    wanted = RequestPartitionData(
        partition_index=0,
        leader_epoch=published.leader_epoch,
        partition_epoch=published.partition_epoch,
        new_isr_with_epochs=[BrokerState(one, around.brokers[one].broker_epoch) for one in isr],
    )
    request = AlterPartitionRequest(
        leader.broker_id, leader.broker_epoch, [RequestTopicData(of_topic, partitions=[wanted])]
    )
    around.alter(controller, request)
