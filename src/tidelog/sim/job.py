"""The description of a run (a job): everything that determines the run, and the command that
repeats it.

A job has a seed, a profile, a mutant (a defect put into the brokers), kinds of faults, a reduction
(what a shrunk run leaves out) and a policy. Equal jobs give equal runs in every process. The worker
processes of a search get their work as jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

from tidelog.core.dataclass import dataclass
from tidelog.sim.policies import UNCHANGED
from tidelog.sim.reductions import Only
from tidelog.sim.results import RunResult
from tidelog.sim.run import SeedRun, reduced_run, run_seed, whole_run
from tidelog.sim.shrink import Shrunk, shrink
from tidelog.sim.story import Watcher, story_lines


@dataclass(frozen=True, slots=True)
class Job:
    """The description of one run."""

    seed: int
    profile: str = "default"
    mutant: str = ""
    #: Kinds of faults that replace the profile's kinds; empty for the kinds of the profile.
    chosen: tuple[str, ...] = ()
    #: As text: the parts to which a reduced run is restricted (`sim/reductions`); empty for the
    #: whole run.
    only: str = ""
    #: Policy of the cluster (`sim/policies`); empty for the settings of the profile.
    policy: str = ""

    @classmethod
    def of(cls, result: RunResult) -> Job:
        """Return the job that produced a result."""
        return cls(*(getattr(result, each.name) for each in fields(cls)))

    def run(self, observe: Callable[[SeedRun], None] | None = None) -> RunResult:
        """Make the run; `observe` is called with the run before it begins."""
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
        """Search for a smaller run with the same violation, until `enough` returns true."""
        whole, played = whole_run(self.seed, self.profile, self.mutant, self.chosen, self.policy)
        return shrink(whole, played, reduced_run, enough)

    def reduced(self, only: Only) -> Job:
        """Return the job of this run reduced by `only`."""
        return replace(self, only=str(only))

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
