"""What depends on the interpreter holds on the oldest and the newest Python of this machine, too.

The simulator's loop and sandbox, recorded kills, traces of seeds, and the first record of a wheel.
A Python that is missing is a skip with its reason.
"""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from pathlib import Path

import pytest
from tests.pythons.other_pythons import Python, environment_of, others, run

PATIENCE_S = 400
#: The tests of what sees the interpreter: its tasks, frames, audited calls and tracebacks.
DEPENDING = (
    "tests/sim/test_sandbox.py",
    "tests/unit/sim/test_sim_halts.py",
    "tests/unit/sim/test_sim_lives.py",
    "tests/unit/sim/test_sim_loop.py",
    "tests/unit/sim/test_sim_mutants.py",
)
SEEDS = [str(seed) for seed in range(4)]
#: Kills that were recorded with so few events: an eighth of them, in a few seconds.
REPLAY = ("tests.support.mutants", "replay", "--max-events", "2500")
WHICH = ("oldest", "newest")
#: Parts of `make test` that run on each in `make soak`.
WHOLE = ("mypy", "decisions", "unit", "sim", "seeds")
WHOLE_S = 3_600


def python_of(which: str) -> Python:
    found = others()[which]
    if isinstance(found, str):
        pytest.skip(found)
    return found


@cache
def lines_here(*words: str) -> list[str]:
    """What a module prints on the running Python."""
    return run([sys.executable, "-m", *words], PATIENCE_S).splitlines()


def lines_there(which: str, *words: str) -> list[str]:
    """What a module prints on the other Python."""
    executable = environment_of(python_of(which))
    return run([str(executable), "-m", *words], PATIENCE_S).splitlines()


@pytest.mark.parametrize("which", WHICH)
def test_loop_and_sandbox_of_the_simulator(which: str) -> None:
    printed = lines_there(which, "pytest", "-q", "-rs", *DEPENDING)
    assert printed and not any("skipped" in line for line in printed), "\n".join(printed)


@pytest.mark.parametrize("which", WHICH)
def test_traces_of_seeds_are_equal(which: str) -> None:
    there = lines_there(which, "tests.sim.cluster_hashes", *SEEDS)
    assert there == lines_here("tests.sim.cluster_hashes", *SEEDS)
    assert len(there) == len(SEEDS)


@pytest.mark.parametrize("which", WHICH)
def test_recorded_kills_happen_at_the_same_event(which: str) -> None:
    there = lines_there(which, *REPLAY)
    assert there == lines_here(*REPLAY)
    # `tests/sim/test_mutants.py` holds that each happens; a record may wait to be made again.
    killed = [line for line in there if not line.endswith("survived")]
    assert len(killed) > 15, "this test looks at nothing"


@pytest.mark.parametrize("which", WHICH)
def test_the_wheel_serves_the_first_record(which: str, wheel: Path, tmp_path: Path) -> None:
    """One wheel serves all: its modules use the limited C API."""
    executable = str(environment_of(python_of(which)))
    pip = [executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    installed = str(tmp_path / "installed")
    run([*pip, "install", "--no-deps", "--target", installed, str(wheel)], PATIENCE_S)

    def tidelog(*words: str) -> str:
        options = ("--dir", str(tmp_path / "cluster"))
        command = [executable, "-m", "tidelog", *words, *options]
        return run(command, PATIENCE_S, PYTHONPATH=installed)

    where = "import tidelog.records._walk as walk; print(walk.__file__)"
    assert run([executable, "-c", where], PATIENCE_S, PYTHONPATH=installed).startswith(installed)
    try:
        started = json.loads(tidelog("up", "-n", "1", "-o", "json"))
        assert len(started["brokers"]) == 1
        tidelog("topics", "create", "first", "--partitions", "1", "--replication-factor", "1")
        tidelog("produce", "first", "record")
        assert tidelog("consume", "first", "--exit") == "record\n"
    finally:
        tidelog("down")


@pytest.mark.soak
@pytest.mark.parametrize("which", WHICH)
def test_types_and_all_tests_of_units_and_of_the_simulator(which: str) -> None:
    """With all that the lock file holds; the tests are those of `make test`, part by part."""
    python = python_of(which)
    make = ["make", f"VENV=.venv-{python}", f"PYTHON={python.path}", f"PARTS={' '.join(WHOLE)}"]
    printed = run([*make, "test"], WHOLE_S, MAKEFLAGS="", MAKELEVEL="")
    assert re.search(r"^[1-9]\d+ passed, 0 failed", printed, re.MULTILINE), printed
