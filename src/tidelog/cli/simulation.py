"""`tidelog sim`: whole brokers under simulation, seed by seed.

`run` looks for violations and sums up what the runs went through, `mutants` proves that broken
brokers are caught, `replay` tells one seed step by step. Equal seeds give equal runs, in whatever
process: seeds are spread over processes here.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tidelog.cli.documents import prints
from tidelog.cli.output import OutputFormat, OutputOption, print_json, print_line, say
from tidelog.cli.seed_workers import run_in_processes

if TYPE_CHECKING:
    from tidelog.sim.run import RunResult, Totals

app = typer.Typer(help="Whole clusters under simulation.", no_args_is_help=True)

#: Lines of the trace that are printed with a violation.
_RECENT_LINES = 20
#: Seeds that `mutants` names of each.
_EARLIEST_KILLS = 5
_NS_PER_S = 1_000_000_000

_ProfileOption = Annotated[str, typer.Option(help="Which faults happen, and how often.")]
_MutantOption = Annotated[str, typer.Option(help="Break a rule in the brokers, by name.")]


@app.command(epilog="Example: tidelog sim run --seeds 0..499 --jobs 2")
@prints(
    "an object with `runs`, `events`, `simulated_ns`, `seconds`, `counters` (name to number) and"
    " `violations` (each with `seed`, `profile`, `violation` and the end of its trace)."
)
def run(
    seeds: Annotated[str, typer.Option(help="A..B (both included), or one seed.")] = "0..99",
    mutant: _MutantOption = "",
    profile: _ProfileOption = "",
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes [one per core].")] = None,
    minutes: Annotated[
        float, typer.Option(min=0.0, help="Go on with the seeds after A for so long.")
    ] = 0.0,
    first: Annotated[bool, typer.Option("--first", help="End at the first violation.")] = False,
    all_states: Annotated[
        bool, typer.Option("--all-states", help="Fail where an interesting state was missed.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Run seeds; exit code 1 when one shows a violation, or when 500 of the default profile and
    more went through too little to prove anything. `--profile mixed` runs every second seed under
    the default profile, the others under all profiles in turn."""
    from tidelog.core.sometimes import SOMETIMES
    from tidelog.sim.run import MARKED_SEEDS, Totals

    wanted = _seeds(seeds)
    chosen = _profile(profile, mutant)
    started = time.monotonic()
    totals = Totals()
    handed_out = _until(started + minutes * 60, wanted[0]) if minutes else iter(wanted)
    processes = jobs or len(os.sched_getaffinity(0))
    if not minutes:
        processes = min(processes, len(wanted))
    with contextlib.closing(_results(handed_out, chosen, mutant, processes)) as results:
        for result in _with_progress(results, None if minutes else len(wanted)):
            totals.add(result)
            if result.violation:
                _say_violation(result, mutant)
                if first:
                    break
    _print_totals(totals, time.monotonic() - started, output)
    judged = not mutant and totals.default_runs >= MARKED_SEEDS
    shortfalls = totals.shortfalls() if judged else []
    for shortfall in shortfalls:
        say(f"TOO LITTLE HAPPENED {shortfall}")
    missed = totals.never_reached() if all_states else []
    for name in missed:
        say(f"NEVER REACHED {name}: {SOMETIMES[name]}")
    if totals.violations or shortfalls or missed:
        raise typer.Exit(1)


@app.command(epilog="Example: tidelog sim mutants --seeds 0..29")
def mutants(
    seeds: Annotated[str, typer.Option(help="A..B (both included), or one seed.")] = "0..29",
    mutant: Annotated[str, typer.Option(help="One of them, by name; else all.")] = "",
    kills: Annotated[
        int, typer.Option(min=0, help="Seeds that are enough, then the next mutant; 0: all.")
    ] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes [one per core].")] = None,
) -> None:
    """Count the seeds that catch each mutant, with those that catch it first; exit code 1 when one
    survives them all."""
    from tidelog.sim.mutants import MUTANTS

    wanted = _seeds(seeds)
    processes = min(jobs or len(os.sched_getaffinity(0)), len(wanted))
    survivors = []
    for name in [mutant] if mutant else MUTANTS:
        profile = _profile("", name)
        with contextlib.closing(_results(iter(wanted), profile, name, processes)) as results:
            tried, caught = 0, []
            for result in results:
                tried += 1
                if result.violation:
                    caught.append(result)
                if len(caught) == kills > 0:
                    break
        caught.sort(key=lambda result: (result.events, result.seed))
        earliest = " ".join(str(result.seed) for result in caught[:_EARLIEST_KILLS])
        print_line(
            f"{name}: caught by {len(caught)} of {tried} seeds of {profile}"
            + (f", earliest by {earliest}" if caught else "")
        )
        if not caught and MUTANTS[name].uncaught:
            print_line(f"    models find it: {MUTANTS[name].uncaught}")
        elif not caught:
            survivors.append(name)
    if survivors:
        say(f"SURVIVED {', '.join(survivors)}")
        raise typer.Exit(1)


