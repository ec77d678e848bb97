"""A standalone Spark cluster: one master and two workers, each a process on 127.0.0.1.

The executors' Python is a virtual environment that has EXECUTOR_PACKAGES, and not tidelog. An
executor of a worker is its child, so a group of processes per worker ends with the block.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import sysconfig
import threading
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pyspark
from packaging.requirements import Requirement
from tests.support.class_archives import QUICK, SPARK, options_of

import tidelog
from tidelog.spark.jvm import find_jvm
from tidelog.spark.shipping import EXECUTOR_PACKAGES

_SPARK_HOME = Path(pyspark.__file__).parent
_JAVA = ("-Xmx256m", *QUICK, *options_of(SPARK))
_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Registering worker ")
_START_S = 60
_END_S = 10
_SUBMITTED_S = 240
WORKERS = 2


@dataclass(frozen=True, slots=True)
class Standalone:
    """A running cluster."""

    url: str
    #: A Python that has EXECUTOR_PACKAGES, and not tidelog.
    python: str
    environment: dict[str, str]
    #: Executors log below it: <application>/<executor>/stderr.
    work: Path

    def submit(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `spark-submit` to its end, with more variables for the driver; nothing stays."""
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": " ".join(QUICK),
            "spark.executor.extraJavaOptions": " ".join((*QUICK, *options_of(SPARK))),
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.task.maxFailures": "1",
            # Both executors are there before the first task.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.pyspark.python": self.python,
            "spark.log.level": "ERROR",
        }
        confs = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        running = subprocess.Popen(
            [str(_SPARK_HOME / "bin" / "spark-submit"), "--master", self.url, *confs, *words],
            env={**self.environment, **variables},
            cwd=self.work,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            out, _ = running.communicate(timeout=_SUBMITTED_S)
        finally:
            _end_group(running)
            assert running.stdout is not None
            running.stdout.close()
        return subprocess.CompletedProcess(words, running.returncode, out)


def _scala_version() -> str:
    (core,) = (_SPARK_HOME / "jars").glob("spark-core_*.jar")
    return core.name.removeprefix("spark-core_").partition("-")[0]


def bare_python(scratch: Path) -> str:
    """Make a virtual environment of EXECUTOR_PACKAGES and what they require, and nothing else."""
    home = scratch / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    here = Path(sysconfig.get_path("purelib"))
    left, seen = [*EXECUTOR_PACKAGES], set[str]()
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        installed = distribution(name)
        required = [Requirement(each) for each in installed.requires or ()]
        left += [each.name for each in required if each.marker is None or each.marker.evaluate()]
        tops = {file.parts[0] for file in installed.files or () if file.parts[0] != ".."}
        for top in tops - {"__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(here / top)
    return str(home / "bin" / "python")


def zipped_code(path: Path) -> Path:
    """Write tidelog's Python modules to a zip file, without compiled extensions."""
    source = Path(tidelog.__file__).parent.parent
    with zipfile.ZipFile(path, "w") as archive:
        for package in ("tidelog", "pyspark_tidelog"):
            for module in sorted((source / package).rglob("*.py")):
                archive.write(module, module.relative_to(source))
    return path


@contextlib.contextmanager
def standalone(scratch: Path) -> Iterator[Standalone]:
    """Run a master and two workers with one core each; nothing of them outlives the block."""
    java_home = find_jvm().java_home
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "SPARK_CONF_DIR")
    } | {
        "JAVA_HOME": java_home,
        "SPARK_HOME": str(_SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Spark's start scripts find it in the names of the jars; workers need it to run executors.
        "SPARK_SCALA_VERSION": _scala_version(),
    }
    work = scratch / "work"
    work.mkdir()
    deploy = [f"{java_home}/bin/java", *_JAVA, "-cp", f"{_SPARK_HOME}/jars/*"]
    local = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with contextlib.ExitStack() as stack:
        lines = stack.enter_context(
            _logged([*deploy, "org.apache.spark.deploy.master.Master", *local], environment)
        )
        url = _awaited(lines, _URL).group(1)
        for number in range(WORKERS):
            directory = str(work / str(number))
            size = ("--cores", "1", "--memory", "512m", "--work-dir", directory)
            stack.enter_context(
                _logged(
                    [*deploy, "org.apache.spark.deploy.worker.Worker", *local, *size, url],
                    environment,
                )
            )
        for _ in range(WORKERS):
            _awaited(lines, _REGISTERED)
        yield Standalone(url, bare_python(scratch), environment, work)


@contextlib.contextmanager
def _logged(
    words: Sequence[str], environment: dict[str, str]
) -> Iterator[queue.SimpleQueue[str | None]]:
    """Run a process in a group of its own; its log comes as lines, and None at its end."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    running = subprocess.Popen(
        words, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )

    def read() -> None:
        assert running.stderr is not None
        for line in running.stderr:
            lines.put(line)
        lines.put(None)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield lines
    finally:
        _end_group(running)
        reader.join()
        assert running.stderr is not None
        running.stderr.close()


def _awaited(lines: queue.SimpleQueue[str | None], pattern: re.Pattern[str]) -> re.Match[str]:
    seen: list[str] = []
    while (line := lines.get(timeout=_START_S)) is not None:
        seen.append(line)
        if found := pattern.search(line):
            return found
    raise AssertionError(f"ended before {pattern.pattern!r}:\n{''.join(seen)}")


def _end_group(running: subprocess.Popen[str]) -> None:
    """End a process, which ends its executors; kill what is left of its group."""
    running.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.wait(_END_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()
