"""Python packages beside the tests' own, fetched by pip as a lock file says.

`sail` is Sail and the client of PySpark that it knows: its server refuses another PySpark than 4.2
at most, and the tests' own is newer. `recipes` are the frameworks of docs/guide/testing-recipes.md.
Each is in a directory of its own, `.venv/clients/<name>-<digest>`, which goes before the tests'
packages. All else that they need is among those.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.clients.absent import Absent

_LOCKS = Path(__file__).resolve().parent / "python"
CACHE = Path(sys.prefix) / "clients"
_FETCH_LIMIT_S = 180


def packages(name: str) -> Path:
    """The directory of the packages, which pip checks against the hashes of the lock file; raises
    Absent."""
    lock = _LOCKS / f"{name}.lock"
    wanted = CACHE / f"{name}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.busy", "w", encoding="utf-8") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        if not wanted.is_dir():
            part = wanted.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            words = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
            words += ["--no-deps", "--no-build-isolation", "--require-hashes", "--no-compile"]
            words += ["--target", str(part), "-r", str(lock)]
            try:
                ended = subprocess.run(
                    words, capture_output=True, text=True, timeout=_FETCH_LIMIT_S, check=False
                )
            except subprocess.TimeoutExpired:
                raise Absent(f"pip did not fetch {name} within {_FETCH_LIMIT_S} s") from None
            if ended.returncode != 0:
                assert "DO NOT MATCH THE HASHES" not in ended.stderr, ended.stderr
                raise Absent(f"pip could not fetch {name}: the registry cannot be reached")
            part.rename(wanted)
    return wanted
