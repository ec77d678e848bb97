"""A truncation that removes nothing is neither logged nor counted as one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.ports import FakeTracer

from tidelog.broker.replicas.fetching.followed_partition import FollowedPartition
from tidelog.core.types import TopicPartition
from tidelog.replication.effects import TruncateFullyAndStartAt, TruncateTo


class Done:
    """A truncation that has ended."""

    done, error = True, None


class Follower:
    """As much of a followed partition as a truncation touches; its log holds 2 to 10."""

    _run, _truncate = FollowedPartition._run, FollowedPartition._truncate
    _report_truncation = FollowedPartition._report_truncation
    _mark_truncation = FollowedPartition._mark_truncation

    def __init__(self, start: int, end: int) -> None:
        log = SimpleNamespace(
            truncate_to=lambda offset: Done,
            truncate_fully_and_start_at=lambda offset: Done,
            epochs=SimpleNamespace(entries=list),
        )
        self.cut: list[Any] = []
        self._services = SimpleNamespace(tracer=FakeTracer())
        self.partition = SimpleNamespace(log=log, topic_partition=TopicPartition("t", 0))
        self.role = SimpleNamespace(
            log_start_offset=start, log_end_offset=end, leader=1, leader_epoch=4, damaged_from=None
        )

    def _not_ready(self) -> None:
        """It does not fetch now."""

    def _truncated(self, completion: Any) -> None:
        self.cut.append(completion)


@pytest.mark.parametrize(
    ("start", "end", "effect", "is_reported"),
    [
        (2, 10, TruncateTo(9), True),
        (2, 10, TruncateTo(10), False),
        (2, 10, TruncateFullyAndStartAt(10), True),
        (2, 10, TruncateFullyAndStartAt(12), True),
        (5, 5, TruncateFullyAndStartAt(9), True),
        (5, 5, TruncateFullyAndStartAt(5), False),
    ],
)
def test_what_removes_nothing_is_not_reported(
    start: int, end: int, effect: Any, is_reported: bool
) -> None:
    follower = Follower(start, end)
    follower._run((effect,))  # type: ignore[misc]  # a fake stands in
    assert follower.cut == [Done], "it is carried out all the same"
    tracer = follower._services.tracer
    said = " ".join([*tracer.lines, *tracer.marks, *(name for name, _ in tracer.events)])
    assert ("truncated" in said) == ("truncating t-0" in said) == is_reported
