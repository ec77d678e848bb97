"""Any part of the bench in turns with another checkout, row by row.

`python -m bench PART --against CHECKOUT`: each round runs the part once here and once in the other
checkout, the other way round in the next one, each by its own bench and its own sources. A figure
that both have in the same row and column is compared by its median. Rows that one side alone has
are named below the table. The part `produce` is finer: both clusters run at the same time
(`produce`).
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.produce import check_walks
from bench.rig import spread, table

#: The first number of a cell: the median, where the spread follows.
_NUMBER = re.compile(r"-?[\d,]+(?:\.\d+)?(?![\w.])")
#: Of a turn; the largest part takes a quarter of an hour on a busy machine.
_LIMIT_S = 3_600

#: A figure's place in the tables: its row and its column.
Place = tuple[str, str]


def run(part: str, rounds: int, options: Sequence[str], against: str) -> list[str]:
    """Return the table of a part: a row for each figure, a column for each checkout.

    `options` are further options of the command line, for both sides.
    """
    if not (Path(against) / "bench" / "__main__.py").is_file():
        raise SystemExit(
            f"bench: {against!r} is no checkout of tidelog: no bench/__main__.py there"
        )
    check_walks(against)
    sides = (str(Path(__file__).resolve().parent.parent), str(Path(against).resolve()))
    found: list[dict[Place, list[float]]] = [{}, {}]
    for number in range(rounds):
        for which in ((0, 1), (1, 0))[number % 2]:
            for place, value in figures(_turn(sides[which], part, options)).items():
                found[which].setdefault(place, []).append(value)
    return [_table(part, rounds, found), *_unpaired(found)]


def _turn(checkout: str, part: str, options: Sequence[str]) -> str:
    """Return what one run of a part prints in a checkout."""
    done = subprocess.run(
        [sys.executable, "-m", "bench", part, "--rounds", "1", *options],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(Path(checkout) / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT_S,
    )
    if done.returncode:
        raise SystemExit(f"bench: {part} failed in {checkout}: {done.stderr.strip()[-800:]}")
    return done.stdout


def figures(markdown: str) -> dict[Place, float]:
    """Return the figures of all tables, by row and column; cells without a number are left out.

    A row has the name of its first cell, and of its second one too where several rows of the table
    have the same first cell: then the second cell is no figure. Columns of aims are no figures.
    Where two tables have a row of the same name, the first counts.
    """
    found: dict[Place, float] = {}
    for head, *rows in _tables(markdown):
        firsts = [row[0] for row in rows]
        names = 1 if len(set(firsts)) == len(firsts) else 2
        for row in rows:
            name = ", ".join(row[:names])
            for column, cell in zip(head[names:], row[names:], strict=False):
                number = _NUMBER.match(cell)
                if number is not None and column != "aim":
                    found.setdefault((name, column), float(number.group().replace(",", "")))
    return found


def _tables(markdown: str) -> Iterator[list[list[str]]]:
    """Yield the rows of each table, the head first, without the line below the head."""
    rows: list[list[str]] = []
    for line in [*markdown.splitlines(), ""]:
        if not line.startswith("|"):
            if rows:
                yield rows
            rows = []
        elif not set(line) <= set("|-: "):
            rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])


def _table(part: str, rounds: int, found: Sequence[dict[Place, list[float]]]) -> str:
    here, there = found
    rows = []
    for place in here:
        if place in there:
            row, column = place
            before = statistics.median(there[place])
            change = (
                f"{(statistics.median(here[place]) / before - 1) * 100:+.1f} %" if before else ""
            )
            digits = 0 if before >= 100 else 2
            name = row if column == "tidelog" else f"{row} ({column})"
            rows.append((name, spread(here[place], digits), spread(there[place], digits), change))
    head = ("", "this checkout", "the other", "change of medians")
    return table(f"{part}, in turns ({rounds} runs each, each by its own bench)", rows, head)


def _unpaired(found: Sequence[dict[Place, list[float]]]) -> list[str]:
    here, there = found
    names = [f"{row} ({column})" for row, column in (here.keys() ^ there.keys())]
    return (
        [f"Not compared, as one side alone has them: {'; '.join(sorted(names))}\n"] if names else []
    )
