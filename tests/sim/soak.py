"""A long search, for the minutes that it is given: what `make soak` runs.

`python -m tests.sim.soak --minutes N`: the search of mutants on all cores but one and the larger
models on that one take up to a third of the time, all clients up to a sixth, and beside them real
brokers on an ensemble of ZooKeeper servers, all killed in turns. Chaos strikes a cluster on each
store, side by side, for a sixth of the time, ten minutes at most. Then come the tests that `make
test` leaves out, to their end. What is left, a third of the time at least, is for the simulator:
the seeds that are kept, then fresh ones of all profiles on all cores. Then the coverage table of
both is printed, and a state that none of them reached is a failure. What does not end in its share
is ended, and told; every step that failed is told at the end, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Seeds that once showed a violation, and seeds that reach what few others do.
KNOWN_SEEDS = ("known_seeds.txt", "rare_seeds.txt")
PYTHON = sys.executable
#: Shares of the time that what goes before the simulator has at most.
MUTANTS_AND_MODELS = 1 / 3
CLIENTS = 1 / 6
CHAOS = 1 / 6
SIMULATOR = 1 / 3
#: Of the chaos on each store, however long a soak is.
MOST_CHAOS_MINUTES = 10.0
#: What a search has beyond its share to end by itself.
SPARE_S = 120.0
#: What an ended process has to say its last words.
GRACE_S = 30.0
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Step:
    """A command, with the seconds after which it is ended; None: it ends by itself."""

    name: str
    words: tuple[str, ...]
    limit_s: float | None = None
    environment: tuple[tuple[str, str], ...] = ()


#: Runs steps side by side; returns what went wrong, one line each.
Call = Callable[[Sequence[Step]], list[str]]


def before(minutes: float, cores: int) -> list[list[Step]]:
    """What goes before the simulator: steps that run side by side, one set after the other."""
    share = minutes * MUTANTS_AND_MODELS
    mutants: tuple[str, ...] = (
        PYTHON,
        "-m",
        "tests.support.mutants",
        "seeds",
        "--seeds",
        "0..199",
        "--kills",
        "1",
    )
    mutants += ("--minutes", f"{share:.2f}", "--jobs", str(max(1, cores - 1)))
    return [
        [
            Step("mutants", mutants, share * 60 + SPARE_S),
            Step("models", (PYTHON, "-m", "tests.model.soak"), share * 60),
        ],
        [
            Step(
                "clients",
                (PYTHON, "tests/run.py", "clients", "matrix", "tools"),
                minutes * CLIENTS * 60,
                (("TIDELOG_TEST_CLIENTS", "all"),),
            ),
            Step(
                "histories",
                (PYTHON, "-m", "pytest", "-q", "tests/cluster/test_histories.py"),
                None,
                (("TIDELOG_TEST_HISTORY_S", f"{minutes * CLIENTS * 60:.0f}"),),
            ),
        ],
        [chaos(minutes, store) for store in ("embedded", "zookeeper")],
        [Step("tests", (PYTHON, "tests/run.py", "soak"))],
    ]


def chaos(minutes: float, store: str) -> Step:
    """Faults on a real cluster with real clients; ends by itself, for its clients are awaited."""
    share = min(MOST_CHAOS_MINUTES, minutes * CHAOS)
    words = (PYTHON, "-m", "tests.support.chaos", "--minutes", f"{share:.2f}", "--store", store)
    return Step(f"chaos on {store}", words)


def known(kept: Path) -> list[list[Step]]:
    """The seeds that are kept: each leads to something rare."""
    words = (PYTHON, "-m", "tidelog", "sim", "run", "--coverage", str(kept), "--seeds-file")
    return [[Step(name, (*words, str(Path(__file__).with_name(name))))] for name in KNOWN_SEEDS]


def fresh(minutes: float, first_seed: int, kept: Path) -> list[list[Step]]:
    """Fresh seeds for what is left of the time, and the table."""
    words: tuple[str, ...] = ("run", "--seeds", str(first_seed), "--minutes", f"{minutes:.2f}")
    words += ("--profile", "mixed", "--coverage", str(kept))
    return [
        [Step("simulation", (PYTHON, "-m", "tidelog", "sim", *words))],
        [Step("coverage", (PYTHON, "-m", "tests.sim.coverage", "--from", str(kept)))],
    ]


def soak(
    minutes: float,
    kept: Path,
    call: Call,
    cores: int,
    now_s: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Run everything; returns what went wrong, one line a step."""
    began_s = now_s()
    earlier = [*before(minutes, cores), *known(kept)]
    problems = [problem for steps in earlier for problem in call(steps)]
    left = max(minutes * SIMULATOR, minutes - (now_s() - began_s) / 60)
    for steps in fresh(left, int(time.time()), kept):
        problems += call(steps)
    return problems


def run_side_by_side(steps: Sequence[Step]) -> list[str]:
    """Start all, and wait until each has ended or its time is over; leaves none behind."""
    running: dict[Step, subprocess.Popen[bytes]] = {}
    problems = []
    began_s = time.monotonic()
    try:
        for step in steps:
            tell(f"\n=== {step.name}: {' '.join(step.words)}")
            running[step] = subprocess.Popen(
                step.words,
                cwd=ROOT,
                env={**os.environ, **dict(step.environment)},
                start_new_session=True,
            )
        while running:
            time.sleep(_POLL_S)
            for step, process in list(running.items()):
                if process.poll() is not None:
                    del running[step]
                    if process.returncode:
                        problems.append(f"{step.name} ended with {process.returncode}")
                elif step.limit_s is not None and time.monotonic() - began_s > step.limit_s:
                    del running[step]
                    end(process)
                    tell(f"{step.name} was ended: its share of the time is over")
    finally:
        for process in running.values():
            end(process)
    return problems


def end(process: subprocess.Popen[bytes]) -> None:
    """It may say its last words; then its whole group goes."""
    process.terminate()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def tell(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument(
        "--coverage", type=Path, default=Path("coverage.json"), help="where it is kept, anew"
    )
    options = parser.parse_args(words)
    if options.minutes <= 0:
        parser.error("--minutes: more than 0 are needed")
    options.coverage.unlink(missing_ok=True)
    cores = len(os.sched_getaffinity(0))
    problems = soak(options.minutes, options.coverage.resolve(), run_side_by_side, cores)
    for problem in problems:
        tell(f"FAILED {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
