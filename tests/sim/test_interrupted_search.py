"""A search that is interrupted tells what it covered, keeps it, and leaves no process."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import weakref
from functools import partial
from pathlib import Path

import pytest

from tidelog.cli.seed_search import Interruptions

ROOT = Path(__file__).resolve().parents[2]
#: `tidelog`, with an interpreter of its own: what a fork (`tests/forks.py`) used counts elsewhere.
TIDELOG = [sys.executable, "-c", "from tidelog.cli import main; main()"]
COMMAND = [*TIDELOG, "sim", "run"]
#: Between two looks at processes that compute.
POLL_S = 0.05


def search(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )


def workers_of(pid: int) -> list[int]:
    """Its processes that run seeds; multiprocessing has one of its own beside them."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(each) for each in found if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()
    ]


def processor_s_of_children() -> float:
    """What the processes that have ended used of processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def has_ended(process: subprocess.Popen[str], within_s: float) -> bool:
    """Whether a process ends by itself within so many seconds."""
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def wait_for_work(process: subprocess.Popen[str], workers: int, enough_s: float) -> None:
    """Wait until so many processes of the search have used a processor for `enough_s`."""
    enough = enough_s * os.sysconf("SC_CLK_TCK")
    while not has_ended(process, POLL_S):
        busy = workers_of(process.pid) if workers > 1 else [process.pid]
        ticks = [
            sum(map(int, Path(f"/proc/{pid}/stat").read_text().split()[13:15])) for pid in busy
        ]
        if len([each for each in ticks if each > enough]) >= workers:
            return
    pytest.fail(f"it ended by itself: {process.communicate()}")


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, float]:
    """The coverage that a search of two seeds keeps, and what it used of a processor."""
    kept = tmp_path_factory.mktemp("searched") / "coverage.json"
    used_s = processor_s_of_children()
    done = search("--seeds", "3..4", "--jobs", "1", "--coverage", str(kept))
    assert done.communicate(timeout=600)[0] and done.returncode == 0
    return kept.read_text(), processor_s_of_children() - used_s


@pytest.mark.parametrize(
    ("number", "jobs"),
    [
        pytest.param(signal.SIGINT, 2, marks=pytest.mark.soak),
        (signal.SIGTERM, 2),
        (signal.SIGINT, 1),
    ],
)
def test_what_was_covered_is_told_and_kept(
    tmp_path: Path, searched: tuple[str, float], number: signal.Signals, jobs: int
) -> None:
    # A process that has used as much as both runs and their start has ended the first of them.
    text, used_s = searched
    kept = tmp_path / "coverage.json"
    kept.write_text(text)
    before = json.loads(text)["profiles"]["default"]
    assert before["runs"] == 2

    process = search("--seeds", "3", "--minutes", "9", "--jobs", str(jobs), "--coverage", str(kept))
    wait_for_work(process, jobs, used_s)
    workers = workers_of(process.pid)
    # Ctrl-C reaches the whole group, as a terminal sends it; SIGTERM one process.
    if number is signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    told, errors = process.communicate(timeout=600)
    assert process.returncode == 128 + number
    assert "Traceback" not in errors
    runs = int(told.split()[0])
    assert f"{runs} seeds, " in told and f"interrupted after {runs} runs" in errors
    after = json.loads(kept.read_text())["profiles"]["default"]
    assert after["runs"] == 2 + runs and runs > 0
    assert after["events"] >= before["events"]
    assert [pid for pid in workers if Path(f"/proc/{pid}").exists()] == []
    assert list(tmp_path.iterdir()) == [kept]


class _Watched:
    """What a weak reference can refer to."""


def test_a_signal_that_python_raises_to_nobody_is_noted_without_a_word(
    capfd: pytest.CaptureFixture[str],
) -> None:
    told: list[sys.UnraisableHookArgs] = []
    before, sys.unraisablehook = sys.unraisablehook, told.append
    try:
        with Interruptions() as interruptions:
            for raised in (lambda: signal.raise_signal(signal.SIGTERM), lambda: 1 / 0):
                watched = _Watched()
                reference = weakref.ref(watched, partial(lambda raised, _: raised(), raised))
                del watched
                assert reference() is None
        assert sys.unraisablehook == told.append
    finally:
        sys.unraisablehook = before
    assert interruptions.exit_code == 128 + signal.SIGTERM
    assert [one.exc_type for one in told] == [ZeroDivisionError]
    assert capfd.readouterr().err == ""


def test_a_file_that_holds_no_coverage_is_told_before_anything_is_run(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    for text, told in (
        ("{", "is no JSON"),
        ('{"version": 99}', "holds no coverage of version 1, its version is 99"),
        (
            '{"version": 1, "profiles": {"default": {}}, "pairs": {}}',
            "holds no coverage: profiles.default has no 'runs'",
        ),
    ):
        other.write_text(text)
        process = search("--seeds", "3..9999", "--coverage", str(other))
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 1 and told in errors
        assert other.read_text() == text
