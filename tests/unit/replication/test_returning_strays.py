"""What is decided of a stray that is to return, by leader, epochs and what is there (rule V35).

The whole of it stands in tests/rules/test_stray_rules.py; here each refusal names what it is about.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import NO_LEADER, ZERO_TOPIC_ID, TopicPartition
from tidelog.replication.stray_checks import Assigned, Present, Returning, check

STRAY = Returning(TopicPartition("lost", 3), b"i" * 16, 10, 20, 5)
FREE = Assigned(b"i" * 16, NO_LEADER, 5, 5, (4, 7), (7,))


def refused(
    assigned: Assigned | None, present: Present | None = None, stray: Returning = STRAY
) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as raised:
        check(4, stray, assigned, present)
    return raised.value.code, str(raised.value)


@pytest.mark.parametrize("leader", [NO_LEADER, 4])
@pytest.mark.parametrize("present", [None, Present(0, 0, False), Present(0, 0, True, {7: 0})])
def test_it_returns_to_who_leads_nothing_or_an_empty_log(
    leader: int, present: Present | None
) -> None:
    check(4, STRAY, replace(FREE, leader=leader), present)


def test_without_metadata_it_is_said_which_topic_id_is_wanted() -> None:
    code, told = refused(None)
    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "lost-3" in told and "aWlpaWlpaWlpaWlpaWlpaQ" in told


@pytest.mark.parametrize("topic_id", [b"o" * 16, ZERO_TOPIC_ID])
def test_another_topic_or_one_that_nobody_knows_is_not_the_same(topic_id: bytes) -> None:
    for assigned, stray in (
        (replace(FREE, topic_id=topic_id), STRAY),
        (FREE, replace(STRAY, topic_id=topic_id)),
    ):
        code, told = refused(assigned, stray=stray)
        assert code is ErrorCode.INCONSISTENT_TOPIC_ID and "not the same topic" in told


def test_it_belongs_where_it_is_assigned() -> None:
    code, told = refused(replace(FREE, replicas=(7, 8)))
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT and "[7, 8]" in told


@pytest.mark.parametrize(("leader", "told_of"), [(7, "broker 7 leads lost-3"), (-2, "deleted")])
def test_nobody_else_leads(leader: int, told_of: str) -> None:
    code, told = refused(replace(FREE, leader=leader))
    assert code is ErrorCode.INVALID_REQUEST and told_of in told


@pytest.mark.parametrize(
    ("assigned", "told_of"),
    [
        (replace(FREE, leader_epoch=4, first_leader_epoch=0), "a leader_epoch of 5 or more"),
        (replace(FREE, leader_epoch=9, first_leader_epoch=6), "began at epoch 6"),
    ],
)
def test_its_last_epoch_is_of_this_life(assigned: Assigned, told_of: str) -> None:
    code, told = refused(assigned)
    assert code is ErrorCode.FENCED_LEADER_EPOCH and told_of in told


@pytest.mark.parametrize("present", [Present(0, 1, True), Present(8, 8, False)])
def test_records_are_not_replaced_not_even_gone_ones(present: Present) -> None:
    code, told = refused(FREE, present)
    assert code is ErrorCode.INVALID_REQUEST and f"up to {present.log_end_offset}" not in told
    assert f"{present.log_start_offset} to {present.log_end_offset}" in told


@pytest.mark.parametrize(
    ("end", "told_of"), [(-1, "has not reported its log end"), (6, "has offsets up to 6")]
)
def test_members_in_sync_are_known_to_be_empty(end: int, told_of: str) -> None:
    leads = replace(FREE, leader=4)
    code, told = refused(leads, Present(0, 0, True, {7: end}))
    assert code is ErrorCode.INVALID_REQUEST and "broker 7" in told and told_of in told
    check(4, STRAY, replace(leads, isr=(4,)), Present(0, 0, True, {7: end}))
