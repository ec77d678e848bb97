"""OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.group.asking import (
    SESSION_MS,
    Committed,
    G,
    committing,
    deleting_offsets,
    errors_of,
    fetched,
    fetching,
    protocols,
)
from tests.support.group.harness import DELAY_MS, SETTINGS, WALL_MS, GroupHarness

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.group.records import NO_PARTITION, PartitionIncarnation
from tidelog.wire.messages.offset_fetch import OffsetFetchResponsePartitions

T0 = TopicPartition("t", 0)


def test_members_commit_for_their_generation() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable(None)
    ticket = harness.commit_offset(5, member_id=member_id, generation_id=1)
    assert harness.committed_error(ticket) is ErrorCode.NONE
    assert harness.offset() == 5
    assert harness.offset(1) == harness.offset(topic="u") == harness.offset(group_id="h") == -1


def test_an_offset_is_visible_and_acknowledged_when_it_is_replicated() -> None:
    harness = GroupHarness()
    harness.holds = True
    ticket = harness.commit_offset(5)
    assert ticket not in harness.answers
    assert harness.offset() == -1
    harness.release()
    assert harness.committed_error(ticket) is ErrorCode.NONE
    assert harness.offset() == 5


def test_what_is_kept_of_an_offset() -> None:
    harness = GroupHarness()
    partition = PartitionIncarnation(b"I" * 16, 4)
    offset = Committed(T0, 5, 3, "m", partition)
    harness.ask(committing(offset))
    kept = harness.group().offsets[T0]
    assert (kept.commit_timestamp_ms, kept.expire_timestamp_ms) == (WALL_MS, -1)
    harness.ask(committing(offset, retention_ms=1000))
    assert harness.group().offsets[T0].expire_timestamp_ms == WALL_MS + 1000
    assert harness.group().offsets[T0].incarnation == partition
    (topic,) = harness.answer(fetching()).topics
    assert topic.partitions == [OffsetFetchResponsePartitions(0, 5, 3, "m")]
    assert harness.answer(fetching("h")).topics == []


def test_an_offset_of_an_earlier_incarnation_of_its_partition_is_not_served() -> None:
    harness = GroupHarness()
    first, second = PartitionIncarnation(b"I" * 16, 4), PartitionIncarnation(b"I" * 16, 5)
    harness.ask(committing(Committed(T0, 5, incarnation=first)))
    for present, offset in (
        (first, 5),
        (second, -1),
        (PartitionIncarnation(b"J" * 16), -1),
        (PartitionIncarnation(b"I" * 16, NO_PARTITION), 5),
        (PartitionIncarnation(first_leader_epoch=NO_PARTITION), 5),
    ):
        asked = replace(fetching(), incarnation_of={T0: present}.__getitem__)
        assert fetched(harness.answer(asked)) == {T0: offset}


def test_a_partition_that_does_not_exist_is_neither_committed_nor_deleted() -> None:
    harness = GroupHarness()
    missing = PartitionIncarnation(b"I" * 16, NO_PARTITION)
    other = TopicPartition("t", 1)
    asked = committing(Committed(T0, 5, incarnation=missing), Committed(other, 6))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors_of(harness.answer(asked)) == [unknown, ErrorCode.NONE]
    assert fetched(harness.answer(fetching())) == {other: 6}
    deletion = replace(deleting_offsets(T0, other), incarnation_of=asked.incarnation_of)
    assert errors_of(harness.answer(deletion)) == [unknown, ErrorCode.NONE]
    assert harness.core.groups == {}
    harness.run(harness.core.unload())
    assert errors_of(harness.answer(asked)) == [unknown, ErrorCode.NOT_COORDINATOR]


def test_who_may_commit() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable("i")
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
        assert harness.committed_error(harness.commit_offset(5, **changes)) is error
    assert list(harness.core.groups) == [G]
    right: dict[str, Any] = {"member_id": member_id, "generation_id": 1, "instance_id": "i"}
    assert harness.committed_error(harness.commit_offset(5, **right)) is ErrorCode.NONE


def test_commits_through_the_states() -> None:
    harness = GroupHarness()
    given = harness.member()
    changes: dict[str, Any] = {"member_id": given, "generation_id": 0}
    assert harness.committed_error(harness.commit_offset(1, **changes)) is ErrorCode.NONE
    harness.sleep(DELAY_MS)
    changes["generation_id"] = 1
    ticket = harness.commit_offset(2, **changes)
    assert harness.committed_error(ticket) is ErrorCode.REBALANCE_IN_PROGRESS
    harness.sync(given, 1)
    assert harness.committed_error(harness.commit_offset(3, **changes)) is ErrorCode.NONE
    harness.leave(given)
    ticket = harness.commit_offset(4, **changes)
    assert harness.committed_error(ticket) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.committed_error(harness.commit_offset(5)) is ErrorCode.NONE
    assert harness.offset() == 5


def test_a_commit_is_as_good_as_a_heartbeat() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable(None)
    for _ in range(3):
        harness.sleep(SESSION_MS - 1)
        harness.commit_offset(1, member_id=member_id, generation_id=1)
    assert harness.state() == "Stable"


def test_metadata_has_a_limit_of_its_own_per_partition() -> None:
    harness = GroupHarness(replace(SETTINGS, offset_metadata_max_bytes=3))
    short = Committed(T0, 5, metadata="abc")
    long = Committed(TopicPartition("t", 1), 6, metadata="abcd")
    answer = harness.answer(committing(short, long))
    assert errors_of(answer) == [
        ErrorCode.NONE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ]
    assert (harness.offset(0), harness.offset(1)) == (5, -1)
    answer = harness.answer(committing(long, group_id="h"))
    assert errors_of(answer)[0] is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert "h" not in harness.core.groups


def test_each_entry_of_a_partition_that_is_named_twice_gets_its_own_error() -> None:
    harness = GroupHarness(replace(SETTINGS, offset_metadata_max_bytes=3))
    good, bad = Committed(T0, 5, metadata="abc"), Committed(T0, 6, metadata="abcd")
    answer = harness.answer(committing(good, bad))
    assert errors_of(answer) == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert harness.offset() == 5


def test_offsets_and_groups_are_bounded() -> None:
    harness = GroupHarness(replace(SETTINGS, max_offsets_per_group=1, max_groups=1))
    harness.commit_offset(1)
    harness.commit_offset(2)
    ticket = harness.commit_offset(1, partition=1)
    assert harness.committed_error(ticket) is ErrorCode.POLICY_VIOLATION
    ticket = harness.commit_offset(1, group_id="h")
    assert harness.committed_error(ticket) is ErrorCode.POLICY_VIOLATION
    assert harness.offset() == 2


def test_the_nameless_group_has_offsets_only() -> None:
    harness = GroupHarness()
    assert harness.committed_error(harness.commit_offset(5, group_id="")) is ErrorCode.NONE
    assert harness.offset(group_id="") == 5
    answer = harness.answers[harness.delete_offsets("t", group_id="")]
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID


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
    harness = GroupHarness()
    harness.holds = True
    ticket = harness.commit_offset(5)
    harness.fail(error)
    assert harness.committed_error(ticket) is told
    assert harness.offset() == -1
    assert harness.core.groups == {}


def test_partitions_keep_their_own_errors_when_a_commit_fails() -> None:
    harness = GroupHarness(replace(SETTINGS, offset_metadata_max_bytes=0))
    harness.holds = True
    offsets = (Committed(T0, 5), Committed(TopicPartition("t", 1), 6, metadata="a"))
    ticket = harness.ask(committing(*offsets))
    harness.fail()
    assert errors_of(harness.answers[ticket]) == [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ]


def test_a_commit_that_takes_too_long_counts_if_it_is_replicated_later() -> None:
    harness = GroupHarness()
    harness.commit_offset(4)
    harness.holds = True
    tickets = [harness.commit_offset(5), harness.commit_offset(6)]
    harness.overdue()
    assert harness.committed_error(tickets[0]) is ErrorCode.REQUEST_TIMED_OUT
    assert harness.offset() == 4
    harness.commit()
    assert harness.offset() == harness.reload().offset() == 5
    assert harness.group().uncommitted == {T0: 1}
    harness.release()
    assert harness.offset() == 6
    assert harness.group().uncommitted == {}


def test_an_overdue_commit_may_still_fail() -> None:
    harness = GroupHarness()
    harness.holds = True
    harness.commit_offset(5)
    harness.overdue()
    harness.fail()
    assert harness.core.groups == {}


def test_the_offset_that_is_later_in_the_log_counts() -> None:
    harness = GroupHarness()
    harness.holds = True
    harness.commit_offset(9)
    harness.commit_offset(3)
    harness.release()
    assert harness.offset() == harness.reload().offset() == 3


# OffsetDelete.


def test_offsets_of_an_empty_group_are_deleted() -> None:
    harness = GroupHarness()
    harness.commit_offset(5)
    answer = harness.answers[harness.delete_offsets("t", "u")]
    assert (answer.error_code, errors_of(answer)) == (0, [0, 0])
    assert G not in harness.core.groups
    assert harness.reload().offset() == -1


def test_members_keep_the_offsets_of_their_topics() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable(None)
    for topic in ("t", "u"):
        harness.commit_offset(5, topic=topic, member_id=member_id, generation_id=1)
    answer = harness.answers[harness.delete_offsets("t", "u")]
    assert errors_of(answer) == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
    ]
    assert (harness.offset(topic="t"), harness.offset(topic="u")) == (5, -1)


@pytest.mark.parametrize("stage", ["first rebalance", "unreadable"])
def test_where_subscriptions_are_not_known_nothing_is_deleted(stage: str) -> None:
    harness = GroupHarness()
    harness.commit_offset(5, topic="u")
    harness.member(protocols=protocols("range", metadata=b"?"))
    if stage == "unreadable":
        harness.sleep(DELAY_MS)
    answer = harness.answers[harness.delete_offsets("u")]
    assert errors_of(answer)[0] is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_whose_offsets_cannot_be_deleted() -> None:
    harness = GroupHarness()
    answer = harness.answers[harness.delete_offsets("t")]
    assert (answer.error_code, answer.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    harness.stable(None, protocol_type="connect")
    answer = harness.answers[harness.delete_offsets("t")]
    assert answer.error_code == ErrorCode.NON_EMPTY_GROUP


def test_a_commit_under_way_is_deleted_too() -> None:
    harness = GroupHarness()
    harness.holds = True
    harness.commit_offset(5)
    ticket = harness.delete_offsets("t")
    assert ticket not in harness.answers
    harness.release()
    assert harness.answers[ticket].error_code == ErrorCode.NONE
    assert harness.offset() == -1


@pytest.mark.parametrize("is_late", [False, True])
def test_a_deletion_of_offsets_that_is_not_written(is_late: bool) -> None:
    harness = GroupHarness()
    harness.commit_offset(5)
    harness.holds = True
    ticket = harness.delete_offsets("t")
    if is_late:
        harness.overdue()
        harness.release()
    else:
        harness.fail()
    assert harness.answers[ticket].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.offset() == (-1 if is_late else 5)
