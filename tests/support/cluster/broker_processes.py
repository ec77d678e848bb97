"""Real Kafka 3.9 brokers in ZooKeeper mode, and brokers of ours beside them, as processes.

Kafka's run from the jars that `tests.support.clients.jars` fetches; where there is no Java, no
Maven or no registry the test is skipped, with that reason. All of them end with this program.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.support.class_archives import BROKER, QUICK, options_of
from tests.support.clients.absent import Absent
from tests.support.clients.jars import KAFKA, jars_of_kafka

from tidelog.core.errors import TidelogError
from tidelog.local.ports import LOOPBACK
from tidelog.local.processes import ProcessIdentity, from_lasting_thread
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.parent import LAUNCHER

VERSION = KAFKA[0]
START_S = 180.0
_POLL_S = 0.05
#: Small and quick to start: these brokers live for a minute or two.
_JAVA = ("-Xmx256m", *QUICK)
#: These brokers report their failures in their logs.
_LOG4J = """log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def require_kafka() -> Path:
    """The directory of the jars; skips the test, with the reason, where they cannot be had."""
    try:
        return jars_of_kafka(VERSION)
    except Absent as absent:
        pytest.skip(f"no Kafka {VERSION}: {absent}")


class BrokerProcess:
    """A broker on a directory of its own: `data` are its logs, `log` is what it wrote."""

    def __init__(self, directory: Path, broker_id: int, port: int, keys: Mapping[str, str]) -> None:
        """`keys` are lines of its server.properties beside id, listener and log directory."""
        self.broker_id = broker_id
        self.address = f"{LOOPBACK}:{port}"
        self.data = directory / "data"
        self.log = directory / "broker.log"
        self.properties = directory / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)
        lines = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self.data),
            **keys,
        }
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    def words(self) -> Sequence[str]:
        """The command line."""
        raise NotImplementedError

    def spawn(self) -> None:
        """Start the process and do not wait."""
        words = [sys.executable, "-c", LAUNCHER, str(os.getpid()), *self.words()]

        def start() -> subprocess.Popen[bytes]:
            with open(self.log, "ab") as log:
                return subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.properties.parent,
                    start_new_session=True,
                )

        self._process = from_lasting_thread(start)

    def await_up(self) -> None:
        """Wait until it is registered and answers."""
        deadline = time.monotonic() + START_S
        while True:
            assert self._process is not None and self._process.poll() is None, self.last_lines()
            try:
                with BlockingClient(self.address, timeout_ms=2_000) as client:
                    if self.broker_id in client.metadata().brokers:
                        return
            except TidelogError:
                pass
            assert time.monotonic() < deadline, self.last_lines()
            time.sleep(_POLL_S)

    def start(self) -> None:
        """Start it, and return when it is registered and answers."""
        self.spawn()
        self.await_up()

    def send(self, number: signal.Signals) -> None:
        """Signal the process, which must be alive."""
        assert self._process is not None
        identity = ProcessIdentity.of(self._process.pid)
        assert identity is not None and identity.send(number), self.last_lines()

    def pid(self) -> int:
        """Of the process, which must be alive."""
        assert self._process is not None and self._process.poll() is None, self.last_lines()
        return self._process.pid

    def pause(self) -> None:
        """SIGSTOP."""
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.send(signal.SIGCONT)

    def stop(self, timeout_s: float = 60.0) -> None:
        """SIGTERM: a controlled shutdown; AssertionError where it does not end."""
        self.send(signal.SIGTERM)
        assert self._process is not None
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"does not end: {self.last_lines()}") from None

    def kill(self) -> None:
        """SIGKILL; safe to repeat."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wrote(self) -> str:
        """All that it wrote to its log, in all its lives."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def last_lines(self) -> str:
        """The end of what it wrote."""
        return f"broker {self.broker_id}: {self.wrote()[-4000:] or 'it wrote nothing'}"


class KafkaBroker(BrokerProcess):
    """One of Kafka's, with its metadata in ZooKeeper: `host:port` or `host:port/chroot`."""

    def __init__(
        self,
        directory: Path,
        broker_id: int,
        port: int,
        zookeeper: str,
        keys: Mapping[str, str],
        java: Sequence[str] | None = None,
    ) -> None:
        """`java` are further options of its Java; by default it uses the archive of its classes."""
        self._jars = require_kafka()
        self._java = options_of(BROKER) if java is None else java
        ours = {"zookeeper.connect": zookeeper, "inter.broker.protocol.version": "3.9"}
        super().__init__(directory, broker_id, port, {**ours, **keys})
        self._log4j = directory / "log4j.properties"
        self._log4j.write_text(_LOG4J)

    def words(self) -> Sequence[str]:
        """The command line of its start script, without the script."""
        logging = f"-Dlog4j.configuration=file:{self._log4j}"
        classes = ("-cp", f"{self._jars}/*", "kafka.Kafka")
        return ["java", *_JAVA, *self._java, logging, *classes, str(self.properties)]


class OurBroker(BrokerProcess):
    """One of ours, with its metadata in the same ZooKeeper."""

    def __init__(
        self, directory: Path, broker_id: int, port: int, zookeeper: str, keys: Mapping[str, str]
    ) -> None:
        super().__init__(
            directory, broker_id, port, {"metadata.store": f"zookeeper://{zookeeper}", **keys}
        )

    def words(self) -> Sequence[str]:
        """A broker in the foreground."""
        return [sys.executable, "-m", "tidelog.runtime.main", "--config", str(self.properties)]
