"""When a broker that does not answer its commands is named."""

from __future__ import annotations

from tidelog.controller.overdue import Overdue


def test_it_is_said_once_and_once_more_when_it_has_caught_up() -> None:
    queue = Overdue(100)
    queue.queued(1_000)
    assert [queue.failed(at) for at in (1_050, 1_099, 1_100, 1_200, 9_000)] == [
        None,
        None,
        100,
        None,
        None,
    ]
    assert queue.is_overdue
    assert queue.answered(9_100, more=False) == 8_100
    assert not queue.is_overdue


def test_what_is_queued_behind_does_not_make_it_younger() -> None:
    queue = Overdue(100)
    assert queue.behind_ms(0) == 0
    queue.queued(0)
    queue.queued(90)
    assert queue.behind_ms(90) == 90
    assert queue.failed(100) == 100


def test_a_broker_that_answers_is_never_behind_however_much_it_is_told() -> None:
    queue = Overdue(100)
    for at in range(0, 1_000, 50):
        queue.queued(at)
        assert queue.answered(at + 40, more=True) is None
        assert queue.failed(at + 45) is None


def test_one_without_commands_is_not_behind() -> None:
    queue = Overdue(100)
    queue.queued(0)
    assert queue.answered(10, more=False) is None
    assert queue.failed(1_000) is None
