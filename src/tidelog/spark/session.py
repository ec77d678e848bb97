"""A local Spark session that needs no preparation: it finds Java and sets the source's settings.

The user's own session works as well; the session of this module is for the command line, the demo
and tests. `quick` is for short sessions: the C1 compiler and the serial collector halve the start
time and make long runs slower.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tidelog.spark.jvm import Jvm, find_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Time in seconds in which Java must end after its standard input is closed.
_JAVA_END_S: Final = 15
_DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    # The driver listens on the loopback interface only, because all workers are on this machine.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
}


def start_session(
    name: str,
    *,
    cores: int = 2,
    memory: str = "1g",
    quick: bool = False,
    log_path: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a local session with `cores` workers; `conf` overrides the settings of the session.

    With `log_path`, Java's standard error goes to that file. Raises NoJavaError. An existing
    session is returned unchanged.
    """
    jvm = find_jvm()
    settings = dict(_DEFAULTS)
    if quick:
        settings["spark.driver.extraJavaOptions"] = _QUICK_JAVA
    settings["spark.driver.memory"] = memory
    settings.update(conf or {})
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _environment(jvm), _standard_error_to(log_path):
        return builder.getOrCreate()


def stop_session(spark: SparkSession, java_end_s: float = _JAVA_END_S) -> None:
    """Stop a session and wait until its Java process is gone; another session can then start.

    A Java process that has not ended within `java_end_s` seconds is killed.
    """
    from pyspark import SparkContext

    spark.stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = None
    SparkContext._jvm = None
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        try:
            process.wait(java_end_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _environment(jvm: Jvm) -> Iterator[None]:
    """Set JAVA_HOME for Spark's launcher, and this Python for Spark's workers."""
    wanted = {"JAVA_HOME": jvm.java_home, "PYSPARK_PYTHON": sys.executable}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ["JAVA_HOME"] = jvm.java_home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _standard_error_to(path: str | None) -> Iterator[None]:
    """Send the standard error of child processes that start in this context to a file."""
    if path is None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(target, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)
