"""Copies of the checkout outside of it: one as it is, and one with a mutant in it.

Judges run in a copy as their current directory, with its `src` first on PYTHONPATH, so that a
mutant is never in a file of the checkout. The copy of a mutant keeps its compiled modules. Python
takes a compiled module whose source has the time and the size that it remembers, and many a mutant
has the size of another. So each change gets a time of its own, which no earlier one had.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from tests.mutation.drawing import DrawnMutant
from tests.support.mutants.lines import ROOT

#: What types, tests and simulator need of a checkout.
COPIED: Final = ("src", "tests", "docs", "examples", "bench", "pyproject.toml")
_LEFT_OUT: Final = shutil.ignore_patterns("__pycache__", "*.pyc", ".hypothesis", "*_cache")


class MutatedTree:
    """A copy of the checkout that has one mutant at a time."""

    def __init__(self, root: Path, checkout: Path = ROOT) -> None:
        """Copy a checkout into a directory that does not exist yet."""
        self.root = root
        self._changed: tuple[Path, str, float] | None = None
        self._changes = 0
        root.mkdir(parents=True)
        for name in COPIED:
            if (checkout / name).is_dir():
                shutil.copytree(checkout / name, root / name, ignore=_LEFT_OUT)
            elif (checkout / name).exists():
                shutil.copy2(checkout / name, root / name)

    def put(self, mutant: DrawnMutant) -> None:
        """Put a mutant into the copy, in place of the one before."""
        self.restore()
        path = self.root / "src" / mutant.file
        text, time_s = path.read_text(encoding="utf-8"), path.stat().st_mtime
        self._changed = path, text, time_s
        self._write(path, mutant.applied(text))
        self._changes += 1
        later_s = int(time_s) + self._changes
        os.utime(path, (later_s, later_s))

    def restore(self) -> None:
        """Take the mutant out of the copy again."""
        if self._changed is not None:
            path, text, time_s = self._changed
            self._write(path, text)
            os.utime(path, (time_s, time_s))
            self._changed = None

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def environment(self) -> dict[str, str]:
        """Return the variables of a process that runs the code of this copy."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TIDELOG"))}
        path = os.pathsep.join((str(self.root / "src"), str(self.root)))
        return {**kept, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
