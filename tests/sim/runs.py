"""Whole runs of seeds that several tests look at."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache

from tests.support.mutants.kills import RECOVERY_S, SOUND_SEED, recovers_soon, recovery_within

from tidelog.sim.observed.published_state import PublishedPartition
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.results import RunResult
from tidelog.sim.run import run_seed


def result_of(seed: int, profile: str = "default") -> RunResult:
    """Return what `run_seed` returns for a seed, made once; it is shared: nobody may change it.

    The cluster of `SOUND_SEED` must recover as soon as those that mutants break.
    """
    return _whole_run(seed, profile)[0]


def leaders_of(seed: int, profile: str = "default") -> dict[LogKey, list[int]]:
    """Return the leaders of each partition in the run of `result_of`, in their order."""
    return _whole_run(seed, profile)[1]


@cache
def _whole_run(seed: int, profile: str) -> tuple[RunResult, dict[LogKey, list[int]]]:
    leaders: dict[LogKey, list[int]] = {}

    def note(_: PublishedPartition | None, state: PublishedPartition) -> None:
        led = leaders.setdefault(state.key, [])
        if state.leader >= 0 and led[-1:] != [state.leader]:
            led.append(state.leader)

    with _recovery_of(seed, profile):
        result = run_seed(
            seed, profile, observe=lambda run: run.cluster.published.on_state.append(note)
        )
    return result, leaders


def beginning_of(seed: int, profile: str, limit_events: int) -> RunResult:
    """Return the result of the first events of the run that `result_of` makes."""
    with _recovery_of(seed, profile):
        return run_seed(seed, profile, limit_events=limit_events)


def _recovery_of(seed: int, profile: str) -> AbstractContextManager[None]:
    is_soon = seed == SOUND_SEED and recovers_soon(profile)
    return recovery_within(RECOVERY_S) if is_soon else nullcontext()
