"""The search for seeds that kill mutants, for `python -m tests.support.mutants`.

Each round tries one seed of each remaining mutant, so that a search whose time ends has tried every
mutant. A mutant that many seeds kill need not wait for another that few kill.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.sim.job import Job
from tidelog.sim.results import RunResult
from tidelog.sim.swarm import has_drawn, world_of

#: Maximum number of named seeds of each mutant.
_EARLIEST_KILLS = 5


@dataclass(slots=True)
class Hunt:
    """The findings about one mutant."""

    #: Name in jobs, `MODULE:NAME`.
    mutant: str
    profile: str
    #: The seeds to try.
    seeds: Iterator[int]
    #: Number of seeds that were run.
    tried: int = 0
    kills: list[RunResult] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name in the catalogue."""
        return self.mutant.rpartition(":")[2]

    def summary(self) -> str:
        """Return how many seeds kill it, and which do so after the fewest events."""
        self.kills.sort(key=lambda result: (result.events, result.seed))
        earliest = " ".join(str(result.seed) for result in self.kills[:_EARLIEST_KILLS])
        line = f"{self.name}: killed by {len(self.kills)} of {self.tried} seeds of {self.profile}"
        return line + (f", earliest by {earliest}" if earliest else "")


def seeds_with(world: str, seeds: Sequence[int]) -> Iterator[int]:
    """Yield as many seeds as there are in `seeds`; each has drawn what `world` names.

    The seeds that the swarm must draw begin with the first of `seeds`. An empty `world` yields
    `seeds` themselves.
    """
    if not world:
        return iter(seeds)
    drawn = (seed for seed in itertools.count(seeds[0]) if has_drawn(world_of(seed), world))
    return itertools.islice(drawn, len(seeds))


class MutantSearch:
    """A search for kills of mutants among the same seeds each."""

    def __init__(
        self,
        profiles: Mapping[str, str],
        seeds: Sequence[int],
        enough: int,
        worlds: Mapping[str, str] | None = None,
    ) -> None:
        """Begin a search without results.

        `profiles` has the profile of each mutant, by its importable name. `enough` is the number of
        kills after which a mutant is done; 0 means all seeds. `worlds` has what seeds of the swarm
        must have drawn, by mutant.
        """
        self._seeds = seeds
        self._enough = enough
        #: The remaining mutants, in the given order.
        self.open = {
            mutant: Hunt(mutant, profile, seeds_with((worlds or {}).get(mutant, ""), seeds))
            for mutant, profile in profiles.items()
        }

    def run(
        self,
        results: Callable[[Iterator[Job]], Iterable[RunResult]],
        is_over: Callable[[], bool],
    ) -> Iterator[Hunt]:
        """Yield each mutant as soon as its result is known; begin no seed when `is_over`."""
        for result in results(self._jobs(is_over)):
            hunt = self.open.get(result.mutant)
            if hunt is None:
                continue  # another result completed this mutant before
            hunt.tried += 1
            if result.violation:
                hunt.kills.append(result)
            if hunt.tried == len(self._seeds) or len(hunt.kills) == self._enough > 0:
                del self.open[hunt.mutant]
                yield hunt

    def _jobs(self, is_over: Callable[[], bool]) -> Iterator[Job]:
        for _ in self._seeds:
            for hunt in list(self.open.values()):
                if is_over():
                    return
                if hunt.mutant in self.open:
                    yield Job(next(hunt.seeds), hunt.profile, hunt.mutant)
