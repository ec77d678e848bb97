"""DeleteGroups, expiry (KIP-211), deleted topics."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.group.asking import Committed, G, committing, joining, protocols
from tests.support.group.harness import DELAY_MS, SETTINGS, WALL_MS, GroupHarness

from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MAX_TOMBSTONES_PER_APPEND
from tidelog.core.types import TopicPartition
from tidelog.group.records import (
    CommittedOffset,
    GroupKey,
    GroupRecord,
    GroupSnapshot,
    OffsetKey,
    OffsetRecord,
    PartitionIncarnation,
    Record,
)

#: Of deleted topics.
ID = b"I" * 16
LATER_ID = b"L" * 16
KEPT_MS = SETTINGS.offsets_retention_ms


def expire(harness: GroupHarness) -> None:
    harness.run(harness.core.expire_offsets(harness.now))


def many(harness: GroupHarness, count: int, topic: str = "t") -> None:
    offsets = tuple(Committed(TopicPartition(topic, each), each) for each in range(count))
    harness.ask(committing(*offsets))


def emptied(harness: GroupHarness) -> None:
    """Group G had a member and an offset, and is empty from now on."""
    (member_id,) = harness.stable(None)
    harness.commit_offset(5, member_id=member_id, generation_id=1)
    harness.leave(member_id)


def test_an_empty_group_is_deleted_when_its_tombstones_are_written() -> None:
    harness = GroupHarness()
    emptied(harness)
    harness.holds = True
    ticket = harness.delete()
    assert (harness.state(), harness.offset()) == ("Dead", 5)
    assert ticket not in harness.answers
    harness.release()
    assert harness.answers[ticket].error_code == ErrorCode.NONE
    assert harness.core.groups == {}
    assert harness.reload().core.groups == {}


def test_a_group_that_dies_takes_no_requests() -> None:
    harness = GroupHarness()
    emptied(harness)
    harness.holds = True
    harness.delete()
    refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.answer(joining()).error_code == refused
    assert harness.answers[harness.sync("m", 2)].error_code == refused
    assert harness.heartbeat("m", 2) is refused
    assert harness.leave("m") == [refused]
    assert harness.committed_error(harness.commit_offset(6)) is refused
    assert harness.answers[harness.delete_offsets("t")].error_code == refused
    assert harness.answers[harness.delete()].error_code == refused
    assert harness.describe().group_state == "Dead"
    harness.run(harness.core.expire_offsets(harness.now))
    assert len(harness.held) == 1


def test_which_groups_cannot_be_deleted() -> None:
    harness = GroupHarness()
    assert harness.answers[harness.delete()].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    harness.stable(None)
    assert harness.answers[harness.delete()].error_code == ErrorCode.NON_EMPTY_GROUP


def test_who_was_given_an_id_goes_with_the_group() -> None:
    harness = GroupHarness()
    harness.join()
    assert harness.answers[harness.delete()].error_code == ErrorCode.NONE
    assert (harness.core.groups, harness.timers) == ({}, {})


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_group_lives_on_if_its_tombstones_cannot_be_written(
    error: ErrorCode, told: ErrorCode
) -> None:
    harness = GroupHarness()
    emptied(harness)
    harness.holds = True
    ticket = harness.delete()
    harness.fail(error)
    assert harness.answers[ticket].error_code == told
    assert (harness.state(), harness.offset()) == ("Empty", 5)


def test_a_deletion_that_takes_too_long_still_happens() -> None:
    harness = GroupHarness()
    many(harness, MAX_TOMBSTONES_PER_APPEND + 1)
    harness.holds = True
    ticket = harness.delete()
    harness.overdue()
    assert harness.answers[ticket].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.release()
    assert harness.core.groups == {}


def test_an_overdue_deletion_may_still_fail() -> None:
    harness = GroupHarness()
    emptied(harness)
    harness.holds = True
    harness.delete()
    harness.overdue()
    harness.fail()
    assert harness.state() == "Empty"


def test_a_big_group_goes_in_steps_its_own_tombstone_last() -> None:
    harness = GroupHarness()
    many(harness, 2 * MAX_TOMBSTONES_PER_APPEND + 1)
    harness.log.clear()
    harness.holds = True
    ticket = harness.delete()
    steps = 0
    while harness.held:
        assert ticket not in harness.answers
        assert len(next(iter(harness.held.values())).records) <= MAX_TOMBSTONES_PER_APPEND + 1
        harness.commit()
        steps += 1
    assert steps == 3
    assert harness.answers[ticket].error_code == ErrorCode.NONE
    assert [type(record) for record in harness.log].index(GroupRecord) == len(harness.log) - 1


# Expiry.


def test_offsets_of_simple_groups_expire_from_their_commit() -> None:
    harness = GroupHarness()
    harness.commit_offset(5)
    harness.sleep(KEPT_MS // 2)
    harness.commit_offset(6, partition=1)
    harness.sleep(KEPT_MS // 2 - 1)
    expire(harness)
    assert len(harness.group().offsets) == 2
    harness.sleep(1)
    expire(harness)
    assert list(harness.group().offsets) == [TopicPartition("t", 1)]
    harness.sleep(KEPT_MS)
    expire(harness)
    assert harness.core.groups == {}
    assert harness.reload().core.groups == {}


def test_offsets_of_a_group_that_became_empty_expire_from_then() -> None:
    harness = GroupHarness()
    emptied(harness)
    harness.sleep(KEPT_MS - 1)
    expire(harness)
    assert harness.offset() == 5
    again = harness.reload()
    again.now_ms = harness.now_ms
    expire(again)
    assert again.offset() == 5
    for each in (harness, again):
        each.sleep(1)
        expire(each)
        assert each.core.groups == {}


def test_without_a_time_of_becoming_empty_the_commit_counts() -> None:
    key = TopicPartition("t", 0)
    log: list[Record] = [
        GroupRecord(GroupKey(G), GroupSnapshot("consumer", 3, None, None, -1)),
        OffsetRecord(OffsetKey(G, key), CommittedOffset(5, commit_timestamp_ms=WALL_MS)),
    ]
    harness = GroupHarness(log=log)
    harness.now_ms = KEPT_MS - 1
    expire(harness)
    assert harness.offset() == 5
    harness.now_ms = KEPT_MS
    expire(harness)
    assert harness.core.groups == {}


def test_members_keep_the_offsets_of_what_they_subscribe_to() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable(None)
    for topic in ("t", "u"):
        harness.commit_offset(5, topic=topic, member_id=member_id, generation_id=1)
    for _ in range(3):
        harness.now_ms += KEPT_MS // 2
        harness.heartbeat(member_id, 1)
    expire(harness)
    assert list(harness.group().offsets) == [TopicPartition("t", 0)]


@pytest.mark.parametrize(
    "changes", [{"protocol_type": "connect"}, {"protocols": protocols("range", metadata=b"?")}]
)
def test_offsets_do_not_expire_where_subscriptions_are_not_known(
    changes: dict[str, object],
) -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable(None, **changes)
    harness.commit_offset(5, topic="u", member_id=member_id, generation_id=1)
    harness.now_ms += KEPT_MS
    expire(harness)
    assert harness.offset(topic="u") == 5


def test_offsets_do_not_expire_during_a_rebalance() -> None:
    harness = GroupHarness()
    harness.commit_offset(5, topic="u")
    harness.now_ms += KEPT_MS
    harness.member()
    expire(harness)
    assert harness.offset(topic="u") == 5


def test_a_retention_that_the_client_chose_counts_instead() -> None:
    harness = GroupHarness()
    harness.commit_offset(5, retention_ms=1000)
    harness.commit_offset(5, partition=1, retention_ms=KEPT_MS * 2)
    harness.sleep(1000)
    expire(harness)
    assert (harness.offset(0), harness.offset(1)) == (-1, 5)
    harness.sleep(KEPT_MS)
    expire(harness)
    assert harness.offset(1) == 5


def test_an_offset_with_a_commit_under_way_does_not_expire() -> None:
    harness = GroupHarness()
    harness.commit_offset(5)
    harness.now_ms += KEPT_MS
    harness.holds = True
    harness.commit_offset(6)
    expire(harness)
    harness.release()
    assert harness.offset() == 6


def test_many_offsets_expire_in_steps() -> None:
    harness = GroupHarness()
    many(harness, 2 * MAX_TOMBSTONES_PER_APPEND + 1)
    harness.sleep(KEPT_MS - 1)
    harness.commit_offset(5, topic="u")
    harness.sleep(1)
    harness.holds = True
    expire(harness)
    expire(harness)
    assert len(harness.held) == 1
    harness.release()
    assert list(harness.group().offsets) == [TopicPartition("u", 0)]


def test_offsets_whose_tombstones_fail_expire_the_next_time() -> None:
    harness = GroupHarness()
    harness.commit_offset(5)
    harness.sleep(1)
    harness.commit_offset(5, partition=1)
    harness.sleep(KEPT_MS - 1)
    harness.holds = True
    expire(harness)
    harness.overdue()
    harness.fail()
    assert harness.offset() == 5
    expire(harness)
    harness.release()
    assert (harness.offset(), harness.offset(1)) == (-1, 5)


def test_a_group_that_has_nothing_left_goes_but_not_while_somebody_comes() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable(None)
    harness.leave(member_id)
    given = harness.answer(joining()).member_id
    expire(harness)
    assert given in harness.group().pending_members
    harness.leave(given)
    expire(harness)
    assert harness.core.groups == {}


# Topics.


def test_offsets_of_deleted_topics_go() -> None:
    harness = GroupHarness()
    many(harness, MAX_TOMBSTONES_PER_APPEND + 1)
    harness.commit_offset(5, topic="u")
    harness.holds = True
    harness.commit_offset(6, topic="t", partition=9999)
    harness.run(harness.core.topics_deleted({"t": (ID,), "x": (ID,)}, harness.now))
    harness.release()
    assert list(harness.group().offsets) == [TopicPartition("u", 0)]
    harness.run(harness.core.topics_deleted({"u": (ID,)}, harness.now))
    assert harness.core.groups == {}


def test_offsets_of_removed_partitions_go_and_those_of_their_topics_others_stay() -> None:
    harness = GroupHarness()
    harness.commit_offset(5, topic="t", partition=0)
    harness.commit_offset(6, topic="t", partition=1)
    harness.commit_offset(7, topic="u", partition=1)
    gone = dict.fromkeys((TopicPartition("t", 1), TopicPartition("v", 3)), PartitionIncarnation(ID))
    harness.run(harness.core.partitions_removed(gone, harness.now))
    kept = [TopicPartition("t", 0), TopicPartition("u", 1)]
    assert sorted(harness.group().offsets) == kept
    harness.core.unload()
    assert (
        harness.core.partitions_removed(dict.fromkeys(kept, PartitionIncarnation(ID)), harness.now)
        == ()
    )


def test_offsets_of_a_later_topic_of_the_name_stay() -> None:
    harness = GroupHarness()
    later = Committed(TopicPartition("t", 1), 6, incarnation=PartitionIncarnation(LATER_ID))
    earlier = Committed(TopicPartition("t", 2), 7, incarnation=PartitionIncarnation(ID))
    harness.ask(committing(Committed(TopicPartition("t", 0), 5), later, earlier))
    harness.run(harness.core.topics_deleted({"t": (ID,)}, harness.now))
    assert list(harness.group().offsets) == [TopicPartition("t", 1)]


def test_offsets_of_a_partition_that_was_added_again_stay() -> None:
    harness = GroupHarness()
    for partition, epoch in ((0, 0), (1, 4), (2, 5)):
        incarnation = PartitionIncarnation(ID, epoch)
        committed = Committed(TopicPartition("t", partition), 6, incarnation=incarnation)
        harness.ask(committing(committed))
    removed = {TopicPartition("t", number): PartitionIncarnation(ID, 4) for number in range(3)}
    harness.run(harness.core.partitions_removed(removed, harness.now))
    assert list(harness.group().offsets) == [TopicPartition("t", 2)]


def test_tombstones_of_topics_that_cannot_be_written_leave_the_offsets() -> None:
    harness = GroupHarness()
    harness.commit_offset(5)
    harness.holds = True
    harness.run(harness.core.topics_deleted({"t": (ID,)}, harness.now))
    harness.fail()
    assert harness.offset() == 5


def test_a_topic_is_deleted_while_its_group_is() -> None:
    harness = GroupHarness()
    emptied(harness)
    harness.holds = True
    harness.delete()
    for _ in range(3):
        harness.run(harness.core.topics_deleted({"t": (ID,)}, harness.now))
    harness.commit()
    assert harness.core.groups == {}
    harness.overdue()
    harness.fail()
    harness.release()
    assert harness.core.groups == {}


def test_settings_have_kafkas_defaults() -> None:
    from tidelog.group.settings import GroupSettings

    plain = replace(SETTINGS, subscription_topics=GroupSettings().subscription_topics)
    assert plain == GroupSettings()
    assert plain.subscription_topics(b"\0\0") is None
    assert (plain.initial_rebalance_delay_ms, DELAY_MS) == (3000, 3000)
