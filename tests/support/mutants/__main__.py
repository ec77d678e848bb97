"""`python -m tests.support.mutants`: tries, searches, records and replays what kills mutants."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, TypeVar

import typer
from tests.support.mutants import LINES, MUTANTS, LineMutant, Mutant, importable, kills, page
from tests.support.mutants.search import MutantSearch
from tests.support.mutants.trials import TrialError, check_healthy, is_killed

from tidelog.cli.help import HelpCommand, HelpGroup
from tidelog.cli.output import print_line, say
from tidelog.cli.seed_search import results
from tidelog.cli.simulation import check_time, parse_seeds
from tidelog.core.errors import TidelogError
from tidelog.sim.suggestions import nearest_first

AnyMutant = TypeVar("AnyMutant", bound=Mutant | LineMutant)
Words = Annotated[
    list[str] | None, typer.Argument(help="Rules, as in V12 A4, or names of mutants; else all.")
]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes [one per core].")]

app = typer.Typer(
    cls=HelpGroup,
    help="Try what kills mutants: the tests of their rules, and seeds of the simulator.",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def chosen(words: list[str] | None, mutants: Mapping[str, AnyMutant]) -> dict[str, AnyMutant]:
    """Return the mutants that words name, by rule or by name; all if there are no words."""
    known = dict.fromkeys([*mutants, *(each.rule for each in mutants.values())])
    for word in words or ():
        if word not in known:
            raise typer.BadParameter(f"no mutant {word!r}; there are {nearest_first(word, known)}")
    wanted = words or list(known)
    return {name: each for name, each in mutants.items() if name in wanted or each.rule in wanted}


@app.command("list", cls=HelpCommand, epilog="Example: python -m tests.support.mutants list V32")
def list_all(words: Words = None) -> None:
    """List mutants with what they do, and the profile whose seeds kill them."""
    for name, each in chosen(words, {**LINES, **MUTANTS}).items():
        where = f"{each.rule}, {each.profile}" if each.defect else each.rule
        line = f"{each.file}: {each.old} -> {each.new}" if isinstance(each, LineMutant) else ""
        print_line(f"{name} ({where}): {each.defect or line}")


@app.command("try", cls=HelpCommand, epilog="Example: python -m tests.support.mutants try V12 A4")
def try_all(words: Words = None, jobs: Jobs = None) -> None:
    """Try whether the tests of its rule kill each mutant of one line.

    The exit code is 1 if a mutant survives, cannot be applied, or fails a test by other errors than
    an assertion.
    """
    mutants = chosen(words, LINES)
    began_s = time.monotonic()
    wrong = []
    check_healthy(list(dict.fromkeys(each.rule for each in mutants.values())))
    threads = ThreadPoolExecutor(jobs or len(os.sched_getaffinity(0)))
    try:
        trials = [(each, threads.submit(is_killed, each)) for each in mutants.values()]
        for mutant, trial in trials:
            why = ""
            try:
                verdict = "killed" if trial.result() else "SURVIVED"
            except TrialError as error:
                verdict, why = "PROVES NOTHING", f": {error}"
            if verdict != "killed":
                wrong.append(mutant.name)
            print_line(f"{verdict} {mutant}{why}")
    finally:
        threads.shutdown(cancel_futures=True)
    seconds = time.monotonic() - began_s
    print_line(f"{len(mutants)} mutants, {len(wrong)} not killed, {seconds:.0f} s")
    if wrong:
        say(f"NOT KILLED {', '.join(wrong)}")
        raise typer.Exit(1)


@app.command(cls=HelpCommand, epilog="Example: python -m tests.support.mutants seeds --seeds 0..29")
def seeds(
    words: Words = None,
    seeds: Annotated[str, typer.Option(help="A..B (both included), or one seed.")] = "0..29",
    enough: Annotated[
        int, typer.Option("--kills", min=0, help="Seeds that are enough of a mutant; 0: all.")
    ] = 0,
    jobs: Jobs = None,
    minutes: Annotated[
        float, typer.Option(min=0.0, help="Begin with no further seed after so long; 0: all.")
    ] = 0.0,
) -> None:
    """Count the seeds that kill each mutant; exit code 1 if a mutant survives.

    Each line names the seeds that kill the mutant with the fewest events.
    """
    check_time("--minutes", minutes)
    wanted = parse_seeds(seeds)
    mutants = {importable(name): each for name, each in chosen(words, MUTANTS).items()}
    profiles = {name: each.profile for name, each in mutants.items()}
    processes = min(jobs or len(os.sched_getaffinity(0)), len(wanted) * len(profiles))
    deadline = time.monotonic() + minutes * 60
    worlds = {name: each.world for name, each in mutants.items()}
    search = MutantSearch(profiles, wanted, enough, worlds)
    survivors = []
    with contextlib.ExitStack() as running:
        for hunt in search.run(
            lambda jobs: running.enter_context(contextlib.closing(results(jobs, processes))),
            lambda: bool(minutes) and time.monotonic() >= deadline,
        ):
            print_line(hunt.summary())
            if not hunt.kills and MUTANTS[hunt.name].why_no_seed:
                print_line(f"    models find it: {MUTANTS[hunt.name].why_no_seed}")
            elif not hunt.kills:
                survivors.append(hunt.name)
    if search.open:
        print_line(f"the time is over, and {len(search.open)} mutants are looked for no further:")
    for hunt in search.open.values():
        print_line(hunt.summary())
    if survivors:
        say(f"SURVIVED {', '.join(survivors)}")
        raise typer.Exit(1)


@app.command(cls=HelpCommand, epilog="Example: python -m tests.support.mutants record strays_stay")
def record(words: Words = None) -> None:
    """Look for a seed that kills each mutant, record it, and write the page."""
    known = kills.load()
    for name, each in chosen(words, MUTANTS).items():
        if each.why_no_seed:
            continue
        kill = kills.search(name)
        print_line(f"{name} {kill or 'SURVIVED'}")
        known.pop(name, None)
        if kill is not None:
            known[name] = kill
        kills.save(known)
    page.write(known)


@app.command(cls=HelpCommand, epilog="Example: python -m tests.support.mutants replay")
def replay(
    max_events: Annotated[
        int | None, typer.Option(help="Only kills that were recorded with at most so many.")
    ] = None,
) -> None:
    """Replay recorded kills, and print after how many events each mutant is killed now."""
    for name, kill in kills.load().items():
        if max_events is None or kill.events <= max_events:
            result = kills.run_with(name, kill.seed, kill.only)
            print_line(f"{name} {result.events if result.violation else 'survived'}")


@app.command("page", cls=HelpCommand, epilog="Example: python -m tests.support.mutants page")
def write_page() -> None:
    """Write docs/internals/mutants.md from the mutants and the recorded kills."""
    page.write(kills.load())


def main() -> None:
    """Run the command and exit with its code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        app(prog_name="python -m tests.support.mutants")
    except (TidelogError, TrialError) as error:
        say(f"tests.support.mutants: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
