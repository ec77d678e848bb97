"""A small coverage-guided fuzzer: inputs that reach new arcs are kept and mutated further.

Of the libraries there are, atheris is well kept, but has wheels for Linux on x86-64 alone and needs
LLVM elsewhere; this one needs nothing, and one run of a seed is like any other.
A target takes bytes and raises where something is wrong with the code, never where something is
wrong with the bytes. The effort that an input may cost is bounded by its size (`tracing`).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from tests.fuzz.mutation import mutated
from tests.fuzz.tracing import Execution, TooManyLines, Tracer

#: Runs that an input is worth to be made smaller.
_MINIMISING_RUNS = 200
#: More than the building of the codecs of any message takes: 8,500 lines were seen.
_BUILDING_LINES = 50_000


class Target(Protocol):
    """What is fuzzed."""

    #: Of its corpus.
    name: str
    #: Lines that an input may cost: so many, and so many a byte.
    max_lines: int
    max_lines_per_byte: int

    @property
    def traced(self) -> tuple[str, ...]:
        """Files whose lines count (`Tracer`)."""

    def seeds(self) -> Iterable[bytes]:
        """Well-formed inputs to begin with."""

    def repair(self, data: bytes, draw: Random) -> bytes:
        """Make a mutant's checksums and lengths right, or some of them."""

    def run(self, data: bytes) -> None:
        """Run an input; raises for a defect."""


@dataclass(frozen=True, slots=True)
class Crash:
    """An input that a target failed on."""

    data: bytes
    error: BaseException
    #: The same for crashes with the same cause: the type and where it was raised.
    cause: str

    @property
    def text(self) -> str:
        """The traceback."""
        return "".join(traceback.format_exception(self.error))


def cause_of(error: BaseException) -> str:
    """What tells one defect from another; of a chain the first error."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    frames = traceback.extract_tb(error.__traceback__)[-2:]
    places = [f"{each.filename.rpartition('/')[2]}:{each.name}:{each.lineno}" for each in frames]
    return " ".join((type(error).__name__, *places))


@dataclass(slots=True)
class Fuzzer:
    """A target with its corpus in memory; everything is drawn from the seed."""

    target: Target
    draw: Random
    corpus: list[bytes] = field(default_factory=list)
    #: All arcs that were reached.
    arcs: set[int] = field(default_factory=set)
    crashes: dict[str, Crash] = field(default_factory=dict)
    executions: int = 0
    _tracer: Tracer = field(init=False)
    _tokens: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tracer = Tracer(*self.target.traced)

    def begin(self, kept: Iterable[bytes] = ()) -> None:
        """Run the seeds and what was kept before; arcs of them are not new any more.

        Seeds run unseen before: what is made at first use and kept, codecs above all, is no effort
        of the input that comes by first.
        """
        seeds = list(self.target.seeds())
        for data in seeds:
            self.target.run(data)
        for data in (*seeds, *kept):
            if self._is_new(self.execute(data)):
                self.corpus.append(data)
        if not self.corpus:
            self.corpus.append(b"")

    def execute(self, data: bytes) -> Execution:
        """Run one input; a crash is noted, one of each cause."""
        self.executions += 1
        target = self.target
        limit = target.max_lines + target.max_lines_per_byte * len(data)
        execution = self._tracer.run(lambda: target.run(data), limit)
        if isinstance(execution.error, TooManyLines):
            # The first message of its kind also builds its decoders, whatever its size.
            self._tracer.run(lambda: target.run(data), limit + _BUILDING_LINES)
            execution = self._tracer.run(lambda: target.run(data), limit)
        if execution.error is not None:
            cause = cause_of(execution.error)
            known = self.crashes.get(cause)
            if known is None or len(data) < len(known.data):
                self.crashes[cause] = Crash(data, execution.error, cause)
        return execution

    def step(self) -> bytes | None:
        """Run one mutant; returns it where it reached something new."""
        draw = self.draw
        corpus = self.corpus
        # The newest are the least explored.
        newest = corpus[-20:] if draw.random() < 0.3 else corpus
        constants = self._tracer.constants
        if len(constants) != len(self._tokens):
            self._tokens = sorted(constants)
        data = mutated(draw.choice(newest), corpus, draw, self._tokens)
        if draw.random() < 0.7:
            data = self.target.repair(data, draw)
        execution = self.execute(data)
        if execution.error is not None or not self._is_new(execution):
            return None
        corpus.append(data)
        return data

    def _is_new(self, execution: Execution) -> bool:
        known = len(self.arcs)
        self.arcs |= execution.arcs
        return len(self.arcs) > known

    def smaller(self, data: bytes, still: Callable[[Execution], bool]) -> bytes:
        """The input with as much cut out of it as can be while its execution is as wanted."""
        size = max(len(data) // 2, 1)
        runs = 0
        while True:
            at = 0
            while at < len(data) and runs < _MINIMISING_RUNS:
                shorter = data[:at] + data[at + size :]
                runs += 1
                if still(self.execute(shorter)):
                    data = shorter
                else:
                    at += size
            if size == 1 or runs >= _MINIMISING_RUNS:
                return data
            size //= 2

    def smaller_crash(self, crash: Crash) -> Crash:
        """The same defect from fewer bytes."""
        data = self.smaller(
            crash.data, lambda one: one.error is not None and cause_of(one.error) == crash.cause
        )
        execution = self.execute(data)
        if execution.error is None:
            return crash  # it depends on what ran before: the input is left as it was
        return Crash(data, execution.error, crash.cause)
