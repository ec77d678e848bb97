"""A directory whose writes hang on demand, for one broker (`hang_writes.c`)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("hang_writes.c")


def compiled(directory: Path) -> Path | None:
    """Return the library to preload, compiled into this directory; None without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = directory / "hang_writes.so"
    subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"], check=True
    )
    return library


class HangingWrites:
    """The writes below one directory, for processes with `environment`."""

    def __init__(self, library: Path, directory: str, flag: Path) -> None:
        self._flag = flag
        self.directory = directory
        self.environment = {
            "LD_PRELOAD": str(library),
            "TIDELOG_HANG_FLAG": str(flag),
            "TIDELOG_HANG_DIR": directory,
        }

    def begin(self) -> None:
        """Let no write end from now on."""
        self._flag.touch()

    def end(self) -> None:
        """Let all writes end."""
        self._flag.unlink(missing_ok=True)
