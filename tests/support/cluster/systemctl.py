"""What tests have in the place of systemd: `systemctl` for one unit on one host of `hosts`.

It starts the command of the unit, waits for its report that it has started, and stops it by
SIGTERM. The host's directory is `TIDELOG_TEST_HOST`.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

_PATIENCE_S = 120.0
_HOST = Path(os.environ["TIDELOG_TEST_HOST"])


def assignments(name: str) -> dict[str, str]:
    """Return what the unit of this name assigns."""
    text = (_HOST / "etc/systemd/system" / f"{name}.service").read_text()
    lines = [line for line in text.splitlines() if line and line[0] not in "#["]
    return dict(line.split("=", 1) for line in lines)


def pid_file() -> Path:
    """Return where the process id of the unit is kept between two commands."""
    return _HOST / "unit.pid"


def start(name: str) -> None:
    """Start a unit of `Type=notify`; return when it reports that it has started."""
    unit = assignments(name)
    assert unit["Type"] == "notify", unit
    command = [
        word.replace("%%", "%").replace("$$", "$") for word in shlex.split(unit["ExecStart"])
    ]
    address = _HOST / "notify"
    address.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(_PATIENCE_S)
        with open(_HOST / "unit.log", "ab") as log:
            process = subprocess.Popen(
                command,
                env={**os.environ, "NOTIFY_SOCKET": str(address)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        pid_file().write_text(str(process.pid))
        while "READY=1" not in manager.recv(4096).decode().splitlines():
            pass


def stop() -> None:
    """Stop the unit by SIGTERM; return when its process has ended."""
    pid = int(pid_file().read_text())
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE_S
    while is_running(pid):
        assert time.monotonic() < deadline, f"{pid} does not stop"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def main(words: list[str]) -> None:
    """Obey the words after `systemctl`."""
    match words:
        case ["daemon-reload"]:
            pass
        case ["start", name] | ["enable", "--now", name]:
            start(name)
        case ["restart", name]:
            stop()
            start(name)
        case _:
            sys.exit(f"systemctl of this test does not know {words}")


if __name__ == "__main__":
    main(sys.argv[1:])
