"""Which commands a broker obeys."""

from __future__ import annotations

import pytest

from tidelog.core.errors import ErrorCode
from tidelog.core.types import ZERO_TOPIC_ID, TopicPartition
from tidelog.replication import commands
from tidelog.replication.commands import OfflineReplica, Placement

A, B = b"a" * 16, b"b" * 16


def request_error(
    controller_epoch: int = 5,
    broker_epoch: int = 70,
    known_controller_epoch: int = 5,
    own_broker_epoch: int = 70,
    is_registered: bool = True,
) -> ErrorCode:
    return commands.request_error(
        known_controller_epoch=known_controller_epoch,
        controller_epoch=controller_epoch,
        own_broker_epoch=own_broker_epoch,
        is_registered=is_registered,
        broker_epoch=broker_epoch,
    )


def test_a_request_of_an_older_controller_is_refused_whole() -> None:
    assert request_error(controller_epoch=4) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert request_error(controller_epoch=6) == ErrorCode.NONE


def test_a_request_for_an_earlier_registration_is_refused_whole() -> None:
    assert request_error(broker_epoch=69) == ErrorCode.STALE_BROKER_EPOCH
    assert request_error(broker_epoch=71) == ErrorCode.NONE
    assert request_error(broker_epoch=-1) == ErrorCode.NONE


def test_without_a_registration_only_the_next_one_is_obeyed() -> None:
    assert request_error(is_registered=False) == ErrorCode.STALE_BROKER_EPOCH
    assert request_error(is_registered=False, broker_epoch=-1) == ErrorCode.STALE_BROKER_EPOCH
    assert request_error(is_registered=False, broker_epoch=71) == ErrorCode.NONE


def test_epochs_are_compared_leader_epoch_first() -> None:
    assert commands.is_current(5, 9, 6, 1)
    assert commands.is_current(5, 9, 5, 9)
    assert not commands.is_current(5, 9, 5, 8)
    assert not commands.is_current(5, 9, 4, 20)


def test_a_command_is_overtaken_by_those_with_higher_correlation_ids() -> None:
    assert commands.is_overtaken(8, 7)
    assert not commands.is_overtaken(8, 8)
    assert not commands.is_overtaken(8, 9)


def test_correlation_ids_begin_again_behind_the_highest() -> None:
    assert commands.is_overtaken(1, 2**31 - 1)
    assert not commands.is_overtaken(2**31 - 1, 0)


def test_a_stop_is_obeyed_from_the_own_epoch_on_and_always_for_a_deletion() -> None:
    assert commands.stop_is_current(5, 5)
    assert not commands.stop_is_current(5, 4)
    assert commands.stop_is_current(5, commands.EPOCH_DURING_DELETE)
    assert commands.stop_is_current(5, commands.NO_STOP_EPOCH)


def test_an_absent_topic_id_says_nothing() -> None:
    assert commands.topic_id_matches(A, A)
    assert commands.topic_id_matches(ZERO_TOPIC_ID, A)
    assert commands.topic_id_matches(A, ZERO_TOPIC_ID)
    assert not commands.topic_id_matches(A, B)


@pytest.mark.parametrize(
    ("own", "is_new", "leader", "isr", "expected", "with_failed_directory"),
    [
        (A, False, 1, (1, 2), Placement.KEEP, Placement.KEEP),
        (B, False, 1, (1, 2), Placement.OTHER_TOPIC, Placement.OTHER_TOPIC),
        (B, True, 1, (1, 2), Placement.OTHER_TOPIC, Placement.OTHER_TOPIC),
        (None, True, 1, (1, 2), Placement.CREATE, Placement.CREATE),
        (None, False, 1, (2,), Placement.LOST, Placement.OFFLINE),
        (None, False, 2, (1, 2), Placement.LOST, Placement.OFFLINE),
        (None, False, 2, (2,), Placement.CREATE, Placement.OFFLINE),
    ],
)
@pytest.mark.parametrize("has_failed_directory", [False, True])
def test_placement(
    own: bytes | None,
    is_new: bool,
    leader: int,
    isr: tuple[int, ...],
    expected: Placement,
    with_failed_directory: Placement,
    has_failed_directory: bool,
) -> None:
    placement = commands.placement(
        broker_id=1,
        own_topic_id=own,
        offline=None,
        has_failed_directory=has_failed_directory,
        topic_id=A,
        leader_epoch=3,
        is_new=is_new,
        leader=leader,
        isr=isr,
    )
    assert placement is (with_failed_directory if has_failed_directory else expected)


