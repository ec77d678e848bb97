"""What one run showed, the sums of many, and what a search must have gone through at least.

Results are plain values: workers hand them to whoever asked. Sums know how much is too little to
prove anything (`shortfalls`), and which interesting states were missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelog.core.sometimes import SOMETIMES


@dataclass(slots=True)
class RunResult:
    """What one run showed."""

    seed: int
    profile: str
    trace_hash: str
    events: int
    simulated_ns: int
    counters: dict[str, int]
    #: What makes it another run than its seed's under its profile, as it was asked for.
    mutant: str = ""
    chosen: tuple[str, ...] = ()
    only: str = ""
    #: Partitions of the steady topic.
    partitions: int = 0
    #: How often each kind of fault was played, and had somebody to be played to.
    faults: dict[str, int] = field(default_factory=dict)
    #: How often each kind of change was made, and acknowledged, while faults happened.
    churn: dict[str, int] = field(default_factory=dict)
    #: How often each interesting state was reached (core/sometimes.py).
    marks: dict[str, int] = field(default_factory=dict)
    violation: str = ""
    #: The last lines of the trace before the violation.
    recent: list[str] = field(default_factory=list)


#: Counters in the order in which they are printed.
COUNTERS: Final = (
    "leader elections",
    "truncations",
    "ISR shrinks",
    "ISR expansions",
    "crashes",
    "lossy crashes",
    "losses refused by the budget",
    "session expiries",
    "suppressed duplicates",
    "acknowledged records",
    "read records",
    "coordinator moves",
    "rebalances",
    "acknowledged commits",
)

#: What so many seeds of the default profile must have gone through at least: a search that reached
#: less has not looked where it matters.
MARKED_SEEDS: Final = 500
MARKS: Final[Mapping[str, int]] = {
    "leader elections": 500,
    "truncations": 100,
    "ISR shrinks": 500,
    "ISR expansions": 500,
    "lossy crashes": 300,
    "session expiries": 200,
    "suppressed duplicates": 100,
    "acknowledged records": 50_000,
    "coordinator moves": 500,
    "rebalances": 1_000,
    "acknowledged commits": 20_000,
}


@dataclass(slots=True)
class Totals:
    """Sums over runs."""

    runs: int = 0
    #: Of these, under the default profile.
    default_runs: int = 0
    events: int = 0
    simulated_ns: int = 0
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    faults: dict[str, int] = field(default_factory=dict)
    churn: dict[str, int] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)
    violations: list[RunResult] = field(default_factory=list)

    def add(self, result: RunResult) -> None:
        """Count a run."""
        self.runs += 1
        self.default_runs += result.profile == "default"
        self.events += result.events
        self.simulated_ns += result.simulated_ns
        for name, value in result.counters.items():
            self.counters[name] += value
        for name, value in result.faults.items():
            self.faults[name] = self.faults.get(name, 0) + value
        for name, value in result.churn.items():
            self.churn[name] = self.churn.get(name, 0) + value
        for name, value in result.marks.items():
            self.marks[name] = self.marks.get(name, 0) + value
        if result.violation:
            self.violations.append(result)

    def never_reached(self) -> list[str]:
        """The interesting states that none of these runs went through."""
        return [name for name in SOMETIMES if name not in self.marks]

    def shortfalls(self) -> list[str]:
        """The marks that these runs missed, each with what was reached; marks grow with the number
        of runs of the default profile."""
        return [
            f"{name}: {self.counters[name]}, at least {wanted} expected of"
            f" {self.default_runs} seeds"
            for name, mark in MARKS.items()
            if self.counters[name] < (wanted := mark * self.default_runs // MARKED_SEEDS)
        ]
