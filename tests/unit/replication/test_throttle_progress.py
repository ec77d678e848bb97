"""Throttled replicas that fall behind are reported once for each rate (R15)."""

from __future__ import annotations

from tidelog.replication.throttle_progress import Shortfall, ThrottleProgress


def test_a_rate_below_what_producers_write_is_reported_at_once_and_once() -> None:
    progress: ThrottleProgress[str] = ThrottleProgress()
    found = progress.look("a", 3_000, 1_000, 2_000, 1_000)
    assert found == Shortfall(1_500, 1_000)
    assert found.is_for_good
    assert progress.look("a", 3_000, 1_000, 2_000, 1_000) is None
    assert progress.look("a", 3_000, 1_000, 2_000, 1_200) == Shortfall(1_500, 1_200)


def test_a_shared_rate_is_reported_after_two_looks() -> None:
    progress: ThrottleProgress[str] = ThrottleProgress()
    assert progress.look("a", 1_000, 500, 2_000, 1_000) is None
    found = progress.look("a", 1_000, 500, 2_000, 1_000)
    assert found == Shortfall(500, 1_000)
    assert not found.is_for_good


def test_a_replica_that_gets_as_much_as_is_written_is_not_behind() -> None:
    progress: ThrottleProgress[str] = ThrottleProgress()
    assert progress.look("a", 1_000, 500, 2_000, 1_000) is None
    assert progress.look("a", 1_000, 1_000, 2_000, 1_000) is None
    assert progress.look("a", 1_000, 500, 2_000, 1_000) is None


def test_a_replica_that_waits_no_longer_is_forgotten() -> None:
    progress: ThrottleProgress[str] = ThrottleProgress()
    for replica in ("a", "b"):
        assert progress.look(replica, 3_000, 0, 1_000, 1_000) is not None
    progress.forget_all_but(["b"])
    assert progress.look("a", 3_000, 0, 1_000, 1_000) is not None
    assert progress.look("b", 3_000, 0, 1_000, 1_000) is None
