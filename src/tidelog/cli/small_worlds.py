"""`tidelog sim small`: seeds of a small world, each of which stands for thousands of histories.

A small world has real code of one part of a broker, and a reference beside it. The command plays
seeds one after another in this process, and prints each violation with the command that repeats
it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.output import OutputFormat, print_json, print_line, say

if TYPE_CHECKING:
    from tidelog.sim.small.small_world import SmallWorld

#: A seed with more violations shows only the first ones.
_MOST_SHOWN = 3

WorldOption = Annotated[
    str, typer.Option(help="The world: controller, coordinator, log or replicas.")
]
OnlyOption = Annotated[
    str, typer.Option(help="Describe one history of one seed: a path, as a violation has it.")
]


def play_seeds(
    world: SmallWorld,
    seeds: range,
    minutes: float,
    mutant: str,
    *,
    first: bool,
    output: OutputFormat,
) -> None:
    """Play seeds and print what they showed; raise typer.Exit(1) for a violation.

    With `minutes`, seeds from the first of `seeds` on are played for this time.
    """
    from tidelog.sim.mutation import applied

    began_s = time.process_time()
    played = histories = 0
    violations: list[dict[str, object]] = []
    with applied(mutant):
        for seed in _for_minutes(seeds, minutes):
            found = world.play(seed)
            played += 1
            histories += found.histories
            for violation in found.violations[:_MOST_SHOWN]:
                say(f"VIOLATION seed {seed}, {violation.path}: {violation.what}")
                say(f"  {replay_command(world, seed, violation.path, mutant)}")
            violations += [{"seed": seed, **each._asdict()} for each in found.violations]
            if violations and first:
                break
    cpu_s = time.process_time() - began_s
    rate = histories / cpu_s if cpu_s else 0.0
    if output is OutputFormat.JSON:
        print_json(
            {"seeds": played, "histories": histories, "cpu_s": cpu_s, "violations": violations}
        )
    else:
        print_line(
            f"world {world.name}: {played} seeds, {histories} histories, {cpu_s:.1f} CPU seconds,"
            f" {rate:.0f} histories a second, {len(violations)} violations"
        )
    if violations:
        raise typer.Exit(1)


def describe_history(world: SmallWorld, seed: int, only: str, mutant: str) -> None:
    """Print one history of a seed; raise typer.Exit(1) if it shows a violation."""
    from tidelog.sim.mutation import applied

    with applied(mutant):
        try:
            found = world.play(seed, only, print_line)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--only") from None
    for violation in found.violations:
        say(f"VIOLATION seed {seed}, {violation.path}: {violation.what}")
    if found.violations:
        raise typer.Exit(1)
    print_line("no violation")


def replay_command(world: SmallWorld, seed: int, path: str, mutant: str) -> str:
    """Return the command that describes one history of a seed."""
    command = f'tidelog sim small --world {world.name} --seeds {seed} --only "{path}"'
    return f"{command} --mutant {mutant}" if mutant else command


def find_mutants() -> None:
    """Let mutants be imported from the working directory, as `python -m` does."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def _for_minutes(seeds: range, minutes: float) -> Iterator[int]:
    if not minutes:
        yield from seeds
        return
    end_s = time.monotonic() + minutes * 60
    seed = seeds[0]
    while time.monotonic() < end_s:
        yield seed
        seed += 1
