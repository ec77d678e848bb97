"""The command line's Spark jobs, as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_LIMIT_S = 300
#: A job of a few seconds ends before the second compiler has paid for itself.
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def pipeline(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `tidelog pipeline`."""
    return subprocess.run(
        [sys.executable, "-m", "tidelog", "pipeline", *words],
        cwd=cwd,
        env={**os.environ, "JAVA_TOOL_OPTIONS": _QUICK_JAVA},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
