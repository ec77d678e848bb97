"""The demo as a user runs it; then the proof again, on the true files and on tampered ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from examples.demo.flights import TOTAL, read_flights
from tests.spark.commands import pipeline

VERDICT = "336776 produced, 336776 in the table, 0 lost, 0 doubled"
_LIMIT_S = 300
ROOT = Path(__file__).resolve().parents[2]


def test_there_are_all_flights_numbered_from_0() -> None:
    count = distance = 0
    carriers = set()
    for flight in read_flights():
        assert flight.sequence == count
        count += 1
        distance += flight.distance
        carriers.add(flight.key)
    assert count == TOTAL
    assert distance == 350_217_607
    assert len(carriers) == 16


def run_demo(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )


def processes_below(directory: Path) -> list[str]:
    """Command lines of live processes that name the directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(directory) in command:
            found.append(command)
    return found


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The directory of one run, and what it told."""
    directory = tmp_path_factory.mktemp("demo")
    (directory / "demo-output").mkdir()
    ran = run_demo(directory)
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-5000:]
    assert ran.stderr == ""
    return directory, ran.stdout


def test_it_ends_with_the_verdict_and_leaves_nothing_running(demo: tuple[Path, str]) -> None:
    directory, told = demo
    assert told.splitlines()[-1] == VERDICT
    assert processes_below(directory) == []
    output = directory / "demo-output"
    made = ["audit.html", "demo.png", "flights", "spark.log"]
    assert sorted(path.name for path in output.iterdir()) == made


def test_it_tells_of_kills_changes_and_phases_in_plain_text(demo: tuple[Path, str]) -> None:
    _, told = demo
    assert "\x1b" not in told
    for text in (
        "leader of flights-",
        ", the controller;",
        "acknowledged before the first kill",
        "acknowledged between the kills",
        "acknowledged after the second kill",
        "leader changes",
        "controller changes",
        "slowest acknowledgement",
        "miles flown",
        "every checksum is right and all replicas agree",
    ):
        assert text in told


def prove(directory: Path) -> subprocess.CompletedProcess[str]:
    words = ("prove", "demo-output/flights", "--sequence", "seq", "--produced", "336776")
    return pipeline(*words, cwd=directory)


def test_the_proof_step_repeats_the_verdict(demo: tuple[Path, str]) -> None:
    ran = prove(demo[0])
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == VERDICT


def test_one_row_dropped_and_another_doubled_is_found(demo: tuple[Path, str]) -> None:
    path = sorted((demo[0] / "demo-output" / "flights").rglob("*.parquet"))[-1]
    kept = path.read_bytes()
    table = pq.read_table(path)
    rows = [number for number in range(table.num_rows) if number != 1234]
    pq.write_table(table.take([*rows, 4321]), path)
    try:
        ran = prove(demo[0])
        assert ran.returncode == 1
        assert ran.stdout.splitlines()[-1] == (
            "336776 produced, 336776 in the table, 1 lost, 1 doubled"
        )
    finally:
        path.write_bytes(kept)
