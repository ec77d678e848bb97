"""Fuzz for as long as it is given: `python -m tests.fuzz.session --minutes 60`.

The targets take turns. At the end inputs that reach what no kept one reaches are made small and
added to `corpus/<target>/kept.txt`, up to a number of bytes for each target. An input that a target
fails on is written to `crash-<name>.txt` beside it at once, so that `make test` fails until it is
fixed (then it is renamed to `fixed-<what>.txt`). `--repeat FILE` runs one of these. The last line
says what was done; the exit code is 1 if anything was found.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from tests.fuzz import corpus
from tests.fuzz.fuzzer import Crash, Fuzzer, cause_of
from tests.fuzz.targets import TARGETS
from tests.fuzz.tracing import Execution

#: Of text in a target's folder; what reaches most is kept first.
CORPUS_BYTES = 24_000
#: Executions of one target before the next has its turn.
_TURN = 500
_REPORT_S = 60


def names_of(text: str) -> list[str]:
    """The targets that the command line names; exits with 2 for one that is none."""
    names = [name for name in text.split(",") if name] or list(TARGETS)
    for name in names:
        if name not in TARGETS:
            sys.exit(f"no target {name!r}: one of {', '.join(TARGETS)}")
    return names


def repeat(path: Path) -> int:
    """Run one input alone; tells what it raises."""
    name = path.resolve().parent.name
    if name not in TARGETS:
        sys.exit(f"{path} lies in the folder of no target: one of {', '.join(TARGETS)}")
    fuzzer = Fuzzer(TARGETS[name](), Random(0))
    fuzzer.begin()
    found = fuzzer.execute(corpus.read(path)).error
    if found is None:
        print(f"{path}: nothing is wrong")
        return 0
    sys.excepthook(type(found), found, found.__traceback__)
    return 1


def begun(name: str, seed: str) -> Fuzzer:
    """A fuzzer that has run its seeds and what was kept."""
    fuzzer = Fuzzer(TARGETS[name](), Random(f"{seed} {name}"))
    fuzzer.begin(data for _, data in corpus.inputs(name))
    return fuzzer


def keep(name: str, fuzzer: Fuzzer, folder: Path, limit_bytes: int = CORPUS_BYTES) -> int:
    """Add to the folder what reaches something that neither seeds nor its inputs reach, those first
    that reach the most for their size; returns how many."""
    before = corpus.kept(folder)
    inputs = list(before)
    used = sum(2 * len(data) + 1 for data in inputs)
    known: set[int] = set()
    for data in (*fuzzer.target.seeds(), *(data for _, data in corpus.inputs(name))):
        known |= fuzzer.execute(data).arcs
    gains = []
    reached = set(known)
    for data in sorted(fuzzer.corpus, key=len):
        arcs = fuzzer.execute(data).arcs
        gains.append((len(arcs - reached) / (len(data) + 20), data))
        reached |= arcs
    for gain, data in sorted(gains, reverse=True):
        new = fuzzer.execute(data).arcs - known
        if not new or not gain:
            continue

        def reaches_all(execution: Execution, new: set[int] = new) -> bool:
            return execution.error is None and new <= execution.arcs

        small = fuzzer.smaller(data, reaches_all)
        if used + 2 * len(small) + 1 <= limit_bytes:
            used += 2 * len(small) + 1
            known |= fuzzer.execute(small).arcs
            inputs.append(small)
    corpus.keep(folder, inputs)
    return len(inputs) - len(before)


def told(name: str, crash: Crash, seed: str) -> Path:
    """Write a crash down, with the command that repeats it."""
    alone = Fuzzer(TARGETS[name](), Random(0))
    crash = alone.smaller_crash(crash)
    error = alone.execute(crash.data).error
    path = corpus.CORPUS / name / f"crash-{corpus.name_of(crash.data)}.txt"
    where = os.path.relpath(path)
    how = f"python -m tests.fuzz.session --repeat {where}"
    if error is None or cause_of(error) != crash.cause:
        how = f"not alone, but after others: --seed {seed} --targets {name}"
    last = crash.text.strip().splitlines()[-1]
    corpus.write(path, crash.data, f"{crash.cause}\n{last[:300]}\n{how}")
    print(f"\n{name} fails: {how}\n{crash.text}", flush=True)
    return path


class Session:
    """Targets that take turns until it is time to end."""

    def __init__(self, names: Sequence[str], seed: str) -> None:
        self.seed = seed
        self.fuzzers = {name: begun(name, seed) for name in names}
        self.before = {name: len(fuzzer.arcs) for name, fuzzer in self.fuzzers.items()}
        self.found: dict[tuple[str, str], Path] = {}

    def run(self, goes_on: Callable[[], bool]) -> None:
        """Turn after turn."""
        self._tell()
        while goes_on():
            for fuzzer in self.fuzzers.values():
                for _ in range(_TURN):
                    fuzzer.step()
                    if not goes_on():
                        break
            self._tell()

    def _tell(self) -> None:
        for name, fuzzer in self.fuzzers.items():
            for cause, crash in list(fuzzer.crashes.items()):
                if (name, cause) not in self.found:
                    self.found[name, cause] = told(name, crash, self.seed)

    def summary(self) -> str:
        """What was done, target by target."""
        lines = [
            f"{'target':<15}{'executions':>12}{'arcs':>8}{'new':>7}{'inputs':>8}{'crashes':>9}"
        ]
        for name, fuzzer in self.fuzzers.items():
            new = len(fuzzer.arcs) - self.before[name]
            lines.append(
                f"{name:<15}{fuzzer.executions:>12}{len(fuzzer.arcs):>8}{new:>7}"
                f"{len(fuzzer.corpus):>8}{len(fuzzer.crashes):>9}"
            )
        return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Coverage-guided fuzzing of bytes from outside.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", default="", help="for the same mutants again (default: fresh)")
    parser.add_argument("--targets", default="", help=f"of {','.join(TARGETS)} (default: all)")
    parser.add_argument("--repeat", type=Path, help="run one input of the corpus, and no more")
    options = parser.parse_args()
    if options.repeat is not None:
        return repeat(options.repeat)
    seed = options.seed or secrets.token_hex(4)
    started = time.monotonic()
    end: float = started + 60 * options.minutes
    session = Session(names_of(options.targets), seed)
    shown = started

    def goes_on() -> bool:
        nonlocal shown
        now = time.monotonic()
        if now - shown > _REPORT_S:
            shown = now
            count = sum(fuzzer.executions for fuzzer in session.fuzzers.values())
            arcs = sum(len(fuzzer.arcs) for fuzzer in session.fuzzers.values())
            print(f"{(now - started) / 60:.0f} min: {count} executions, {arcs} arcs", flush=True)
        return now < end

    print(f"seed {seed}", flush=True)
    try:
        session.run(goes_on)
    except KeyboardInterrupt:
        print("interrupted: what was found is kept", flush=True)
    executions = sum(fuzzer.executions for fuzzer in session.fuzzers.values())
    print(session.summary(), flush=True)
    written = sum(
        keep(name, fuzzer, corpus.CORPUS / name) for name, fuzzer in session.fuzzers.items()
    )
    print(
        f"{executions} executions in {(time.monotonic() - started) / 60:.1f} minutes with the seed"
        f" {seed}: {written} inputs kept, {len(session.found)} crashes",
        flush=True,
    )
    return 1 if session.found else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
