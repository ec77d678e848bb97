"""OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.group.harness import (
    DELAY_MS,
    SESSION_MS,
    SETTINGS,
    WALL_MS,
    G,
    Office,
    protocols,
)

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.group.requests import OffsetCommitAsked, OffsetFetchAsked, OffsetToCommit

T0 = TopicPartition("t", 0)


def test_members_commit_for_their_generation() -> None:
    office = Office()
    (member_id,) = office.stable(None)
    ticket = office.commit_offset(5, member_id=member_id, generation_id=1)
    assert office.committed_error(ticket) is ErrorCode.NONE
    assert office.offset() == 5
    assert office.offset(1) == office.offset(topic="u") == office.offset(group_id="h") == -1


def test_an_offset_is_visible_and_acknowledged_when_it_is_replicated() -> None:
    office = Office()
    office.holds = True
    ticket = office.commit_offset(5)
    assert ticket not in office.answers
    assert office.offset() == -1
    office.release()
    assert office.committed_error(ticket) is ErrorCode.NONE
    assert office.offset() == 5


def test_what_is_kept_of_an_offset() -> None:
    office = Office()
    offset = OffsetToCommit(T0, 5, leader_epoch=3, metadata="m")
    office.ask(OffsetCommitAsked(0, G, (offset,)))
    kept = office.group().offsets[T0]
    assert (kept.commit_timestamp_ms, kept.expire_timestamp_ms) == (WALL_MS, -1)
    office.ask(OffsetCommitAsked(0, G, (offset,), retention_ms=1000))
    assert office.group().offsets[T0].expire_timestamp_ms == WALL_MS + 1000
    answer = office.answer(OffsetFetchAsked(0, G))
    assert answer.offsets == ((T0, 5, 3, "m"),)
    assert office.answer(OffsetFetchAsked(0, "h")).offsets == ()


def test_who_may_commit() -> None:
    office = Office()
    (member_id,) = office.stable("i")
    for changes, error in (
        ({}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": member_id}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": member_id, "generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "x", "generation_id": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        (
            {"member_id": "x", "generation_id": 1, "instance_id": "i"},
            ErrorCode.FENCED_INSTANCE_ID,
        ),
        ({"instance_id": "j"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 1, "group_id": "h"}, ErrorCode.ILLEGAL_GENERATION),
    ):
        assert office.committed_error(office.commit_offset(5, **changes)) is error
    assert list(office.core.groups) == [G]
    changes = {"member_id": member_id, "generation_id": 1, "instance_id": "i"}
    assert office.committed_error(office.commit_offset(5, **changes)) is ErrorCode.NONE


def test_commits_through_the_states() -> None:
    office = Office()
    given = office.member()
    changes = {"member_id": given, "generation_id": 0}
    assert office.committed_error(office.commit_offset(1, **changes)) is ErrorCode.NONE
    office.sleep(DELAY_MS)
    changes["generation_id"] = 1
    ticket = office.commit_offset(2, **changes)
    assert office.committed_error(ticket) is ErrorCode.REBALANCE_IN_PROGRESS
    office.sync(given, 1)
    assert office.committed_error(office.commit_offset(3, **changes)) is ErrorCode.NONE
    office.leave(given)
    ticket = office.commit_offset(4, **changes)
    assert office.committed_error(ticket) is ErrorCode.UNKNOWN_MEMBER_ID
    assert office.committed_error(office.commit_offset(5)) is ErrorCode.NONE
    assert office.offset() == 5


def test_a_commit_is_as_good_as_a_heartbeat() -> None:
    office = Office()
    (member_id,) = office.stable(None)
    for _ in range(3):
        office.sleep(SESSION_MS - 1)
        office.commit_offset(1, member_id=member_id, generation_id=1)
    assert office.state() == "Stable"


def test_metadata_has_a_limit_of_its_own_per_partition() -> None:
    office = Office(replace(SETTINGS, offset_metadata_max_bytes=3))
    short = OffsetToCommit(T0, 5, metadata="abc")
    long = OffsetToCommit(TopicPartition("t", 1), 6, metadata="abcd")
    answer = office.answer(OffsetCommitAsked(0, G, (short, long)))
    assert [error for _, error in answer.partitions] == [
        ErrorCode.NONE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ]
    assert (office.offset(0), office.offset(1)) == (5, -1)
    answer = office.answer(OffsetCommitAsked(0, "h", (long,)))
    assert answer.partitions[0][1] is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert "h" not in office.core.groups


def test_offsets_and_groups_are_bounded() -> None:
    office = Office(replace(SETTINGS, max_offsets_per_group=1, max_groups=1))
    office.commit_offset(1)
    office.commit_offset(2)
    ticket = office.commit_offset(1, partition=1)
    assert office.committed_error(ticket) is ErrorCode.POLICY_VIOLATION
    ticket = office.commit_offset(1, group_id="h")
    assert office.committed_error(ticket) is ErrorCode.POLICY_VIOLATION
    assert office.offset() == 2


def test_the_nameless_group_has_offsets_only() -> None:
    office = Office()
    assert office.committed_error(office.commit_offset(5, group_id="")) is ErrorCode.NONE
    assert office.offset(group_id="") == 5
    answer = office.answers[office.delete_offsets("t", group_id="")]
    assert answer.error is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_commit_that_fails_leaves_nothing(error: ErrorCode, told: ErrorCode) -> None:
    office = Office()
    office.holds = True
    ticket = office.commit_offset(5)
    office.fail(error)
    assert office.committed_error(ticket) is told
    assert office.offset() == -1
    assert office.core.groups == {}


def test_partitions_keep_their_own_errors_when_a_commit_fails() -> None:
    office = Office(replace(SETTINGS, offset_metadata_max_bytes=0))
    office.holds = True
    offsets = (OffsetToCommit(T0, 5), OffsetToCommit(TopicPartition("t", 1), 6, metadata="a"))
    ticket = office.ask(OffsetCommitAsked(0, G, offsets))
    office.fail()
    assert [error for _, error in office.answers[ticket].partitions] == [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ]


def test_a_commit_that_takes_too_long_counts_if_it_is_replicated_later() -> None:
    office = Office()
    office.commit_offset(4)
    office.holds = True
    tickets = [office.commit_offset(5), office.commit_offset(6)]
    office.overdue()
    assert office.committed_error(tickets[0]) is ErrorCode.REQUEST_TIMED_OUT
    assert office.offset() == 4
    office.commit()
    assert office.offset() == office.reload().offset() == 5
    assert office.group().uncommitted == {T0: 1}
    office.release()
    assert office.offset() == 6
    assert office.group().uncommitted == {}


def test_an_overdue_commit_may_still_fail() -> None:
    office = Office()
    office.holds = True
    office.commit_offset(5)
    office.overdue()
    office.fail()
    assert office.core.groups == {}


def test_the_offset_that_is_later_in_the_log_counts() -> None:
    office = Office()
    office.holds = True
    office.commit_offset(9)
    office.commit_offset(3)
    office.release()
    assert office.offset() == office.reload().offset() == 3


# OffsetDelete.


def test_offsets_of_an_empty_group_are_deleted() -> None:
    office = Office()
    office.commit_offset(5)
    answer = office.answers[office.delete_offsets("t", "u")]
    assert (answer.error, [error for _, error in answer.partitions]) == (0, [0, 0])
    assert G not in office.core.groups
    assert office.reload().offset() == -1


def test_members_keep_the_offsets_of_their_topics() -> None:
    office = Office()
    (member_id,) = office.stable(None)
    for topic in ("t", "u"):
        office.commit_offset(5, topic=topic, member_id=member_id, generation_id=1)
    answer = office.answers[office.delete_offsets("t", "u")]
    assert [error for _, error in answer.partitions] == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
    ]
    assert (office.offset(topic="t"), office.offset(topic="u")) == (5, -1)


@pytest.mark.parametrize("stage", ["first rebalance", "unreadable"])
def test_where_subscriptions_are_not_known_nothing_is_deleted(stage: str) -> None:
    office = Office()
    office.commit_offset(5, topic="u")
    office.member(protocols=protocols("range", metadata=b"?"))
    if stage == "unreadable":
        office.sleep(DELAY_MS)
    answer = office.answers[office.delete_offsets("u")]
    assert answer.partitions[0][1] is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_whose_offsets_cannot_be_deleted() -> None:
    office = Office()
    answer = office.answers[office.delete_offsets("t")]
    assert (answer.error, answer.partitions) == (ErrorCode.GROUP_ID_NOT_FOUND, ())
    office.stable(None, protocol_type="connect")
    answer = office.answers[office.delete_offsets("t")]
    assert answer.error is ErrorCode.NON_EMPTY_GROUP


def test_a_commit_under_way_is_deleted_too() -> None:
    office = Office()
    office.holds = True
    office.commit_offset(5)
    ticket = office.delete_offsets("t")
    assert ticket not in office.answers
    office.release()
    assert office.answers[ticket].error is ErrorCode.NONE
    assert office.offset() == -1


@pytest.mark.parametrize("is_late", [False, True])
def test_a_deletion_of_offsets_that_is_not_written(is_late: bool) -> None:
    office = Office()
    office.commit_offset(5)
    office.holds = True
    ticket = office.delete_offsets("t")
    if is_late:
        office.overdue()
        office.release()
    else:
        office.fail()
    assert office.answers[ticket].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert office.offset() == (-1 if is_late else 5)
