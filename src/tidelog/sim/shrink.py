"""The search for a small reduction of a run with a violation: less workload, fewer faults.

The search first leaves out the time after the violation, then halves and quarters of the faults,
then single parts of the workload. Next it leaves out smaller parts of the faults (delta debugging),
and again parts of the workload. Finally, if the violation came after the faults, the search halves
the time in which faults happen. The search keeps a reduction if its run shows a violation of the
same kind. A reduction changes the delays of all later messages, so the search may try a reduction
several times, each time with other delays (`links`). This module chooses the runs; its caller makes
the runs and limits their number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.reductions import Only, Played
from tidelog.sim.results import RunResult

#: Number of words at the beginning of a violation's text that identify the kind of violation.
_KIND_WORDS: Final = 5
#: Number of attempts, each with other message delays, for a reduction that leaves out much; other
#: reductions get one attempt.
_CHANCES: Final = 3
#: Maximum number of runs of a search.
MOST_RUNS: Final = 200

Run = Callable[[RunResult, Sequence[Played], Only], RunResult]


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest reduction found of a run with a violation."""

    whole: RunResult
    #: Result of the smallest run with the same violation; of the unreduced run if none is smaller.
    result: RunResult
    only: Only
    #: Faults of the unreduced run that the smallest run injected.
    faults: tuple[Played, ...]
    #: Number of runs that the search made.
    runs: int


def kind_of(violation: str) -> str:
    """Return the kind of a violation: its first words without partitions, nodes and numbers."""
    text = re.sub(r"^[\d.]+ s: ", "", violation.partition("\n")[0])
    before = None
    while text != before:
        before, text = text, re.sub(r"\([^()]*\)|\[[^\[\]]*\]", " ", text)
    text = text.partition("(")[0]
    words = re.findall(r"[^\W\d_]+", re.sub(r"\S*\d\S*", " ", text))
    return " ".join(words[:_KIND_WORDS])


def shrink(
    whole: RunResult, played: Sequence[Played], run: Run, enough: Callable[[], bool] = lambda: False
) -> Shrunk:
    """Search until `enough()` returns true; return the smallest reduction of `whole` that was
    found.
    """
    search = _Search(whole, played, run, enough, whole)
    if whole.violation:
        search.search()
    faults = tuple(search.best.of(played))
    return Shrunk(whole, search.result, search.best, faults, search.runs)


@dataclass(slots=True)
class _Search:
    """One search: the best reduction so far, and the reductions that were tried."""

    whole: RunResult
    played: Sequence[Played]
    run: Run
    enough: Callable[[], bool]
    #: Result of the best reduction.
    result: RunResult
    best: Only = field(default_factory=Only)
    runs: int = 0
    tried: dict[str, None] = field(default_factory=dict)

    def search(self) -> None:
        """Leave out every part that the violation does not need.

        The first step drops the time after the violation, so that further runs end soon.
        """
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
        """Try to leave out all faults, then halves, quarters and, unless `coarse`, smaller parts of
        them.
        """
        numbers = self.best.numbers(self.played)
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
        """Halve the time in which faults happen, as long as the run shows the same violation.

        This helps only if the violation came after the faults, because an earlier violation ends
        the run anyway.
        """
        until_ms = self.result.simulated_ns // NS_PER_MS
        while until_ms > 1 and not self._is_over:
            until_ms //= 2
            if not self._try({"until_ms": until_ms}, 1):
                return

    # Runs

    @property
    def _is_over(self) -> bool:
        return self.runs >= MOST_RUNS or self.enough()

    def _try(self, change: dict[str, Any], chances: int) -> bool:
        """Try a reduction; keep it and return True if its run shows the same violation."""
        for links in range(self.best.links, self.best.links + chances):
            wanted = replace(self.best, **change, links=links)
            name = str(wanted)
            if name in self.tried or self._is_over:
                continue
            self.tried[name] = None
            self.runs += 1
            result = self.run(self.whole, self.played, wanted)
            if kind_of(result.violation) == kind_of(self.whole.violation):
                self.best, self.result = wanted, result
                return True
        return False
