"""The simulator's coverage, from what searches have kept, as a page: docs/internals/coverage.md.

`tidelog sim run ... --coverage FILE` keeps what it went through and adds to what is there;
`python -m tests.sim.coverage --from FILE` prints its tables, with `--write` into the docs too, and
exits with 1 where an interesting state was never reached.
"""

from __future__ import annotations

import argparse
import errno
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tidelog.core.errors import TidelogError
from tidelog.core.sometimes import SOMETIMES
from tidelog.sim.faults import KINDS
from tidelog.sim.faults.log_dirs import OPERATIONS, errors_of
from tidelog.sim.search_coverage import Coverage

PAGE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "coverage.md"
_NS_PER_HOUR = 3_600_000_000_000
#: Of the counters, those that stand in the table of profiles, with their heads.
SHOWN = {
    "leader elections": "elections",
    "truncations": "truncations",
    "ISR shrinks": "shrinks",
    "lossy crashes": "lossy crashes",
    "session expiries": "expiries",
    "acknowledged records": "acknowledged records",
}


def row(cells: Iterable[object]) -> str:
    told = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells)
    return f"| {' | '.join(told)} |\n"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = row(head) + row(["---", *["---:"] * (len(head) - 1)])
    return lines + "".join(row(cells) for cells in rows)


def profiles(coverage: Coverage) -> str:
    """What the runs of each profile went through."""
    rows: list[list[object]] = []
    for name, one in sorted(coverage.profiles.items()):
        counts = [one.counters.get(counter, 0) for counter in SHOWN]
        hours = f"{one.simulated_ns / _NS_PER_HOUR:.1f}"
        rows.append([name, one.runs, hours, one.events, *counts, len(one.marks), one.violations])
    head = ["profile", "runs", "simulated hours", "events", *SHOWN.values()]
    return table([*head, "states reached", "violations"], rows)


def pairs(coverage: Coverage) -> str:
    """Which faults met which churn: runs, and how many interesting states were reached in them."""
    kinds = sorted({kind for by_churn in coverage.pairs.values() for kind in by_churn})
    rows: list[list[object]] = []
    for fault in [*KINDS, *(name for name in coverage.pairs if name not in KINDS)]:
        cells: list[object] = [fault]
        for kind in kinds:
            pair = coverage.pairs.get(fault, {}).get(kind)
            cells.append(f"{pair.runs:,} / {len(pair.marks)}" if pair else "-")
        rows.append(cells)
    return table(["fault", *kinds], rows)


def states(coverage: Coverage) -> str:
    """How often each interesting state was reached, and with which fault in most of the runs."""
    reached = coverage.marks()
    rows: list[list[object]] = []
    for name, meaning in SOMETIMES.items():
        runs = {
            fault: sum(pair.marks.get(name, 0) for pair in by_churn.values())
            for fault, by_churn in coverage.pairs.items()
        }
        often = sorted((fault for fault in runs if runs[fault]), key=lambda each: -runs[each])
        rows.append([f"`{name}`: {meaning}", reached.get(name, 0), ", ".join(often[:3]) or "-"])
    return table(["state", "reached", "faults of most of these runs"], rows)


def file_errors(coverage: Coverage) -> str:
    """How many calls of each operation on files failed with each errno."""
    found = coverage.file_errors()
    errors = sorted({error for operation in OPERATIONS for error in error_names(operation)})
    rows: list[list[object]] = []
    for operation, calls in OPERATIONS.items():
        drawn = error_names(operation)
        cells: list[object] = [
            sum(found.get((error, call), 0) for call in calls) if error in drawn else "-"
            for error in errors
        ]
        rows.append([operation, *cells])
    return table(["operation", *errors], rows)


def error_names(operation: str) -> list[str]:
    """The errors that an operation may meet under `fail_operation`, by name."""
    return [errno.errorcode[number] for number in errors_of(operation)]


def never_failed(coverage: Coverage) -> list[str]:
    """Operations with the errors that they never met, where profiles draw them."""
    found = coverage.file_errors()
    if not any(one.faults.get("fail_operation") for one in coverage.profiles.values()):
        return []
    return [
        f"{operation} with {error}"
        for operation, calls in OPERATIONS.items()
        for error in error_names(operation)
        if not any((error, call) in found for call in calls)
    ]


def render(coverage: Coverage, command: str) -> str:
    """The page."""
    missed = coverage.never_reached()
    told = ", ".join(f"`{name}`" for name in missed) or "none"
    return (
        "# Coverage of the simulator\n\n"
        f"This page sums up {coverage.runs:,} runs: `{command}` writes it from the files of"
        " `tidelog sim run --coverage FILE` (`make soak`). Faults, churn and states with low"
        " numbers were tested little.\n\n"
        f"## Profiles\n\n{profiles(coverage)}\n"
        "## Faults and churn\n\nRuns that had both / interesting states reached in such runs, of"
        f" {len(SOMETIMES)}.\n\n{pairs(coverage)}\n"
        "## Failed operations on files\n\nCalls that failed by a fault, by operation and errno; "
        "`-`: the operation never fails so. Never met: "
        f"{', '.join(never_failed(coverage)) or 'none'}.\n\n{file_errors(coverage)}\n"
        f"## Interesting states\n\nNever reached: {told}.\n\n{states(coverage)}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.coverage", description=__doc__)
    parser.add_argument("--from", dest="source", type=Path, required=True, help="what was kept")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} of the docs")
    options = parser.parse_args()
    try:
        text = options.source.read_text(encoding="utf-8")
        coverage = Coverage.from_json(text, str(options.source))
    except OSError as error:
        sys.exit(f"{options.source}: {error.strerror}; tidelog sim run --coverage writes it")
    except TidelogError as error:
        sys.exit(str(error))
    command = f"python -m tests.sim.coverage --from {options.source.name} --write"
    page = render(coverage, command)
    if options.write:
        PAGE.write_text(page, encoding="utf-8")
    print(page)  # noqa: T201
    missed = coverage.never_reached()
    for name in missed:
        print(f"NEVER REACHED {name}: {SOMETIMES[name]}", file=sys.stderr)  # noqa: T201
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
