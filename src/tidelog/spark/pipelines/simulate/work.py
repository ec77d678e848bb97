"""The runs that a search needs, the runs without a result, and their division into tasks.

Profile (workload and faults), seed, policy (broker settings), mutant (a defect injected into the
brokers) and the chosen kinds of faults identify a run. Results count only for the code that made
them (`code_digest`), because another version of the brokers gives other runs. All functions but
`code_digest` are pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

from tidelog.core.errors import ConfigError
from tidelog.sim.faults import KINDS
from tidelog.sim.job import Job
from tidelog.sim.mutation import load
from tidelog.sim.policies import POLICIES, UNCHANGED
from tidelog.sim.profiles import PROFILES, all_named
from tidelog.sim.run import MIXED, profile_of
from tidelog.sim.suggestions import nearest_first

#: The columns of a run's row that identify the run, in the order of `key_of`.
RUN_KEY: Final = ("profile", "seed", "policy", "mutant", "faults")
RunKey = tuple[Any, ...]

#: The name that stands for all profiles in a search; each profile gets all seeds.
EVERY_PROFILE: Final = "every"
#: Packages whose code affects a run of the simulator.
_DECIDING: Final = (
    "broker",
    "client",
    "controller",
    "core",
    "group",
    "history",
    "log",
    "metadata",
    "records",
    "replication",
    "security",
    "sim",
    "txn",
    "wire",
)


def key_of(job: Job) -> RunKey:
    """Return the key under which the result of a run is kept."""
    return job.profile, job.seed, job.policy, job.mutant, ",".join(job.chosen)


def plan_jobs(
    seeds: Sequence[int],
    profiles: Sequence[str] = ("default",),
    policies: Sequence[str] = (UNCHANGED,),
    mutant: str = "",
    faults: Sequence[str] = (),
) -> list[Job]:
    """Return every run of a search; a seed's runs under all policies follow each other.

    Raises ConfigError for unknown names, and MutantNotFoundError.
    """
    _check("profile", profiles, (*all_named(), MIXED, EVERY_PROFILE))
    _check("policy", policies, POLICIES)
    _check("fault", faults, KINDS)
    if mutant:
        load(mutant)
    if not seeds:
        raise ConfigError("no seeds: A..B (both included) or one number is expected")
    wanted = [
        (profile, seed) for seed in seeds for name in profiles for profile in _named(name, seed)
    ]
    return [
        Job(seed, profile, mutant, tuple(faults), policy=policy)
        for profile, seed in dict.fromkeys(wanted)
        for policy in dict.fromkeys(policies)
    ]


def _named(profile: str, seed: int) -> Iterator[str]:
    if profile == EVERY_PROFILE:
        yield from PROFILES
    else:
        yield profile_of(seed) if profile == MIXED else profile


def missing(jobs: Sequence[Job], finished: Collection[RunKey]) -> list[Job]:
    """Return the runs of a search that have no result yet."""
    return [job for job in jobs if key_of(job) not in finished]


def into_tasks(jobs: Sequence[Job], runs_per_task: int, slots: int) -> list[tuple[Job, ...]]:
    """Return the runs of each task: at most `runs_per_task`, fewer if task slots would idle."""
    even = -(-len(jobs) // max(1, slots))
    size = max(1, min(runs_per_task, even))
    return [tuple(jobs[at : at + size]) for at in range(0, len(jobs), size)]


def _check(what: str, names: Sequence[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(f"no {what} {name!r}; there are {nearest_first(name, known)}")


def code_digest() -> str:
    """Return a digest of the code that affects a run, also if it is imported from a zip file."""
    digest = hashlib.blake2b(digest_size=8)
    for package in _DECIDING:
        root = files("tidelog").joinpath(package)
        if root.is_dir():
            _add(digest, package, root)
    return digest.hexdigest()


def _add(digest: hashlib.blake2b, name: str, found: Traversable) -> None:
    for entry in sorted(found.iterdir(), key=lambda each: each.name):
        path = f"{name}/{entry.name}"
        if entry.is_dir():
            _add(digest, path, entry)
        elif entry.name.endswith(".py"):
            digest.update(f"{path}\n".encode())
            digest.update(entry.read_bytes())
