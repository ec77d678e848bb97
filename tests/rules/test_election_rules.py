"""Rules of leaders and ISRs: death, bounce, election, missing replicas, clean shutdown.

V10 to V14, D3 (the controller's side), E3 (marker and previous_broker_epoch).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from tests.support.controller.harness import (
    ControllerHarness,
    controller_harness,
    others,
)
from tests.support.controller.values import (
    CONTROLLER_EPOCH,
    TP,
    alter,
    broker,
    brokers,
    epoch,
    isr_answer,
    loaded,
    one_partition,
    roles_answered,
    run,
    settings,
    state,
    state_writes,
    step,
    topic,
    unloaded,
)

from tidelog.controller.registrations import BrokersRead
from tidelog.controller.topics.changes import TopicFound
from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_LEADER, RECOVERING, PartitionState


@pytest.fixture
def three() -> Iterator[ControllerHarness]:
    with controller_harness(3) as made:
        yield made


def decided_on_load(published: PartitionState, *live: Any, **how: Any) -> PartitionState:
    """What a controller that was elected meanwhile publishes; the same state if nothing."""
    controller = unloaded(one_partition(published), live=brokers(*live), **how)
    writes, _ = step(controller)
    return state_writes(writes).get(TP, published)


# V10


@pytest.mark.rule("V10")
def test_a_controller_elected_meanwhile_sees_a_bounce_by_the_recorded_epochs() -> None:
    after = decided_on_load(state(), broker(1, life=2), 2, 3)
    assert (after.leader, after.isr) == (2, (2, 3))
    assert after.isr_epochs == (epoch(2), epoch(3))


@pytest.mark.rule("V10")
def test_a_leader_that_is_the_controller_and_comes_back_at_once_does_not_lead_again(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    second, third = others(three, controller)
    three.create(controller, "t", (controller.broker_id, second.broker_id, third.broker_id))
    controller.crash()
    controller.start()
    three.until(lambda: three.state(TP).leader == second.broker_id)
    assert three.state(TP).isr == (second.broker_id, third.broker_id)


@pytest.mark.rule("V10")
def test_a_bounce_that_the_controller_watches_is_handled_as_down_then_up(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    leader, third = others(three, controller)
    three.create(controller, "t", (leader.broker_id, controller.broker_id, third.broker_id))
    leader.crash()
    leader.start()
    three.until(lambda: three.state(TP).leader == controller.broker_id)
    assert leader.broker_id not in three.state(TP).isr
    three.until(lambda: "F" in leader.script.kinds())
    assert leader.script.roles()[TP].leader == controller.broker_id


@pytest.mark.rule("V10")
def test_all_bounced_members_leave_in_one_decision_before_the_election() -> None:
    controller = loaded()
    writes, _ = step(controller, BrokersRead(brokers(broker(1, life=2), broker(2, life=2), 3)))
    assert len(writes) == 1
    after = state_writes(writes)[TP]
    assert (after.leader, after.isr) == (3, (3,))


@pytest.mark.rule("V10")
def test_bounced_members_stay_while_the_only_sound_one_is_dead() -> None:
    after = decided_on_load(state(), broker(1, life=2), broker(2, life=2))
    assert (after.leader, after.isr) == (NO_LEADER, (1, 2, 3))
    assert after.isr_epochs == (epoch(1), epoch(2), epoch(3))
    again = decided_on_load(after, broker(1, life=2), broker(2, life=2), 3)
    assert (again.leader, again.isr) == (3, (3,))


@pytest.mark.rule("V10")
def test_a_second_bounce_of_one_does_not_bring_back_another_that_fell_behind() -> None:
    live = [broker(1, life=2), broker(2, life=2), 3]
    published = state((1,), isr_epochs=[epoch(1, life=2)])
    assert decided_on_load(published, *live).isr == (1,)
    again = decided_on_load(published, broker(1, life=3), broker(2, life=2), 3)
    assert (again.leader, again.isr) == (1, (1,))


@pytest.mark.rule("V10")
@pytest.mark.parametrize(("mzxid", "expected"), [(150, (2, (2, 3))), (250, (1, (1, 2, 3)))])
def test_without_the_key_a_registration_after_the_last_write_has_bounced(
    mzxid: int, expected: tuple[int, tuple[int, ...]]
) -> None:
    published = state(isr_epochs=None, mzxid=mzxid)
    after = decided_on_load(published, broker(1, life=2), 2, 3)
    assert (after.leader, after.isr) == expected


@pytest.mark.rule("V10")
def test_every_state_that_is_written_records_the_members_epochs() -> None:
    controller = loaded(one_partition(state(isr_epochs=None, mzxid=1000)))
    writes, _ = step(controller, BrokersRead(brokers(1, 2)))
    assert state_writes(writes)[TP].isr_epochs == (epoch(1), epoch(2))
    writes, _ = step(controller, alter(1, leader_epoch=6, partition_epoch=11))
    assert state_writes(writes)[TP].isr_epochs == (epoch(1),)


# E3


@pytest.mark.rule("E3", "V10")
def test_a_clean_shutdown_of_the_recorded_life_keeps_a_member_in_the_isr() -> None:
    clean = broker(2, life=2, previous_broker_epoch=epoch(2))
    assert decided_on_load(state(), 1, clean, 3) == state()
    after = decided_on_load(state((2,)), 1, clean, 3)
    assert (after.leader, after.isr, after.isr_epochs) == (2, (2,), (epoch(2, life=2),))


@pytest.mark.rule("E3", "V10")
@pytest.mark.parametrize(("earlier", "isr"), [((epoch(2),), (1, 2, 3)), ((), (1, 3))])
def test_a_chain_of_clean_shutdowns_counts_from_its_first_registration(
    earlier: tuple[int, ...], isr: tuple[int, ...]
) -> None:
    # No controller recorded life 2 of broker 2, which ended cleanly like the one before it.
    last = epoch(2, life=2)
    clean = broker(2, life=3, previous_broker_epoch=last, earlier_broker_epochs=earlier)
    assert decided_on_load(state(), 1, clean, 3).isr == isr


@pytest.mark.rule("E3")
@pytest.mark.parametrize("previous", [-1, epoch(2, life=2), epoch(3)])
def test_any_other_proof_is_none(previous: int) -> None:
    bounced = broker(2, life=3, previous_broker_epoch=previous)
    assert decided_on_load(state(), 1, bounced, 3).isr == (1, 3)


@pytest.mark.rule("E3", "V13")
@pytest.mark.parametrize("cleanly", [True, False])
def test_the_proof_is_read_from_the_registration(three: ControllerHarness, cleanly: bool) -> None:
    controller = three.controller()
    returning, third = others(three, controller)
    three.create(controller, "t", (returning.broker_id, controller.broker_id))
    returning.previous_broker_epoch = returning.broker_epoch if cleanly else -1
    returning.crash()
    controller.crash()
    three.until(lambda: three.state(TP).leader == NO_LEADER)
    assert three.state(TP).isr == (returning.broker_id, controller.broker_id)
    assert third.is_controller
    returning.script.log_ends[TP] = (0, 4)
    returning.start()
    three.until(lambda: three.state(TP).leader_epoch == 2)
    published = three.state(TP)
    assert (published.leader, published.isr) == (returning.broker_id, (returning.broker_id,))
    # Without the proof its log is compared with that of the other member, were it there (E6).
    assert ("E" in returning.script.kinds()) is not cleanly


@pytest.mark.rule("E3")
def test_a_leader_that_restarted_cleanly_leads_under_a_new_epoch() -> None:
    clean = broker(1, life=2, previous_broker_epoch=epoch(1))
    after = decided_on_load(state(), clean, 2, 3)
    assert (after.leader, after.isr) == (1, (1, 2, 3))
    assert after.leader_epoch == state().leader_epoch + 1


# V11, V12


@pytest.mark.rule("V11")
def test_partitions_that_a_death_does_not_affect_are_not_written() -> None:
    found = TopicFound(
        topic("t", {0: (1, 2), 1: (2, 3), 2: (3, 1)}),
        {0: state((1, 2)), 1: state((2, 3)), 2: state((3,))},
    )
    controller = loaded(found)
    writes, _ = step(controller, BrokersRead(brokers(2, 3)))
    assert list(state_writes(writes)) == [TP]


@pytest.mark.rule("V11", "V12")
def test_a_dead_follower_leaves_the_isr_and_the_leader_stays() -> None:
    after = decided_on_load(state(), 1, 3)
    assert (after.leader, after.isr) == (1, (1, 3))


@pytest.mark.rule("V12")
@pytest.mark.parametrize(
    ("replicas", "live", "leader"),
    [
        ((3, 2, 1), (2, 3, 4), 3),
        ((1, 4, 2, 3), (2, 3, 4), 2),
        ((2, 1, 3), (3, 4), 3),
    ],
)
def test_the_first_live_in_sync_replica_in_assignment_order_leads(
    replicas: tuple[int, ...], live: tuple[int, ...], leader: int
) -> None:
    controller = unloaded(one_partition(state((1, 2, 3)), replicas), live=brokers(*live))
    writes, _ = step(controller)
    after = state_writes(writes)[TP]
    assert after.leader == leader
    assert after.isr == tuple(one for one in (1, 2, 3) if one in live)


@pytest.mark.rule("V12")
def test_a_live_leader_stays_although_it_is_not_the_preferred_one() -> None:
    after = decided_on_load(state((1, 2, 3), leader=2), 1, 2)
    assert (after.leader, after.isr) == (2, (1, 2))


# V13


@pytest.mark.rule("V13")
def test_with_no_in_sync_replica_alive_the_partition_waits_for_exactly_those() -> None:
    controller = loaded(one_partition(state((1, 2))))
    step(controller, BrokersRead(brokers(3)))
    published = controller.image.states[TP]
    assert (published.leader, published.isr) == (NO_LEADER, (1, 2))
    writes, _ = step(controller, BrokersRead(brokers(3, 4)))
    assert writes == []
    writes, _ = step(controller, BrokersRead(brokers(2, 3, 4)))
    after = state_writes(writes)[TP]
    assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), 0)


@pytest.mark.rule("V13")
def test_unclean_elections_are_off_by_default_and_mark_the_leader_as_recovering() -> None:
    assert decided_on_load(state((1,)), 2, 3).leader == NO_LEADER
    after = decided_on_load(state((1,)), 2, 3, of=settings(unclean=True))
    assert (after.leader, after.isr) == (2, (2,))
    assert after.leader_recovery_state == RECOVERING


@pytest.mark.rule("V13")
@pytest.mark.parametrize("of_cluster", [True, False])
@pytest.mark.parametrize("of_topic", [True, False])
def test_a_topics_own_setting_goes_before_the_clusters(of_cluster: bool, of_topic: bool) -> None:
    found = TopicFound(topic(unclean=of_topic), {0: state((1,))})
    controller = unloaded(found, live=brokers(2, 3), of=settings(unclean=of_cluster))
    writes, _ = step(controller)
    assert state_writes(writes)[TP].leader == (2 if of_topic else NO_LEADER)


@pytest.mark.rule("V13")
def test_the_effective_default_comes_from_the_configuration() -> None:
    with (
        controller_harness(3) as strict,
        controller_harness(3, unclean_leader_election_enable="true") as lenient,
    ):
        for around, leads in ((strict, False), (lenient, True)):
            controller = around.controller()
            sole, other = others(around, controller)
            around.create(controller, "t", (sole.broker_id, other.broker_id))
            published = around.state(TP)
            around.publish(
                TP,
                PartitionState(
                    sole.broker_id,
                    0,
                    (sole.broker_id,),
                    1,
                    0,
                    0,
                    published.isr_epochs[:1] if published.isr_epochs else None,
                ),
            )
            controller.crash()
            around.until(
                partial(
                    lambda one, gone: one.controllers not in ([], [gone]),
                    around,
                    controller.broker_id,
                )
            )
            [acting] = around.controllers
            if acting == sole.broker_id:
                controller.start()
                around.pass_time(300)
            sole.crash()
            around.until(
                partial(lambda one, gone: one.state(TP).leader != gone, around, sole.broker_id)
            )
            assert (around.state(TP).leader == other.broker_id) is leads


# V14


@pytest.mark.rule("V14")
@pytest.mark.parametrize(
    ("live", "published"),
    [
        ((2, 3), state()),
        ((1, 2), state()),
        ((9,), state()),
        ((2, 3), state((1, 2), NO_LEADER)),
    ],
    ids=["leader dies", "follower dies", "all die", "a leader returns"],
)
def test_both_epochs_rise_by_one_at_what_the_controller_changes(
    live: tuple[int, ...], published: PartitionState
) -> None:
    after = decided_on_load(published, *live)
    assert after.leader_epoch == published.leader_epoch + 1
    assert after.partition_epoch == published.partition_epoch + 1
    assert after.controller_epoch == CONTROLLER_EPOCH


@pytest.mark.rule("V14")
def test_a_change_of_the_leaders_own_raises_the_partition_epoch_only() -> None:
    writes, _ = step(loaded(), alter(1, 2))
    after = state_writes(writes)[TP]
    assert (after.leader_epoch, after.partition_epoch) == (5, 11)


@pytest.mark.rule("V14")
def test_what_stays_as_it_is_keeps_its_epochs(three: ControllerHarness) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3))
    before = three.state(TP)
    controller.controller.verify()
    three.pass_time(300)
    assert three.state(TP) == before


# D3


@pytest.mark.rule("D3")
def test_only_the_command_that_makes_a_replica_calls_it_new(three: ControllerHarness) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3))
    three.until(lambda: all(TP in one.script.roles() for one in three.brokers.values()))
    assert all(one.script.roles()[TP].is_new for one in three.brokers.values())
    victim, survivor = others(three, controller)
    victim.crash()
    three.until(lambda: victim.broker_id not in survivor.script.roles()[TP].isr)
    assert not survivor.script.roles()[TP].is_new
    victim.start()
    three.until(lambda: TP in victim.script.roles())
    assert not victim.script.roles()[TP].is_new


@pytest.mark.rule("D3")
def test_a_member_without_its_replica_leaves_the_isr_and_is_commanded_to_follow(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    follower, leader = others(three, controller)
    three.create(controller, "t", (leader.broker_id, follower.broker_id, controller.broker_id))
    three.pass_time(100)
    follower.script.role_errors[TP] = ErrorCode.REPLICA_NOT_AVAILABLE
    foreign = three.state(TP)
    three.publish(TP, foreign)
    controller.crash()
    three.until(lambda: follower.broker_id not in three.state(TP).isr)
    three.until(lambda: follower.broker_id not in follower.script.roles()[TP].isr)
    assert three.state(TP).leader == leader.broker_id
    assert follower.script.roles()[TP].leader == leader.broker_id


@pytest.mark.rule("D3")
def test_a_leader_without_its_replica_is_replaced_and_never_led_empty() -> None:
    controller = loaded()
    writes, effects = step(controller, roles_answered(1))
    after = state_writes(writes)[TP]
    assert (after.leader, after.isr) == (2, (2, 3))
    assert not effects.commands[1].roles[TP].state.is_new


@pytest.mark.rule("D3")
def test_a_sole_member_without_its_replica_stays_leaderless_for_the_operator() -> None:
    controller = loaded(one_partition(state((1,))))
    run(controller, roles_answered(1), BrokersRead(brokers(1, 2)), BrokersRead(brokers(1, 2, 3)))
    published = controller.image.states[TP]
    assert (published.leader, published.isr) == (NO_LEADER, (1,))


@pytest.mark.rule("D3")
def test_only_a_creation_that_was_cut_short_may_begin_empty() -> None:
    fresh = state(leader_epoch=0, partition_epoch=0)
    answers = [roles_answered(one) for one in (1, 2, 3)]
    controller = loaded(one_partition(fresh))
    effects = run(controller, *answers)
    assert all(one.roles[TP].state.is_new for one in effects[-1].commands.values())
    assert controller.image.states[TP] == fresh


@pytest.mark.rule("D3")
@pytest.mark.parametrize(
    ("published", "live"),
    [
        (state(leader_epoch=0, partition_epoch=1), (1, 2, 3)),
        (state((1, 2), leader_epoch=0, partition_epoch=0), (1, 2)),
    ],
    ids=["written since", "an assigned replica is dead"],
)
def test_everything_else_waits_for_the_operator(
    published: PartitionState, live: tuple[int, ...]
) -> None:
    controller = loaded(one_partition(published), live=brokers(*live))
    effects = run(controller, *(roles_answered(one) for one in live))
    told = [one for effect in effects for one in effect.commands.values()]
    assert not any(one.roles[TP].state.is_new for one in told if TP in one.roles)
    assert controller.image.states[TP].leader == NO_LEADER


@pytest.mark.rule("D3")
def test_an_answer_of_an_earlier_life_counts_for_nothing() -> None:
    controller = loaded()
    writes, _ = step(controller, roles_answered(2, life=2))
    assert writes == []
    assert isr_answer(step(controller, alter(1, 2))[1]).error_code == ErrorCode.NONE
