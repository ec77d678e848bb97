"""Rules E: eligible leader replicas, and recovery by proof."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.controller.harness import Candidate, ControllerHarness, controller_harness
from tests.support.controller.values import (
    TP,
    alter,
    broker,
    brokers,
    epoch,
    loaded,
    one_partition,
    reassign,
    settings,
    state,
    state_writes,
    step,
    unloaded,
)

from tidelog.controller.controller import Controller
from tidelog.controller.elections.leaders import MinimumRead
from tidelog.controller.elections.recoveries import LogEndsReported, RecoveryBegun, RecoveryWaitOver
from tidelog.controller.records import NO_LOG, LogEnd
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.replica_answers import LeaderAndIsrAnswered
from tidelog.core import eligible_replicas
from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_LEADER, BrokerInfo, PartitionState
from tidelog.metadata import layout
from tidelog.metadata.store import Stat
from tidelog.replication.isr import IsrState
from tidelog.replication.leader import LeaderReplica


@pytest.fixture
def three() -> Iterator[ControllerHarness]:
    with controller_harness(3) as made:
        yield made


def others(three: ControllerHarness, controller: Candidate) -> list[Candidate]:
    return [one for one in three.brokers.values() if one is not controller]


def leading(isr: tuple[int, ...], *, has_eligible: bool) -> LeaderReplica:
    return LeaderReplica(
        broker_id=1,
        broker_epoch=11,
        leader_epoch=5,
        isr=IsrState(isr, 10),
        replicas=(1, 2, 3),
        epoch_start_offset=0,
        log_end_offset=0,
        high_watermark=0,
        min_insync_replicas=2,
        max_lag_ms=1_000,
        is_eligible=lambda _: True,
        now_ms=0,
        has_eligible=has_eligible,
    )


TWO = replace(settings(), min_insync_replicas=2)


def decided(published: PartitionState, *live: int | BrokerInfo, minimum: int = 2) -> PartitionState:
    """What a new controller writes for the partition; published state where it writes nothing."""
    of = replace(settings(), min_insync_replicas=minimum)
    writes, _ = step(unloaded(one_partition(published), live=brokers(*live), of=of))
    return state_writes(writes).get(TP, published)


def reborn(*members: int) -> list[BrokerInfo]:
    return [broker(member, life=2) for member in members]


def report(controller: Controller, broker_id: int, end: LogEnd, life: int = 2) -> PartitionState:
    """A broker reports the end of its log; the state after that."""
    step(controller, LogEndsReported(broker_id, epoch(broker_id, life), {TP: end}))
    return controller.image.states[TP]


def asked(controller: Controller, *members: int) -> list[int]:
    """A controller for whom these have bounced; the brokers that it asks for the ends of logs."""
    _, effects = step(controller, BrokersRead(brokers(*reborn(*members))))
    return [one for one, commands in effects.commands.items() if commands.log_ends]


# E1


@pytest.mark.rule("E1")
def test_who_leaves_an_isr_that_becomes_too_small_is_eligible() -> None:
    controller = loaded(one_partition(state()), of=TWO)
    writes, _ = step(controller, alter(1))
    after = state_writes(writes)[TP]
    assert (after.isr, after.elr) == ((1,), (2, 3))
    assert after.elr_epochs == (epoch(2), epoch(3))


@pytest.mark.rule("E1")
def test_who_leaves_an_isr_that_stays_large_enough_is_not() -> None:
    writes, _ = step(loaded(one_partition(state()), of=TWO), alter(1, 2))
    assert state_writes(writes)[TP].elr == ()


@pytest.mark.rule("D3")
def test_a_replica_missing_at_a_broker_that_was_a_member_gets_its_role_once_more() -> None:
    # The leader's expansion cleared the eligible replicas while the command was under way.
    controller = loaded(one_partition(state((1, 3))), of=TWO)
    lost = LeaderAndIsrAnswered(2, epoch(2), [(TP, ErrorCode.REPLICA_NOT_AVAILABLE)])
    writes, effects = step(controller, lost)
    assert not state_writes(writes)
    assert effects.commands[2].roles[TP].state.isr == (1, 3)


@pytest.mark.rule("E1")
def test_no_replica_is_eligible_any_more_when_the_isr_reaches_the_minimum_again() -> None:
    small = state((1,), elr={2: epoch(2), 3: epoch(3)})
    writes, _ = step(loaded(one_partition(small), of=TWO), alter(1, 2))
    after = state_writes(writes)[TP]
    assert (after.isr, after.elr, after.elr_epochs) == ((1, 2), (), ())


@pytest.mark.rule("E1")
def test_the_death_of_members_makes_them_eligible_too() -> None:
    after = decided(state(), 1)
    assert (after.leader, after.isr, after.elr) == (1, (1,), (2, 3))
    assert after.elr_epochs == (epoch(2), epoch(3))


@pytest.mark.rule("E1")
def test_a_replica_that_is_not_assigned_any_more_drops_out() -> None:
    before = state((1,), elr={2: epoch(2), 3: epoch(3)})
    after = eligible_replicas.after(before, (1,), 2, (1, 2))
    assert after.elr == (2,)


@pytest.mark.rule("E1", "D3")
def test_a_member_without_its_replica_is_not_eligible() -> None:
    after = eligible_replicas.after(state(), (1,), 2, (1, 2, 3), lost=(2,))
    assert after.elr == (3,)


@pytest.mark.rule("E1", "D3")
def test_an_eligible_broker_without_its_replica_reports_it_and_drops_out() -> None:
    small = state((1,), elr={2: epoch(2), 3: epoch(3)})
    controller = unloaded(one_partition(small), of=TWO)
    _, effects = step(controller)
    assert effects.commands[2].roles[TP].state.eligible == (2, 3)
    writes, _ = step(
        controller, LeaderAndIsrAnswered(2, epoch(2), [(TP, ErrorCode.REPLICA_NOT_AVAILABLE)])
    )
    after = state_writes(writes)[TP]
    assert (after.leader, after.isr, after.elr) == (1, (1,), (3,))


@pytest.mark.rule("E1")
def test_no_replica_is_eligible_any_more_when_the_minimum_falls_to_the_size_of_the_isr() -> None:
    small = state((1, 2), elr={3: epoch(3)})
    controller = loaded(one_partition(small), of=replace(TWO, min_insync_replicas=3))
    writes, _ = step(controller, MinimumRead({"t": 2}))
    after = state_writes(writes)[TP]
    assert (after.leader, after.leader_epoch) == (1, small.leader_epoch)
    assert (after.isr, after.elr) == ((1, 2), ())
    assert decided(after, 3, minimum=2).leader == NO_LEADER, "3 may lack what 1 and 2 committed"


@pytest.mark.rule("E1", "E2")
@pytest.mark.parametrize("leader", [1, NO_LEADER])
def test_a_lower_minimum_makes_no_replica_ineligible_while_no_replica_leads(leader: int) -> None:
    """Its leader commits nothing without the eligible replicas before the controller says so."""
    small = replace(state((1,), elr={2: epoch(2), 3: epoch(3)}), leader=leader)
    after = decided(small, 2, 3, minimum=1)
    assert (after.leader, after.isr, after.elr) == (2, (2,), ())
    bounced = decided(small, broker(1, life=2), 3, minimum=1)
    assert bounced.leader == 3, "the leader that restarted may have lost records, 3 has not"


@pytest.mark.rule("E1", "V60")
def test_a_leader_commits_nothing_while_others_are_eligible() -> None:
    leader = leading((1, 2), has_eligible=True)
    leader.appended(5, 0)
    leader.fetched(2, 12, 5, 0, 0)
    assert leader.high_watermark == 0
    leader.commanded((1, 2), (1, 2, 3), 11, lambda _: True, 0)
    assert leader.high_watermark == 5


@pytest.mark.rule("E1", "E3")
def test_an_eligible_replica_that_restarted_cleanly_counts_in_its_new_life() -> None:
    clean = broker(2, life=2, previous_broker_epoch=epoch(2))
    small = state((1, 2), elr={3: epoch(3)})
    after = decided(small, 1, clean, minimum=3)
    assert after == small, "the leader is alive: nothing is due"
    writes, _ = step(
        loaded(
            one_partition(small), live=brokers(1, clean), of=replace(TWO, min_insync_replicas=3)
        ),
        alter(1),
    )
    after = state_writes(writes)[TP]
    assert dict(zip(after.elr, after.elr_epochs, strict=True)) == {2: epoch(2, life=2), 3: epoch(3)}


# E2


@pytest.mark.rule("E2")
def test_a_member_of_the_isr_leads_before_an_eligible_replica() -> None:
    after = decided(state((3,), leader=NO_LEADER, elr={1: epoch(1), 2: epoch(2)}), 1, 2, 3)
    assert (after.leader, after.isr, after.elr) == (3, (3,), (1, 2))


@pytest.mark.rule("E2")
def test_an_eligible_replica_leads_where_no_member_of_the_isr_is_alive() -> None:
    after = decided(state((3,), elr={1: epoch(1), 2: epoch(2)}), 2)
    assert (after.leader, after.isr) == (2, (2,))
    assert dict(zip(after.elr, after.elr_epochs, strict=True)) == {3: epoch(3), 1: epoch(1)}


@pytest.mark.rule("E2", "V13")
def test_no_other_replica_is_eligible_after_an_unclean_election() -> None:
    published = state((1,), elr={2: epoch(2)})
    of = replace(TWO, unclean=True)
    writes, _ = step(unloaded(one_partition(published), live=brokers(3), of=of))
    after = state_writes(writes)[TP]
    assert (after.leader, after.isr, after.elr, after.elr_epochs) == (3, (3,), (), ())


# E6, E4


@pytest.mark.rule("E6", "V10")
def test_one_proven_member_decides_at_once_and_the_bounced_ones_leave() -> None:
    after = decided(state(), *reborn(1, 2), 3)
    assert (after.leader, after.isr, after.elr) == (3, (3,), (1, 2))
    assert after.elr_epochs == (epoch(1), epoch(2)), "they count as they were: unproven"


@pytest.mark.rule("E6")
def test_the_greatest_log_of_all_members_leads() -> None:
    controller = loaded(one_partition(state()), of=TWO)
    assert asked(controller, 1, 2, 3) == [1, 2, 3]
    assert controller.image.states[TP].leader == NO_LEADER
    report(controller, 1, LogEnd(4, 90))
    assert report(controller, 2, LogEnd(5, 70)).leader == NO_LEADER
    after = report(controller, 3, LogEnd(5, 80))
    assert (after.leader, after.isr) == (3, (3,))
    assert dict(zip(after.elr, after.elr_epochs, strict=True)) == {1: epoch(1), 2: epoch(2)}


@pytest.mark.rule("E6")
def test_a_log_that_ends_below_the_start_of_another_does_not_lead() -> None:
    controller = loaded(one_partition(state((1, 2))), of=TWO)
    asked(controller, 1, 2)
    report(controller, 1, LogEnd(5, 50, 0))
    assert report(controller, 2, LogEnd(-1, 100, 100)).leader == 2


@pytest.mark.rule("E6")
def test_the_others_are_awaited_for_a_while_and_not_for_ever() -> None:
    controller = loaded(one_partition(state()), of=TWO)
    assert asked(controller, 1, 2) == []
    _, effects = step(controller, RecoveryWaitOver([RecoveryBegun(TP, 0)]))
    assert [one for one, sent in effects.commands.items() if sent.log_ends] == [1, 2]
    report(controller, 1, LogEnd(5, 80))
    assert report(controller, 2, LogEnd(5, 90)).leader == 2


@pytest.mark.rule("E6")
def test_the_wait_ends_also_when_replicas_begin_to_move_meanwhile() -> None:
    """A move raises the leader epoch, and the recovery goes on."""
    controller = loaded(one_partition(state()), live=brokers(1, 2, 3, 4), of=TWO)
    _, effects = step(controller, BrokersRead(brokers(*reborn(1, 2), 4)))
    begun = effects.notices.of(RecoveryBegun)
    before = controller.image.states[TP].leader_epoch
    step(controller, reassign(TP, (1, 2, 4)))
    while controller.has_work:
        step(controller)
    assert controller.image.states[TP].leader_epoch > before
    _, effects = step(controller, RecoveryWaitOver(begun))
    assert [one for one, sent in effects.commands.items() if sent.log_ends] == [1, 2]


@pytest.mark.rule("E6", "E4")
def test_fewer_than_the_minimum_wait_for_another_whatever_the_time() -> None:
    controller = loaded(one_partition(state()), of=TWO)
    assert asked(controller, 1) == []
    step(controller, RecoveryWaitOver([RecoveryBegun(TP, 0)]))
    held = controller.image.states[TP]
    assert (held.leader, held.isr, held.last_leader) == (NO_LEADER, (1, 2, 3), 1)


@pytest.mark.rule("E6")
def test_members_that_left_a_small_isr_are_compared_too() -> None:
    controller = loaded(one_partition(state((1,), elr={2: epoch(2)})), of=TWO)
    assert asked(controller, 1, 2, 3) == [1, 2]
    report(controller, 1, LogEnd(5, 80))
    assert report(controller, 2, LogEnd(5, 90)).leader == 2


@pytest.mark.rule("E6", "D3")
def test_a_proven_member_without_its_replica_keeps_no_recovery_from_beginning() -> None:
    controller = loaded(one_partition(state((1, 2))), of=TWO)
    step(controller, BrokersRead(brokers(1, broker(2, life=2))))
    assert controller.image.states[TP].leader == 1
    lost = LeaderAndIsrAnswered(1, epoch(1), [(TP, ErrorCode.REPLICA_NOT_AVAILABLE)])
    _, effects = step(controller, lost)
    assert [one for one, sent in effects.commands.items() if sent.log_ends] == [2]
    assert report(controller, 2, LogEnd(5, 9)).leader == 2


@pytest.mark.rule("E6", "D3")
@pytest.mark.parametrize("refuses_its_role", [True, False])
def test_a_member_whose_replica_came_back_is_asked_again(refuses_its_role: bool) -> None:
    """A stray that an operator restored after its broker had reported no log."""
    controller = loaded(one_partition(state((1, 2))), of=TWO)
    asked(controller, 1, 2)
    if refuses_its_role:
        missing = [(TP, ErrorCode.REPLICA_NOT_AVAILABLE)]
        step(controller, LeaderAndIsrAnswered(1, epoch(1, 2), missing))
        step(controller, LeaderAndIsrAnswered(2, epoch(2, 2), missing))
    report(controller, 1, NO_LOG)
    assert report(controller, 2, NO_LOG).leader == NO_LEADER
    _, effects = step(controller, LeaderAndIsrAnswered(2, epoch(2, 2), [(TP, ErrorCode.NONE)]))
    assert [one for one, sent in effects.commands.items() if sent.log_ends] == [2]
    assert report(controller, 2, LogEnd(5, 9)).leader == 2


@pytest.mark.rule("E6")
def test_a_member_that_returns_with_a_proof_ends_the_wait() -> None:
    controller = loaded(one_partition(state()), of=TWO)
    asked(controller, 1, 2)
    proven = broker(3, life=2, previous_broker_epoch=epoch(3))
    step(controller, BrokersRead(brokers(*reborn(1, 2), proven)))
    assert controller.image.states[TP].leader == 3


@pytest.mark.rule("E6")
def test_an_answer_of_an_earlier_registration_does_not_count() -> None:
    controller = loaded(one_partition(state((1, 2))), of=TWO)
    asked(controller, 1, 2)
    report(controller, 1, LogEnd(5, 80))
    step(controller, BrokersRead(brokers(broker(1, life=3), broker(2, life=2))))
    report(controller, 2, LogEnd(5, 70))
    assert controller.image.states[TP].leader == NO_LEADER, "1 is asked again"
    assert report(controller, 1, LogEnd(5, 60), life=3).leader == 2


@pytest.mark.rule("E6")
def test_where_the_others_do_not_report_the_first_member_leads_as_in_kafka() -> None:
    """Brokers of Kafka 3.9 do not know the question."""
    silent = [replace(one, reports_log_ends=False) for one in reborn(1, 2)]
    assert decided(state((1, 2)), *silent).leader == 1


@pytest.mark.rule("E4")
def test_an_operator_decides_where_too_few_are_there() -> None:
    of = replace(TWO, unclean=True)
    writes, _ = step(unloaded(one_partition(state()), live=brokers(*reborn(2)), of=of))
    after = state_writes(writes)[TP]
    assert (after.leader, after.isr) == (2, (2,))
    assert after.leader_recovery_state == 1


@pytest.mark.rule("E4", "E6")
def test_an_unclean_election_is_not_hurried_while_logs_can_be_compared() -> None:
    controller = loaded(one_partition(state((1, 2))), of=replace(TWO, unclean=True))
    asked(controller, 1, 2)
    report(controller, 1, LogEnd(5, 80))
    after = report(controller, 2, LogEnd(5, 90))
    assert (after.leader, after.leader_recovery_state) == (2, 0)


@pytest.mark.rule("E6")
def test_brokers_are_asked_once_they_have_their_roles(three: ControllerHarness) -> None:
    controller = three.controller()
    first, second = others(three, controller)
    three.create(controller, "t", (first.broker_id, second.broker_id))
    for each, end in ((first, 4), (second, 9)):
        each.script.log_ends[TP] = (0, end)
        each.previous_broker_epoch = -1
        each.crash()
    three.until(lambda: three.state(TP).leader == NO_LEADER)
    first.start()
    second.start()
    three.until(lambda: three.state(TP).leader == second.broker_id)
    kinds = second.script.kinds()
    assert "E" in kinds[kinds.index("F") :]


# E5


@pytest.mark.rule("E5")
def test_a_node_without_the_keys_has_no_eligible_replicas() -> None:
    assert eligible_replicas.members(state((1, 2))) == {1: epoch(1), 2: epoch(2)}


@pytest.mark.rule("E5")
def test_without_recorded_epochs_an_eligible_replica_is_unproven() -> None:
    node = b'{"leader":-1,"leader_epoch":5,"controller_epoch":7,"version":1,"isr":[1],"elr":[2]}'
    found = layout.decode_partition_state("/p", node, Stat(4, 1, 2, 0))
    assert (found.elr, found.elr_epochs) == ((2,), (-1,))
    assert decided(found, 2).leader == NO_LEADER
