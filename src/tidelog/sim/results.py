"""The result of one run, sums over many runs, and the minimums that a search must reach.

Results are plain values, so that worker processes can return them. `Totals` finds the counters that
are too low to prove anything, and the interesting states that no run reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from tidelog.core.dataclass import dataclass
from tidelog.core.sometimes import SOMETIMES


@dataclass(slots=True)
class RunResult:
    """The result of one run."""

    seed: int
    profile: str
    trace_hash: str
    events: int
    simulated_ns: int
    counters: dict[str, int]
    #: Other parts of the job: the mutant, `chosen` kinds of faults that replace the profile's, and
    #: the reduction (`sim/reductions`), which `only` describes.
    mutant: str = ""
    chosen: tuple[str, ...] = ()
    only: str = ""
    #: Policy of the cluster (`sim/policies`); empty for the settings of the profile.
    policy: str = ""
    #: The settings that a seed of the profile `swarm` drew (`sim/swarm`); empty for other profiles.
    world: str = ""
    #: Number of partitions of the topic `steady`.
    partitions: int = 0
    #: Number of injected faults that found a target, by kind.
    faults: dict[str, int] = field(default_factory=dict)
    #: Number of changes by clients that were acknowledged while faults happened, by kind of change
    #: (churn).
    churn: dict[str, int] = field(default_factory=dict)
    #: Number of times each interesting state was reached (core/sometimes.py).
    marks: dict[str, int] = field(default_factory=dict)
    #: Number of file calls that a fault made fail, by errno and call ("EIO rename").
    file_errors: dict[str, int] = field(default_factory=dict)
    #: Measured outcomes (`sim/outcomes`); empty if the run ended before every replica was in sync
    #: again.
    outcomes: dict[str, float] = field(default_factory=dict)
    #: For each block of lines, the hash over the trace up to the block's end (`sim/trace`).
    block_hashes: list[str] = field(default_factory=list)
    violation: str = ""
    #: The last lines of the trace before the violation.
    recent: list[str] = field(default_factory=list)


MARKED_SEEDS: Final = 500
#: Counters in the order in which they are printed. Each has the minimum that `MARKED_SEEDS` seeds
#: of the default profile must reach: a search below it has hardly tested the important cases.
COUNTERS: Final[Mapping[str, int]] = {
    "leader elections": 500,
    "truncations": 100,
    "ISR shrinks": 500,
    "ISR expansions": 500,
    "crashes": 0,
    "lossy crashes": 300,
    "losses refused by the budget": 0,
    "session expiries": 200,
    "suppressed duplicates": 100,
    "acknowledged records": 50_000,
    "read records": 0,
    "coordinator moves": 500,
    "rebalances": 1_000,
    "acknowledged commits": 20_000,
}


@dataclass(slots=True)
class Sums:
    """Sums of the counts of several runs, such as faults, changes and failed file calls."""

    runs: int = 0
    events: int = 0
    simulated_ns: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    churn: dict[str, int] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)

    def add(self, result: RunResult) -> None:
        """Add a run."""
        self.runs += 1
        self.events += result.events
        self.simulated_ns += result.simulated_ns
        for part in COUNTED:
            sum_up(getattr(self, part), getattr(result, part))


#: Fields of `Sums` and `RunResult` that contain numbers by name.
COUNTED: Final = ("counters", "faults", "churn", "marks")


def sum_up(into: dict[str, int], more: Mapping[str, int]) -> None:
    """Add numbers to the sums of the same names."""
    for name, count in more.items():
        into[name] = into.get(name, 0) + count


@dataclass(slots=True)
class Totals(Sums):
    """Sums over the runs of one search, and the runs that showed a violation."""

    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    #: Number of runs under the default profile.
    default_runs: int = 0
    violations: list[RunResult] = field(default_factory=list)

    def add(self, result: RunResult) -> None:
        """Add a run."""
        Sums.add(self, result)
        self.default_runs += result.profile == "default"
        if result.violation:
            self.violations.append(result)

    def never_reached(self) -> list[str]:
        """Return the interesting states that no run reached."""
        return [name for name in SOMETIMES if name not in self.marks]

    def shortfalls(self) -> list[str]:
        """Return the counters below their minimum, each with its value.

        A counter's minimum grows with the number of runs of the default profile.
        """
        return [
            f"{name}: {self.counters[name]}, at least {wanted} expected of"
            f" {self.default_runs} seeds"
            for name, mark in COUNTERS.items()
            if self.counters[name] < (wanted := mark * self.default_runs // MARKED_SEEDS)
        ]
