"""`tidelog sim`: a cluster of simulated brokers, seed by seed.

`run` searches for violations and sums up the runs. `replay` prints the run of one seed, step by
step or only the facts that matter. `shrink` finds a small part of the run that still shows a
violation. Equal seeds give equal runs in every process, so the command may spread seeds over
processes. `--mutant` imports modules from the working directory, as `python -m` does.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.cli.documents import prints
from tidelog.cli.help import CommandGroup
from tidelog.cli.output import OutputFormat, OutputOption, print_json, print_line, say
from tidelog.cli.replay_page import write_replay
from tidelog.cli.seed_search import read_coverage, say_shrunk, say_violation, search, write_coverage
from tidelog.cli.small_worlds import OnlyOption, WorldOption

if TYPE_CHECKING:
    from tidelog.sim.job import Job
    from tidelog.sim.results import RunResult, Totals

app = CommandGroup("Whole clusters under simulation.")

_NS_PER_S = 1_000_000_000

_ProfileOption = Annotated[str, typer.Option(help="Which faults happen, and how often.")]
MutantOption = Annotated[
    str, typer.Option(help="Break a rule in the brokers, by a mutant's MODULE:NAME.")
]
FaultsOption = Annotated[
    str, typer.Option(help="Kinds of faults, A,B, instead of those of the profile.")
]
_OnlyOption = Annotated[
    str, typer.Option(help='The reduction of the run, as `shrink` prints it: "play=2,5;groups=no".')
]
_PolicyOption = Annotated[
    str, typer.Option(help="Settings of the cluster, by name, instead of those of the profile.")
]
_ShrinkOption = Annotated[
    float, typer.Option(min=0.0, help="Time for the search of a smaller run.")
]
_HtmlOption = Annotated[
    str, typer.Option(help="Write the run as a page for browsers, one HTML file, instead.")
]
_BesideOption = Annotated[
    str,
    typer.Option(
        metavar="SEED|REDUCTION",
        help="With --html: a second run beside it, another seed or a reduction as `shrink` prints"
        " it; the same seed is the run without the mutant.",
    ),
]
#: The default range of seeds of `run`.
_SEEDS: Final = "0..99"
#: An upper bound of seeds, above any used seed.
_LAST_SEED: Final = 2**62
#: Seconds for which `run` shrinks each violation.
_SHRINK_S = 60.0


@app.command(epilog="Example: tidelog sim run --seeds 0..499 --jobs 2")
@prints(
    "an object with `runs`, `events`, `simulated_ns`, `seconds`, `counters` (name to number) and"
    " `violations` (each with `seed`, `profile`, `violation` and the end of its trace)."
)
def run(
    seeds: Annotated[str, typer.Option(help="A..B (both included), or one seed.")] = _SEEDS,
    mutant: MutantOption = "",
    profile: _ProfileOption = "",
    jobs_at_once: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Processes [one per core].")
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=0.0, help="Continue with the seeds after A for this time.")
    ] = 0.0,
    first: Annotated[bool, typer.Option("--first", help="End at the first violation.")] = False,
    all_states: Annotated[
        bool, typer.Option("--all-states", help="Fail if an interesting state was missed.")
    ] = False,
    faults: FaultsOption = "",
    policy: _PolicyOption = "",
    seeds_file: Annotated[
        str, typer.Option(help="Run the seeds of a file like tests/sim/known_seeds.txt.")
    ] = "",
    coverage: Annotated[
        str, typer.Option(help="Add the coverage of the runs to a file (JSON).")
    ] = "",
    shrink: Annotated[bool, typer.Option(help="Shrink each violation, for a minute.")] = True,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Run seeds; exit code 1 if one shows a violation.

    The exit code is also 1 if 500 or more seeds of the default profile reached too few of the
    required situations. With `--profile swarm`, each seed draws its own brokers, settings, clients
    and kinds of faults. With `--profile mixed`, every second seed runs with the profile `swarm`,
    and the other seeds run with all other profiles in turn. Ctrl-C and SIGTERM end the search: the
    results so far are printed, and kept with --coverage; the exit code is 130 or 143.
    """
    from tidelog.sim.results import Totals
    from tidelog.sim.search_coverage import Coverage

    check_time("--minutes", minutes)
    jobs, number = _jobs(seeds, seeds_file, profile, mutant, faults, minutes, _policy(policy))
    covered = Coverage()
    if coverage:
        _check_coverage(Path(coverage), mutant or policy)
    started = time.monotonic()
    totals = Totals()
    processes = jobs_at_once or len(os.sched_getaffinity(0))
    if number is not None:
        processes = min(processes, number)

    def take(result: RunResult) -> bool:
        totals.add(result)
        if not mutant and not policy:
            covered.add(result)
        if result.violation:
            say_violation(result, _SHRINK_S if shrink else 0.0)
        return bool(result.violation) and first

    interrupted = search(jobs, processes, number, take)
    _print_totals(totals, time.monotonic() - started, output)
    if coverage:
        before = read_coverage(Path(coverage))
        before.add_all(covered)
        write_coverage(Path(coverage), before)
    if interrupted:
        say(f"interrupted after {totals.runs} runs")
        raise typer.Exit(interrupted)
    _judge(totals, judged=not mutant and not faults, all_states=all_states)


