"""A ZooKeeper server of this machine, as a background process on a directory.

The server consists of five jars of PySpark's package, so nothing is downloaded. The directory of a
server has `zoo.cfg`, `data/`, `zookeeper.log`, and `zookeeper.pid` with process id and start time.
The module serves tests, trials and small clusters, with one server or a small ensemble.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidelog.core.dataclass import dataclass
from tidelog.local.errors import LocalClusterError
from tidelog.local.java import find_java
from tidelog.local.ports import LOOPBACK
from tidelog.local.processes import ProcessIdentity, replace_file, start_process
from tidelog.runtime.extras import install_command
from tidelog.runtime.parent import LAUNCHER

#: The oldest Java version for the jars in PySpark, although ZooKeeper 3.9 itself runs on Java 8.
_OLDEST_JAVA = 11
#: Prefixes of the jars that a ZooKeeper server needs; without snappy-java, the server does not
#: serve clients.
_JARS = ("zookeeper-3", "zookeeper-jute-", "slf4j-api-", "metrics-core-", "snappy-java-")
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
#: Tick in ms; the minimum session timeout is two ticks, and local brokers request 6 s.
_TICK_MS = 500
#: Default maximum heap of the server in MiB, enough for about 50,000 partitions.
_HEAP_MIB = 256
#: Option of Java that ends a server without memory, with the reason in its log. Without the option,
#: such a server would stay alive without serving.
_OUT_OF_MEMORY = "-XX:+ExitOnOutOfMemoryError"
#: Environment variable with further options of the server's Java, as for ZooKeeper's own start
#: script (zkServer.sh).
_FLAGS = "SERVER_JVMFLAGS"
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class EnsembleServer:
    """One server of an ensemble: its number and its two ports for the other servers."""

    number: int
    peer_port: int
    election_port: int


class LocalZookeeper:
    """One ZooKeeper server, which runs on one directory.

    Methods raise LocalClusterError with a message for people.
    """

    def __init__(
        self,
        directory: str,
        port: int,
        *,
        settings: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        jars: Sequence[str] = (),
        ensemble: Sequence[EnsembleServer] = (),
        number: int = 0,
        heap_mib: int = _HEAP_MIB,
        end_with_program: bool = False,
    ) -> None:
        """Prepare a server, which `start` or `spawn` starts.

        `settings` are further lines of zoo.cfg. `properties` are Java properties of the server.
        `jars` are prefixes of further jars of PySpark (TLS needs netty). In an ensemble `number` is
        the number of this member. `heap_mib` is the maximum heap of the server in MiB. The heap
        contains all znodes; 100,000 partitions with three replicas each need 512 MiB.
        """
        self.directory = os.path.abspath(directory)
        self.port = port
        self._settings = dict(settings or {})
        self._properties = dict(properties or {})
        self._jars = tuple(jars)
        self._ensemble = tuple(ensemble)
        self._number = number
        self._heap_mib = heap_mib
        self._end_with_program = end_with_program
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The server's `host:port` for clients."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def process(self) -> ProcessIdentity | None:
        """The live process; None if the server does not run."""
        if self._child is not None and self._child.poll() is not None:
            self._child = None
        identity = ProcessIdentity.read(self._path("zookeeper.pid"))
        return identity if identity is not None and identity.is_alive else None

    def start(self, timeout_s: float = 30.0) -> None:
        """Start the server unless it runs, and return when it serves."""
        self.spawn()
        self.await_serving(timeout_s)

    def spawn(self) -> None:
        """Start the server, and do not wait until it serves.

        The variable SERVER_JVMFLAGS has further options of its Java, as for zkServer.sh.
        """
        if self.process is not None:
            return
        self._check_port()
        words = [find_java(_OLDEST_JAVA), f"-Xmx{self._heap_mib}m", _OUT_OF_MEMORY]
        words += shlex.split(os.environ.get(_FLAGS, ""))
        words += ["-cp", ":".join(find_jars(self._jars))]
        properties = {"zookeeper.admin.enableServer": "false", **self._properties}
        words += [f"-D{key}={value}" for key, value in properties.items()]
        words += [_MAIN, self._path("zoo.cfg")]
        try:
            os.makedirs(self._path("data"), exist_ok=True)
            self._write("zoo.cfg", self._configuration())
            if self._ensemble:
                self._write("data/myid", f"{self._number}\n")
        except OSError as error:
            raise LocalClusterError(f"{self.directory}: {error.strerror}") from error
        if self._end_with_program:
            words = [sys.executable, "-c", LAUNCHER, str(os.getpid()), *words]
        self._child = start_process(
            words, self._path("zookeeper.log"), ends_with_program=self._end_with_program
        )
        identity = ProcessIdentity.of(self._child.pid)
        if identity is not None:
            self._write("zookeeper.pid", identity.to_text())

    def await_serving(self, timeout_s: float = 30.0) -> None:
        """Wait until the server serves clients; a member of an ensemble needs a quorum for that."""
        deadline = time.monotonic() + timeout_s
        while self.mode() is None:
            if self.process is None:
                raise LocalClusterError(
                    f"the ZooKeeper server of {self.directory} has ended: {self._last_lines()}"
                )
            if time.monotonic() > deadline:
                raise LocalClusterError(
                    f"the ZooKeeper server on {self.address} does not serve after"
                    f" {timeout_s:.0f} s: {self._last_lines()}"
                )
            time.sleep(_POLL_S)

    def mode(self) -> str | None:
        """Return `standalone`, `leader` or `follower` if the server serves, else None."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=2) as connection:
                connection.sendall(b"srvr")
                answer = b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return None
        for line in answer.decode(errors="replace").splitlines():
            key, _, value = line.partition(": ")
            if key == "Mode":
                return value.strip()
        return None

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the server with SIGTERM, or with SIGKILL after `timeout_s`."""
        self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """Send SIGKILL; return when the process is gone."""
        self._end(signal.SIGKILL, 10.0)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        process = self.process
        if process is None or not process.send(number):
            raise LocalClusterError(f"the ZooKeeper server of {self.directory} does not run")

    def _end(self, number: signal.Signals, timeout_s: float) -> None:
        process = self.process
        if process is not None:
            process.send(number)
            process.send(signal.SIGCONT)
            if not process.await_end(timeout_s):
                process.send(signal.SIGKILL)
                process.await_end(timeout_s)
        if self._child is not None:
            self._child.wait()
            self._child = None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path("zookeeper.pid"))

    def _check_port(self) -> None:
        """Raise LocalClusterError if the port is in use, because the server would end silently."""
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, self.port))
            except OSError as error:
                raise LocalClusterError(
                    f"no ZooKeeper server for {self.directory} on {self.address}: {error.strerror}"
                ) from error

    def _configuration(self) -> str:
        keys = {
            "dataDir": self._path("data"),
            "clientPortAddress": LOOPBACK,
            "clientPort": str(self.port),
            "tickTime": str(_TICK_MS),
            "maxSessionTimeout": "60000",
            "maxClientCnxns": "0",
            "autopurge.purgeInterval": "1",
            "admin.enableServer": "false",
        }
        if self._ensemble:
            keys |= {"initLimit": "20", "syncLimit": "10"}
            for member in self._ensemble:
                ports = f"{member.peer_port}:{member.election_port}"
                keys[f"server.{member.number}"] = f"{LOOPBACK}:{ports}"
        keys |= self._settings
        return "".join(f"{key}={value}\n" for key, value in keys.items())

    def _last_lines(self) -> str:
        try:
            with open(self._path("zookeeper.log"), encoding="utf-8", errors="replace") as file:
                return " | ".join(file.read()[-4000:].splitlines()[-10:]) or "it wrote nothing"
        except FileNotFoundError:
            return "it wrote nothing"

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def _write(self, name: str, text: str) -> None:
        replace_file(self._path(name), text)


def find_jars(further: Sequence[str] = ()) -> list[str]:
    """Return the jars that a server needs; raise LocalClusterError without PySpark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise LocalClusterError(
            "a local ZooKeeper runs from PySpark's jars, and there is no PySpark:"
            f" {install_command('spark')}, or name a server that runs"
        )
    folder = Path(spec.submodule_search_locations[0]) / "jars"
    found: list[str] = []
    for name in (*_JARS, *further):
        jars = sorted(folder.glob(f"{name}*.jar"))
        if not jars:
            raise LocalClusterError(f"{folder} has no {name}*.jar: ZooKeeper cannot run from it")
        found += [str(jar) for jar in jars]
    return found
