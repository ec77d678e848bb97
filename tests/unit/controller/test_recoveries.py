"""The course of a recovery by proof: the wait, the questions, what ends it."""

from __future__ import annotations

from dataclasses import replace

from tests.support.controller.values import (
    TP,
    broker,
    brokers,
    epoch,
    loaded,
    one_partition,
    settings,
    state,
    state_writes,
    step,
    topic,
    unloaded,
)

from tidelog.controller.controller import Controller
from tidelog.controller.elections.leaders import MinimumChanged, MinimumRead
from tidelog.controller.elections.recoveries import (
    LogEndAsked,
    LogEndFound,
    LogEndsReported,
    RecoveryBegun,
    RecoveryDue,
    RecoveryStarted,
    RecoveryWaitOver,
)
from tidelog.controller.records import NO_LOG, LogEnd
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.topics.changes import TopicFound
from tidelog.core.types import NO_LEADER

TWO = replace(settings(), min_insync_replicas=2)
OTHER = TP._replace(topic="gone")


def bounced(*members: int, of: tuple[int, ...] = (1, 2, 3)) -> Controller:
    """A controller with a partition of these members, of whom some are back and all bounced."""
    controller = loaded(one_partition(state(of)), of=TWO)
    step(controller, BrokersRead(brokers(*(broker(member, life=2) for member in members))))
    return controller


def report(controller: Controller, member: int, end: LogEnd, life: int = 2) -> int:
    """The leader after a broker has reported the end of its log."""
    step(controller, LogEndsReported(member, epoch(member, life), {TP: end, OTHER: end}))
    return controller.image.states[TP].leader


def test_it_is_timed_once_and_every_broker_is_asked_once() -> None:
    controller = loaded(one_partition(state()), of=TWO)
    back = brokers(*(broker(member, life=2) for member in (1, 2)))
    _, effects = step(controller, BrokersRead(back))
    assert effects.notices.of(RecoveryBegun) == [RecoveryBegun(TP, 0)]
    _, effects = step(controller, RecoveryWaitOver([RecoveryBegun(TP, 0), RecoveryBegun(OTHER, 0)]))
    assert effects.notices.of(RecoveryBegun) == []
    assert sorted(one for one, sent in effects.commands.items() if sent.log_ends) == [1, 2]
    _, effects = step(
        controller, BrokersRead({**back, 4: broker(4)}), RecoveryWaitOver([RecoveryBegun(TP, 0)])
    )
    assert not any(sent.log_ends for sent in effects.commands.values())


def test_enough_answers_do_after_the_wait() -> None:
    controller = bounced(1, 2, 3)
    assert report(controller, 1, LogEnd(5, 8)) == NO_LEADER
    assert report(controller, 3, LogEnd(5, 9)) == NO_LEADER
    step(controller, RecoveryWaitOver([RecoveryBegun(TP, 0)]))
    assert controller.image.states[TP].leader == 3
    assert TP not in controller.image.recoveries


def test_a_log_that_cannot_be_read_does_not_lead() -> None:
    controller = bounced(1, 2, of=(1, 2))
    report(controller, 1, NO_LOG)
    assert report(controller, 2, LogEnd(-1, 0)) == 2


def test_where_no_log_can_be_read_the_partition_waits() -> None:
    controller = bounced(1, 2, of=(1, 2))
    report(controller, 1, NO_LOG)
    assert report(controller, 2, NO_LOG) == NO_LEADER


def test_of_a_broker_that_does_not_report_and_one_without_a_log_the_first_leads() -> None:
    controller = loaded(one_partition(state((1, 2))), of=TWO)
    silent = replace(broker(2, life=2), reports_log_ends=False)
    step(controller, BrokersRead(brokers(broker(1, life=2), silent)))
    assert report(controller, 1, NO_LOG) == 2


def test_a_stranger_and_an_earlier_registration_report_nothing() -> None:
    controller = bounced(1, 2, of=(1, 2))
    assert report(controller, 1, LogEnd(5, 8), life=1) == NO_LEADER
    assert report(controller, 9, LogEnd(5, 8)) == NO_LEADER
    assert controller.image.recoveries[TP].logs == {}


def test_what_a_broker_was_asked_and_said_goes_with_its_registration() -> None:
    controller = bounced(1, 2, of=(1, 2))
    report(controller, 1, LogEnd(5, 8))
    step(controller, BrokersRead(brokers(broker(3))))
    found = controller.image.recoveries[TP]
    assert (found.asked, found.logs) == ({}, {})


