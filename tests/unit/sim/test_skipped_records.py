"""The check of refused sequences where the leader skipped records as a follower (V67)."""

from __future__ import annotations

import pytest
from tests.unit.sim.test_sim_checkers import DIRECTORY, SEGMENT, Setup

from tidelog.sim.client_history import Produce


@pytest.mark.parametrize("had_it", [False, True])
def test_a_leader_may_refuse_a_batch_that_retention_removed_before_it_copied_it(
    had_it: bool,
) -> None:
    """It has later batches of the producer only (lookups, seed 740022022)."""
    setup = Setup()
    setup.now_ns = 50
    setup.nodes[1].append([1, 2], 0)
    setup.nodes[3].append([1, 2], 0)
    if had_it:
        setup.nodes[2].append([1, 2], 0)
    setup.look()
    setup.lead(1, 0, 2)
    second = setup.nodes[2]
    second.disk.unlink(SEGMENT)
    second.write(f"{DIRECTORY}/{2:020}.log", b"")
    setup.look()
    setup.state(2, 1, [1, 2, 3], [11, 12, 13])
    operation = Produce(101, "t", 0, -1, 7, (1, 2), 0, sent_ns=[40, 60])
    setup.history.sequence_refused(operation, 2)
    assert [each for each in setup.violations if "refused the sequence" in each] == (
        ["leader 2 refused the sequence of the oldest open batch: " + str(operation)]
        if had_it
        else []
    )
    assert setup.history.expired_open == (set() if had_it else {1})
