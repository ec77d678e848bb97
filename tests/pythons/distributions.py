"""Builds of the archive of sources and of wheels, without a network."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BUILD_S = 300
#: hatchling's command in an interpreter that opens no connection and looks up no name.
_OFFLINE = """
import sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        raise OSError(f"the build asks the network: {event} {arguments[1:]}")

sys.addaudithook(refuse)
from hatchling.cli import hatchling
sys.exit(hatchling())
"""


def build(
    root: Path, target: str, into: Path, python: str = sys.executable, **variables: str
) -> Path:
    """Build `sdist` or `wheel` of a directory of sources; return the file."""
    environment = {key: value for key, value in os.environ.items() if key != "TIDELOG_NO_EXTENSION"}
    done = subprocess.run(
        [python, "-c", _OFFLINE, "build", "-t", target, "-d", str(into)],
        cwd=root,
        env={**environment, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_BUILD_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    [file] = into.iterdir()
    return file


def has_compiler() -> bool:
    """Whether the compiler that a build would call is there."""
    words = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    return shutil.which(words[0]) is not None
