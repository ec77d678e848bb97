"""Which ISRs a leader may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support.controller.values import (
    CONTROLLER_EPOCH,
    alter,
    broker,
    brokers,
    epoch,
    state,
)

from tidelog.controller.incarnations import Brokers
from tidelog.controller.partitions import isr
from tidelog.controller.partitions.isr import ProposalVerdict
from tidelog.core.errors import ErrorCode
from tidelog.core.types import RECOVERED, RECOVERING, BrokerInfo, PartitionState


def judge(
    *members: int | tuple[int, int],
    published: PartitionState | None = None,
    live: Brokers | None = None,
    replicas: Sequence[int] = (1, 2, 3),
    version: int = 3,
    **how: Any,
) -> ProposalVerdict:
    asked = alter(*members, version=version, **how)
    [data] = asked.request.topics[0].partitions
    return isr.judge(
        isr.proposal(asked.request.broker_id, data, version),
        published or state(isr=(1, 2)),
        replicas,
        live or brokers(1, 2, 3),
        CONTROLLER_EPOCH,
        version,
    )


def test_an_eligible_isr_is_accepted_under_the_next_partition_epoch() -> None:
    verdict = judge(1, 2, 3)
    assert verdict.is_new
    assert verdict.state == PartitionState(
        leader=1,
        leader_epoch=5,
        isr=(1, 2, 3),
        controller_epoch=CONTROLLER_EPOCH,
        partition_epoch=11,
        isr_epochs=(epoch(1), epoch(2), epoch(3)),
    )


def test_a_shrink_is_accepted() -> None:
    verdict = judge(1)
    assert verdict.state is not None
    assert verdict.state.isr == (1,)


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"leader_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"partition_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"leader_epoch": 6}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 11}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 4, "partition_epoch": 9}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"sender": 2}, ErrorCode.INVALID_REQUEST),
        ({"partition_epoch": 9}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"recovery": RECOVERING}, ErrorCode.INVALID_REQUEST),
        ({"recovery": 2}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_epochs_and_sender_are_fenced(how: dict[str, Any], error: ErrorCode) -> None:
    verdict = judge(1, 2, 3, **how)
    assert verdict.error is error
    assert verdict.state is None


@pytest.mark.parametrize(
    "members", [(), (2, 3), (1, 2, 2), (1, 4)], ids=["empty", "no leader", "twice", "not assigned"]
)
def test_an_isr_that_cannot_be_is_refused(members: tuple[int, ...]) -> None:
    live = brokers(1, 2, 3, 4)
    assert judge(*members, live=live).error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("partition_epoch", [10, 9, 0])
def test_a_state_that_holds_already_is_answered_whatever_its_age(partition_epoch: int) -> None:
    published = state(isr=(1, 2))
    verdict = judge(2, 1, published=published, partition_epoch=partition_epoch)
    assert verdict == ProposalVerdict(state=published)


class TestRecovery:
    PUBLISHED = state(isr=(1,), leader_recovery_state=RECOVERING)

    def test_a_leader_counts_itself_recovered(self) -> None:
        verdict = judge(1, published=self.PUBLISHED, recovery=RECOVERED)
        assert verdict.state is not None
        assert verdict.state.leader_recovery_state == RECOVERED

    def test_a_recovering_leader_is_alone(self) -> None:
        verdict = judge(1, 2, published=self.PUBLISHED, recovery=RECOVERING)
        assert verdict.error is ErrorCode.INVALID_REQUEST

    def test_a_recovering_leader_may_leave_the_others_out(self) -> None:
        published = state(isr=(1, 2), leader_recovery_state=RECOVERING)
        verdict = judge(1, published=published, recovery=RECOVERING)
        assert verdict.is_new


class TestEligibility:
    def test_a_dead_member_is_ineligible(self) -> None:
        verdict = judge(1, 2, 3, live=brokers(1, 2))
        assert verdict.error is ErrorCode.INELIGIBLE_REPLICA
        # Final, once the partition epoch that the change builds on has passed (A8).
        assert verdict.is_new
        assert verdict.state is not None
        assert verdict.state.partition_epoch == state().partition_epoch + 1
        assert verdict.state.isr == (1, 2)

    @pytest.mark.parametrize("member", [1, 2, 3])
    def test_every_member_must_be_in_the_life_that_was_counted(self, member: int) -> None:
        members = [(one, epoch(one, life=2 if one == member else 1)) for one in (1, 2, 3)]
        assert judge(*members).error is ErrorCode.INELIGIBLE_REPLICA

    def test_a_member_that_bounced_since_is_ineligible(self) -> None:
        live = brokers(1, broker(2, life=2), 3)
        assert judge(1, 2, 3, live=live).error is ErrorCode.INELIGIBLE_REPLICA

    def test_versions_before_2_hear_that_nothing_was_attempted(self) -> None:
        verdict = judge(1, 2, 3, live=brokers(1, 2), version=1)
        assert verdict.error is ErrorCode.OPERATION_NOT_ATTEMPTED

    def test_without_epochs_an_unchanged_member_passes(self) -> None:
        verdict = judge(1, 2, 3, version=2)
        assert verdict.state is not None
        assert verdict.state.isr_epochs == (epoch(1), epoch(2), epoch(3))

    def test_without_epochs_a_bounced_member_does_not_pass(self) -> None:
        live = brokers(1, broker(2, life=2), 3)
        assert judge(1, 2, 3, live=live, version=2).error is ErrorCode.INELIGIBLE_REPLICA

    def test_without_epochs_a_newcomer_that_is_younger_than_the_state_is_counted_anew(self) -> None:
        published = state(isr=(1, 2), mzxid=epoch(3) - 1)
        verdict = judge(1, 2, 3, published=published, version=2)
        assert verdict.error is ErrorCode.FENCED_LEADER_EPOCH
        assert verdict.is_new and verdict.state is not None
        assert (verdict.state.leader_epoch, verdict.state.partition_epoch) == (6, 11)
        assert (verdict.state.leader, verdict.state.isr) == (1, (1, 2))
        assert verdict.state.isr_epochs == (epoch(1), epoch(2))

    def test_who_is_leaving_is_not_counted_anew(self) -> None:
        published = state(isr=(1, 2), mzxid=epoch(3) - 1)
        live = brokers(1, 2, replace(broker(3), is_leaving=True))
        verdict = judge(1, 2, 3, published=published, live=live, version=2)
        assert verdict.error is ErrorCode.INELIGIBLE_REPLICA

    def test_lives_are_recorded_where_none_are_before_the_node_is_modified(self) -> None:
        published = state(isr=(1, 2), isr_epochs=None, mzxid=150)
        live = brokers(1, 2, broker(3, life=2))
        verdict = judge(1, 2, 3, published=published, live=live, version=2)
        assert verdict.state is not None and verdict.state.leader_epoch == 6
        assert verdict.state.isr_epochs == (epoch(1), epoch(2))

    @pytest.mark.parametrize("second", [(), (broker(2, life=2),)], ids=["dead", "bounced"])
    def test_a_node_that_alone_tells_of_a_bounce_is_not_modified(
        self, second: tuple[BrokerInfo, ...]
    ) -> None:
        published = state(isr=(1, 2), isr_epochs=None, mzxid=150)
        live = brokers(1, *second, broker(3, life=2))
        verdict = judge(1, 3, published=published, live=live, version=2)
        assert verdict.error is ErrorCode.INELIGIBLE_REPLICA
        assert not verdict.is_new
