"""F2, V60: a follower's fetch that arrives late, over a connection that it has replaced."""

from __future__ import annotations

import pytest
from tests.rules.test_fetching_rules import fetched, role_of, run
from tests.support.broker.fakes import a_cluster, replicate

from tidelog.core.errors import ErrorCode


@pytest.mark.rule("F2", "V60")
def test_a_late_fetch_that_sets_a_follower_back_ends_its_other_session() -> None:
    """That session names no partition whose offset stays: the follower would never rejoin."""

    async def story() -> None:
        leader = a_cluster()[1]
        await replicate({1: leader}, isr=(1, 2))
        leader.produce(3)
        present = fetched(leader, 3, 0, session=(0, 0)).session_id
        assert fetched(leader, 0, 0, session=(present, 1)).error_code == ErrorCode.NONE
        fetched(leader, 1, 0, session=(0, 0))
        assert role_of(leader).followers[2].log_end_offset == 1
        refused = fetched(leader, 0, 0, session=(present, 2))
        assert refused.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        fetched(leader, 3, 0, session=(0, 0))
        assert role_of(leader).followers[2].log_end_offset == 3

    run(story())


@pytest.mark.rule("F2", "V60")
def test_the_sessions_of_other_followers_go_on() -> None:
    async def story() -> None:
        leader = a_cluster()[1]
        await replicate({1: leader}, isr=(1, 2, 3))
        leader.produce(3)
        third = fetched(leader, 3, 0, session=(0, 0), replica_id=3).session_id
        for offset in (3, 1):
            fetched(leader, offset, 0, session=(0, 0))
        assert fetched(leader, 0, 0, session=(third, 1), replica_id=3).error_code == 0

    run(story())
