"""Whether the controller's flow moves, tick by tick."""

from __future__ import annotations

from tidelog.controller.activity import STALLED_TICKS, Activity, ActivityVerdict

WAITED = [ActivityVerdict.WAIT] * (STALLED_TICKS - 1)


def ticks(activity: Activity, count: int) -> list[ActivityVerdict]:
    return [activity.tick() for _ in range(count)]


def test_a_flow_without_an_outcome_is_stalled_again_and_again() -> None:
    assert ticks(Activity(), 2 * STALLED_TICKS) == [*WAITED, ActivityVerdict.STALLED] * 2


def test_every_outcome_begins_the_count_anew() -> None:
    activity = Activity()
    for _ in range(5):
        assert ticks(activity, STALLED_TICKS - 1) == WAITED
        activity.moved()


def test_who_rests_looks_however_long_it_rests() -> None:
    activity = Activity()
    activity.rests()
    assert ticks(activity, 3 * STALLED_TICKS) == [ActivityVerdict.LOOK] * 3 * STALLED_TICKS


def test_what_was_rested_does_not_count_against_what_comes_next() -> None:
    activity = Activity()
    assert ticks(activity, STALLED_TICKS - 1) == WAITED
    activity.moved()
    activity.rests()
    activity.tick()
    activity.moved()
    assert ticks(activity, STALLED_TICKS) == [*WAITED, ActivityVerdict.STALLED]
