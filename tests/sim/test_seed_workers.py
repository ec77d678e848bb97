"""Seeds in other processes: the same runs, and no process that outlives its use."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Generator

import pytest
from tests.support.mutants import importable

from tidelog.cli.seed_workers import SeedFailedError, run_in_processes
from tidelog.sim.job import Job
from tidelog.sim.run import run_seed


def test_a_seed_gives_the_same_run_in_whatever_process() -> None:
    here = run_seed(3)
    results = list(run_in_processes(iter([Job(3)] * 3), 2))
    assert [result.trace_hash for result in results] == [here.trace_hash] * 3
    assert multiprocessing.active_children() == []


def test_a_mutant_is_in_force_in_whatever_process() -> None:
    job = Job(0, mutant=importable("truncate_to_high_watermark"))
    here = job.run()
    (there,) = run_in_processes(iter([job]), 2)
    assert here.violation == there.violation != ""
    assert (here.trace_hash, here.mutant) == (there.trace_hash, there.mutant)


def test_who_stops_early_leaves_no_process() -> None:
    endless = run_in_processes(map(Job, range(3, 1_000_000)), 2)
    assert isinstance(endless, Generator)
    with contextlib.closing(endless):
        next(endless)
        assert len(multiprocessing.active_children()) == 2
    assert multiprocessing.active_children() == []


def test_a_failure_of_the_simulator_names_the_seed() -> None:
    with pytest.raises(SeedFailedError, match=r"(?s)seed 3: .*KeyError: .no such profile"):
        list(run_in_processes(iter([Job(3, "no such profile")]), 2))
