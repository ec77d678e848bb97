"""The simulator's coverage, from what searches have kept, as a page: docs/internals/coverage.md.

`tidelog sim run ... --coverage FILE` keeps what it went through and adds to what is there;
`python -m tests.sim.coverage --from FILE` prints its tables, with `--write` into the docs too, and
exits with 1 where an interesting state was never reached. `--write` alone writes the page again
from `coverage_summary.json`, which a search with `--write` left: for new faults and states.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.sim.coverage_summary import (
    KEPT,
    SHOWN,
    PairCell,
    StateRow,
    Summary,
    error_names,
    read_summary,
    summarize,
)

from tidelog.core.errors import TidelogError
from tidelog.core.sometimes import SOMETIMES
from tidelog.sim.faults import KINDS
from tidelog.sim.faults.log_dirs import OPERATIONS
from tidelog.sim.search_coverage import Coverage

PAGE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "coverage.md"


def row(cells: Iterable[object]) -> str:
    told = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells)
    return f"| {' | '.join(told)} |\n"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = row(head) + row(["---", *["---:"] * (len(head) - 1)])
    return lines + "".join(row(cells) for cells in rows)


def profiles(summary: Summary) -> str:
    """What the runs of each profile went through."""
    rows = [
        [name, one.runs, one.hours, one.events, *one.counts, one.states, one.violations]
        for name, one in summary.profiles.items()
    ]
    head = ["profile", "runs", "simulated hours", "events", *SHOWN.values()]
    return table([*head, "states reached", "violations"], rows)


def pairs(summary: Summary) -> str:
    """Which faults met which churn: runs, and how many interesting states were reached in them."""
    kinds = sorted({kind for by_churn in summary.pairs.values() for kind in by_churn})
    rows = [
        [fault, *(_cell(summary.pairs.get(fault, {}).get(kind)) for kind in kinds)]
        for fault in [*KINDS, *(name for name in summary.pairs if name not in KINDS)]
    ]
    return table(["fault", *kinds], rows)


def _cell(pair: PairCell | None) -> str:
    return f"{pair.runs:,} / {pair.states}" if pair else "-"


def states(summary: Summary) -> str:
    """How often each interesting state was reached, and with which fault in most of the runs."""
    rows = []
    for name, meaning in SOMETIMES.items():
        found = summary.states.get(name, StateRow(0, []))
        rows.append([f"`{name}`: {meaning}", found.reached, ", ".join(found.faults) or "-"])
    return table(["state", "reached", "faults of most of these runs"], rows)


def file_errors(summary: Summary) -> str:
    """How many calls of each operation on files failed with each errno."""
    found = summary.file_errors or {}
    errors = sorted({error for operation in OPERATIONS for error in error_names(operation)})
    rows = [
        [
            operation,
            *(
                found.get(operation, {}).get(error, 0) if error in error_names(operation) else "-"
                for error in errors
            ),
        ]
        for operation in OPERATIONS
    ]
    return table(["operation", *errors], rows)


def never_failed(summary: Summary) -> list[str]:
    """Operations with the errors that they never met, where profiles draw them."""
    found = summary.file_errors
    if found is None:
        return []
    return [
        f"{operation} with {error}"
        for operation in OPERATIONS
        for error in error_names(operation)
        if not found.get(operation, {}).get(error)
    ]


def render(summary: Summary) -> str:
    """The page."""
    missed = summary.never_reached()
    told = ", ".join(f"`{name}`" for name in missed) or "none"
    command = f"python -m tests.sim.coverage --from {summary.source} --write"
    return (
        "# Coverage of the simulator\n\n"
        f"This page sums up {summary.runs:,} runs: `{command}` writes it from the files of"
        " `tidelog sim run --coverage FILE` (`make soak`). Faults, churn and states with low"
        " numbers were tested little.\n\n"
        f"## Profiles\n\n{profiles(summary)}\n"
        "## Faults and churn\n\nRuns that had both / interesting states reached in such runs, of"
        f" {len(SOMETIMES)}.\n\n{pairs(summary)}\n"
        "## Failed operations on files\n\nCalls that failed by a fault, by operation and errno; "
        "`-`: the operation never fails so. Never met: "
        f"{', '.join(never_failed(summary)) or 'none'}.\n\n{file_errors(summary)}\n"
        f"## Interesting states\n\nNever reached: {told}.\n\n{states(summary)}"
    )


def read(source: Path | None) -> Summary:
    """Return what the page shows of a file of coverage; of what the last search left, for None."""
    if source is None:
        return read_summary(KEPT.read_text(encoding="utf-8"))
    try:
        text = source.read_text(encoding="utf-8")
        return summarize(Coverage.from_json(text, str(source)), source.name)
    except OSError as error:
        sys.exit(f"{source}: {error.strerror}; tidelog sim run --coverage writes it")
    except TidelogError as error:
        sys.exit(str(error))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.coverage", description=__doc__)
    parser.add_argument("--from", dest="source", type=Path, help="the file of a search")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} of the docs")
    options = parser.parse_args()
    if options.source is None and not options.write:
        parser.error("--from FILE, --write, or both")
    summary = read(options.source)
    page = render(summary)
    if options.write:
        PAGE.write_text(page, encoding="utf-8")
        KEPT.write_text(summary.to_json(), encoding="utf-8")
    if options.source is None:
        return 0
    print(page)  # noqa: T201
    missed = summary.never_reached()
    for name in missed:
        print(f"NEVER REACHED {name}: {SOMETIMES[name]}", file=sys.stderr)  # noqa: T201
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
