"""Why a partition has no leader, in one line."""

from __future__ import annotations

import pytest

from tidelog.core.leader_wait import LeaderWait, MemberStatus, reason, status_of

AWAY, LEFT, ASKED = MemberStatus.NOT_REGISTERED, MemberStatus.LEAVING, MemberStatus.ASKED
HERE, COMPARED, LOST = MemberStatus.REGISTERED, MemberStatus.COMPARED, MemberStatus.LOST


@pytest.mark.parametrize(
    ("members", "is_waiting", "text"),
    [
        (
            {1: COMPARED, 3: AWAY},
            False,
            "no leader: awaiting broker 3 (not registered); 1 of 2 logs compared; last leader 1",
        ),
        (
            {1: HERE, 2: HERE, 3: AWAY},
            True,
            "no leader: awaiting broker 3 (not registered); 2 of 2 members registered; others may"
            " come until leader.recovery.wait.ms is over; last leader 1",
        ),
        (
            {1: LEFT, 2: ASKED},
            False,
            "no leader: awaiting broker 1 (shutting down), broker 2 (asked for the end of its"
            " log); 0 of 2 logs compared; last leader 1",
        ),
        (
            {1: LOST, 2: LOST},
            False,
            "no leader: no live member has all committed records for certain; 2 of 2 members"
            " registered; lost on 1, 2; an operator must elect one uncleanly; last leader 1",
        ),
    ],
)
def test_it_names_what_is_awaited_and_what_helps(
    members: dict[int, MemberStatus], is_waiting: bool, text: str
) -> None:
    wait = LeaderWait(tuple(members.items()), 2, is_waiting)
    assert reason(wait, last_leader=1) == text


def test_only_members_that_block_the_election_are_awaited() -> None:
    wait = LeaderWait(((1, AWAY), (2, HERE), (3, LOST), (4, ASKED)), 2)
    assert wait.awaited == (1, 4)


def test_a_status_of_a_later_version_does_not_fail() -> None:
    assert status_of(2) is AWAY
    assert status_of(99) is HERE
