"""Rules of coordinators: one leader epoch each (G1), and which partition owns whom (G2)."""

from __future__ import annotations

import pytest
from tests.support.group.asking import (
    Committed,
    committing,
    errors_of,
    fetched,
    fetching,
    joining,
    under,
)
from tests.support.group.harness import GroupHarness, shards

from tidelog.core.coordinator_shard import CoordinatorAppend, Now, Reply
from tidelog.core.errors import ErrorCode
from tidelog.core.string_hash import coordinating_partition
from tidelog.core.types import TopicPartition
from tidelog.group.records import CommittedOffset, OffsetKey, OffsetRecord
from tidelog.wire.messages.offset_commit import OffsetCommitResponse
from tidelog.wire.messages.offset_fetch import OffsetFetchResponseGroup

NOW = Now(0, 0)
T0 = TopicPartition("t", 0)


@pytest.mark.rule("G1")
def test_a_late_unload_of_an_old_leadership_leaves_the_new_one() -> None:
    partitions = shards(1)
    old, _ = partitions.load(0, 3)
    new, _ = partitions.load(0, 5)
    assert old is not None
    assert old is not new
    assert partitions.unload(0, 3) is None
    assert partitions.coordinator_of("g") is new
    assert partitions.unload(0, 5) == ()
    assert partitions.coordinator_of("g") is None
    assert partitions.unload(0, 5) is None


@pytest.mark.rule("G1")
def test_a_leadership_that_is_not_newer_is_not_loaded() -> None:
    partitions = shards(1)
    current, _ = partitions.load(0, 5)
    assert partitions.load(0, 5) == partitions.load(0, 4) == (None, ())
    assert partitions.coordinator_of("g") is current
    partitions.unload(0, 5)
    assert partitions.load(0, 4) == (None, ())
    again, _ = partitions.load(0, 5)
    assert again is not None, "nobody else has led since"
    assert again is not current


@pytest.mark.rule("G1")
def test_a_new_topic_counts_its_leader_epochs_from_the_start() -> None:
    partitions = shards(1)
    partitions.load(0, 5)
    partitions.unload(0, 5)
    partitions.forget(0)
    fresh, _ = partitions.load(0, 0)
    assert fresh is not None
    assert fresh.leader_epoch == 0


@pytest.mark.rule("G1")
def test_a_newer_leadership_ends_the_old_coordinator() -> None:
    partitions = shards(1)
    old, _ = partitions.load(0, 3)
    assert old is not None
    old.loaded(NOW)
    commit = under(1, committing(Committed(T0, 5)))
    (append,) = old.ask(commit, NOW)
    assert isinstance(append, CoordinatorAppend)
    assert append.leader_epoch == 3
    new, effects = partitions.load(0, 4)
    (owed,) = effects
    assert isinstance(owed, Reply) and isinstance(owed.answer, OffsetCommitResponse)
    assert errors_of(owed.answer)[0] is ErrorCode.NOT_COORDINATOR
    assert old.committed(append.number, NOW) == ()
    assert new is not None
    assert new.groups == {}


@pytest.mark.rule("G1")
def test_until_the_log_end_is_loaded_requests_are_refused() -> None:
    partitions = shards(1)
    core, _ = partitions.load(0, 3)
    assert core is not None
    core.replay(OffsetRecord(OffsetKey("g", T0), CommittedOffset(5)))
    (refused,) = core.ask(under(1, fetching()), NOW)
    assert isinstance(refused, Reply) and isinstance(refused.answer, OffsetFetchResponseGroup)
    assert refused.answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    core.loaded(NOW)
    (told,) = core.ask(under(2, fetching()), NOW)
    assert isinstance(told, Reply) and isinstance(told.answer, OffsetFetchResponseGroup)
    assert fetched(told.answer) == {T0: 5}


@pytest.mark.rule("G1")
def test_every_append_names_the_epoch_under_which_the_groups_were_loaded() -> None:
    harness = GroupHarness(epoch=9)
    harness.holds = True
    harness.join()
    harness.commit_offset(5)
    harness.join(instance_id="i", group_id="h")
    assert [append.leader_epoch for append in harness.held.values()] == [9]
    assert harness.answer(joining(group_id="k")).error_code == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.rule("G2")
@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("", 0),
        ("hello", 99162322 % 50),
        ("polygenelubricants", 0),
        ("grüße", ((((103 * 31 + 114) * 31 + 252) * 31 + 223) * 31 + 101) % 50),
        ("\U0001f600", (0xD83D * 31 + 0xDE00) % 50),
    ],
)
def test_the_partition_is_javas_hash_over_utf_16_units(name: str, partition: int) -> None:
    assert coordinating_partition(name, 50) == partition
    assert shards(50).partition_of(name) == partition
