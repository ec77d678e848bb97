"""`tidelog up --console`: the console runs beside the brokers until `tidelog down`."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

from tidelog.local.console_process import start_console
from tidelog.local.processes import ProcessIdentity


def tidelog(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidelog", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_cluster_comes_up_with_its_console_and_goes_down_with_it(tmp_path: Path) -> None:
    directory = str(tmp_path / "cluster")
    try:
        up = tidelog("up", "--dir", directory, "-n", "1", "--console")
        assert up.returncode == 0, up.stderr
        (address,) = [
            line.removeprefix("console: ")
            for line in up.stderr.splitlines()
            if line.startswith("console: ")
        ]
        assert up.stdout.splitlines()[-1].startswith("bootstrap: ")
        with urllib.request.urlopen(f"{address}api/session") as answer:
            assert json.load(answer)["allows_changes"] is False
        assert start_console(directory, 30.0) == address, "a second one is not started"
        process = ProcessIdentity.read(f"{directory}/console.pid")
        assert process is not None and process.is_alive
    finally:
        down = tidelog("down", "--dir", directory)
    assert down.returncode == 0, down.stderr
    assert not process.is_alive


def test_without_the_extra_no_broker_starts(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    program = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from tidelog.cli import main\n"
        f"sys.argv = ['tidelog', 'up', '--dir', {str(directory)!r}, '-n', '1', '--console']\n"
        "main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode != 0
    assert "the console needs uvicorn: pip install " in ended.stderr
    assert not directory.exists()