def _check_coverage(path: Path, changed: str) -> None:
    """Reject an unwritable coverage file before the search starts."""
    if changed:
        raise typer.BadParameter(
            "coverage counts runs of brokers as they are: --coverage goes without --mutant and"
            " --policy"
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise typer.BadParameter(
            f"--coverage {path}: no file can be written in {path.parent}; a directory that is there"
            " and may be written is needed"
        )
    read_coverage(path)


def _judge(totals: Totals, *, judged: bool, all_states: bool) -> None:
    """Print required situations that too few runs reached; exit with 1 for these or a violation."""
    from tidelog.core.sometimes import SOMETIMES
    from tidelog.sim.results import MARKED_SEEDS

    judged = judged and totals.default_runs >= MARKED_SEEDS
    shortfalls = totals.shortfalls() if judged else []
    for shortfall in shortfalls:
        say(f"TOO LITTLE HAPPENED {shortfall}")
    missed = totals.never_reached() if all_states else []
    for name in missed:
        say(f"NEVER REACHED {name}: {SOMETIMES[name]}")
    if totals.violations or shortfalls or missed:
        raise typer.Exit(1)


@app.command(
    epilog="Example: tidelog sim replay 17"
    "\n\nExample: tidelog sim replay 17 --html run.html --beside 18"
)
def replay(
    seed: Annotated[int, typer.Argument(min=0, max=_LAST_SEED, help="The seed.")],
    mutant: MutantOption = "",
    profile: _ProfileOption = "",
    history: Annotated[
        str, typer.Option(help="Write requests and responses of clients to a file: a history.")
    ] = "",
    faults: FaultsOption = "",
    only: _OnlyOption = "",
    policy: _PolicyOption = "",
    story: Annotated[
        bool,
        typer.Option("--story", help="Only the facts that matter to a violation, in plain words."),
    ] = False,
    html: _HtmlOption = "",
    beside: _BesideOption = "",
) -> None:
    """Print one seed step by step; exit code 1 if it shows a violation.

    With --html, the steps are a page with the brokers, messages, faults and operations of clients,
    and with leader, ISR, log ends and high watermarks at each step. The file loads nothing.
    """
    from tidelog.history import Operation, encode
    from tidelog.sim.job import Job
    from tidelog.sim.run import run_seed
    from tidelog.sim.story import Watcher, story_lines

    def write(operations: list[Operation]) -> None:
        with open(history, "w", encoding="utf-8") as file:
            file.writelines(encode(each) + "\n" for each in operations)

    watchers: list[Watcher] = []
    found = _profile(profile, mutant)
    job = Job(seed, found, mutant, _faults(faults), only, _policy(policy))
    if html or beside:
        if history or story or not html:
            raise typer.BadParameter("--html goes without --history and --story, --beside with it")
        write_replay(html, [job, *([_beside(beside, job)] if beside else [])])
        return
    result = run_seed(
        seed,
        job.profile,
        mutant,
        None if story else _print_step,
        write if history else None,
        chosen=job.chosen,
        only=only,
        policy=job.policy,
        observe=(lambda run: watchers.append(Watcher(run))) if story else None,
    )
    for watcher in watchers:
        for line in story_lines(watcher, result.violation):
            print_line(line)
    print_line(
        f"seed {seed}: {result.events} events in {result.simulated_ns / _NS_PER_S:.1f} simulated"
        f" seconds, trace {result.trace_hash}"
    )
    if result.world:
        print_line(f"world: {result.world}")
    if not story:
        for name, value in result.counters.items():
            print_line(f"{name}: {value}")
    if result.violation:
        say(f"VIOLATION {result.violation}")
        raise typer.Exit(1)
    print_line("no violation")


def _beside(text: str, job: Job) -> Job:
    """Return the run that --beside names: another seed, or a reduction of the same seed."""
    if "=" in text:
        return replace(job, only=text)
    if not (text.isascii() and text.isdigit()) or int(text) > _LAST_SEED:
        raise typer.BadParameter(
            f"{text!r} is no run: a seed, or a reduction such as play=2,5 expected",
            param_hint="--beside",
        )
    if int(text) == job.seed:
        return replace(job, mutant="", only="")
    return replace(job, seed=int(text), only="")


@app.command(epilog="Example: tidelog sim shrink 4 --profile every_member_ends")
def shrink(
    seed: Annotated[int, typer.Argument(min=0, max=_LAST_SEED, help="The seed.")],
    mutant: MutantOption = "",
    profile: _ProfileOption = "",
    faults: FaultsOption = "",
    policy: _PolicyOption = "",
    seconds: _ShrinkOption = 600.0,
) -> None:
    """Find a small run that shows the violation of a seed.

    The shrunken run has fewer faults, clients, groups, topics and partitions, and takes less time.
    Prints the command that shows the shrunken run. The exit code is 1 if the seed shows no
    violation.
    """
    from tidelog.sim.job import Job

    check_time("--seconds", seconds)
    found = _profile(profile, mutant)
    job = Job(seed, found, mutant, _faults(faults), policy=_policy(policy))
    left = say_shrunk(job, seconds)
    result, story = left.story()
    for line in story:
        print_line(line)
    print_line(f"{left.command()}: trace {result.trace_hash}")
    if not result.violation:
        raise typer.Exit(1)


@app.command(
    epilog="Example: tidelog sim small --world log --seeds 0..99"
    '\n\nExample: tidelog sim small --world log --seeds 17 --only "204:names 0:2"'
)
@prints(
    "an object with `seeds`, `histories`, `cpu_s` and `violations` (each with `seed`, `path` and"
    " `what`)."
)
def small(
    world: WorldOption = "log",
    seeds: Annotated[str, typer.Option(help="A..B (both included), or one seed.")] = "0..9",
    minutes: Annotated[
        float, typer.Option(min=0.0, help="Continue with the seeds after A for this time.")
    ] = 0.0,
    first: Annotated[bool, typer.Option("--first", help="End at the first violation.")] = False,
    mutant: MutantOption = "",
    only: OnlyOption = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Play a small world: one part of a broker, beside a reference; exit code 1 for a violation.

    The world `log` has one partition's log. A seed draws a short history of appends, truncations,
    retention, compaction, moves and more, and the log crashes at every call of its disk with every
    loss that the disk knows. The world `replicas` has a leader and its followers, whose messages
    are late, lost or doubled. The world `controller` has two controllers over one store, whose
    responses are late or lost, with brokers and administrators as scripts. With --only, one history
    of one seed is described step by step.
    """
    from tidelog.cli.small_worlds import describe_history, find_mutants, play_seeds
    from tidelog.sim.small.small_world import WORLDS, small_world

    check_time("--minutes", minutes)
    if mutant:
        find_mutants()
        _mutant_profile(mutant)
    found = small_world(_checked("world", world, tuple(WORLDS)))
    chosen = parse_seeds(seeds)
    if not only:
        play_seeds(found, chosen, minutes, mutant, first=first, output=output)
        return
    if len(chosen) > 1 or minutes or output is not OutputFormat.TABLE:
        raise typer.BadParameter("--only goes with one seed, and without --minutes and -o")
    describe_history(found, chosen[0], only, mutant)


@app.command("faults", epilog="Example: tidelog sim faults")
def list_faults() -> None:
    """List the kinds of faults, by family, and the scenarios, one line each."""
    from tidelog.sim.faults import KINDS, SCENARIOS

    for name, kind in sorted(KINDS.items(), key=lambda item: item[1].family):
        print_line(f"{name} ({kind.family}): {_one_line(kind.description)}")
    for name, play in SCENARIOS.items():
        print_line(f"{name} (scenario of a profile): {_one_line(play.__doc__ or '')}")


@app.command("profiles", epilog="Example: tidelog sim profiles")
def list_profiles() -> None:
    """List the profiles, one line each: frequency of faults, kinds, and other settings."""
    from tidelog.sim.profiles import STARTING_POINTS, SWARM, all_named, named
    from tidelog.sim.run import MIXED

    for name in all_named():
        if name == SWARM:
            print_line(f"{SWARM}: each seed draws its own world, or bends one of the others")
            continue
        profile = named(name)
        least, most = profile.pace.interval_ms
        kinds = "all kinds" if profile.has_all_kinds else ", ".join(profile.weights)
        more = f"; over and over {profile.scenario}" if profile.scenario else ""
        more += " (a starting point of the swarm)" if name in STARTING_POINTS else ""
        print_line(f"{name}: a fault every {least}-{most} ms, of {kinds}{more}")
    print_line(f"{MIXED}: every second seed {SWARM}, the others all other profiles in turn")


@app.command("policies", epilog="Example: tidelog sim policies")
def list_policies() -> None:
    """List the policies, one line each: cluster settings under which runs can be compared."""
    from tidelog.sim.policies import POLICIES

    for name, policy in POLICIES.items():
        print_line(f"{name}: {policy.description}")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def parse_seeds(text: str) -> range:
    """Return the seeds that A..B or a number names; raise typer.BadParameter for other text."""
    first, separator, last = text.partition("..")
    try:
        found = range(int(first), int(last if separator else first) + 1)
    except ValueError:
        found = range(0)
    if not found or found[0] < 0 or found[-1] > _LAST_SEED:
        raise typer.BadParameter(
            f"{text!r} names no seeds: A..B or a number expected, from 0 to {_LAST_SEED}"
        )
    return found


def check_time(option: str, value: float) -> None:
    """Raise typer.BadParameter if the value of an option is not a time."""
    if math.isnan(value):
        raise typer.BadParameter(f"{option} {value} is no time: a number from 0 on expected")


def _jobs(
    seeds: str, seeds_file: str, profile: str, mutant: str, faults: str, minutes: float, policy: str
) -> tuple[Iterator[Job], int | None]:
    """Return the jobs and their number; the number is None if a time limit ends the search."""
    from tidelog.sim.job import Job

    if seeds_file:
        if profile or mutant or faults or minutes or policy or seeds != _SEEDS:
            raise typer.BadParameter(
                "a file of seeds names their profiles and faults itself: --seeds-file goes without"
                " --seeds, --profile, --mutant, --faults, --policy and --minutes"
            )
        known = _known_seeds(seeds_file)
        return iter(known), len(known)
    wanted = parse_seeds(seeds)
    found = _profile(profile, mutant)
    chosen = _faults(faults)
    handed_out: Iterator[int] = iter(wanted)
    if minutes:
        handed_out = _until(time.monotonic() + minutes * 60, wanted[0])
    jobs = (Job(seed, found, mutant, chosen, policy=policy) for seed in handed_out)
    return jobs, None if minutes else len(wanted)


def _known_seeds(path: str) -> list[Job]:
    from tidelog.sim.faults import KINDS
    from tidelog.sim.job import Job
    from tidelog.sim.known_seeds import SeedsFileError, read_seeds
    from tidelog.sim.profiles import all_named

    try:
        with open(path, encoding="utf-8") as lines:
            known = read_seeds(lines, path, all_named(), KINDS)
    except UnicodeDecodeError as error:
        raise SeedsFileError(
            f"{path} is no text: {error}; PROFILE SEED # cause is a line of a file of seeds"
        ) from None
    if not known:
        raise SeedsFileError(f"{path} names no seeds: PROFILE SEED # cause is a line of one")
    return [Job(each.seed, each.profile, chosen=each.faults) for each in known]


def _profile(profile: str, mutant: str) -> str:
    """Return the requested profile, else the profile that reveals the mutant."""
    from tidelog.sim.profiles import all_named
    from tidelog.sim.run import MIXED

    found = _mutant_profile(mutant) if mutant else "default"
    return _checked("profile", profile, (*all_named(), MIXED)) if profile else found


def _mutant_profile(name: str) -> str:
    """Return the profile of a mutant; worker processes import the mutant's module, too."""
    from tidelog.sim.mutation import MutantNotFoundError, load

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return load(name).profile
    except MutantNotFoundError as error:
        raise typer.BadParameter(str(error)) from error


def _policy(name: str) -> str:
    from tidelog.sim.policies import POLICIES

    return _checked("policy", name, POLICIES) if name else ""


def _faults(text: str) -> tuple[str, ...]:
    """Return the requested kinds of faults; empty if the profile decides the kinds."""
    from tidelog.sim.faults import KINDS

    chosen = dict.fromkeys(text.split(",")) if text else {}
    return tuple(_checked("fault", name, KINDS) for name in chosen)


def _checked(what: str, name: str, known: Collection[str]) -> str:
    """Return a known name; raise typer.BadParameter for an unknown name."""
    from tidelog.sim.suggestions import suggestion

    if name not in known:
        plural = "policies" if what == "policy" else f"{what}s"
        raise typer.BadParameter(
            f"no {what} {name!r}. {suggestion(name, known, f'`tidelog sim {plural}`')}"
        )
    return name


def _until(deadline: float, first: int) -> Iterator[int]:
    """Yield at least one seed, counting up from `first` until the time is over."""
    yield first
    more = itertools.count(first + 1)
    yield from itertools.takewhile(lambda _: time.monotonic() < deadline, more)


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


def _print_step(line: str) -> None:
    """Print one line of a trace, with the time in seconds."""
    time_ns, _, rest = line.partition(" ")
    print_line(f"{int(time_ns) / _NS_PER_S:12.6f} {rest}")
