"""`python -m tests.support.mutants`: what kills each mutant, seeds or the tests of its rule."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from enum import Enum
from typing import Annotated

import typer
from tests.support.mutants import MUTANTS, importable, line_mutants
from tests.support.mutants.search import MutantSearch

from tidelog.cli.help import HelpCommand
from tidelog.cli.output import print_line, say
from tidelog.cli.seed_search import results
from tidelog.cli.simulation import check_time, parse_seeds
from tidelog.core.errors import TidelogError
from tidelog.sim.suggestions import nearest_first


class By(Enum):
    """What must kill mutants."""

    SEEDS = "seeds"
    RULES = "rules"


app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command(cls=HelpCommand, epilog="Example: python -m tests.support.mutants --seeds 0..29")
def mutants(
    rules: Annotated[
        list[str] | None, typer.Argument(help="Of these rules only, as in V12 A4.")
    ] = None,
    by: Annotated[
        By, typer.Option(help="What must kill them: seeds, or the tests of their rules.")
    ] = By.SEEDS,
    seeds: Annotated[str, typer.Option(help="A..B (both included), or one seed.")] = "0..29",
    mutant: Annotated[str, typer.Option(help="One of them, by name; else all.")] = "",
    kills: Annotated[
        int, typer.Option(min=0, help="Seeds that are enough, then the next mutant; 0: all.")
    ] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes [one per core].")] = None,
    minutes: Annotated[
        float, typer.Option(min=0.0, help="Begin with no further seed after so long; 0: all.")
    ] = 0.0,
    list_all: Annotated[bool, typer.Option("--list", help="List the mutants instead.")] = False,
) -> None:
    """Look what kills each mutant; exit code 1 if a mutant survives.

    By seeds, each line names those that kill the mutant with the fewest events. By the tests of
    rules, each mutant is one changed line (tests/rules/mutants.toml), and the other options do not
    matter.
    """
    if by is By.RULES:
        raise typer.Exit(line_mutants.try_all(rules or []))
    check_time("--minutes", minutes)
    chosen = {name: each for name, each in MUTANTS.items() if not rules or each.rule in rules}
    if list_all:
        for name, each in chosen.items():
            print_line(f"{name} ({each.rule}, {each.profile}): {each.removes}")
        return
    wanted = parse_seeds(seeds)
    if mutant and mutant not in MUTANTS:
        raise typer.BadParameter(
            f"no mutant {mutant!r}; there are {nearest_first(mutant, MUTANTS)}"
        )
    names = [mutant] if mutant else list(chosen)
    profiles = {importable(name): MUTANTS[name].profile for name in names}
    processes = min(jobs or len(os.sched_getaffinity(0)), len(wanted) * len(profiles))
    deadline = time.monotonic() + minutes * 60
    search = MutantSearch(profiles, wanted, kills)
    survivors = []
    with contextlib.ExitStack() as running:
        for hunt in search.run(
            lambda jobs: running.enter_context(contextlib.closing(results(jobs, processes))),
            lambda: bool(minutes) and time.monotonic() >= deadline,
        ):
            print_line(hunt.summary())
            if not hunt.kills and MUTANTS[hunt.name].uncaught:
                print_line(f"    models find it: {MUTANTS[hunt.name].uncaught}")
            elif not hunt.kills:
                survivors.append(hunt.name)
    if search.open:
        print_line(f"the time is over, and {len(search.open)} mutants are looked for no further:")
    for hunt in search.open.values():
        print_line(hunt.summary())
    if survivors:
        say(f"SURVIVED {', '.join(survivors)}")
        raise typer.Exit(1)


def main() -> None:
    """Run the command and exit with its code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        app(prog_name="python -m tests.support.mutants")
    except TidelogError as error:
        say(f"tests.support.mutants: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
