"""Programs of franz-go and Sarama, which Go builds with the sums of their go.sum."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.clients.absent import Absent

HERE = Path(__file__).resolve().parent / "franz"
CACHE = Path(sys.prefix) / "clients"
_BUILD_LIMIT_S = 240
#: What Go says when the module proxy cannot be asked, and no more than that is excused.
_UNREACHABLE = re.compile(r"dial tcp|no such host|connection refused|i/o timeout|lookup disabled")


def program(source: Path = HERE) -> Path:
    """The program of a directory, built when its sources have changed; raises Absent."""
    if shutil.which("go") is None:
        raise Absent("no Go on this machine")
    sources = [source / name for name in ("go.mod", "go.sum", "main.go")]
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:16]
    built = CACHE / f"franz-{digest}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "franz.busy", "w", encoding="utf-8") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        if not built.exists():
            _build(source, built)
    return built


def _build(source: Path, into: Path) -> None:
    words = ["go", "build", "-mod=readonly", "-buildvcs=false", "-o", str(into), "."]
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    try:
        ended = subprocess.run(
            words,
            cwd=source,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_BUILD_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Absent(f"Go did not build it within {_BUILD_LIMIT_S} s") from None
    if ended.returncode != 0:
        if "requires go >=" in ended.stderr:
            raise Absent("this machine's Go is older than go.mod asks for")
        if _UNREACHABLE.search(ended.stderr):
            raise Absent("Go could not fetch it: its module proxy cannot be reached")
        raise AssertionError(ended.stderr)
