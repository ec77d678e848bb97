"""A run by its name: all that makes it what it is, and the command that makes it again.

Seed, profile, mutant, chosen kinds of faults and what is left of it: equal jobs give equal runs, in
whatever process. Jobs are what workers are handed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.sim.reductions import Only
from tidelog.sim.results import RunResult
from tidelog.sim.run import SeedRun, run_seed
from tidelog.sim.shrink import Shrunk, shrink_seed
from tidelog.sim.story import Watcher, tell


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    seed: int
    profile: str = "default"
    mutant: str = ""
    #: Kinds of faults instead of those of the profile.
    chosen: tuple[str, ...] = ()
    #: What is left of it (`sim/reductions`); everything where it is empty.
    only: str = ""

    @classmethod
    def of(cls, result: RunResult) -> Job:
        """The job that gave a result."""
        return cls(result.seed, result.profile, result.mutant, result.chosen, result.only)

    def run(self) -> RunResult:
        """Make the run."""
        return run_seed(self.seed, self.profile, self.mutant, chosen=self.chosen, only=self.only)

    def story(self) -> tuple[RunResult, list[str]]:
        """Make the run, and tell it."""
        watchers: list[Watcher] = []

        def observe(run: SeedRun) -> None:
            watchers.append(Watcher(run))

        result = run_seed(
            self.seed,
            self.profile,
            self.mutant,
            chosen=self.chosen,
            only=self.only,
            observe=observe,
        )
        return result, tell(watchers[0], result.violation)

    def shrink(self, enough: Callable[[], bool]) -> Shrunk:
        """The smallest reduction found that shows the same violation."""
        return shrink_seed(self.seed, self.profile, self.mutant, self.chosen, enough)

    def reduced(self, only: Only) -> Job:
        """A reduction of it."""
        return Job(self.seed, self.profile, self.mutant, self.chosen, str(only))

    def command(self, what: str = "replay") -> str:
        """The command that makes it."""
        words = [f"tidelog sim {what} {self.seed}"]
        if self.profile != "default":
            words.append(f"--profile {self.profile}")
        if self.mutant:
            words.append(f"--mutant {self.mutant}")
        if self.chosen:
            words.append(f"--faults {','.join(self.chosen)}")
        if self.only:
            words.append(f'--only "{self.only}"')
        return " ".join(words)
