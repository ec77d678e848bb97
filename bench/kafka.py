"""Apache Kafka beside us: three KRaft nodes, broker and controller each, from the tests' jars.

Java and heap options are those of Kafka's own start scripts: server VM, G1 with a pause aim of
20 ms, 1 GiB of heap each. Its settings are the defaults, but for ports, directories and what both
sides are told alike; nothing is logged. The jars come through Maven (`tests/support/clients`);
where that does not work, `Absent` says why.
"""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

from tests.support.clients.jars import KAFKA, jars_of_kafka
from tests.support.clients.kafka_tools import Tools

from bench.systems import BROKERS, Running, System
from tidelog.core.errors import TidelogError
from tidelog.local.ports import free_ports
from tidelog.local.readiness import await_writable
from tidelog.runtime.blocking import BlockingClient

HEAP = "1 GiB"
_JAVA = (
    *("java", "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    *("-XX:MaxInlineLevel=15", "-Djava.awt.headless=true"),
)
_CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_PATIENCE_S = 120.0
_WARM_UP_ROUNDS = 4


class _Node:
    """One Kafka process, and where it lives."""

    def __init__(self, jars: Path, directory: Path, address: str, keys: dict[str, str]) -> None:
        directory.mkdir(parents=True)
        self.address = address
        self.properties = directory / "server.properties"
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        self._log = directory / "kafka.log"
        self._jars = jars
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*_JAVA, "-cp", f"{self._jars}/*", "kafka.Kafka", str(self.properties)],
                cwd=self.properties.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def check(self) -> None:
        """Raise when it has ended of its own."""
        if not self.runs:
            raise SystemExit(
                f"bench: Kafka at {self.address} ended: {self._log.read_text()[-400:]}"
            )


class _Kafka:
    """Three of them."""

    tells_controller = False

    def __init__(self, version: str, directory: Path, config: dict[str, str], tools: Tools) -> None:
        self.name = f"Kafka {version}"
        self._tools = tools
        ports = free_ports(2 * BROKERS)
        brokers, controllers = ports[:BROKERS], ports[BROKERS:]
        voters = [f"{1 + n}@127.0.0.1:{port}" for n, port in enumerate(controllers)]
        jars = jars_of_kafka(version)
        self._nodes: dict[int, _Node] = {}
        for number, (port, controller) in enumerate(zip(brokers, controllers, strict=True), 1):
            address = f"127.0.0.1:{port}"
            home = directory / f"kafka-{number}"
            keys = {
                "process.roles": "broker,controller",
                "node.id": str(number),
                "controller.quorum.voters": ",".join(voters),
                "listeners": f"PLAINTEXT://{address},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": f"PLAINTEXT://{address}",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": str(home / "data"),
            }
            self._nodes[number] = _Node(jars, home, address, keys | config)
        self.bootstrap = ",".join(node.address for node in self._nodes.values())

    def format(self) -> None:
        """Prepare the directories, as `kafka-storage` does it."""
        for node in self._nodes.values():
            self._tools.run(
                *("kafka-storage", "format", "--cluster-id", _CLUSTER_ID),
                *("--config", str(node.properties)),
            )

    def up(self) -> None:
        for node in self._nodes.values():
            node.start()

        def check() -> None:
            for node in self._nodes.values():
                node.check()

        await_writable(self.bootstrap, BROKERS, _PATIENCE_S, check, client_id="bench")

    def down(self) -> None:
        for node in self._nodes.values():
            if node.process is not None:
                node.process.kill()
                node.process.wait()

    def address(self, broker_id: int) -> str:
        return self._nodes[broker_id].address

    def pids(self) -> list[int]:
        return [
            node.process.pid
            for node in self._nodes.values()
            if node.process is not None and node.runs
        ]

    def pid(self, broker_id: int) -> int:
        process = self._nodes[broker_id].process
        assert process is not None
        return process.pid

    def controller(self) -> int:
        words = ("kafka-metadata-quorum", "--bootstrap-server", self.bootstrap)
        status = self._tools.run(*words, "describe", "--status")
        [leader] = re.findall(r"^LeaderId:\s+(\d+)", status, re.MULTILINE)
        return int(leader)

    def kill(self, broker_id: int) -> None:
        process = self._nodes[broker_id].process
        assert process is not None
        process.kill()
        process.wait()

    def stop(self, broker_id: int) -> None:
        process = self._nodes[broker_id].process
        assert process is not None
        process.terminate()

    def await_end(self, broker_id: int) -> None:
        process = self._nodes[broker_id].process
        assert process is not None
        process.wait(_PATIENCE_S)

    def start(self, broker_id: int) -> None:
        node = self._nodes[broker_id]
        self.await_end(broker_id)
        node.start()
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            node.check()
            try:
                with BlockingClient(node.address, timeout_ms=1_000) as client:
                    if broker_id in client.metadata([]).brokers:
                        return
            except TidelogError as error:
                if time.monotonic() > deadline:
                    raise SystemExit(f"bench: {node.address} does not answer: {error}") from error
            time.sleep(0.02)


def java_version() -> str:
    """What runs it, as it calls itself."""
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    return told.stderr.splitlines()[0]


def kafka(version: str) -> System:
    """Kafka of this version as a system; raises Absent where its jars cannot be had."""
    assert version in KAFKA, f"of Kafka {version} there is no lock file; of {KAFKA} there are"
    tools = Tools(version)

    def lay_out(directory: Path, config: dict[str, str]) -> Running:
        cluster = _Kafka(version, directory, config, tools)
        cluster.format()
        return cluster

    return System(f"Kafka {version}", lay_out, _WARM_UP_ROUNDS)
