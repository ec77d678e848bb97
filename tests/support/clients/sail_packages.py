"""Sail and the client of PySpark that it knows, fetched by pip as the lock file says.

Sail's server refuses another PySpark than 4.2 at most, and the tests' own is newer. So both
packages are in a directory of their own, `.venv/clients/sail-<digest>`, which goes before the
tests' packages. All else that they need is among those.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.clients.absent import Absent

LOCK = Path(__file__).resolve().parent / "python" / "sail.lock"
CACHE = Path(sys.prefix) / "clients"
_FETCH_LIMIT_S = 180


def packages() -> Path:
    """The directory of the packages, which pip checks against the hashes of the lock file; raises
    Absent."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]
    wanted = CACHE / f"sail-{digest}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "sail.busy", "w", encoding="utf-8") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        if not wanted.is_dir():
            part = wanted.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            words = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
            words += ["--no-deps", "--no-build-isolation", "--require-hashes", "--no-compile"]
            words += ["--target", str(part), "-r", str(LOCK)]
            try:
                ended = subprocess.run(
                    words, capture_output=True, text=True, timeout=_FETCH_LIMIT_S, check=False
                )
            except subprocess.TimeoutExpired:
                raise Absent(f"pip did not fetch Sail within {_FETCH_LIMIT_S} s") from None
            if ended.returncode != 0:
                assert "DO NOT MATCH THE HASHES" not in ended.stderr, ended.stderr
                raise Absent("pip could not fetch Sail: the registry cannot be reached")
            part.rename(wanted)
    return wanted
