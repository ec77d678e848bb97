"""A disk whose reads of segments are slow on demand, for one broker (`slow_reads.c`)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("slow_reads.c")


def compiled(directory: Path) -> Path | None:
    """Return the library to preload, compiled into this directory; None without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = directory / "slow_reads.so"
    subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"], check=True
    )
    return library


class SlowReads:
    """The reads below one directory, for processes with `environment`."""

    def __init__(self, library: Path, directory: str, flag: Path) -> None:
        self._flag = flag
        self._marks = Path(f"{flag}.reads")
        self.environment = {
            "LD_PRELOAD": str(library),
            "TIDELOG_SLOW_FLAG": str(flag),
            "TIDELOG_SLOW_DIR": directory,
        }

    def begin(self, delay_ms: int) -> None:
        """Let each read take this long from now on."""
        self._flag.write_text(str(delay_ms), encoding="ascii")

    def end(self) -> None:
        """Let reads be quick again, those under way too."""
        self._flag.unlink(missing_ok=True)

    @property
    def begun(self) -> int:
        """The number of slow reads that have begun."""
        return self._count(b"b")

    @property
    def done(self) -> int:
        """The number of slow reads that are done."""
        return self._count(b"e")

    def _count(self, mark: bytes) -> int:
        return self._marks.read_bytes().count(mark) if self._marks.exists() else 0
