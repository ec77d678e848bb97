"""Recorded kills: for each mutant a seed that kills it (tests/sim/kills.json).

What a seed does changes with every change of the brokers, and then another seed may have to be
recorded. A record is the kill that costs `make test` least.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import pytest
from tests.support.mutants import MUTANTS, importable
from tests.support.mutants.lines import ROOT
from tests.support.mutants.search import seeds_with
from tests.support.mutants.trials import not_running

from tidelog.sim.loop import NS_PER_S
from tidelog.sim.phases import Stage
from tidelog.sim.profiles import PROFILES, SWARM
from tidelog.sim.results import RunResult
from tidelog.sim.run import run_seed

KILLS = ROOT / "tests" / "sim" / "kills.json"
#: A mutant that so many seeds do not kill shows a hole in the faults or in the checkers.
SEEDS: Final = range(200)
#: So many seeds after the first that kills the mutant may do so earlier.
AFTER_FIRST: Final = 11
#: A kill that costs more than so many events is replayed by `make soak`, not by `make test`.
AFFORDABLE_EVENTS: Final = 14_000
#: Virtual seconds; what recovers in a minute and not in these is found by `make soak`.
RECOVERY_S: Final = 15
#: `tests/sim/test_seeds.py` runs this seed of every profile but the default one to its end, and
#: nothing is violated.
SOUND_SEED: Final = 0
#: Profiles whose run of `SOUND_SEED` recovers, but later than `RECOVERY_S`: its last reader needs
#: longer.
LATER: Final = frozenset({"jbod"})
#: Further runs to their end in `tests/sim/test_seeds.py` and `test_scenarios_fire.py`, which may
#: take a minute to recover: profiles and seeds.
WHOLE_RUNS: Final = (("mixed_levels", 0), (SWARM, 2661), (SWARM, 2392))
#: A cluster that never recovers does so after a shorter time with faults, too.
SHORTER: Final = ("until=4000", "until=1500")
_NOT_IN_TIME: Final = "not in time: "
_SHOWN_CHARS = 110


class Kill(NamedTuple):
    """A seed that kills a mutant, after how many events, and what was seen."""

    seed: int
    events: int
    violation: str
    #: The reduction of the run; empty for the run as the seed has it.
    only: str = ""

    @property
    def is_late(self) -> bool:
        """Whether the cluster did not recover, instead of doing something wrong."""
        return _NOT_IN_TIME in self.violation


def recovers_soon(profile: str) -> bool:
    """Return whether the whole run of `SOUND_SEED` must recover within `RECOVERY_S`."""
    return profile in PROFILES and profile not in LATER


def is_sound_elsewhere(name: str, kill: Kill) -> bool:
    """Return whether a whole run shows that the seed violates nothing without the mutant."""
    profile = MUTANTS[name].profile
    if (profile, kill.seed) in WHOLE_RUNS:
        return not kill.only and not kill.is_late
    is_run = (kill.seed, kill.only) == (SOUND_SEED, "") and profile != "default"
    return is_run and recovers_soon(profile)


def cost_events(name: str, kill: Kill) -> int:
    """Return the events of a replay, and of the run without the mutant."""
    return kill.events if is_sound_elsewhere(name, kill) else 2 * kill.events


def is_affordable(name: str, kill: Kill) -> bool:
    """Return whether `make test` replays a kill."""
    return cost_events(name, kill) <= AFFORDABLE_EVENTS


@contextmanager
def recovery_within(limit_s: int) -> Iterator[None]:
    """Runs inside must recover from their faults in so many virtual seconds instead of a minute.

    Clusters recover in a few. One that is broken and never does costs less time so.
    """
    after_ns = Stage.after_ns

    def sooner_ns(stage: Stage, time_ns: int) -> int:
        return after_ns(stage, min(time_ns, limit_s * NS_PER_S))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stage, "after_ns", sooner_ns)
        yield


def run_with(name: str, seed: int, only: str, limit_events: int | None = None) -> RunResult:
    """Run a seed of a mutant's profile with the mutant; it recovers soon or not at all."""
    profile = MUTANTS[name].profile
    with recovery_within(RECOVERY_S):
        return run_seed(seed, profile, importable(name), limit_events=limit_events, only=only)


def run_without(profile: str, seed: int, only: str, limit_events: int) -> RunResult:
    """Run a seed in the same way without a mutant."""
    with recovery_within(RECOVERY_S):
        return run_seed(seed, profile, limit_events=limit_events, only=only)


def load() -> dict[str, Kill]:
    """Return the recorded kills by mutant."""
    recorded = json.loads(KILLS.read_text(encoding="utf-8"))
    return {name: Kill(*row) for name, row in recorded.items()}


def save(kills: Mapping[str, Kill]) -> None:
    """Record kills, in the order of the mutants."""
    kept = {name: [each for each in kills[name] if each != ""] for name in MUTANTS if name in kills}
    KILLS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def search(name: str, seeds: Sequence[int] = SEEDS) -> Kill | None:
    """Return the cheapest of the first kills among the seeds; None where there is none."""
    best: Kill | None = None
    cost = left = None
    for seed in seeds_with(MUTANTS[name].world, seeds):
        if left == 0:
            break
        left = left and left - 1
        for only in ("", *SHORTER):
            kill = _kill(name, seed, only, cost)
            if kill is not None:
                best, cost = kill, cost_events(name, kill)
                left = AFTER_FIRST if left is None else left
            if best is None or best.seed != seed or not best.is_late:
                break
    return best


def _kill(name: str, seed: int, only: str, cost: int | None) -> Kill | None:
    """Return the kill of a mutant by a seed that is sound without it, if it costs less."""
    # A run of another seed counts twice.
    limit = cost if cost is None or seed == SOUND_SEED else cost // 2
    result = run_with(name, seed, only, limit)
    if not_running(result.violation):
        raise SystemExit(f"{name} does not run: {result.violation}")
    kill = Kill(seed, result.events, _short(result.violation), only)
    if not result.violation or (cost is not None and cost_events(name, kill) >= cost):
        return None
    if is_sound_elsewhere(name, kill):
        return kill
    shown = run_without(MUTANTS[name].profile, seed, only, result.events).violation
    return None if shown else kill


def _short(violation: str) -> str:
    """Return the first line without its time, cut to what fits a table."""
    text = re.sub(r"^[\d.]+ s: ", "", violation.partition("\n")[0])
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3].rstrip() + "..."
