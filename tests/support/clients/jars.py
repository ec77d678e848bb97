"""Jars of Kafka, Delta, Iceberg and Spark's connector: fetched by Maven, checked by a lock file.

They go to `.venv/clients/`, once; nothing of them is part of the project. A machine without Java,
Maven or a reachable registry raises Absent; a jar that differs from the lock file is an error.
`python -m tests.support.clients.jars kafka 3.9.2` writes the lock file of a version.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.clients.absent import Absent

#: What Maven is asked for, the lock files, and the client in Java.
HERE = Path(__file__).resolve().parent / "java"
CACHE = Path(sys.prefix) / "clients"
KAFKA = ("3.9.2", "4.3.1")
_FETCH_LIMIT_S = 300


def jars_of_kafka(version: str) -> Path:
    """The directory of the jars of a version of Kafka; raises Absent."""
    return jars(f"kafka-{version}", HERE / "kafka.xml", version)


def jars_of_spark(version: str) -> Path:
    """The directory of the jars of Spark's Kafka connector; raises Absent."""
    return jars(f"spark-{version}", HERE / "spark.xml", version)


def jars_of_delta(version: str) -> Path:
    """The directory of Delta's jars for Spark; raises Absent."""
    return jars(f"delta-{version}", HERE / "delta.xml", version)


def jars_of_iceberg(version: str) -> Path:
    """The directory of Iceberg's REST catalog; raises Absent."""
    return jars(f"iceberg-{version}", HERE / "iceberg.xml", version)


def jars(name: str, pom: Path, version: str) -> Path:
    """The directory that holds what a pom asks for, fetched if need be, checked in any case."""
    if shutil.which("java") is None:
        raise Absent("no Java on this machine")
    lock = _read_lock(pom.parent / f"{name}.lock")
    wanted = CACHE / name
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.busy", "w", encoding="utf-8") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        if not wanted.is_dir():
            fetched = wanted.with_suffix(".part")
            shutil.rmtree(fetched, ignore_errors=True)
            _fetch(pom, version, fetched)
            fetched.rename(wanted)
    found = _sums(wanted)
    assert found == lock, (
        f"{wanted} is not what {name}.lock says:"
        f" {sorted(dict(found.items() ^ lock.items()))}: remove it to fetch it again"
    )
    return wanted


def compiled(source: Path, classpath: Path) -> Path:
    """The directory of the classes of one source, compiled against a directory of jars."""
    if shutil.which("javac") is None:
        raise Absent("no Java compiler on this machine")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    into = CACHE / f"{classpath.name}-{source.stem}-{digest}"
    if not into.is_dir():
        part = into.with_suffix(".part")
        words = ["javac", "-nowarn", "-cp", f"{classpath}/*", "-d", str(part), str(source)]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == 0, ended.stderr
        part.rename(into)
    return into


def pyspark(version: str) -> Path:
    """A directory for PYTHONPATH with a version of PySpark beside the installed one; or Absent."""
    wanted = CACHE / f"pyspark-{version}"
    if not wanted.is_dir():
        part = wanted.with_suffix(".part")
        words = ["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
        ended = subprocess.run(
            [sys.executable, *words, "--target", str(part), f"pyspark=={version}"],
            capture_output=True,
            text=True,
            timeout=_FETCH_LIMIT_S,
            check=False,
        )
        if ended.returncode != 0:
            shutil.rmtree(part, ignore_errors=True)
            raise Absent(f"PySpark {version} could not be installed: {ended.stderr[-200:]}")
        part.rename(wanted)
    return wanted


def _fetch(pom: Path, version: str, into: Path) -> None:
    if shutil.which("mvn") is None:
        raise Absent("no Maven on this machine, which fetches the jars")
    words = ["mvn", "-q", "-B", "-f", str(pom), f"-Dwanted={version}", f"-Dinto={into}"]
    words += [f"-Dmaven.repo.local={CACHE / 'maven'}", "dependency:copy-dependencies"]
    try:
        ended = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=_FETCH_LIMIT_S,
            check=False,
            cwd=CACHE,
            env={**os.environ, "MAVEN_OPTS": "-XX:TieredStopAtLevel=1"},
        )
    except subprocess.TimeoutExpired:
        raise Absent(f"Maven did not fetch the jars within {_FETCH_LIMIT_S} s") from None
    if ended.returncode != 0:
        shutil.rmtree(into, ignore_errors=True)
        raise Absent("Maven could not fetch the jars: its registry cannot be reached")


def _sums(directory: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.glob("*.jar"))
    }


def _read_lock(path: Path) -> dict[str, str]:
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        digest, name = line.split()
        found[name] = digest
    return found


def write_lock(path: Path, sums: Mapping[str, str]) -> None:
    """One jar a line: its SHA-256 and its name."""
    lines = [f"{digest}  {name}\n" for name, digest in sums.items()]
    path.write_text("".join(lines), encoding="utf-8")


def main(what: str, version: str) -> None:
    """Fetch a version of "kafka", "spark", "delta" or "iceberg" and write down what came."""
    pom = f"{what}.xml"
    into = CACHE / "to-be-locked"
    shutil.rmtree(into, ignore_errors=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    _fetch(HERE / pom, version, into)
    write_lock(HERE / f"{what}-{version}.lock", _sums(into))
    shutil.rmtree(into)


if __name__ == "__main__":
    main(*sys.argv[1:])
