"""The description of a run: everything that determines it, and the command that repeats it.

A job has a seed, a profile, a mutant, chosen kinds of faults, a reduction and a policy. Equal jobs
give equal runs in every process. Workers get their work as jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.sim.policies import UNCHANGED
from tidelog.sim.reductions import Only
from tidelog.sim.results import RunResult
from tidelog.sim.run import SeedRun, run_seed
from tidelog.sim.shrink import Shrunk, shrink_seed
from tidelog.sim.story import Watcher, story_lines


@dataclass(frozen=True, slots=True)
class Job:
    """The description of one run."""

    seed: int
    profile: str = "default"
    mutant: str = ""
    #: Kinds of faults instead of those of the profile.
    chosen: tuple[str, ...] = ()
    #: Reduction of the run (`sim/reductions`); empty for the whole run.
    only: str = ""
    #: Policy of the cluster (`sim/policies`); empty for the settings of the profile.
    policy: str = ""

    @classmethod
    def of(cls, result: RunResult) -> Job:
        """Return the job of a result."""
        return cls(
            result.seed,
            result.profile,
            result.mutant,
            result.chosen,
            result.only,
            result.policy,
        )

    def run(self, observe: Callable[[SeedRun], None] | None = None) -> RunResult:
        """Make the run; `observe` gets it before it begins."""
        return run_seed(
            self.seed,
            self.profile,
            self.mutant,
            chosen=self.chosen,
            only=self.only,
            policy=self.policy,
            observe=observe,
        )

    def story(self) -> tuple[RunResult, list[str]]:
        """Make the run; return its result and the lines of its story."""
        watchers: list[Watcher] = []
        result = self.run(lambda run: watchers.append(Watcher(run)))
        return result, story_lines(watchers[0], result.violation)

    def shrink(self, enough: Callable[[], bool]) -> Shrunk:
        """Return the smallest reduction found that shows the same violation."""
        return shrink_seed(self.seed, self.profile, self.mutant, self.chosen, enough, self.policy)

    def reduced(self, only: Only) -> Job:
        """Return the job of a reduction of the run."""
        return Job(self.seed, self.profile, self.mutant, self.chosen, str(only), self.policy)

    def command(self, what: str = "replay") -> str:
        """Return the command that makes the run."""
        words = [f"tidelog sim {what} {self.seed}"]
        if self.profile != "default":
            words.append(f"--profile {self.profile}")
        if self.mutant:
            words.append(f"--mutant {self.mutant}")
        if self.chosen:
            words.append(f"--faults {','.join(self.chosen)}")
        if self.policy not in ("", UNCHANGED):
            words.append(f"--policy {self.policy}")
        if self.only:
            words.append(f'--only "{self.only}"')
        return " ".join(words)
