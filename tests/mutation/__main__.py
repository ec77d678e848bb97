"""`python -m tests.mutation`: draws mutants, has them judged, and writes the page about them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from tests.mutation import page
from tests.mutation.drawing import DrawnMutant, candidates, draw
from tests.mutation.judges import JUDGES, JudgeError, Place
from tests.mutation.trees import MutatedTree
from tests.mutation.verdicts import VerdictFile, remaining
from tests.support.mutants.lines import ROOT

from tidelog.cli.help import HelpCommand, HelpGroup
from tidelog.cli.output import print_line, say

Seed = Annotated[str, typer.Option(help="What draws the mutants.")]
Count = Annotated[int, typer.Option(min=1, help="How many are drawn.")]
Results = Annotated[Path | None, typer.Option(help="File of verdicts [below the user's cache].")]

app = typer.Typer(
    cls=HelpGroup,
    help="Draw mutants of the decision packages and of the log, and see what notices them.",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def default_results() -> Path:
    """Return where verdicts are kept unless a path is given, outside of the checkout."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "tidelog" / "mutation" / "verdicts.jsonl"


@app.command("draw", cls=HelpCommand, epilog="Example: python -m tests.mutation draw --count 20")
def draw_mutants(
    seed: Seed = "1",
    count: Count = 20,
    diff: Annotated[bool, typer.Option(help="Print each as a diff, too.")] = False,
) -> None:
    """List the mutants that a seed draws."""
    for mutant in draw(candidates(), seed, count):
        print_line(str(mutant))
        if diff:
            print_line(mutant.diff(text_of(mutant)))


@app.command(cls=HelpCommand, epilog="Example: python -m tests.mutation show leader-4f1c22ab")
def show(ids: Annotated[list[str], typer.Argument(help="Ids of mutants.")]) -> None:
    """Print mutants as diffs, by their ids."""
    for mutant in chosen(ids):
        print_line(f"{mutant}\n{mutant.diff(text_of(mutant))}")


@app.command(
    cls=HelpCommand,
    epilog="Example: python -m tests.mutation judge --count 60 --judges types,unit,rules",
)
def judge(
    ids: Annotated[list[str] | None, typer.Argument(help="Ids, instead of a draw.")] = None,
    seed: Seed = "1",
    count: Count = 20,
    judges: Annotated[str, typer.Option(help="Judges, A,B.")] = ",".join(JUDGES),
    cpu: Annotated[
        int | None, typer.Option(min=1, help="CPU seconds of each judge [its own].")
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=0.0, help="Begin with no further verdict after so long; 0: all.")
    ] = 0.0,
    again: Annotated[bool, typer.Option(help="Also judge again what survived.")] = False,
    results: Results = None,
) -> None:
    """Have mutants judged, one after the other, and keep each verdict at once.

    Verdicts that are known are not found again, unless a judge now has more CPU seconds.
    """
    names = [name for name in judges.split(",") if name]
    if unknown := [name for name in names if name not in JUDGES]:
        raise typer.BadParameter(f"no judges {unknown}; there are {', '.join(JUDGES)}")
    mutants = chosen(ids) if ids else draw(candidates(), seed, count)
    deadline_s = time.monotonic() + minutes * 60 if minutes else float("inf")
    with tempfile.TemporaryDirectory(prefix="tidelog-mutation-") as directory:
        scratch, kept = Path(directory), results or default_results()
        place = Place(
            MutatedTree(scratch / "sound"), MutatedTree(scratch / "mutated"), scratch, kept.parent
        )
        judge_all(place, mutants, names, cpu, deadline_s, VerdictFile(kept), again)


def judge_all(
    place: Place,
    mutants: Sequence[DrawnMutant],
    names: Sequence[str],
    cpu: int | None,
    deadline_s: float,
    file: VerdictFile,
    again: bool,
) -> None:
    """Have each mutant judged by the judges that have not yet judged it, until the deadline."""
    limits_s = {name: cpu or JUDGES[name].limit_s for name in names}
    for number, mutant in enumerate(mutants, 1):
        text = text_of(mutant, place.sound.root)
        known = file.known(mutant, text)
        if again:
            known = {name: verdict for name, verdict in known.items() if verdict.is_noticed}
        left = remaining(known, names, limits_s)
        if not left:
            continue
        print_line(f"{number}/{len(mutants)} {mutant}")
        place.mutated.put(mutant)
        for name in left:
            if time.monotonic() >= deadline_s:
                print_line("the time is over")
                return
            verdict = JUDGES[name].judge(place, mutant, limits_s[name])
            file.add(mutant, text, verdict)
            print_line(f"    {name}: {verdict.outcome}, {verdict.cpu_s:.1f} s {verdict.by}")


@app.command("page", cls=HelpCommand, epilog="Example: python -m tests.mutation page --seed 1")
def write_page(
    seed: Annotated[
        str, typer.Option(help="Take the verdicts of this draw first [keep what is taken].")
    ] = "",
    count: Count = 400,
    results: Results = None,
) -> None:
    """Write docs/internals/drawn-mutants.md; with a seed, from the verdicts of its draw."""
    if seed:
        file = VerdictFile(results or default_results())
        found = candidates()
        page.keep(seed, draw(found, seed, count), file.read(), len(found))
    page.write()


def chosen(ids: Sequence[str]) -> list[DrawnMutant]:
    """Return the mutants with these ids."""
    known = {mutant.id: mutant for mutant in candidates()}
    if missing := [name for name in ids if name not in known]:
        raise typer.BadParameter(f"no mutants {missing}: their functions have changed")
    return [known[name] for name in ids]


def text_of(mutant: DrawnMutant, root: Path = ROOT) -> str:
    """Return the text of the file that a mutant changes."""
    return (root / "src" / mutant.file).read_text(encoding="utf-8")


def main() -> None:
    """Run the command and exit with its code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with contextlib.suppress(KeyboardInterrupt):
        try:
            app(prog_name="python -m tests.mutation")
        except JudgeError as error:
            say(f"tests.mutation: {error}")
            sys.exit(1)


if __name__ == "__main__":
    main()