@app.command(epilog="Example: tidelog sim replay 17")
def replay(
    seed: Annotated[int, typer.Argument(help="The seed.")],
    mutant: _MutantOption = "",
    profile: _ProfileOption = "",
    history: Annotated[
        str, typer.Option(help="Write what clients did and were told to a file: a history.")
    ] = "",
) -> None:
    """Tell one seed step by step; exit code 1 when it shows a violation."""
    from tidelog.history import Operation, encode
    from tidelog.sim.run import run_seed

    def write(operations: list[Operation]) -> None:
        with open(history, "w", encoding="utf-8") as file:
            file.writelines(encode(each) + "\n" for each in operations)

    result = run_seed(seed, _profile(profile, mutant), mutant, _tell, write if history else None)
    print_line(
        f"seed {seed}: {result.events} events in {result.simulated_ns / _NS_PER_S:.1f} simulated"
        f" seconds, trace {result.trace_hash}"
    )
    for name, value in result.counters.items():
        print_line(f"{name}: {value}")
    if result.violation:
        say(f"VIOLATION {result.violation}")
        raise typer.Exit(1)
    print_line("no violation")


def _seeds(text: str) -> range:
    first, separator, last = text.partition("..")
    try:
        found = range(int(first), int(last if separator else first) + 1)
    except ValueError:
        found = range(0)
    if not found or found[0] < 0:
        raise typer.BadParameter(f"{text!r} names no seeds: A..B or a number expected")
    return found


def _profile(profile: str, mutant: str) -> str:
    """The profile asked for, else the one under which a mutant is looked for."""
    from tidelog.sim.mutants import MUTANTS
    from tidelog.sim.profiles import PROFILES
    from tidelog.sim.run import MIXED

    if mutant and mutant not in MUTANTS:
        raise typer.BadParameter(f"no mutant {mutant!r}: {', '.join(MUTANTS)}")
    if profile and profile not in (*PROFILES, MIXED):
        raise typer.BadParameter(f"no profile {profile!r}: {', '.join(PROFILES)}, {MIXED}")
    return profile or (MUTANTS[mutant].profile if mutant else "default")


def _until(deadline: float, first: int) -> Iterator[int]:
    """Seeds from `first` on until the time is over."""
    return itertools.takewhile(lambda _: time.monotonic() < deadline, itertools.count(first))


def _results(
    seeds: Iterator[int], profile: str, mutant: str, processes: int
) -> Generator[RunResult, None, None]:
    """The runs as they end."""
    if processes > 1:
        yield from run_in_processes(seeds, profile, mutant, processes)
        return
    from tidelog.sim.run import run_seed

    for seed in seeds:
        yield run_seed(seed, profile, mutant)


def _with_progress(results: Iterable[RunResult], number: int | None) -> Iterator[RunResult]:
    """A progress bar on standard error, where that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("seeds", total=number)
        for result in results:
            progress.advance(task)
            yield result


def _say_violation(result: RunResult, mutant: str) -> None:
    say(f"seed {result.seed}: VIOLATION {result.violation}")
    for line in result.recent[-_RECENT_LINES:]:
        say(f"    {line}")
    options = f" --profile {result.profile}" if result.profile != "default" else ""
    options += f" --mutant {mutant}" if mutant else ""
    say(f"    tidelog sim replay {result.seed}{options} tells it step by step")


def _print_totals(totals: Totals, seconds: float, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json({**asdict(totals), "seconds": round(seconds, 3)})
        return
    print_line(
        f"{totals.runs} seeds, {totals.events} events, "
        f"{totals.simulated_ns / _NS_PER_S:.0f} simulated seconds in {seconds:.0f} s "
        f"({totals.events / max(seconds, 0.001):.0f} events/s)"
    )
    for name, value in totals.counters.items():
        print_line(f"{name}: {value}")
    missed = totals.never_reached()
    print_line(f"interesting states never reached: {len(missed)}")
    for name in missed:
        print_line(f"    {name}")
    violated = ", ".join(str(each.seed) for each in totals.violations)
    print_line(
        f"violations: {len(totals.violations)}" + (f" (seeds {violated})" if violated else "")
    )


def _tell(line: str) -> None:
    """One line of a trace, with the time in seconds."""
    time_ns, _, rest = line.partition(" ")
    print_line(f"{int(time_ns) / _NS_PER_S:12.6f} {rest}")
