"""Apache's Java client, two versions of it, in a JVM of its own (java/Worker.java)."""

from __future__ import annotations

from functools import partial

from tests.clients.matrix.worker import Program, WorkerDriver
from tests.support.clients.jars import CACHE, HERE, compiled, jars_of_kafka


def _make(version: str, bootstrap: str) -> WorkerDriver:
    jars = jars_of_kafka(version)
    classes = compiled(HERE / "Worker.java", jars)
    # A short life on few cores: no second compiler, no parallel collector.
    words = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    words += ["-cp", f"{classes}:{jars}/*", "Worker"]
    return WorkerDriver(Program(words, HERE, CACHE / f"java-{version}.log"), bootstrap)


java_3 = partial(_make, "3.9.2")
java_4 = partial(_make, "4.3.1")
