"""Archives of the Java classes that Spark, Kafka's broker and ZooKeeper load in tests.

A JVM that lives for a minute spends most of its CPU time on loading and verifying classes. Java can
keep the loaded classes in an archive, and another JVM with the same jars maps that file instead.
`python -m tests.archived_programs` makes the archives that are missing, once for a virtual
environment and its Java. `install` lets the JVMs of a test run use them. A test runs the same
without its archive, in more time. Java ignores an archive that does not fit.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
from pathlib import Path

from tests.support.clients.jars import CACHE, KAFKA

SPARK, BROKER, ZOOKEEPER = "spark", "kafka-broker", "zookeeper"
#: Java options, as Spark's launcher and local ZooKeeper servers read them.
SPARK_VARIABLE, ZOOKEEPER_VARIABLE = "SPARK_SUBMIT_OPTS", "SERVER_JVMFLAGS"
#: Of a JVM that ends before the second compiler has paid for itself.
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
#: What Java has to say of its archives would be taken for a program's output.
SILENT = ("-Xlog:disable", "-Xlog:all=off")


def install() -> None:
    """Set the Java options of Spark's drivers and of local ZooKeeper servers."""
    options = {
        SPARK_VARIABLE: options_of(SPARK),
        ZOOKEEPER_VARIABLE: (*QUICK, *options_of(ZOOKEEPER)),
    }
    for variable, words in options.items():
        if words and variable not in os.environ:
            os.environ[variable] = " ".join(words)


def options_of(name: str) -> tuple[str, ...]:
    """The options of a JVM that uses an archive; none where it has not been made."""
    path = path_of(name)
    if path is None or not path.exists():
        return ()
    return (f"-XX:SharedArchiveFile={path}", *SILENT)


def path_of(name: str) -> Path | None:
    """The file of an archive, named after what its classes come from; None without jars or Java."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home and name != BROKER else shutil.which("java")
    jars = _jars(name)
    if java is None or jars is None or not jars.is_dir():
        return None
    modules = Path(java).resolve().parents[1] / "lib" / "modules"
    files = [modules, *sorted(jars.glob("*.jar"))]
    with contextlib.suppress(FileNotFoundError):
        # Java compares the time and the size of each jar with those that the archive has.
        facts = [f"{file} {(told := file.stat()).st_size} {told.st_mtime_ns}" for file in files]
        digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
        return CACHE / f"classes-{name}-{digest}.jsa"
    return None


def _jars(name: str) -> Path | None:
    if name == BROKER:
        return CACHE / f"kafka-{KAFKA[0]}"
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "jars"
