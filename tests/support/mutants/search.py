"""The search for seeds that catch mutants, for `python -m tests.support.mutants`.

In rounds, one seed of each mutant that is still looked for, so that a search whose time ends has
tried every mutant: one that any seed catches does not wait for another that few catch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.sim.job import Job
from tidelog.sim.results import RunResult

#: Seeds that are named of each mutant.
_EARLIEST_KILLS = 5


@dataclass(slots=True)
class Hunt:
    """What has been found out about one mutant."""

    #: As jobs name it, `MODULE:NAME`.
    mutant: str
    profile: str
    #: Seeds that were run.
    tried: int = 0
    kills: list[RunResult] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name in the catalogue."""
        return self.mutant.rpartition(":")[2]

    def told(self) -> str:
        """How many seeds catch it, and which do after the fewest events."""
        self.kills.sort(key=lambda result: (result.events, result.seed))
        earliest = " ".join(str(result.seed) for result in self.kills[:_EARLIEST_KILLS])
        line = f"{self.name}: caught by {len(self.kills)} of {self.tried} seeds of {self.profile}"
        return line + (f", earliest by {earliest}" if earliest else "")


class MutantSearch:
    """Looks for kills of mutants among the same seeds each."""

    def __init__(self, profiles: Mapping[str, str], seeds: Sequence[int], enough: int) -> None:
        """`profiles`: the one of each mutant, by its importable name; `enough`: kills after which a
        mutant is not looked for any more, 0 for no end before the seeds'."""
        self._seeds = seeds
        self._enough = enough
        #: Those that are still looked for, in the order given.
        self.open = {mutant: Hunt(mutant, profile) for mutant, profile in profiles.items()}

    def run(
        self,
        results: Callable[[Iterator[Job]], Iterable[RunResult]],
        is_over: Callable[[], bool],
    ) -> Iterator[Hunt]:
        """Each mutant as soon as all is known of it; begins with no seed more when `is_over`."""
        for result in results(self._jobs(is_over)):
            hunt = self.open.get(result.mutant)
            if hunt is None:
                continue  # enough was known before this one ended
            hunt.tried += 1
            if result.violation:
                hunt.kills.append(result)
            if hunt.tried == len(self._seeds) or len(hunt.kills) == self._enough > 0:
                del self.open[hunt.mutant]
                yield hunt

    def _jobs(self, is_over: Callable[[], bool]) -> Iterator[Job]:
        for seed in self._seeds:
            for hunt in list(self.open.values()):
                if is_over():
                    return
                if hunt.mutant in self.open:
                    yield Job(seed, hunt.profile, hunt.mutant)