def test_changes_of_a_recovery_that_is_over_change_nothing() -> None:
    image = loaded(one_partition(state())).image
    for change in (
        RecoveryStarted(TP, 0),
        RecoveryDue(TP),
        LogEndAsked(TP, 1),
        LogEndFound(TP, 1, LogEnd(1, 1)),
    ):
        image.apply(change)
    assert image.recoveries == {}


def test_a_copy_is_independent_and_equal() -> None:
    controller = bounced(1, 2, of=(1, 2))
    other = controller.copy()
    assert other.key() == controller.key()
    report(controller, 1, LogEnd(5, 8))
    assert other.key() != controller.key()
    assert other.image.recoveries[TP].logs == {}


def test_a_lower_minimum_lets_fewer_members_do() -> None:
    controller = bounced(1)
    assert TP not in controller.image.recoveries
    step(controller, MinimumRead({}, cluster=1), RecoveryWaitOver([RecoveryBegun(TP, 0)]))
    assert TP in controller.image.recoveries
    step(controller, MinimumRead({"t": 3, "gone": 1}, cluster=1))
    assert controller.image.topics["t"].min_insync_replicas == 3
    step(controller, MinimumRead({}, cluster=2))
    assert controller.settings.min_insync_replicas == 2


def test_the_wait_of_a_former_recovery_ends_no_later_one() -> None:
    controller = bounced(1, 2)
    report(controller, 1, LogEnd(5, 8))
    report(controller, 2, LogEnd(5, 9))
    step(controller, RecoveryWaitOver([RecoveryBegun(TP, 5)]))
    assert controller.image.states[TP].leader == NO_LEADER
    step(controller, RecoveryWaitOver([RecoveryBegun(TP, 0)]))
    assert controller.image.states[TP].leader == 2


def test_a_minimum_that_falls_clears_the_eligible_replicas_of_a_led_partition_alone() -> None:
    two = topic("t", {0: (1, 2, 3), 1: (1, 2, 3), 2: (1, 2, 3)})
    small, other = state((1,), elr={2: epoch(2)}), TP._replace(partition=1)
    controller = loaded(TopicFound(two, {0: small, 1: state()}), of=TWO)
    writes, _ = step(controller, MinimumRead({"t": 1}))
    after = state_writes(writes)[TP]
    assert (after.leader, after.isr, after.elr) == (1, (1,), ())
    assert other not in state_writes(writes)


def test_a_minimum_of_a_topic_that_is_gone_is_ignored() -> None:
    image = loaded(one_partition(state())).image
    image.apply(MinimumChanged("gone", 2))
    assert sorted(image.topics) == ["t"]


def test_while_the_only_proven_members_leave_an_operator_may_decide() -> None:
    leaving = replace(broker(2), is_leaving=True)
    published = state((1, 2), leader=NO_LEADER)
    found = TopicFound(topic(unclean=True), {0: published})
    writes, _ = step(unloaded(found, live=brokers(leaving, 3), of=TWO))
    after = state_writes(writes)[TP]
    assert (after.leader, after.leader_recovery_state) == (3, 1)
    strict = one_partition(published)
    writes, _ = step(unloaded(strict, live=brokers(leaving, 3), of=TWO))
    assert state_writes(writes) == {}


def test_while_the_only_proven_member_leaves_nobody_else_may_lead() -> None:
    leaving = replace(broker(2), is_leaving=True)
    found = TopicFound(topic(unclean=True), {0: state((1, 2), leader=NO_LEADER)})
    assert state_writes(step(unloaded(found, live=brokers(leaving), of=TWO))[0]) == {}


def test_an_eligible_replica_in_another_life_is_not_proven() -> None:
    published = state((1,), elr={2: epoch(2), 3: epoch(3)})
    writes, _ = step(unloaded(one_partition(published), live=brokers(broker(2, life=2)), of=TWO))
    after = state_writes(writes)[TP]
    assert (after.leader, after.isr) == (NO_LEADER, (1,))


def test_epochs_that_are_not_recorded_are_written_down_as_far_as_they_are_known() -> None:
    published = state((1, 2, 3), isr_epochs=None, mzxid=150)
    live = brokers(broker(1, life=2), broker(4))
    writes, _ = step(unloaded(one_partition(published), live=live, of=TWO))
    assert state_writes(writes)[TP].isr_epochs == (0, 0, 0)
