"""Who died, who came, whose log may be shorter than published state believes."""

from __future__ import annotations

import pytest
from tests.support.controller.values import broker, brokers, epoch, state

from tidelog.controller import incarnations
from tidelog.controller.registrations import broker_changes
from tidelog.core import eligible_replicas
from tidelog.core.types import BrokerInfo, Endpoint


def test_a_new_id_and_a_new_epoch_both_arrive() -> None:
    changes = broker_changes(brokers(1, 2), brokers(1, broker(2, life=2), 3))
    assert changes.arrived == (2, 3)
    assert changes.gone == ()
    assert changes


def test_an_id_that_is_missing_has_gone() -> None:
    changes = broker_changes(brokers(1, 2), brokers(1))
    assert changes.gone == (2,)
    assert changes.arrived == ()
    assert changes


def test_another_endpoint_under_the_same_epoch_is_an_update() -> None:
    moved = BrokerInfo(2, epoch(2), (Endpoint("PLAINTEXT", "elsewhere", 1),))
    changes = broker_changes(brokers(1, 2), brokers(1, moved))
    assert changes.updated == (2,)
    assert changes


def test_nothing_new_is_no_change() -> None:
    assert not broker_changes(brokers(1, 2), brokers(2, 1))


def test_a_member_under_the_recorded_epoch_has_not_restarted() -> None:
    assert incarnations.restarted_members(state(), brokers(1, 2, 3)) == ()
    assert incarnations.bounced_members(state(), brokers(1, 2, 3)) == ()


def test_a_member_under_another_epoch_has_bounced() -> None:
    assert incarnations.bounced_members(state(), brokers(1, broker(2, life=2), 3)) == (2,)


def test_a_dead_member_has_not_bounced() -> None:
    assert incarnations.bounced_members(state(), brokers(1, 3)) == ()


def test_a_clean_shutdown_of_the_recorded_life_is_a_restart_but_no_bounce() -> None:
    live = brokers(1, broker(2, life=2, previous_broker_epoch=epoch(2)), 3)
    assert incarnations.restarted_members(state(), live) == (2,)
    assert incarnations.bounced_members(state(), live) == ()


@pytest.mark.rule("E3", "V10")
def test_a_clean_shutdown_of_a_later_life_proves_nothing() -> None:
    clean = broker(2, life=3, previous_broker_epoch=epoch(2, 2))
    live = brokers(1, clean, 3)
    assert incarnations.bounced_members(state(), live) == (2,)


@pytest.mark.rule("E3", "V10")
@pytest.mark.parametrize("recorded", [2, 4])
def test_a_clean_shutdown_of_another_disk_proves_nothing(recorded: int) -> None:
    """An older copy of the disk is back: the recorded incarnation wrote to another one. Life 4 came
    after the copy, and life 2 between two of the copy's own."""
    chain = (epoch(2, 1), epoch(2, 3))
    older = broker(2, life=6, previous_broker_epoch=epoch(2, 5), earlier_broker_epochs=chain)
    published = state(isr_epochs=[epoch(1), epoch(2, recorded), epoch(3)])
    assert incarnations.bounced_members(published, brokers(1, older, 3)) == (2,)
    for own in (1, 3, 5):
        published = state(isr_epochs=[epoch(1), epoch(2, own), epoch(3)])
        assert incarnations.bounced_members(published, brokers(1, older, 3)) == ()


def test_without_recorded_epochs_a_registration_after_the_last_write_has_bounced() -> None:
    published = state(isr_epochs=None, mzxid=150)
    assert incarnations.bounced_members(published, brokers(1, broker(2, life=2), 3)) == (2,)
    assert incarnations.bounced_members(published, brokers(1, 2, 3)) == ()


@pytest.mark.rule("V10")
def test_a_single_missing_epoch_is_judged_by_the_last_write_too() -> None:
    published = state(isr_epochs=[epoch(1), -1, epoch(3)], mzxid=150)
    assert incarnations.bounced_members(published, brokers(1, broker(2, life=2), 3)) == (2,)
    assert incarnations.bounced_members(published, brokers(1, 2, 3)) == ()


@pytest.mark.rule("E3", "V10")
def test_without_a_recorded_epoch_no_shutdown_is_proved() -> None:
    published = state(isr_epochs=None, mzxid=150)
    live = brokers(1, broker(2, life=2, previous_broker_epoch=-1), 3)
    assert incarnations.bounced_members(published, live) == (2,)


def test_epochs_that_do_not_match_the_isr_count_as_absent() -> None:
    assert eligible_replicas.isr_epochs(state(isr_epochs=[epoch(1)])) == (-1, -1, -1)
