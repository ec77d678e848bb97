"""A violation with less around it: what of the workload and which faults it takes.

First what clients do is left out, piece by piece, then faults are, in halves, quarters and so on
(delta debugging), then the time in which faults may happen, where the violation came after it. A
reduction counts when it shows a violation of the same kind. Since any change draws other delays for
all that follows, each step has several chances (`links`). Decides which runs to make; who makes
them, and how many there may be, is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.reductions import Only, Played
from tidelog.sim.results import RunResult
from tidelog.sim.run import reduced_run, whole_run

#: Words that tell one kind of violation from another.
_KIND_WORDS: Final = 5
#: Draws of delays that a step is tried with: leaving out much is worth more of them.
_CHANCES: Final = 3
#: Runs that a search makes at most, whatever it finds.
MOST_RUNS: Final = 200

Run = Callable[[RunResult, Sequence[Played], Only], RunResult]


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What is left of a run that shows a violation."""

    whole: RunResult
    #: The smallest one that shows the same; the whole run where none does.
    result: RunResult
    only: Only
    #: What it played, of the whole run.
    faults: tuple[Played, ...]
    #: Runs that it took to find it.
    runs: int


def kind_of(violation: str) -> str:
    """What a violation is about, whatever the partition, the nodes and the numbers in it."""
    text = re.sub(r"^[\d.]+ s: ", "", violation.partition("\n")[0])
    before = None
    while text != before:
        before, text = text, re.sub(r"\([^()]*\)|\[[^\[\]]*\]", " ", text)
    text = text.partition("(")[0]
    words = re.findall(r"[^\W\d_]+", re.sub(r"\S*\d\S*", " ", text))
    return " ".join(words[:_KIND_WORDS])


def shrink_seed(
    seed: int,
    profile: str,
    mutant: str = "",
    chosen: Sequence[str] = (),
    enough: Callable[[], bool] = lambda: False,
) -> Shrunk:
    """The smallest run found until there were enough; the whole one where it violates nothing."""
    whole, played = whole_run(seed, profile, mutant, chosen)
    return shrink(whole, played, reduced_run, enough)


def shrink(
    whole: RunResult,
    played: Sequence[Played],
    run: Run,
    enough: Callable[[], bool] = lambda: False,
) -> Shrunk:
    """The smallest reduction of a whole run found until there were enough runs."""
    search = _Search(whole, played, run, enough)
    if whole.violation:
        search.search()
    faults = tuple(search.best.of(played))
    return Shrunk(whole, search.result, search.best, faults, search.runs)


class _Search:
    """The best reduction so far, and what was tried."""

    def __init__(
        self,
        whole: RunResult,
        played: Sequence[Played],
        run: Run,
        enough: Callable[[], bool],
    ) -> None:
        self.best = Only()
        self.result = whole
        self.runs = 0
        self._whole = whole
        self._kind = kind_of(whole.violation)
        self._played = played
        self._run = run
        self._enough = enough
        self._tried: dict[str, None] = {}

    def search(self) -> None:
        """Leave out whatever can be. What comes after the violation first: then runs that do not
        show it end soon."""
        self._try({"until_ms": self.result.simulated_ns // NS_PER_MS + 1}, 1)
        self._leave_out_faults(coarse=True)
        self._leave_out_work()
        self._leave_out_faults(coarse=False)
        self._leave_out_work()
        self._end_earlier()

    # Steps

    def _leave_out_work(self) -> None:
        for part in ("groups", "topics", "clients"):
            if getattr(self.best, part):
                self._try({part: False}, _CHANCES)
        for number in range(1, self.result.partitions):
            if self._try({"partitions": number}, _CHANCES):
                return

    def _leave_out_faults(self, *, coarse: bool) -> None:
        """All of them, else parts of them, down to single ones unless it shall be quick."""
        numbers = self.best.numbers(self._played)
        if not numbers or self._try({"play": ()}, _CHANCES):
            return
        size = (len(numbers) + 1) // 2
        least = max(1, len(numbers) // 4) if coarse else 1
        while size >= least and not self._is_over:
            position = 0
            while position < len(numbers):
                left = numbers[:position] + numbers[position + size :]
                if self._try({"play": tuple(left)}, _CHANCES if size > 1 else 1):
                    numbers = left
                else:
                    position += size
            if size == 1:
                return
            size = (size + 1) // 2

    def _end_earlier(self) -> None:
        """Only where the violation came at the end: one under way ends the run anyway."""
        until_ms = self.result.simulated_ns // NS_PER_MS
        while until_ms > 1 and not self._is_over:
            until_ms //= 2
            if not self._try({"until_ms": until_ms}, 1):
                return

    # Runs

    @property
    def _is_over(self) -> bool:
        return self.runs >= MOST_RUNS or self._enough()

    def _try(self, change: dict[str, Any], chances: int) -> bool:
        """Whether a further reduction shows the same; then it is the best."""
        for links in range(self.best.links, self.best.links + chances):
            wanted = replace(self.best, **change, links=links)
            name = str(wanted)
            if name in self._tried or self._is_over:
                continue
            self._tried[name] = None
            self.runs += 1
            result = self._run(self._whole, self._played, wanted)
            if kind_of(result.violation) == self._kind:
                self.best, self.result = wanted, result
                return True
        return False
