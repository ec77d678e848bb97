"""The next published state of one partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from tests.support.controller.values import (
    CONTROLLER_EPOCH,
    broker,
    brokers,
    epoch,
    state,
)

from tidelog.controller import lifecycle
from tidelog.controller.elections import election as elections
from tidelog.controller.elections.circumstances import Circumstances
from tidelog.controller.elections.election import Election
from tidelog.controller.incarnations import Brokers
from tidelog.controller.records import LogEnd, Recovery
from tidelog.core.eligible_replicas import BOUNCED_EPOCH
from tidelog.core.types import (
    NO_BROKER_EPOCH,
    NO_LEADER,
    RECOVERING,
    PartitionState,
)


def elect(
    published: PartitionState,
    live: Brokers,
    *,
    replicas: Sequence[int] = (1, 2, 3),
    absent: Sequence[int] = (),
    unclean: bool = False,
    minimum: int = 1,
    recovery: Recovery | None = None,
) -> Election | None:
    around = Circumstances(
        replicas, live, CONTROLLER_EPOCH, minimum, absent, unclean, recovery=recovery
    )
    return elections.elect(published, around)


def elected(published: PartitionState, live: Brokers, **how: Any) -> PartitionState:
    election = elect(published, live, **how)
    assert election is not None
    assert election.state.leader_epoch == published.leader_epoch + 1
    assert election.state.partition_epoch == published.partition_epoch + 1
    assert election.state.controller_epoch == CONTROLLER_EPOCH
    return election.state


class TestFirstState:
    def test_the_first_live_replica_leads_and_all_live_ones_are_in_sync(self) -> None:
        first = lifecycle.first_state((3, 1, 2), brokers(1, 2), CONTROLLER_EPOCH)
        assert first == PartitionState(
            leader=1,
            leader_epoch=0,
            isr=(1, 2),
            controller_epoch=CONTROLLER_EPOCH,
            isr_epochs=(epoch(1), epoch(2)),
        )

    def test_there_is_none_while_no_replica_is_alive(self) -> None:
        assert lifecycle.first_state((3,), brokers(1, 2), CONTROLLER_EPOCH) is None


class TestHealth:
    def test_nothing_is_due_while_all_members_live_their_recorded_lives(self) -> None:
        assert elect(state(), brokers(1, 2, 3)) is None

    def test_a_replica_outside_the_isr_may_come_and_go(self) -> None:
        assert elect(state(isr=(1, 2)), brokers(1, 2)) is None

    def test_a_clean_restart_of_a_follower_leaves_the_isr_as_it_is(self) -> None:
        live = brokers(1, broker(2, life=2, previous_broker_epoch=epoch(2)), 3)
        assert elect(state(), live) is None


class TestDeath:
    def test_the_first_live_isr_member_in_assignment_order_takes_over(self) -> None:
        after = elected(state(isr=(1, 2, 3)), brokers(2, 3), replicas=(1, 3, 2))
        assert (after.leader, after.isr) == (3, (2, 3))
        assert after.isr_epochs == (epoch(2), epoch(3))

    def test_a_dead_follower_leaves_the_isr_under_the_same_leader(self) -> None:
        after = elected(state(), brokers(1, 2))
        assert (after.leader, after.isr) == (1, (1, 2))

    def test_a_live_replica_outside_the_isr_does_not_lead(self) -> None:
        after = elected(state(isr=(1,)), brokers(2, 3))
        assert (after.leader, after.isr) == (NO_LEADER, (1,))
        assert after.isr_epochs == (epoch(1),)

    @pytest.mark.rule("V13")
    def test_the_last_isr_is_kept_whole(self) -> None:
        after = elected(state(isr=(1, 2)), brokers(3))
        assert (after.leader, after.isr) == (NO_LEADER, (1, 2))

    def test_a_leaderless_partition_waits_without_being_written_again(self) -> None:
        assert elect(state(isr=(1,), leader=NO_LEADER), brokers(2, 3)) is None

    def test_a_member_that_returns_under_its_recorded_life_leads(self) -> None:
        after = elected(state(isr=(1, 2), leader=NO_LEADER), brokers(2, 3))
        assert (after.leader, after.isr) == (2, (2,))

    def test_unknown_epochs_of_dead_members_are_those_of_no_registration(self) -> None:
        after = elected(state(isr=(1, 2), isr_epochs=None), brokers(3))
        assert after.isr_epochs == (BOUNCED_EPOCH, BOUNCED_EPOCH)

    def test_the_recovery_state_is_kept(self) -> None:
        after = elected(state(isr=(1, 2), leader_recovery_state=RECOVERING), brokers(2))
        assert after.leader_recovery_state == RECOVERING


class TestBounce:
    def test_a_bounced_leader_leaves_the_isr(self) -> None:
        after = elected(state(), brokers(broker(1, life=2), 2, 3))
        assert (after.leader, after.isr) == (2, (2, 3))

    @pytest.mark.rule("V10", "V12")
    def test_a_bounced_follower_leaves_the_isr(self) -> None:
        after = elected(state(), brokers(1, broker(2, life=2), 3))
        assert (after.leader, after.isr) == (1, (1, 3))

    def test_all_bounced_members_leave_before_the_election(self) -> None:
        live = brokers(broker(1, life=2), broker(2, life=2), 3)
        after = elected(state(), live)
        assert (after.leader, after.isr) == (3, (3,))

    @pytest.mark.rule("V10", "E6")
    def test_nobody_leaves_while_no_proven_member_is_alive(self) -> None:
        after = elected(state(isr=(1, 2)), brokers(broker(1, life=2)))
        assert (after.leader, after.isr) == (NO_LEADER, (1, 2))
        assert after.isr_epochs == (epoch(1), epoch(2))

    @pytest.mark.rule("V10", "V12")
    def test_where_all_have_bounced_the_greatest_log_leads_and_the_others_catch_up(self) -> None:
        live = brokers(broker(1, life=2), broker(2, life=2))
        logs = Recovery(logs={1: LogEnd(4, 9), 2: LogEnd(5, 8)})
        after = elected(state(isr=(1, 2)), live, replicas=(1, 2, 3), recovery=logs)
        assert (after.leader, after.isr) == (2, (2,))
        assert after.isr_epochs == (epoch(2, life=2),)

    def test_a_sole_member_that_bounced_leads_again_under_a_new_epoch(self) -> None:
        after = elected(state(isr=(1,)), brokers(broker(1, life=2), 2, 3))
        assert (after.leader, after.isr) == (1, (1,))
        assert after.isr_epochs == (epoch(1, life=2),)
        assert elect(after, brokers(broker(1, life=2), 2, 3)) is None

    def test_a_leader_that_restarted_cleanly_gets_a_new_leader_epoch(self) -> None:
        live = brokers(broker(1, life=2, previous_broker_epoch=epoch(1)), 2, 3)
        after = elected(state(), live)
        assert (after.leader, after.isr) == (1, (1, 2, 3))
        assert after.isr_epochs == (epoch(1, life=2), epoch(2), epoch(3))


class TestAbsentReplicas:
    @pytest.mark.rule("V12", "D3")
    def test_a_member_without_its_replica_leaves_the_isr(self) -> None:
        after = elected(state(), brokers(1, 2, 3), absent=[2])
        assert (after.leader, after.isr) == (1, (1, 3))

    def test_a_leader_without_its_replica_hands_over(self) -> None:
        after = elected(state(), brokers(1, 2, 3), absent=[1])
        assert (after.leader, after.isr) == (2, (2, 3))

    def test_a_sole_member_without_its_replica_stays_leaderless(self) -> None:
        after = elected(state(isr=(1,)), brokers(1, 2, 3), absent=[1])
        assert (after.leader, after.isr) == (NO_LEADER, (1,))
        assert elect(after, brokers(1, 2, 3), absent=[1]) is None

    def test_a_bounced_member_with_a_replica_goes_before_one_without(self) -> None:
        live = brokers(1, broker(2, life=2))
        logs = Recovery(logs={2: LogEnd(5, 8)})
        after = elected(state(isr=(1, 2)), live, absent=[1], recovery=logs)
        assert (after.leader, after.isr) == (2, (2,))

    def test_a_dead_member_is_waited_for_rather_than_one_without_its_replica(self) -> None:
        after = elected(state(isr=(1, 2)), brokers(1), absent=[1])
        assert (after.leader, after.isr) == (NO_LEADER, (1, 2))
        again = elected(after, brokers(1, 2), absent=[1])
        assert (again.leader, again.isr) == (2, (2,))


class TestUncleanElection:
    def test_it_is_off_unless_it_is_asked_for(self) -> None:
        assert elected(state(isr=(1,)), brokers(2, 3)).leader == NO_LEADER

    def test_the_first_live_replica_leads_alone_and_recovering(self) -> None:
        after = elected(state(isr=(1,)), brokers(2, 3), unclean=True)
        assert (after.leader, after.isr) == (2, (2,))
        assert after.leader_recovery_state == RECOVERING
        assert after.isr_epochs == (epoch(2),)

    def test_a_clean_election_goes_first(self) -> None:
        after = elected(state(isr=(1, 3)), brokers(2, 3), unclean=True)
        assert (after.leader, after.leader_recovery_state) == (3, 0)

    def test_nobody_alive_means_no_leader(self) -> None:
        assert elected(state(isr=(1,)), brokers(4), unclean=True).leader == NO_LEADER

    @pytest.mark.rule("D3", "V13")
    def test_a_replica_that_exists_goes_before_one_that_does_not(self) -> None:
        election = elect(state(isr=(1,)), brokers(1, 2), absent=[1], unclean=True)
        assert election is not None
        assert (election.state.leader, election.creates_leader) == (2, False)

    def test_with_nothing_left_an_empty_replica_is_made(self) -> None:
        election = elect(state(isr=(1,)), brokers(1), replicas=(1,), absent=[1], unclean=True)
        assert election is not None
        assert (election.state.leader, election.creates_leader) == (1, True)


class TestCreationCutShort:
    FRESH = state(partition_epoch=0, leader_epoch=0)

    @pytest.mark.rule("D3")
    def test_a_fresh_partition_with_all_replicas_alive_may_not_exist_yet(self) -> None:
        assert elections.cut_short(self.FRESH, (1, 2, 3), brokers(1, 2, 3))

    @pytest.mark.rule("D3")
    @pytest.mark.parametrize(
        ("published", "live"),
        [
            (state(partition_epoch=1), brokers(1, 2, 3)),
            (FRESH, brokers(1, 2)),
            (FRESH, brokers(1, 2, broker(3, life=2))),
        ],
        ids=["written since", "a replica is dead", "a member has restarted"],
    )
    def test_otherwise_it_did_exist(self, published: PartitionState, live: Brokers) -> None:
        assert not elections.cut_short(published, (1, 2, 3), live)


def test_an_eligible_replica_in_a_failed_directory_stays_eligible() -> None:
    """Its disk may come back with every record; a lost one is no longer eligible."""
    published = replace(state(isr=(1,), leader=1), elr=(2,), elr_epochs=(epoch(2),))
    around = Circumstances(
        (1, 2, 3), brokers(1, 2, 3), CONTROLLER_EPOCH, minimum=2, absent=(2, 3), offline=(2,)
    )
    assert elections.elect(published, around) is None
    lost = elections.elect(published, replace(around, offline=()))
    assert lost is not None and lost.state.elr == ()


def test_nothing_is_due_where_one_look_finds_a_partition_untouched() -> None:
    """Every state of up to two members, each of them gone, as it was, leaving or restarted."""
    states = [
        state(isr, leader, isr_epochs=epochs)
        for isr in ((1,), (1, 2))
        for leader in (NO_LEADER, 1, 2, 3)
        for epochs in ("first lives", None, (NO_BROKER_EPOCH,) * len(isr))
    ]
    lives = [
        (None, broker(one), replace(broker(one), is_leaving=True), broker(one, life=2))
        for one in (1, 2)
    ]
    cases = [
        (published, brokers(*(one for one in alive if one is not None)))
        for published in states
        for alive in product(*lives)
    ]
    untouched = [case for case in cases if elections.is_untouched(*case)]
    assert 0 < len(untouched) < len(cases)
    assert [elect(*case) for case in untouched] == [None] * len(untouched)
