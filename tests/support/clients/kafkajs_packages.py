"""kafkajs with what it needs, fetched by npm as the lock file says (kafkajs/package-lock.json)."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.clients.absent import Absent

HERE = Path(__file__).resolve().parent / "kafkajs"
CACHE = Path(sys.prefix) / "clients" / "kafkajs"
_FETCH_LIMIT_S = 120


def packages() -> Path:
    """The directory of the packages, which npm checks against the hashes of the lock file; raises
    Absent."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise Absent("no Node with npm on this machine")
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "busy", "w", encoding="utf-8") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        lock = (HERE / "package-lock.json").read_bytes()
        done = CACHE / "package-lock.json.done"
        if not done.exists() or done.read_bytes() != lock:
            for name in ("package.json", "package-lock.json"):
                shutil.copy(HERE / name, CACHE / name)
            words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            try:
                ended = subprocess.run(
                    words, cwd=CACHE, capture_output=True, timeout=_FETCH_LIMIT_S, check=False
                )
            except subprocess.TimeoutExpired:
                raise Absent(f"npm did not fetch it within {_FETCH_LIMIT_S} s") from None
            if ended.returncode != 0:
                assert b"EINTEGRITY" not in ended.stderr, ended.stderr.decode(errors="replace")
                raise Absent("npm could not fetch it: its registry cannot be reached")
            done.write_bytes(lock)
    return CACHE / "node_modules"
