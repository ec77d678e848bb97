"""Small file systems for log directories, which can be filled; root only.

They are mounted in a mount namespace of this process and its children alone: the program starts
itself a second time under `unshare --mount`, and the kernel unmounts when the last process ends.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

#: Names the namespace that was made already.
_INSIDE = "CHAOS_OF_TIDELOG_HAS_MOUNTS"
SIZE_MIB = 192
_FILLER = "filler-of-the-chaos"
_BLOCK = bytes(1024 * 1024)


def can_mount() -> bool:
    """Return whether this process may mount file systems in a namespace of its own."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    with tempfile.TemporaryDirectory() as directory:
        words = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=1m", "none", directory]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0


def enter_namespace(words: Sequence[str]) -> bool:
    """Start the program a second time where it may mount; returns whether it may by now."""
    is_inside = bool(os.environ.get(_INSIDE))
    if is_inside or not can_mount():
        return is_inside
    os.environ[_INSIDE] = "yes"
    return os.execvp(
        "unshare", ["unshare", "-m", sys.executable, "-m", "tests.support.chaos", *words]
    )


class SmallDisk:
    """A file system of its own for one log directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        options = f"size={SIZE_MIB}m"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", directory], check=True)

    def fill(self) -> None:
        """Take all room that there is."""
        descriptor = os.open(self.directory / _FILLER, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        size = len(_BLOCK)
        try:
            while size:
                try:
                    os.write(descriptor, _BLOCK[:size])
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2
        finally:
            os.close(descriptor)

    def empty(self) -> None:
        """Give the room back."""
        (self.directory / _FILLER).unlink(missing_ok=True)

    def keep(self, where: Path) -> None:
        """Copy what it holds to another disk: the kernel drops this one with its processes."""
        shutil.copytree(self.directory, where, ignore=shutil.ignore_patterns(_FILLER))
