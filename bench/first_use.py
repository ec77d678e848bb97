"""How soon a newcomer has a record: from `pip install` of the wheel to the first record read.

Each round starts without a bytecode cache: a new environment, `pip install` of the wheel and of the
wheels that it needs, three brokers, a topic with three replicas, a record written and read. The
wheels are built and downloaded before, and that is a row of its own. CPU times are of the commands
and what they waited for, without the brokers.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.rig import spread, table

_ROOT = Path(__file__).resolve().parents[1]
_ALL = "from pip install to the first record read, s"
_CPU = "CPU of the commands, s"
_BROKERS = "3"


def run(rounds: int) -> list[str]:
    """Return the table."""
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
        wheels = os.path.join(directory, "wheels")
        begun = time.perf_counter()
        wheel = _wheels(wheels)
        fetched = time.perf_counter() - begun
        figures: dict[str, list[float]] = {}
        for number in range(rounds):
            for step, value in _first_use(os.path.join(directory, str(number)), wheels, wheel):
                figures.setdefault(step, []).append(value)
    rows = [(step, spread(values, 2)) for step, values in figures.items()]
    rows.append(
        ("before: the wheel is built, those that it needs are downloaded, s", f"{fetched:.2f}")
    )
    return [
        table(f"First use: {wheel.partition('-')[0]} with {_BROKERS} brokers", rows, ("step", ""))
    ]


def _wheels(into: str) -> str:
    """Build the wheel and download what it needs; return the name of the wheel."""
    build = ["-m", "pip", "-q", "wheel", "--no-build-isolation", "-w", into, str(_ROOT)]
    _call([sys.executable, *build])
    [wheel] = [name for name in os.listdir(into) if name.startswith("tidelog-")]
    return wheel


def _first_use(place: str, wheels: str, wheel: str) -> list[tuple[str, float]]:
    """Return the steps of one newcomer with their seconds, and the sums."""
    os.mkdir(place)
    environment = os.path.join(place, "env")
    python = os.path.join(environment, "bin", "python")
    tidelog = os.path.join(environment, "bin", "tidelog")
    pip = [python, "-m", "pip", "-q", "--disable-pip-version-check", "install", "--no-index"]
    topic = ["topics", "create", "first", "--partitions", "1", "--replication-factor", _BROKERS]
    steps: Sequence[tuple[str, list[str]]] = (
        ("an environment (python -m venv), s", [sys.executable, "-m", "venv", environment]),
        ("pip install, s", [*pip, "--find-links", wheels, os.path.join(wheels, wheel)]),
        (f"tidelog up -n {_BROKERS}, s", [tidelog, "up", "-n", _BROKERS]),
        ("tidelog topics create, s", [tidelog, *topic]),
        ("tidelog produce, s", [tidelog, "produce", "first", "record"]),
        ("tidelog consume, s", [tidelog, "consume", "first", "--exit"]),
    )
    found = []
    cpu_before = _children_cpu_s()
    try:
        for step, words in steps:
            begun = time.perf_counter()
            output = _call(words, place)
            found.append((step, time.perf_counter() - begun))
        assert output == "record\n", output
        cpu = _children_cpu_s() - cpu_before
    finally:
        if os.path.exists(tidelog):
            _call([tidelog, "down"], place)
    return [*found, (_ALL, sum(value for _, value in found[1:])), (_CPU, cpu)]


def _call(words: Sequence[str], directory: str | None = None) -> str:
    """Run a command without variables of this environment; return its output."""
    kept = {"PATH", "HOME", "LANG", "TMPDIR"}
    variables = {key: each for key, each in os.environ.items() if key in kept or "PIP" in key}
    done = subprocess.run(
        words, cwd=directory, env=variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
