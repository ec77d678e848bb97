"""DeleteGroups, expiry (KIP-211), deleted topics."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.group.harness import (
    DELAY_MS,
    SETTINGS,
    WALL_MS,
    G,
    Office,
    joining,
    protocols,
)

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
)
from tidelog.group.requests import OffsetCommitAsked, OffsetToCommit

KEPT_MS = SETTINGS.offsets_retention_ms


def expire(office: Office) -> None:
    office.run(office.core.expire_offsets(office.now))


def many(office: Office, count: int, topic: str = "t") -> None:
    offsets = tuple(OffsetToCommit(TopicPartition(topic, each), each) for each in range(count))
    office.ask(OffsetCommitAsked(0, G, offsets))


def emptied(office: Office) -> None:
    """Group G had a member and an offset, and is empty from now on."""
    (member_id,) = office.stable(None)
    office.commit_offset(5, member_id=member_id, generation_id=1)
    office.leave(member_id)


def test_an_empty_group_is_deleted_when_its_tombstones_are_written() -> None:
    office = Office()
    emptied(office)
    office.holds = True
    ticket = office.delete()
    assert (office.state(), office.offset()) == ("Dead", 5)
    assert ticket not in office.answers
    office.release()
    assert office.answers[ticket].error is ErrorCode.NONE
    assert office.core.groups == {}
    assert office.reload().core.groups == {}


def test_a_group_that_dies_takes_no_requests() -> None:
    office = Office()
    emptied(office)
    office.holds = True
    office.delete()
    refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert office.answer(joining()).error is refused
    assert office.answers[office.sync("m", 2)].error is refused
    assert office.heartbeat("m", 2) is refused
    assert office.leave("m") == [refused]
    assert office.committed_error(office.commit_offset(6)) is refused
    assert office.answers[office.delete_offsets("t")].error is refused
    assert office.answers[office.delete()].error is refused
    assert office.describe().state == "Dead"
    office.run(office.core.expire_offsets(office.now))
    assert len(office.held) == 1


def test_which_groups_cannot_be_deleted() -> None:
    office = Office()
    assert office.answers[office.delete()].error is ErrorCode.GROUP_ID_NOT_FOUND
    office.stable(None)
    assert office.answers[office.delete()].error is ErrorCode.NON_EMPTY_GROUP


def test_who_was_given_an_id_goes_with_the_group() -> None:
    office = Office()
    office.join()
    assert office.answers[office.delete()].error is ErrorCode.NONE
    assert (office.core.groups, office.timers) == ({}, {})


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
    office = Office()
    emptied(office)
    office.holds = True
    ticket = office.delete()
    office.fail(error)
    assert office.answers[ticket].error is told
    assert (office.state(), office.offset()) == ("Empty", 5)


def test_a_deletion_that_takes_too_long_still_happens() -> None:
    office = Office()
    many(office, MAX_TOMBSTONES_PER_APPEND + 1)
    office.holds = True
    ticket = office.delete()
    office.overdue()
    assert office.answers[ticket].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    office.release()
    assert office.core.groups == {}


def test_an_overdue_deletion_may_still_fail() -> None:
    office = Office()
    emptied(office)
    office.holds = True
    office.delete()
    office.overdue()
    office.fail()
    assert office.state() == "Empty"


def test_a_big_group_goes_in_steps_its_own_tombstone_last() -> None:
    office = Office()
    many(office, 2 * MAX_TOMBSTONES_PER_APPEND + 1)
    office.log.clear()
    office.holds = True
    ticket = office.delete()
    steps = 0
    while office.held:
        assert ticket not in office.answers
        assert len(next(iter(office.held.values())).records) <= MAX_TOMBSTONES_PER_APPEND + 1
        office.commit()
        steps += 1
    assert steps == 3
    assert office.answers[ticket].error is ErrorCode.NONE
    assert [type(record) for record in office.log].index(GroupRecord) == len(office.log) - 1


# Expiry.


def test_offsets_of_simple_groups_expire_from_their_commit() -> None:
    office = Office()
    office.commit_offset(5)
    office.sleep(KEPT_MS // 2)
    office.commit_offset(6, partition=1)
    office.sleep(KEPT_MS // 2 - 1)
    expire(office)
    assert len(office.group().offsets) == 2
    office.sleep(1)
    expire(office)
    assert list(office.group().offsets) == [TopicPartition("t", 1)]
    office.sleep(KEPT_MS)
    expire(office)
    assert office.core.groups == {}
    assert office.reload().core.groups == {}


def test_offsets_of_a_group_that_became_empty_expire_from_then() -> None:
    office = Office()
    emptied(office)
    office.sleep(KEPT_MS - 1)
    expire(office)
    assert office.offset() == 5
    again = office.reload()
    again.now_ms = office.now_ms
    expire(again)
    assert again.offset() == 5
    for each in (office, again):
        each.sleep(1)
        expire(each)
        assert each.core.groups == {}


def test_without_a_time_of_becoming_empty_the_commit_counts() -> None:
    key = TopicPartition("t", 0)
    log = [
        GroupRecord(GroupKey(G), GroupSnapshot("consumer", 3, None, None, -1)),
        OffsetRecord(OffsetKey(G, key), CommittedOffset(5, commit_timestamp_ms=WALL_MS)),
    ]
    office = Office(log=log)
    office.now_ms = KEPT_MS - 1
    expire(office)
    assert office.offset() == 5
    office.now_ms = KEPT_MS
    expire(office)
    assert office.core.groups == {}


def test_members_keep_the_offsets_of_what_they_subscribe_to() -> None:
    office = Office()
    (member_id,) = office.stable(None)
    for topic in ("t", "u"):
        office.commit_offset(5, topic=topic, member_id=member_id, generation_id=1)
    for _ in range(3):
        office.now_ms += KEPT_MS // 2
        office.heartbeat(member_id, 1)
    expire(office)
    assert list(office.group().offsets) == [TopicPartition("t", 0)]


@pytest.mark.parametrize(
    "changes", [{"protocol_type": "connect"}, {"protocols": protocols("range", metadata=b"?")}]
)
def test_offsets_do_not_expire_where_subscriptions_are_not_known(
    changes: dict[str, object],
) -> None:
    office = Office()
    (member_id,) = office.stable(None, **changes)
    office.commit_offset(5, topic="u", member_id=member_id, generation_id=1)
    office.now_ms += KEPT_MS
    expire(office)
    assert office.offset(topic="u") == 5


def test_offsets_do_not_expire_during_a_rebalance() -> None:
    office = Office()
    office.commit_offset(5, topic="u")
    office.now_ms += KEPT_MS
    office.member()
    expire(office)
    assert office.offset(topic="u") == 5


def test_a_retention_that_the_client_chose_counts_instead() -> None:
    office = Office()
    office.commit_offset(5, retention_ms=1000)
    office.commit_offset(5, partition=1, retention_ms=KEPT_MS * 2)
    office.sleep(1000)
    expire(office)
    assert (office.offset(0), office.offset(1)) == (-1, 5)
    office.sleep(KEPT_MS)
    expire(office)
    assert office.offset(1) == 5


def test_an_offset_with_a_commit_under_way_does_not_expire() -> None:
    office = Office()
    office.commit_offset(5)
    office.now_ms += KEPT_MS
    office.holds = True
    office.commit_offset(6)
    expire(office)
    office.release()
    assert office.offset() == 6


def test_many_offsets_expire_in_steps() -> None:
    office = Office()
    many(office, 2 * MAX_TOMBSTONES_PER_APPEND + 1)
    office.sleep(KEPT_MS - 1)
    office.commit_offset(5, topic="u")
    office.sleep(1)
    office.holds = True
    expire(office)
    expire(office)
    assert len(office.held) == 1
    office.release()
    assert list(office.group().offsets) == [TopicPartition("u", 0)]


def test_offsets_whose_tombstones_fail_expire_the_next_time() -> None:
    office = Office()
    office.commit_offset(5)
    office.sleep(1)
    office.commit_offset(5, partition=1)
    office.sleep(KEPT_MS - 1)
    office.holds = True
    expire(office)
    office.overdue()
    office.fail()
    assert office.offset() == 5
    expire(office)
    office.release()
    assert (office.offset(), office.offset(1)) == (-1, 5)


def test_a_group_that_has_nothing_left_goes_but_not_while_somebody_comes() -> None:
    office = Office()
    (member_id,) = office.stable(None)
    office.leave(member_id)
    given = office.answer(joining()).member_id
    expire(office)
    assert given in office.group().pending_members
    office.leave(given)
    expire(office)
    assert office.core.groups == {}


# Topics.


def test_offsets_of_deleted_topics_go() -> None:
    office = Office()
    many(office, MAX_TOMBSTONES_PER_APPEND + 1)
    office.commit_offset(5, topic="u")
    office.holds = True
    office.commit_offset(6, topic="t", partition=9999)
    office.run(office.core.topics_deleted(["t", "x"], office.now))
    office.release()
    assert list(office.group().offsets) == [TopicPartition("u", 0)]
    office.run(office.core.topics_deleted(["u"], office.now))
    assert office.core.groups == {}


def test_offsets_of_removed_partitions_go_and_those_of_their_topics_others_stay() -> None:
    office = Office()
    office.commit_offset(5, topic="t", partition=0)
    office.commit_offset(6, topic="t", partition=1)
    office.commit_offset(7, topic="u", partition=1)
    gone = [TopicPartition("t", 1), TopicPartition("v", 3)]
    office.run(office.core.partitions_removed(gone, office.now))
    kept = [TopicPartition("t", 0), TopicPartition("u", 1)]
    assert sorted(office.group().offsets) == kept
    office.core.unload()
    assert office.core.partitions_removed(kept, office.now) == ()


def test_tombstones_of_topics_that_cannot_be_written_leave_the_offsets() -> None:
    office = Office()
    office.commit_offset(5)
    office.holds = True
    office.run(office.core.topics_deleted(["t"], office.now))
    office.fail()
    assert office.offset() == 5


def test_a_topic_is_deleted_while_its_group_is() -> None:
    office = Office()
    emptied(office)
    office.holds = True
    office.delete()
    for _ in range(3):
        office.run(office.core.topics_deleted(["t"], office.now))
    office.commit()
    assert office.core.groups == {}
    office.overdue()
    office.fail()
    office.release()
    assert office.core.groups == {}


def test_settings_have_kafkas_defaults() -> None:
    from tidelog.group.settings import GroupSettings

    plain = replace(SETTINGS, subscription_topics=GroupSettings().subscription_topics)
    assert plain == GroupSettings()
    assert plain.subscription_topics(b"\0\0") is None
    assert (plain.initial_rebalance_delay_ms, DELAY_MS) == (3000, 3000)
