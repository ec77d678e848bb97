"""Commands within limits: whatever a mutant makes of a program, it ends with all that it began."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.mutation.limited import Ended, run_limited


def python(text: str, directory: Path, cpu_s: int = 20, wall_s: float = 60) -> Ended:
    return run_limited((sys.executable, "-c", text), directory, os.environ, cpu_s, wall_s)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_command_that_ends_has_its_exit_code_and_what_it_printed(tmp_path: Path) -> None:
    ended = python("import os; print(os.getcwd()); raise SystemExit(3)", tmp_path)
    assert (ended.code, ended.printed.strip()) == (3, str(tmp_path))
    assert not ended.is_out_of_time and ended.cpu_s > 0


def test_a_command_that_computes_for_ever_ends_at_its_cpu_seconds(tmp_path: Path) -> None:
    ended = python("while True: pass", tmp_path, cpu_s=1)
    assert ended.code == -signal.SIGXCPU and ended.is_out_of_time
    assert 0.5 < ended.cpu_s < 5


def test_a_command_that_waits_for_ever_ends_at_its_wall_time(tmp_path: Path) -> None:
    ended = python("import signal; signal.pause()", tmp_path, wall_s=1)
    assert ended.code is None and ended.is_out_of_time


def test_a_test_that_was_ended_by_its_own_timer_is_out_of_time(tmp_path: Path) -> None:
    text = "import signal; signal.setitimer(signal.ITIMER_PROF, 0.1)\nwhile True: pass"
    ended = python(text, tmp_path)
    assert ended.code == -signal.SIGPROF and ended.is_out_of_time


def test_no_process_is_left_behind_even_in_a_session_of_its_own(tmp_path: Path) -> None:
    text = (
        "import subprocess, sys\n"
        "words = [sys.executable, '-c', 'import signal; signal.pause()']\n"
        "for alone in (False, True):\n"
        "    print(subprocess.Popen(words, start_new_session=alone).pid)\n"
    )
    ended = python(text, tmp_path)
    pids = [int(line) for line in ended.printed.split()]
    assert ended.code == 0 and len(pids) == 2
    assert [pid for pid in pids if is_running(pid)] == []


def test_a_command_that_keeps_all_that_it_makes_ends(tmp_path: Path) -> None:
    ended = python("bytearray(7 << 30)", tmp_path)
    assert ended.code == 1 and "MemoryError" in ended.printed
