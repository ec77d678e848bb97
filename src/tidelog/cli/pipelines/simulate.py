"""`tidelog pipeline simulate`: seeds of the simulator on Spark, and a comparison of policies.

Names of profiles, policies and faults are checked before Spark starts. Ctrl-C keeps the runs that
have ended; the same command continues with the remaining seeds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.documents import prints
from tidelog.cli.help import CommandGroup
from tidelog.cli.output import say
from tidelog.cli.pipelines.running import progress
from tidelog.cli.pipelines.showing import REPORT_DOCUMENT, ReportOptions
from tidelog.cli.simulation import FaultsOption, MutantOption, parse_seeds


def add_to(app: CommandGroup) -> None:
    """Add the verb of this module to `tidelog pipeline`."""
    app.command(epilog="Example: tidelog pipeline simulate --seeds 0..499 --to runs")(simulate)


@prints(REPORT_DOCUMENT)
def simulate(
    how: ReportOptions,
    seeds: Annotated[str, typer.Option(help="A..B (both included), or one seed.")] = "0..99",
    profile: Annotated[
        str,
        typer.Option(
            help="Profiles, A,B: which faults happen; `mixed` draws one for each seed, `every` is"
            " all of them."
        ),
    ] = "default",
    policy: Annotated[
        str, typer.Option(help="Policies, A,B (`sim policies`); each is compared with the first.")
    ] = "unchanged",
    directory: Annotated[
        Path | None,
        typer.Option("--to", help="Directory of the runs: a rerun makes only missing ones."),
    ] = None,
    mutant: MutantOption = "",
    faults: FaultsOption = "",
) -> None:
    """Run seeds of simulated clusters; report violations, and compare policies on equal seeds.

    Each violation has its smallest seed and the command that repeats it; a violation gives exit
    code 1. Ctrl-C ends the search; with --to, the same command continues it.
    """
    from tidelog.spark.pipelines.simulate.work import plan_jobs

    wanted = parse_seeds(seeds)
    profiles, policies, chosen = _names(profile), _names(policy), _names(faults)
    plan_jobs(wanted[:1], profiles, policies, mutant, chosen)
    with how.session("tidelog simulate") as spark:
        from tidelog.spark.pipelines.simulate.search import simulate as search

        done = 0
        with progress("simulating") as show_progress:

            def advance(made: int, total: int) -> None:
                nonlocal done
                done = made
                show_progress(made, total)

            try:
                report = search(
                    spark,
                    wanted,
                    profiles=profiles,
                    policies=policies,
                    mutant=mutant,
                    faults=chosen,
                    directory=None if directory is None else str(directory),
                    slots=how.cores,
                    progress=advance,
                )
            except KeyboardInterrupt:
                kept = f"kept in {directory}" if directory else "not kept, --to keeps them"
                say(f"interrupted after {done} runs, {kept}")
                raise typer.Exit(130) from None
    how.show(report)


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]