@pytest.mark.parametrize(
    ("offline", "leader", "isr", "expected"),
    [
        (OfflineReplica(A, 3), 1, (1, 2), Placement.OFFLINE),
        (OfflineReplica(A, 2), 2, (1, 2), Placement.OFFLINE),
        (OfflineReplica(A, 3), 2, (2,), Placement.OFFLINE),
        (OfflineReplica(A, 2), 2, (2,), Placement.CREATE),
        (OfflineReplica(B, 3), 1, (1, 2), Placement.CREATE),
    ],
)
def test_a_replica_whose_directory_failed_is_made_again_only_where_nothing_counts_on_it(
    offline: OfflineReplica, leader: int, isr: tuple[int, ...], expected: Placement
) -> None:
    placement = commands.placement(
        broker_id=1,
        own_topic_id=None,
        offline=offline,
        has_failed_directory=True,
        topic_id=A,
        leader_epoch=3,
        is_new=True,
        leader=leader,
        isr=isr,
    )
    assert placement is expected


@pytest.mark.parametrize(
    ("has_failed_directory", "error"),
    [(False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (True, ErrorCode.KAFKA_STORAGE_ERROR)],
)
def test_a_log_that_may_be_offline_is_not_said_to_be_lost(
    has_failed_directory: bool, error: ErrorCode
) -> None:
    assert commands.missing_log_error(has_failed_directory=has_failed_directory) is error


@pytest.mark.parametrize(
    ("own", "is_empty", "is_new", "leader", "isr", "expected"),
    [
        (ZERO_TOPIC_ID, False, False, 2, (2, 3), True),
        (ZERO_TOPIC_ID, False, True, 1, (1, 2), True),
        (ZERO_TOPIC_ID, True, True, 1, (1, 2), True),
        (A, False, True, 2, (2, 3), False),
        (ZERO_TOPIC_ID, True, False, 2, (2, 3), False),
        (ZERO_TOPIC_ID, False, False, 1, (2, 3), False),
        (ZERO_TOPIC_ID, False, False, 2, (1, 2), False),
    ],
)
def test_a_replica_whose_topic_id_was_lost_is_ours_if_it_has_been_in_sync(
    own: bytes, is_empty: bool, is_new: bool, leader: int, isr: tuple[int, ...], expected: bool
) -> None:
    found = commands.is_nameless_leftover(
        broker_id=1,
        own_topic_id=own,
        is_empty=is_empty,
        is_new=is_new,
        leader=leader,
        isr=isr,
    )
    assert found is expected


def test_what_a_full_command_does_not_list_is_stray() -> None:
    listed, moved, other, kept = (TopicPartition(name, 0) for name in "lmok")
    found = commands.strays(
        {listed: A, moved: A, other: A, kept: A}, {listed: A, other: B}, {"k": ZERO_TOPIC_ID}
    )
    assert found == [moved, other]


def test_replicas_of_a_former_life_are_told_by_their_epochs() -> None:
    def is_former(
        own: int = -1, latest: int = -1, end: int = 0, first: int = 4, is_new: bool = False
    ) -> bool:
        return commands.is_of_former_life(
            own_leader_epoch=own,
            latest_log_epoch=latest,
            log_end_offset=end,
            first_leader_epoch=first,
            is_new=is_new,
        )

    assert is_former(own=3)
    assert is_former(latest=3, end=9)
    assert not is_former(own=4, latest=3)
    assert not is_former(latest=4, end=9)
    assert not is_former(own=0, first=0)
    # A log without a record: whose it was cannot be told, and only an empty one may stay.
    assert is_former(end=9, is_new=True)
    assert not is_former(end=9)
    assert not is_former(end=0, is_new=True)
    assert not is_former(end=9, first=0, is_new=True)


def test_many_strays_at_once_wait_for_a_word() -> None:
    assert commands.deletion_waits(100, 999)
    assert not commands.deletion_waits(100, 1_000)
    assert not commands.deletion_waits(99, 100)
