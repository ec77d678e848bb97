"""What the page of the simulator's coverage shows, as a small file beside the code.

Coverage of a search takes megabytes. `Summary` is the part of it that docs/internals/coverage.md
shows; `coverage_summary.json` keeps it, so that a test can write the page again and compare it, and
new faults and states get their rows without another search.
"""

from __future__ import annotations

import errno
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tidelog.core.sometimes import SOMETIMES
from tidelog.sim.faults.log_dirs import OPERATIONS, errors_of
from tidelog.sim.search_coverage import Coverage

KEPT: Final = Path(__file__).with_name("coverage_summary.json")
#: Of the counters, those that stand in the table of profiles, with their heads.
SHOWN: Final = {
    "leader elections": "elections",
    "truncations": "truncations",
    "ISR shrinks": "shrinks",
    "lossy crashes": "lossy crashes",
    "session expiries": "expiries",
    "acknowledged records": "acknowledged records",
}
#: A state is shown with so many of the faults that its runs had most often.
_MOST_FAULTS: Final = 3
_NS_PER_HOUR: Final = 3_600_000_000_000


@dataclass(slots=True)
class ProfileRow:
    """The runs of one profile."""

    runs: int
    #: Simulated time, with one digit after the point.
    hours: str
    events: int
    #: As many as `SHOWN` has counters.
    counts: list[int]
    states: int
    violations: int


@dataclass(slots=True)
class PairCell:
    """Runs with a kind of fault and a kind of churn, and how many states they reached."""

    runs: int
    states: int


@dataclass(slots=True)
class StateRow:
    """How often runs reached a state, and the faults that most of these runs had."""

    reached: int
    faults: list[str]


@dataclass(slots=True)
class Summary:
    """All that the page shows of the runs of a search."""

    #: The name of the file from which it was taken.
    source: str
    profiles: dict[str, ProfileRow] = field(default_factory=dict)
    #: By fault, then by churn.
    pairs: dict[str, dict[str, PairCell]] = field(default_factory=dict)
    #: States that were reached.
    states: dict[str, StateRow] = field(default_factory=dict)
    #: Failed calls by operation, then by errno; None if no profile draws such failures.
    file_errors: dict[str, dict[str, int]] | None = None

    @property
    def runs(self) -> int:
        """Number of all runs."""
        return sum(each.runs for each in self.profiles.values())

    def never_reached(self) -> list[str]:
        """Return the interesting states that no run reached."""
        return [name for name in SOMETIMES if name not in self.states]

    def to_json(self) -> str:
        """Return the text of its file: one line for each row of the page."""
        parts = []
        for name, value in asdict(self).items():
            if isinstance(value, dict):
                rows = ",\n".join(
                    f"  {json.dumps(key)}: {json.dumps(row)}" for key, row in value.items()
                )
                parts.append(f" {json.dumps(name)}: {{\n{rows}\n }}")
            else:
                parts.append(f" {json.dumps(name)}: {json.dumps(value)}")
        return "{\n" + ",\n".join(parts) + "\n}\n"


def read_summary(text: str) -> Summary:
    """Return the summary in the text of its file."""
    document: dict[str, Any] = json.loads(text)
    return Summary(
        source=document["source"],
        profiles={name: ProfileRow(**row) for name, row in document["profiles"].items()},
        pairs={
            fault: {churn: PairCell(**cell) for churn, cell in by_churn.items()}
            for fault, by_churn in document["pairs"].items()
        },
        states={name: StateRow(**row) for name, row in document["states"].items()},
        file_errors=document["file_errors"],
    )


def summarize(coverage: Coverage, source: str) -> Summary:
    """Return what the page shows of the coverage in the file `source`."""
    found = Summary(source)
    for name, one in sorted(coverage.profiles.items()):
        found.profiles[name] = ProfileRow(
            one.runs,
            f"{one.simulated_ns / _NS_PER_HOUR:.1f}",
            one.events,
            [one.counters.get(counter, 0) for counter in SHOWN],
            len(one.marks),
            one.violations,
        )
    for fault, by_churn in sorted(coverage.pairs.items()):
        cells = sorted(by_churn.items())
        found.pairs[fault] = {churn: PairCell(each.runs, len(each.marks)) for churn, each in cells}
    for name, reached in sorted(coverage.marks().items()):
        runs = {
            fault: sum(pair.marks.get(name, 0) for pair in by_churn.values())
            for fault, by_churn in coverage.pairs.items()
        }
        often = sorted((fault for fault in runs if runs[fault]), key=lambda each: -runs[each])
        found.states[name] = StateRow(reached, often[:_MOST_FAULTS])
    if any(one.faults.get("fail_operation") for one in coverage.profiles.values()):
        found.file_errors = _file_errors(coverage)
    return found


def error_names(operation: str) -> list[str]:
    """Return the names of the errors with which the fault `fail_operation` fails an operation."""
    return [errno.errorcode[number] for number in errors_of(operation)]


def _file_errors(coverage: Coverage) -> dict[str, dict[str, int]]:
    calls = coverage.file_errors()
    return {
        operation: {
            error: sum(calls.get((error, call), 0) for call in names)
            for error in error_names(operation)
        }
        for operation, names in OPERATIONS.items()
    }
